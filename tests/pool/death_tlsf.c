// SPDX-License-Identifier: MIT
// death_tlsf.c: what a tlsf pool says of misuse, and that it then ends the process.
#include <quarry/tlsf.h>
#include <stdalign.h>

#include "misuse.h"
#include "pool/tlsf.h"

static alignas(16) char buffer[65536];

static void setup(void) {
    pool = quarry_tlsf_create(&(quarry_tlsf_options_t){
        .pool.name = "victim", .buffer = buffer, .buffer_bytes = sizeof buffer, .flags = QUARRY_TLSF_FIXED});
    for (int i = 0; i < 6; i++) p[i] = quarry_pool_alloc(pool, 100, 16, 0);
}

// ---- wrong pointers -----------------------------------------------------------------------------------------------

static void twice_after_joining_left(void) { drop(p[1]), drop(p[2]), drop(p[2]); }
static void twice_after_joining_right(void) { drop(p[2]), drop(p[1]), drop(p[2]); }
static void twice_last(void) { drop(p[5]), drop(p[5]); }
static void interior(void) { drop(p[2] + 16); }
static void into_free_memory(void) { drop(p[5] + 3200); }
static void region_record(void) { drop(buffer); }
static void end_of_region(void) { drop(buffer + sizeof buffer); }
static void of_another_pool(void) {
    static alignas(16) char elsewhere[4096];
    quarry_pool_t *other =
        quarry_tlsf_create(&(quarry_tlsf_options_t){.buffer = elsewhere, .buffer_bytes = sizeof elsewhere});
    drop(quarry_pool_alloc(other, 100, 16, 0));
}

// ---- stray writes
// -----------------------------------------------------------------------------------------------------

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

// ---- the pool itself
// ----------------------------------------------------------------------------------------------------

static void region_of_destroyed(void) {
    quarry_pool_destroy(pool);
    quarry_tlsf_add_region(pool, buffer, sizeof buffer);
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
    quarry_pool_t *strict = quarry_tlsf_create(
        &(quarry_tlsf_options_t){.pool = {.name = "strict", .limit = 100000, .flags = QUARRY_POOL_ABORT}});
    quarry_pool_alloc(strict, 200000, 16, 0);
}

// --------------------------------------------------------------------------------------------------------------

static const misuse_t cases[] = {
    MISUSE_OF_ANY,
    {"twice_after_joining_left", DOUBLE, twice_after_joining_left},
    {"twice_after_joining_right", DOUBLE, twice_after_joining_right},
    {"twice_last", DOUBLE, twice_last},
    {"interior", INTERIOR, interior},
    {"into_free_memory", DOUBLE, into_free_memory},
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
    {"region_of_destroyed", "use of a destroyed pool", region_of_destroyed},
    {"free_of_destroyed", "use of a destroyed pool", free_of_destroyed},
    {"parent_destroyed", "destroyed pool is a parent", parent_destroyed},
    {"out_of_memory", "out of memory", out_of_memory},
};

TEST(each_misuse_ends_with_one_line) {
    setup();
    if (pool->mode) TEST_SKIP("needs pools:off: the observer has tests of its own");
    all_end_with_one_line(cases, sizeof cases / sizeof *cases);
}

TEST_MAIN()
