// SPDX-License-Identifier: MIT
// test_scope_cxx.cpp: t_scope, the t_ macros and quarry::scope in C++, with exceptions.
#include <quarry/scope.h>
#include <quarry/scope.hpp>

#include <pthread.h>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "harness.h"

namespace {

size_t used() {
    quarry_pool_stats_t s;
    quarry_pool_stats(t_pool(), &s);
    return s.used_bytes;
}

struct text {
    int n;
    char bytes[1];
};

static_assert(!std::is_copy_constructible_v<quarry::scope> && !std::is_copy_assignable_v<quarry::scope> &&
              !std::is_move_constructible_v<quarry::scope>);

}  // namespace

TEST(macros) {
    t_scope;
    long *a = t_new(long, 10);
    CHECK(a && !a[9]);
    CHECK(t_new_raw(char, 33));
    CHECK(t_new_extra(text, 10) && t_new_extra_raw(text, 10) && t_new_extra_field(text, bytes, 9) &&
          t_new_extra_field_raw(text, bytes, 9));
    a[9] = 9;
    CHECK(t_renew(&a, 10, 1000) == a && a[9] == 9 && !a[999]);
    CHECK(t_renew_raw(&a, 1000, 5) == a);
    CHECK(t_dup(a, 5) && !strcmp(t_dupz("hello", 2), "he") && !strcmp(t_strdup("x"), "x") &&
          !strcmp(t_printf("%d", 42), "42"));
    t_seal();
    {
        quarry::scope inner;
        CHECK(t_new(char, 1));
    }
    t_unseal();
    CHECK(t_pool());
}

static int throws(int depth) {
    t_scope;
    quarry::scope another;
    t_new(char, depth % 3 ? 100 : 90000);
    if (depth == 0) throw std::runtime_error("out");
    return throws(depth - 1) + 1;
}

TEST(exceptions_end_scopes) {
    quarry::scope scope;
    char *p = t_strdup("kept");
    size_t before = used();
    for (int i = 0; i < 200; i++) {
        bool caught = false;
        try {
            throws(i % 30);
        } catch (const std::runtime_error &) {
            caught = true;
        }
        CHECK(caught);
        CHECK_EQ(used(), before);
        CHECK(t_renew(&p, 5, 5) == p);  // the innermost frame is this one again
    }
    CHECK_STR_EQ(p, "kept");
}

TEST(containers) {
    size_t before = used();
    {
        quarry::scope scope;
        quarry::memory_resource resource{scope.pool()};
        std::pmr::vector<std::pmr::string> lines{&resource};
        for (int i = 0; i < 1000; i++)
            lines.emplace_back("a line that is long enough to be allocated " + std::to_string(i));
        CHECK(lines[999].back() == '9');
        CHECK_GT(used(), before + 40000);
    }
    CHECK_EQ(used(), before);
}

TEST(of_another_stack) {
    quarry::pool stack{quarry_stack_create(nullptr)};
    quarry::scope scope{stack.get()};
    std::vector<int, quarry::allocator<int>> v{scope.pool()};
    for (int i = 0; i < 100000; i++) v.push_back(i);
    CHECK_EQ(v[99999], 99999);
}

// The unwinder of pthread_exit runs cleanups and destructors.
static size_t left;
struct looks {
    ~looks() { left = used(); }
};
static void *leaves(void *) {
    looks l;
    quarry::scope scope;
    t_new(char, 5000);
    pthread_exit(nullptr);
}
TEST(pthread_exit_ends_scopes) {
    pthread_t t;
    left = 1;
    CHECK_EQ(pthread_create(&t, nullptr, leaves, nullptr), 0);
    pthread_join(t, nullptr);
    CHECK_EQ(left, 0);
}

TEST_MAIN()
