// SPDX-License-Identifier: MIT
// harness.h: the whole test framework for C and C++ tests. A test program is a list of TEST()s and
// TEST_MAIN(). Each runs in order in one process; the first failed CHECK prints file, line, the
// expression and both values, and the program exits with 1. Allocates nothing of its own, so it is
// safe inside tests of malloc.
//
//   TEST(adds) { CHECK_EQ(1 + 1, 2); }
//   TEST_MAIN()
//
// Arguments: names of tests to run (all by default); --seed=N (also QUARRY_SEED), printed at start;
// --list prints the names alone.
#ifndef QUARRY_TESTS_HARNESS_H
#define QUARRY_TESTS_HARNESS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case_t;

static test_case_t *test_first, **test_last = &test_first;
static uint64_t test_seed;

#define TEST(test_name)                                                        \
    static void test_run_##test_name(void);                                    \
    __attribute__((constructor)) static void test_register_##test_name(void) { \
        static test_case_t t = {#test_name, test_run_##test_name, 0};          \
        *test_last = &t;                                                       \
        test_last = &t.next;                                                   \
    }                                                                          \
    static void test_run_##test_name(void)

#define TEST_FAIL(...)                                                    \
    do {                                                                  \
        char test_msg_[512];                                              \
        int test_n_ = snprintf(test_msg_, sizeof test_msg_, __VA_ARGS__); \
        test_die(__FILE__, __LINE__, test_msg_, test_n_);                 \
    } while (0)

// A skip is a pass that says why nothing was tested; the word SKIP is looked for by the runner.
#define TEST_SKIP(...)                \
    do {                              \
        printf("SKIP: " __VA_ARGS__); \
        printf("\n");                 \
        return;                       \
    } while (0)

// Seconds after which what a test waits for is taken to hang. This only ends a hang: no test comes near it on a machine
// that is slow and busy. ctest's own limit is above it (cmake/QuarryTest.cmake).
enum { TEST_PATIENCE = 300 };

// Waits until another thread or process, or the kernel, has made it true.
#define TEST_AWAIT(condition)                                                             \
    do {                                                                                  \
        int test_ms_ = 0;                                                                 \
        for (; !(condition) && test_ms_ < TEST_PATIENCE * 1000; test_ms_++) usleep(1000); \
        if (test_ms_ == TEST_PATIENCE * 1000) TEST_FAIL("never: %s", #condition);         \
    } while (0)

#define CHECK(expr)                                 \
    do {                                            \
        if (!(expr)) TEST_FAIL("CHECK(%s)", #expr); \
    } while (0)
#define CHECK_OP_(a, op, b)                                                                  \
    do {                                                                                     \
        long long test_a_ = (long long)(a), test_b_ = (long long)(b);                        \
        if (!(test_a_ op test_b_))                                                           \
            TEST_FAIL("%s %s %s: %lld (0x%llx) against %lld (0x%llx)", #a, #op, #b, test_a_, \
                (unsigned long long)test_a_, test_b_, (unsigned long long)test_b_);          \
    } while (0)
#define CHECK_EQ(a, b) CHECK_OP_(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP_(a, !=, b)
#define CHECK_LT(a, b) CHECK_OP_(a, <, b)
#define CHECK_LE(a, b) CHECK_OP_(a, <=, b)
#define CHECK_GT(a, b) CHECK_OP_(a, >, b)
#define CHECK_GE(a, b) CHECK_OP_(a, >=, b)
#define CHECK_PTR_EQ(a, b)                                                                      \
    do {                                                                                        \
        const void *test_a_ = (a), *test_b_ = (b);                                              \
        if (test_a_ != test_b_) TEST_FAIL("%s == %s: %p against %p", #a, #b, test_a_, test_b_); \
    } while (0)
#define CHECK_STR_EQ(a, b)                                                                                    \
    do {                                                                                                      \
        const char *test_a_ = (a), *test_b_ = (b);                                                            \
        if (strcmp(test_a_, test_b_)) TEST_FAIL("%s == %s: \"%s\" against \"%s\"", #a, #b, test_a_, test_b_); \
    } while (0)

__attribute__((noreturn, unused)) static void test_die(const char *file, int line, const char *msg, int n) {
    char out[700];
    int m = snprintf(out, sizeof out, "FAILED %s:%d: %.*s (seed %llu)\n", file, line, n < 512 ? n : 511, msg,
        (unsigned long long)test_seed);
    if (write(2, out, (size_t)m) < 0) {}
    _exit(1);
}

// xorshift64*: a generator a test can reproduce from the printed seed.
__attribute__((unused)) static uint64_t test_random(uint64_t *state) {
    uint64_t x = *state ? *state : 0x9E3779B97F4A7C15u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Du;
}

static int test_main(int argc, char **argv) {
    const char *env = getenv("QUARRY_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    test_seed = env ? strtoull(env, 0, 0) : ((uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec) % 1000000007u + 1;
    int named = 0;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--seed=", 7)) test_seed = strtoull(argv[i] + 7, 0, 0);
        else if (argv[i][0] != '-') named = 1;
    }
    static char buffer[4096];  // so that stdio asks malloc for nothing
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (test_case_t *t = test_first; t; t = t->next) puts(t->name);
        return 0;
    }
    printf("seed %llu\n", (unsigned long long)test_seed);
    int ran = 0;
    for (test_case_t *t = test_first; t; t = t->next) {
        int wanted = !named;
        for (int i = 1; i < argc; i++) wanted |= !strcmp(argv[i], t->name);
        if (!wanted) continue;
        printf("run %s\n", t->name);
        t->run();
        ran++;
    }
    if (!ran) {
        printf("no test ran\n");
        return 1;
    }
    printf("ok %d\n", ran);
    return 0;
}

#define TEST_MAIN() \
    int main(int argc, char **argv) { return test_main(argc, argv); }

#endif
