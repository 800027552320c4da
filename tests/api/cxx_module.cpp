// SPDX-License-Identifier: MIT
// cxx_module.cpp: a library of C++ that a program of C loads late and privately; it brings the C++
// runtime along. Each function returns 0 if all is well.
#include <new>
#include <string>
#include <vector>

static size_t hidden(size_t n) {
    __asm__ volatile(""
                     : "+r"(n));
    return n;
}

extern "C" int module_works() {
    std::vector<std::string> v;
    for (int i = 0; i < 1000; i++) v.push_back(std::string(100, 'x') + std::to_string(i));
    return v[999].size() == 103 ? 0 : 1;
}

extern "C" int module_catches() {
    try {
        operator delete(operator new(hidden((size_t)1 << 62)));
    } catch (const std::bad_alloc &) {
        return operator new(hidden((size_t)1 << 62), std::nothrow) == nullptr ? 0 : 2;
    }
    return 1;
}

static int handled;
static void handler() {
    if (++handled == 4) std::set_new_handler(nullptr);
}

extern "C" int module_handles() {
    std::set_new_handler(handler);
    try {
        operator delete(operator new(hidden((size_t)1 << 62)));
    } catch (const std::bad_alloc &) {
        return handled == 4 ? 0 : 2;
    }
    return 1;
}
