// SPDX-License-Identifier: MIT
// misuse.h: cases of misuse of a kind that knows its blocks, each of which must end the process with one line that
// names the fault. The including file has the pool `pool`, its blocks `p`, and `setup`, which makes them.
#ifndef QUARRY_TESTS_MISUSE_H
#define QUARRY_TESTS_MISUSE_H

#include <quarry/pool.h>
#include <stdbool.h>

#include "captured.h"

#define DOUBLE "double free"
#define INVALID "invalid free"
#define INTERIOR "free of an interior pointer"
#define DAMAGED "damaged pool"

typedef struct misuse {
    const char *name, *fault;
    void (*run)(void);
} misuse_t;

static quarry_pool_t *pool;
static char *p[6];
static void setup(void);
static void drop(void *block) { quarry_pool_free(pool, block, QUARRY_SIZE_UNKNOWN); }

// ---- what can be done to any such kind ------------------------------------------------------------------------------

static void twice(void) { drop(p[1]), drop(p[1]); }
static void resize_freed(void) {
    drop(p[3]);
    quarry_pool_resize(pool, p[3], 100, 200, 16, 0);
}
static void usable_of_freed(void) {
    drop(p[3]);
    quarry_pool_usable(pool, p[3]);
}
static void interior_odd(void) { drop(p[2] + 3); }
static void of_the_stack(void) {
    char local[64];
    memset(local, 0, sizeof local);
    drop(local);
}
static void of_malloc(void) { drop(malloc(100)); }
static void static_memory(void) {
    static char other[64];
    drop(other + 16);
}
static void destroyed_twice(void) {
    quarry_pool_destroy(pool);
    quarry_pool_destroy(pool);
}
static void alloc_of_destroyed(void) {
    quarry_pool_destroy(pool);
    quarry_pool_alloc(pool, 100, 16, 0);
}
#define MISUSE_OF_ANY                                                    \
    {"twice", DOUBLE, twice},                                            \
        {"resize_freed", DOUBLE, resize_freed},                          \
        {"usable_of_freed", DOUBLE, usable_of_freed},                    \
        {"interior_odd", INTERIOR, interior_odd},                        \
        {"of_the_stack", INVALID, of_the_stack},                         \
        {"of_malloc", INVALID, of_malloc},                               \
        {"static_memory", INVALID, static_memory},                       \
        {"destroyed_twice", "use of a destroyed pool", destroyed_twice}, \
    { "alloc_of_destroyed", "use of a destroyed pool", alloc_of_destroyed }

// ---- the cases
// ---------------------------------------------------------------------------------------------------------

static void misuse_run(void *arg) {
    setup();
    ((const misuse_t *)arg)->run();
}

static void all_end_with_one_line(const misuse_t *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        captured_t c = capture(misuse_run, (void *)&cases[i]);
        char expected[100];
        int n = snprintf(expected, sizeof expected, "quarry: %s: 0x", cases[i].fault);
        bool one_line = c.length && strchr(c.text, '\n') == c.text + c.length - 1;
        if (c.exit_signal != SIGABRT || strncmp(c.text, expected, (size_t)n) != 0 || !one_line)
            TEST_FAIL("%s: status %d, signal %d, said %s", cases[i].name, c.exit_code, c.exit_signal, c.text);
    }
}

#endif
