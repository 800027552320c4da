// SPDX-License-Identifier: MIT
// scope_cxx.cpp: quarry::scope with the standard library: containers whose memory ends with the scope, also when an
// exception leaves it.
#include <quarry/scope.h>
#include <quarry/scope.hpp>

#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

static std::size_t count_words(const std::string &text, std::size_t most) {
    quarry::scope scope;
    quarry::memory_resource resource{scope.pool()};
    std::pmr::map<std::pmr::string, int> words{&resource};
    std::istringstream in{text};
    for (std::string word; in >> word;) words[std::pmr::string{word, &resource}]++;
    if (words.size() > most) throw std::length_error("too many words");
    for (const auto &[word, times] : words) std::printf("  %s: %d\n", word.c_str(), times);
    return words.size();
}

int main() {
    std::printf("%zu different words\n", count_words("a rose is a rose is a rose", 10));
    try {
        count_words("one two three four five", 3);
    } catch (const std::length_error &e) {
        std::printf("%s\n", e.what());
    }
    quarry_pool_stats_t stats;
    quarry_pool_stats(t_pool(), &stats);
    std::printf("bytes still in use: %zu\n", stats.used_bytes);
}
