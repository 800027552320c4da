// SPDX-License-Identifier: MIT
// containers: standard containers on pools. A parser's words live in a memory resource on a stack and end with its
// frame; the index that stays uses an allocator on a heap of its own, with a limit.
#include <cstdio>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include <quarry/heap.h>
#include <quarry/pool.hpp>
#include <quarry/stack.h>

using index_t = std::map<std::pmr::string::size_type, int, std::less<>,
    quarry::allocator<std::pair<const std::pmr::string::size_type, int>>>;

static void count_lengths(quarry_pool_t *scratch, const char *text, index_t &lengths) {
    quarry_stack_frame_t frame;
    quarry_stack_push(scratch, &frame);
    {
        quarry::memory_resource resource(scratch);
        std::pmr::vector<std::pmr::string> words(&resource);
        for (const char *at = text; *at; at += *at == ' ') {
            const char *end = at;
            while (*end && *end != ' ') end++;
            words.emplace_back(at, end);
            at = end;
        }
        for (const auto &word : words) lengths[word.size()]++;
    }                                   // the vector gives its memory back, which does nothing
    quarry_stack_pop(scratch, &frame);  // this does
}

int main() {
    quarry_heap_options_t limited{};
    limited.name = "index";
    limited.limit = 8u << 20;
    quarry_heap_t *heap = quarry_heap_create(&limited);
    quarry::pool index_pool{quarry_heap_pool(heap, nullptr)}, scratch{quarry_stack_create(nullptr)};
    {
        index_t lengths{index_pool.get()};
        for (int i = 0; i < 1000; i++)
            count_lengths(scratch.get(), "pools are for blocks whose lifetime you know", lengths);
        for (const auto &[length, count] : lengths) std::printf("%zu letters: %d\n", length, count);
    }
    quarry_pool_stats_t stats;
    quarry_pool_stats(scratch.get(), &stats);
    std::printf("scratch: %llu chunk for 1000 texts, %zu bytes used now\n", (unsigned long long)stats.chunk_gets,
        stats.used_bytes);
    index_pool.reset();
    quarry_heap_destroy(heap);
    return 0;
}
