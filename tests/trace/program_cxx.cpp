// SPDX-License-Identifier: MIT
// program_cxx.cpp: every form of operator new and delete, so many times; and what happens when there is no memory.
#include <cstdio>
#include <cstdlib>
#include <new>

static volatile std::size_t huge = static_cast<std::size_t>(-1) / 2 - 100;
static int handled;
static void *reserve;

static void *kept(void *p) {
    __asm__ volatile(""
                     : "+r"(p)
                     :
                     : "memory");
    return p;
}

static void every_form(std::size_t n) {
    const std::align_val_t align{64};
    operator delete(kept(operator new(n)));
    operator delete(kept(operator new(n)), n);
    operator delete(kept(operator new(n, std::nothrow)), std::nothrow);
    operator delete[](kept(operator new[](n)));
    operator delete[](kept(operator new[](n)), n);
    operator delete[](kept(operator new[](n, std::nothrow)), std::nothrow);
    operator delete(kept(operator new(n, align)), align);
    operator delete(kept(operator new(n, align)), n, align);
    operator delete(kept(operator new(n, align, std::nothrow)), align, std::nothrow);
    operator delete[](kept(operator new[](n, align)), align);
    operator delete[](kept(operator new[](n, align)), n, align);
    operator delete[](kept(operator new[](n, align, std::nothrow)), align, std::nothrow);
    operator delete(kept(nullptr));
    // What malloc gives and delete takes, as programs should not.
    std::free(kept(std::malloc(n)));
}

static void give_up_reserve() {
    handled++;
    std::free(reserve);
    reserve = nullptr;
    std::set_new_handler(nullptr);
}

static bool failures() {
    bool thrown = false;
    try {
        kept(operator new(huge));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown || kept(operator new(huge, std::nothrow))) return false;
    reserve = std::malloc(1234);
    std::set_new_handler(give_up_reserve);
    thrown = false;
    try {
        kept(operator new[](huge));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    return thrown && handled == 1;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
    for (int i = 0; i < rounds; i++) every_form(1 + static_cast<std::size_t>(i) % 3000);
    if (argc > 2 && !failures()) return 1;
    std::puts("done");
    return 0;
}
