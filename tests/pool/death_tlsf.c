// SPDX-License-Identifier: MIT
// death_tlsf.c: what a tlsf pool says of misuse, and that it then ends the process.
#include <quarry/tlsf.h>
#include <stdalign.h>

#include "captured.h"
#include "pool/tlsf.h"

static alignas(16) char buffer[65536];
static quarry_pool_t *pool;
static char *p[6];

static void setup(void) {
    pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.name = "victim", .buffer = buffer, .buffer_bytes = sizeof buffer, .flags = QUARRY_TLSF_FIXED});
    for (int i = 0; i < 6; i++) p[i] = quarry_pool_alloc(pool, 100, 16, 0);
}
static void drop(void *block) { quarry_pool_free(pool, block, QUARRY_SIZE_UNKNOWN); }

// ---- wrong pointers -----------------------------------------------------------------------------------------------

static void twice(void) { drop(p[1]), drop(p[1]); }
static void twice_after_joining_left(void) { drop(p[1]), drop(p[2]), drop(p[2]); }
static void twice_after_joining_right(void) { drop(p[2]), drop(p[1]), drop(p[2]); }
static void twice_last(void) { drop(p[5]), drop(p[5]); }
static void resize_freed(void) {
    drop(p[3]);
    quarry_pool_resize(pool, p[3], 100, 200, 16, 0);
}
static void usable_of_freed(void) {
    drop(p[3]);
    quarry_pool_usable(pool, p[3]);
}
static void interior(void) { drop(p[2] + 16); }
static void interior_odd(void) { drop(p[2] + 3); }
static void into_free_memory(void) { drop(p[5] + 3200); }
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
static void region_record(void) { drop(buffer); }
static void end_of_region(void) { drop(buffer + sizeof buffer); }
static void of_another_pool(void) {
    static alignas(16) char elsewhere[4096];
    quarry_pool_t *other = quarry_tlsf_create(&(quarry_tlsf_options_t){.buffer = elsewhere, .buffer_bytes = sizeof elsewhere});
    drop(quarry_pool_alloc(other, 100, 16, 0));
}

// ---- stray writes -----------------------------------------------------------------------------------------------------

static void beyond_the_end(void) {
    memset(p[2], 'x', 120);  // usable are 104
    drop(p[2]);
}
static void head_of_next(void) {
    memset(p[2], 'x', 120);
    drop(p[3]);
}
static void one_byte_beyond(void) {
    p[2][104] ^= 0x40;  // changes the size in the next head
    drop(p[3]);
}
static void link_after_free(void) {
    drop(p[1]), drop(p[3]);  // two in one list
    memset(p[3], 'x', 16);
    quarry_pool_alloc(pool, 100, 16, 0);
}
static void link_to_elsewhere(void) {
    static alignas(16) tlsf_block_t fake;
    drop(p[1]), drop(p[3]);
    tlsf_block_t *f = &fake;
    memcpy(p[3], &f, sizeof f);
    quarry_pool_alloc(pool, 100, 16, 0);
}
static void unlink_into_the_pool(void) {
    drop(p[1]), drop(p[3]);
    char *target = p[5];  // within the bounds, but not linked back
    memcpy(p[3], &target, sizeof target);
    drop(p[4]);  // joins p[3], so takes it out of its list
}
static void end_of_free_block(void) {
    drop(p[1]);
    memset(p[1] + 96, 'x', 8);  // the way back from p[2]
    drop(p[2]);
}
static void head_of_free_block(void) {
    drop(p[1]);
    memset(p[0], 'x', 120);
    quarry_pool_alloc(pool, 100, 16, 0);
}
static int go_on(void *block, size_t bytes, int used, void *arg) {
    (void)block, (void)bytes, (void)used, (void)arg;
    return 0;
}
static void walked_when_damaged(void) {
    memset(p[0], 'x', 120);
    quarry_tlsf_walk(pool, go_on, NULL);
}

// ---- the pool itself ----------------------------------------------------------------------------------------------------

