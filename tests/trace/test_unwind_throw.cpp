// SPDX-License-Identifier: MIT
// C++ exceptions: the stack in the constructor of what is thrown, in destructors while it flies, and in its handlers.
#include <cstdint>
#include <stdexcept>
#include <string>

extern "C" {
void throw_look(void);
void throw_test(uint64_t seed);
}

namespace {

uint64_t state;

uint64_t draw() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

struct guard {
    ~guard() { throw_look(); }
};

struct thrown : std::runtime_error {
    int depth;
    explicit thrown(int d) : std::runtime_error("thrown at " + std::to_string(d)), depth(d) { throw_look(); }
    thrown(const thrown &) = default;
};

__attribute__((noinline)) int fly(int depth) {
    guard g;
    if (depth == 0) throw thrown(depth);
    if (draw() % 4 == 0) {
        try {
            return fly(depth - 1) + 1;
        } catch (const thrown &t) {
            throw_look();
            if (draw() % 2) throw;
            return t.depth;
        }
    }
    return fly(depth - 1) + 1;
}

}  // namespace

void throw_test(uint64_t seed) {
    state = seed;
    for (int i = 0; i < 100; i++) {
        try {
            fly((int)(draw() % 30));
        } catch (const std::exception &) {
            throw_look();
        }
    }
}
