// SPDX-License-Identifier: MIT
// tree: maps with strings for keys and values, ordered and hashed, that grow and lose entries: the
// nodes, strings and tables of everyday C++.
#include <map>
#include <string>
#include <unordered_map>

#include "bench.h"

static std::string key_of(uint64_t r) {
    std::string key = "key/" + std::to_string(r % 30000);
    key.append(r % 30000 % 40, 'k');  // every second one is too long to live inside the string object
    return key;
}

template <typename map_t>
static void work(bench_thread_t *t, uint64_t ops, map_t &map) {
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t r = bench_random(&t->random);
        const std::string key = key_of(r);
        const auto found = map.find(key);
        if (found == map.end()) {
            map.emplace(key, std::string((r >> 32) % 60, 'v'));
        } else if ((r >> 40) % 4) {
            found->second.append((r >> 32) % 20, 'w');
            t->check += found->second.size();
        } else {
            map.erase(found);
        }
    }
    t->check += map.size();
}

static void *body(void *arg) {
    bench_thread_t *t = static_cast<bench_thread_t *>(arg);
    const uint64_t lives = 4;  // of the maps: each is filled, used and dropped
    for (uint64_t life = 0; life < lives; life++) {
        std::map<std::string, std::string> ordered;
        std::unordered_map<std::string, std::string> hashed;
        work(t, t->ops / lives / 2, ordered);
        work(t, t->ops / lives / 2, hashed);
    }
    return nullptr;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "tree", 1, 1200000);
    return bench_end(&b, bench_threads(&b, body, nullptr, b.ops, 0));
}
