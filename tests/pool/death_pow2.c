// SPDX-License-Identifier: MIT
// death_pow2.c: what a pow2 pool says of misuse, and that it then ends the process. The map of blocks lies outside of
// them, so each pointer that is not a live block is seen, always.
#include <quarry/pow2.h>
#include <sys/mman.h>

#include "misuse.h"
#include "pool/pool.h"

static char *large;

static void setup(void) {
    pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.name = "victim", .partitions = 1});
    for (int i = 0; i < 6; i++) p[i] = quarry_pool_alloc(pool, 100, 16, 0);
    large = quarry_pool_alloc(pool, 3 << 20, 16, 0);
}

static void twice_lower_buddy(void) { drop(p[0]), drop(p[1]), drop(p[0]); }
static void twice_upper_buddy(void) { drop(p[0]), drop(p[1]), drop(p[1]); }
static void twice_when_all_is_free(void) {
    for (int i = 0; i < 6; i++) drop(p[i]);
    drop(p[5]);
}
static void twice_mapped(void) { drop(large), drop(large); }
static void resize_freed_mapped(void) {
    drop(large);
    quarry_pool_resize(pool, large, 3 << 20, 200, 16, 0);
}
static void interior(void) { drop(p[2] + 32); }
static void interior_mapped(void) { drop(large + 8192); }
static void never_given_out(void) { drop(p[0] + (16 << 20)); }
static void small_number(void) { drop((void *)(uintptr_t)4096); }
static void wild(void) { drop((void *)(uintptr_t)0xDEADBEEFDEADBEE0u); }
static void unmapped_memory(void) {
    void *q = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(q, 4096);
    drop(q);
}
static void of_another_pool(void) { drop(quarry_pool_alloc(quarry_pow2_create(NULL), 100, 16, 0)); }

static void link_after_free(void) {
    drop(p[1]), drop(p[3]);
    memset(p[3], 'x', 16);
    quarry_pool_alloc(pool, 100, 16, 0);
}
static void link_to_a_used_block(void) {
    drop(p[1]), drop(p[3]);
    memcpy(p[3], &p[5], sizeof p[5]);
    quarry_pool_alloc(pool, 100, 16, 0);
}
static void link_when_joined(void) {
    drop(p[1]), drop(p[3]);
    memset(p[1], 'x', 16);
    drop(p[0]);
}
static void print_of_destroyed(void) {
    quarry_pool_destroy(pool);
    quarry_pow2_print_free(pool, 2);
}
static void parent_destroyed(void) {
    quarry_pow2_create(&(quarry_pow2_options_t){.pool.parent = pool});
    quarry_pool_destroy(pool);
}
static void out_of_memory(void) {
    quarry_pool_t *strict = quarry_pow2_create(
        &(quarry_pow2_options_t){.pool = {.name = "strict", .limit = 100000, .flags = QUARRY_POOL_ABORT}});
    quarry_pool_alloc(strict, 200000, 16, 0);
}

static const misuse_t cases[] = {
    MISUSE_OF_ANY,
    {"twice_lower_buddy", DOUBLE, twice_lower_buddy},
    {"twice_upper_buddy", DOUBLE, twice_upper_buddy},
    {"twice_when_all_is_free", DOUBLE, twice_when_all_is_free},
    {"twice_mapped", DOUBLE, twice_mapped},
    {"resize_freed_mapped", DOUBLE, resize_freed_mapped},
    {"interior", INTERIOR, interior},
    {"interior_mapped", INTERIOR, interior_mapped},
    {"never_given_out", DOUBLE, never_given_out},
    {"small_number", INVALID, small_number},
    {"wild", INVALID, wild},
    {"unmapped_memory", INVALID, unmapped_memory},
    {"of_another_pool", INVALID, of_another_pool},
    {"link_after_free", DAMAGED, link_after_free},
    {"link_to_a_used_block", DAMAGED, link_to_a_used_block},
    {"link_when_joined", DAMAGED, link_when_joined},
    {"print_of_destroyed", "use of a destroyed pool", print_of_destroyed},
    {"parent_destroyed", "destroyed pool is a parent", parent_destroyed},
    {"out_of_memory", "out of memory", out_of_memory},
};

TEST(each_misuse_ends_with_one_line) {
    setup();
    if (pool->mode) TEST_SKIP("needs pools:off: the observer has tests of its own");
    all_end_with_one_line(cases, sizeof cases / sizeof *cases);
}

// Whatever is freed, it is a block or the end: pointers near and far, at random.
static quarry_pool_t *victim;
static void free_random(void *arg) {
    uint64_t random = *(uint64_t *)arg, r = test_random(&random);
    char *base = p[r % 6];
    uintptr_t q = (uintptr_t)base + (test_random(&random) % 65536) - 32768;
    if (r >> 8 & 1) q = test_random(&random) >> (test_random(&random) % 40);
    quarry_pool_free(victim, (void *)q, QUARRY_SIZE_UNKNOWN);
}
TEST(random_pointers) {
    setup();
    if (pool->mode) TEST_SKIP("needs pools:off: the observer has tests of its own");
    victim = pool;
    uint64_t seed = test_seed, survived = 0;
    for (int i = 0; i < 2000; i++) {
        test_random(&seed);
        captured_t c = capture(free_random, &seed);
        survived += c.exit_code == 0;  // it was NULL or one of the six
        if (c.exit_code != 0 && (c.exit_signal != SIGABRT || strncmp(c.text, "quarry: ", 8) != 0))
            TEST_FAIL("signal %d, said %s", c.exit_signal, c.text);
    }
    CHECK_LT(survived, 50);
}

TEST_MAIN()