static void destroyed_twice(void) {
    quarry_pool_destroy(pool);
    quarry_pool_destroy(pool);
}
static void region_of_destroyed(void) {
    quarry_pool_destroy(pool);
    quarry_tlsf_add_region(pool, buffer, sizeof buffer);
}
static void alloc_of_destroyed(void) {
    quarry_pool_destroy(pool);
    quarry_pool_alloc(pool, 100, 16, 0);
}
static void free_of_destroyed(void) {
    quarry_pool_destroy(pool);
    drop(p[1]);
}
static void parent_destroyed(void) {
    quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.parent = pool});
    quarry_pool_destroy(pool);
}
static void out_of_memory(void) {
    quarry_pool_t *strict = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = {.name = "strict", .limit = 100000, .flags = QUARRY_POOL_ABORT}});
    quarry_pool_alloc(strict, 200000, 16, 0);
}

// --------------------------------------------------------------------------------------------------------------------------

#define DOUBLE "double free"
#define INVALID "invalid free"
#define INTERIOR "free of an interior pointer"
#define DAMAGED "damaged pool"
static const struct {
    const char *name, *fault;
    void (*run)(void);
} cases[] = {
    {"twice", DOUBLE, twice},
    {"twice_after_joining_left", DOUBLE, twice_after_joining_left},
    {"twice_after_joining_right", DOUBLE, twice_after_joining_right},
    {"twice_last", DOUBLE, twice_last},
    {"resize_freed", DOUBLE, resize_freed},
    {"usable_of_freed", DOUBLE, usable_of_freed},
    {"interior", INTERIOR, interior},
    {"interior_odd", INTERIOR, interior_odd},
    {"into_free_memory", DOUBLE, into_free_memory},
    {"of_the_stack", INVALID, of_the_stack},
    {"of_malloc", INVALID, of_malloc},
    {"static_memory", INVALID, static_memory},
    {"region_record", INVALID, region_record},
    {"end_of_region", INVALID, end_of_region},
    {"of_another_pool", INVALID, of_another_pool},
    {"beyond_the_end", DAMAGED, beyond_the_end},
    {"head_of_next", DAMAGED, head_of_next},
    {"one_byte_beyond", DAMAGED, one_byte_beyond},
    {"link_after_free", DAMAGED, link_after_free},
    {"link_to_elsewhere", DAMAGED, link_to_elsewhere},
    {"unlink_into_the_pool", DAMAGED, unlink_into_the_pool},
    {"end_of_free_block", DAMAGED, end_of_free_block},
    {"head_of_free_block", DAMAGED, head_of_free_block},
    {"walked_when_damaged", DAMAGED, walked_when_damaged},
    {"destroyed_twice", "use of a destroyed pool", destroyed_twice},
    {"region_of_destroyed", "use of a destroyed pool", region_of_destroyed},
    {"alloc_of_destroyed", "use of a destroyed pool", alloc_of_destroyed},
    {"free_of_destroyed", "use of a destroyed pool", free_of_destroyed},
    {"parent_destroyed", "destroyed pool is a parent", parent_destroyed},
    {"out_of_memory", "out of memory", out_of_memory},
};

static void run(void *arg) {
    setup();
    ((void (*)(void))arg)();
}

TEST(each_misuse_ends_with_one_line) {
    setup();
    if (pool->mode) TEST_SKIP("a checked pool is watched by the observer, which has tests of its own");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        captured_t c = capture(run, (void *)cases[i].run);
        char expected[100];
        int n = snprintf(expected, sizeof expected, "quarry: %s: 0x", cases[i].fault);
        bool one_line = c.length && strchr(c.text, '\n') == c.text + c.length - 1;
        if (c.exit_signal != SIGABRT || strncmp(c.text, expected, (size_t)n) != 0 || !one_line)
            TEST_FAIL("%s: status %d, signal %d, said %s", cases[i].name, c.exit_code, c.exit_signal, c.text);
    }
}

TEST_MAIN()
