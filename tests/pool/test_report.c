// SPDX-License-Identifier: MIT
// test_report.c: QUARRY_CONF=pool_report:on names the pools that a process leaves behind. Run with `off` too: then
// nothing is said.
#include <quarry/fifo.h>
#include <quarry/pow2.h>
#include <quarry/scope.h>
#include <quarry/tlsf.h>
#include <stdbool.h>

#include "captured.h"

static bool wanted(void) { return strstr(getenv("QUARRY_CONF"), "pool_report:on") != NULL; }

// `body` in a process that ends as programs do, which must have said `said` and nothing else.
static void leaves(void (*body)(void *), void *arg, const char *said) {
    captured_t c = capture(body, arg);
    CHECK_EQ(c.exit_code, 0);
    char line[1024];
    snprintf(line, sizeof line, "%s%s%s", wanted() && *said ? "quarry: warning: " : "", wanted() ? said : "",
        wanted() && *said ? "\n" : "");
    CHECK_STR_EQ(c.text, line);
}

static void nothing(void *unused) {
    (void)unused;
    quarry_pool_t *pool = quarry_fifo_create(NULL);
    quarry_pool_free(pool, quarry_pool_alloc(pool, 100, 8, 0), 100);
    quarry_pool_destroy(pool);
    exit(0);
}
TEST(who_leaves_nothing_is_not_named) { leaves(nothing, NULL, ""); }

// Stacks of threads end with them, and heaps' and malloc's pools are nobody's to destroy.
static void of_the_thread(void *unused) {
    (void)unused;
    t_scope;
    CHECK(t_new(char, 1000));
    CHECK(quarry_libc_pool());
    exit(0);
}
TEST(a_threads_own_stack_is_not_left) { leaves(of_the_thread, NULL, ""); }

// Nor does it matter to pools on malloc that somebody destroys it.
static void malloc_is_destroyed(void *unused) {
    (void)unused;
    quarry_pool_t *libc = quarry_libc_pool();
    quarry_pool_t *pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool.parent = libc});
    CHECK(pool);
    quarry_pool_destroy(libc);
    quarry_pool_free(libc, quarry_pool_alloc(libc, 10, 8, 0), 10);
    void *p = quarry_pool_alloc(pool, 100, 8, 0);
    CHECK(p);
    quarry_pool_free(pool, p, 100);
    quarry_pool_destroy(pool);
    exit(0);
}
TEST(mallocs_pool_is_not_destroyed) { leaves(malloc_is_destroyed, NULL, ""); }

static void one(void *unused) {
    (void)unused;
    quarry_pool_t *pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "requests"});
    CHECK(quarry_pool_alloc(pool, 96, 8, 0));
    exit(0);
}
TEST(a_pool_is_named_with_its_bytes) {
    leaves(one, NULL, "1 pool left at the end: fifo \"requests\" (96 bytes used)");
}

static void seven(void *unused) {
    (void)unused;
    for (int i = 0; i < 7; i++) {
        char name[8] = {'n', (char)('0' + i), i == 6 ? '\n' : '\0'};
        quarry_pool_t *pool =
            i % 2 ? quarry_pow2_create(&(quarry_pow2_options_t){.pool.name = name, .partitions = 1})
                  : quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.name = name});
        for (int k = 0; k <= i && i % 2; k++) CHECK(quarry_pool_alloc(pool, 64, 8, 0));
    }
    exit(0);
}
TEST(five_are_named_and_the_others_counted) {
    leaves(seven, NULL,
        "7 pools left at the end: tlsf \"n6?\" (0 bytes used), pow2 \"n5\" (384 bytes used), tlsf \"n4\" (0 bytes "
        "used), pow2 \"n3\" (256 bytes used), tlsf \"n2\" (0 bytes used), ...");
}

static void named(void *name) {
    CHECK(quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = name}));
    exit(0);
}
TEST(names_are_utf8) {
    leaves(named, (void *)"f\xc3\xbcr", "1 pool left at the end: fifo \"f\xc3\xbcr\" (0 bytes used)");
    leaves(named, (void *)"f\xfcr", "1 pool left at the end: fifo \"f?r\" (0 bytes used)");
    // 31 bytes of it are kept, the last of which begins a character.
    leaves(named, (void *)"123456789012345678901234567890\xc3\xbc",
        "1 pool left at the end: fifo \"123456789012345678901234567890?\" (0 bytes used)");
}

TEST_MAIN()
