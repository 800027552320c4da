// SPDX-License-Identifier: MIT
// operators.cpp: a C++ program under the drop-in. Nothing in the code names Quarry, except the
// last lines, which ask the heap where the blocks came from: new, containers, aligned and nothrow
// new all use it.
//
//   c++ operators.cpp $(pkg-config --cflags --libs quarry-malloc)
//   (or without linking: LD_PRELOAD=libquarry-malloc.so ./a.out)
#include <quarry/malloc.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct alignas(256) wide {
    unsigned char bytes[256];
};

int main() {
    std::map<std::string, std::vector<int>> table;
    for (int i = 0; i < 1000; i++) {
        table["a key long enough to be on the heap " + std::to_string(i % 100)].push_back(i);
    }
    std::printf("%zu keys, %zu values each\n", table.size(), table.begin()->second.size());

    auto aligned = std::make_unique<wide[]>(3);
    std::printf("aligned new: %s\n",
        reinterpret_cast<std::uintptr_t>(aligned.get()) % alignof(wide) == 0 ? "aligned" : "not aligned");

    // More than the address space has: nothrow new says so with a null pointer, new by throwing.
    volatile std::size_t huge = PTRDIFF_MAX;
    std::printf("nothrow new: %s\n", ::operator new(huge, std::nothrow) ? "a block" : "null");
    try {
        ::operator delete(::operator new(huge));
    } catch (const std::bad_alloc &) {
        std::puts("new: bad_alloc");
    }

    std::unique_ptr<char[]> block(new char[100]);
    std::printf("the block is Quarry's: %s\n", quarry_usable_size(block.get()) >= 100 ? "yes" : "no");
    return 0;
}
