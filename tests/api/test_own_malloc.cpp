// SPDX-License-Identifier: MIT
// Quarry is preloaded, and malloc is somebody else's: the program's, or that of a library which comes first. What C and
// C++ libraries make of malloc, realloc and free is made of those, so that one block never meets two allocators.
// QY_OWNER says whose malloc it must be.
#include <dlfcn.h>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>

#include "harness.h"

#ifndef OWN_FUNCTIONS
#define OWN_FUNCTIONS 0  // nothing is linked: what may be used is what every owner has
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
#pragma GCC diagnostic ignored "-Wunused-function"

typedef std::align_val_t align_t;
void operator delete(void *p, size_t n) noexcept;
void operator delete[](void *p, size_t n) noexcept;

template <typename T>
static T symbol(const char *name) { return (T)(uintptr_t)dlsym(RTLD_DEFAULT, name); }
static int (*own_is)(const void *p);
static size_t *blocks, *frees;

static void *hide(void *p) {
    __asm__ volatile(""
                     : "+r"(p)::"memory");
    return p;
}

// "own": its blocks; "counted": ours, counted by it; "quarry": it is not called.
static bool owner_is(const char *owner) { return !strcmp(getenv("QY_OWNER"), owner); }

TEST(it_is_who_it_should_be) {
    own_is = symbol<int (*)(const void *)>("own_is");
    blocks = symbol<size_t *>("own_blocks"), frees = symbol<size_t *>("own_frees");
    CHECK(own_is && blocks && frees && symbol<void *>("quarry_version"));
    size_t before = *blocks;
    void *p = hide(malloc(100));
    CHECK_EQ(own_is(p) != 0, owner_is("own"));
    CHECK_EQ(*blocks - before, owner_is("quarry") ? 0 : 1);
    free(p);
}

struct way_t {
    const char *name;
    void *(*make)(size_t n);
};
static const way_t ways[] = {
    {"malloc", [](size_t n) { return malloc(n); }},
    {"new", [](size_t n) { return operator new(n); }},
    {"new[]", [](size_t n) { return operator new[](n); }},
    {"new nothrow", [](size_t n) { return operator new(n, std::nothrow); }},
    {"new[] nothrow", [](size_t n) { return operator new[](n, std::nothrow); }},
    {"strdup", [](size_t n) { return (void *)strdup(std::string(n, 'x').c_str()); }},
#if OWN_FUNCTIONS == 0 || OWN_FUNCTIONS >= 4
    {"realloc of new", [](size_t n) { return realloc(operator new(n / 2 + 1), n + !n); }},
    {"reallocarray", [](size_t n) { return reallocarray(NULL, 1, n); }},
    {"reallocarray of malloc", [](size_t n) { return reallocarray(malloc(n / 2 + 1), n + !n, 1); }},
    {"reallocarray of new", [](size_t n) { return reallocarray(operator new(n / 2 + 1), n + !n, 1); }},
    {"calloc", [](size_t n) { return calloc(n, 1); }},
#endif
#if OWN_FUNCTIONS == 0 || OWN_FUNCTIONS >= 9
    {"aligned new", [](size_t n) { return operator new(n, align_t(64)); }},
    {"aligned new[]", [](size_t n) { return operator new[](n, align_t(256)); }},
    {"aligned new nothrow", [](size_t n) { return operator new(n, align_t(32), std::nothrow); }},
    {"memalign", [](size_t n) { return memalign(128, n); }},
    {"valloc", [](size_t n) { return valloc(n); }},
#endif
};
static void (*const ends[])(void *p, size_t n) = {
    [](void *p, size_t) { free(p); },
    [](void *p, size_t) { operator delete(p); },
    [](void *p, size_t) { operator delete[](p); },
    [](void *p, size_t n) { operator delete(p, n); },
    [](void *p, size_t n) { operator delete[](p, n); },
    [](void *p, size_t) { operator delete(p, std::nothrow); },
    [](void *p, size_t) { operator delete[](p, std::nothrow); },
    [](void *p, size_t) { operator delete(p, align_t(16)); },
    [](void *p, size_t) { operator delete[](p, align_t(16)); },
};
static const size_t sizes[] = {0, 1, 16, 40, 100, 1024, 4000, 40000, 100000, 3000000};

// A block of each way ends in each other, many times, so that it is seen off and on the fast paths.
static void all_ways(size_t rounds) {
    for (size_t round = 0; round < rounds; round++) {
        for (const way_t &w : ways) {
            for (auto end : ends) {
                for (size_t n : sizes) {
                    if (n > 4000 && round) continue;
                    void *p = hide(w.make(n));
                    if (!p || (own_is(p) != 0) != owner_is("own"))
                        TEST_FAIL("%s of %zu bytes: %p is another's", w.name, n, p);
                    if (n) ((char *)p)[0] = ((char *)p)[n - 1] = 0x5A;
                    end(p, n);
                }
            }
        }
    }
}
TEST(whatever_makes_a_block_whatever_ends_it) { all_ways(8); }

TEST(each_is_counted) {
    if (owner_is("quarry")) TEST_SKIP("needs a malloc that calls the own functions of a program");
    for (int i = 0; i < 1000; i++) {
        size_t made = *blocks, gone = *frees;
        void *p = hide(operator new(40));
        CHECK_EQ(*blocks, made + 1);
        operator delete(p, (size_t)40);
        CHECK_EQ(*frees, gone + 1);
        p = hide(operator new[](40, std::nothrow));
        CHECK_EQ(*blocks, made + 2);
        operator delete[](p);
        CHECK_EQ(*frees, gone + 2);
    }
}

TEST(in_threads) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back([] { all_ways(1); });
    for (std::thread &t : threads) t.join();
}

TEST(what_libc_allocates) {
    if (OWN_FUNCTIONS == 2) TEST_SKIP("needs a program that has realloc, too: the C library resizes some of it");
    for (int i = 0; i < 100; i++) {
        char *text = NULL, *line = NULL;
        size_t n = 0;
        CHECK_GT(asprintf(&text, "%d %s", i, "a text that is allocated"), 0);
        operator delete(hide(text));
        FILE *f = fopen("/proc/self/maps", "r");
        CHECK(f && getline(&line, &n, f) > 0);
        fclose(f);
        operator delete(hide(line));
        free(realpath("/", NULL));
        operator delete(hide(getcwd(NULL, 0)));
    }
}

TEST(usable_size_of_any_block) {
    if (OWN_FUNCTIONS && OWN_FUNCTIONS < 9 && owner_is("own")) {
        // Nobody knows. The C library takes the word before the block for a size, and so its answer is ours; it is not
        // a fault.
        for (int i = 0; i < 100; i++) (void)malloc_usable_size(hide(malloc(100)));
        return;
    }
    for (const way_t &w : ways) {
        void *p = hide(w.make(100));
        CHECK_GE(malloc_usable_size(p), 100);
        free(p);
    }
}

// Its malloc refuses, so new throws.
TEST(refusal) {
    bool thrown = false;
    volatile size_t much = (size_t)1 << 60;
    try {
        hide(operator new(much));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(!hide(operator new(much, std::nothrow)));
    errno = 0;
    CHECK(!hide(reallocarray(NULL, much, much)));
    CHECK_EQ(errno, ENOMEM);
}

TEST_MAIN()
