// SPDX-License-Identifier: MIT
// A program that replaces two operators only, with memory of its own: all other forms are made of these, as the
// standard says.
#include <algorithm>
#include <new>
#include <vector>

#include "harness.h"

typedef std::align_val_t align_t;

// Some compilers declare the sized forms only when asked to; those that do say that they should be replaced as well.
void operator delete(void *p, size_t n) noexcept;
void operator delete[](void *p, size_t n) noexcept;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

static char own[1 << 22];
static size_t used, made, gone;
static bool full;

static bool is_own(const void *p) { return p >= own && p < own + sizeof own; }

// Its block has a header, so that whoever else frees it is found out.
void *operator new(size_t n) {
    if (full || used + n + 32 > sizeof own) throw std::bad_alloc();
    char *p = own + used + 16;
    used += (n + 16 + 15) / 16 * 16;
    made++;
    return p;
}
void operator delete(void *p) noexcept {
    if (!p) return;
    CHECK(is_own(p));
    gone++;
}

TEST(new_of_all_forms) {
    size_t before = made;
    void *p[] =
        {operator new(10), operator new[](10), operator new(10, std::nothrow), operator new[](10, std::nothrow)};
    CHECK_EQ(made, before + 4);
    for (void *q : p) CHECK(is_own(q));
    before = gone;
    operator delete(p[0]);
    operator delete[](p[1]);
    operator delete(p[2], std::nothrow);
    operator delete[](p[3], std::nothrow);
    CHECK_EQ(gone, before + 4);
}

TEST(delete_with_a_size) {
    size_t before = gone;
    operator delete(operator new(10), (size_t)10);
    operator delete[](operator new[](10), (size_t)10);
    CHECK_EQ(gone, before + 2);
}

TEST(no_exception_leaves_a_nothrow_form) {
    full = true;
    CHECK(!operator new(10, std::nothrow));
    CHECK(!operator new[](10, std::nothrow));
    bool thrown = false;
    try {
        operator delete[](operator new[](10));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    full = false;
    CHECK(thrown);
}

// libstdc++ asks for the buffer by operator new(nothrow).
TEST(what_the_library_asks_for) {
    size_t before = made;
    {
        std::vector<int> v(1000);
        for (int i = 0; i < 1000; i++) v[i] = i * 7919 % 1000;
        std::stable_sort(v.begin(), v.end());
        CHECK(std::is_sorted(v.begin(), v.end()));
    }
    CHECK_GE(made, before + 2);
    CHECK_EQ(made, gone);
}

// Aligned ones are not made of these: they are the library's.
TEST(aligned_forms_are_not_its_own) {
    size_t before = made;
    void *p[] =
        {operator new(10, align_t(64)), operator new[](10, align_t(64)), operator new(10, align_t(64), std::nothrow),
                                                                         operator new[](10, align_t(64), std::nothrow)};
    for (void *q : p) {
        CHECK(!is_own(q));
        CHECK_EQ((uintptr_t)q % 64, 0);
    }
    operator delete(p[0], align_t(64));
    operator delete[](p[1], align_t(64));
    operator delete(p[2], align_t(64), std::nothrow);
    operator delete[](p[3], align_t(64), std::nothrow);
    CHECK_EQ(made, before);
}

TEST_MAIN()
