// SPDX-License-Identifier: MIT
// Heaps as pools in a program on libquarry where the drop-in is preloaded: there is one heap, which is the drop-in's.
#include <quarry/heap.h>
#include <quarry/pool.h>

#include "harness.h"

static void every_alignment(quarry_pool_t *pool) {
    static const unsigned flags[] = {0, QUARRY_POOL_ZERO};
    CHECK(pool != NULL);
    for (int i = 0; i < 2; i++) {
        for (size_t align = 1; align <= 65536; align *= 2) {
            for (size_t n = 1; n < 2000000; n = n * 7 + 3) {
                char *p = quarry_pool_alloc(pool, n, align, flags[i]);
                CHECK(p && (uintptr_t)p % align == 0);
                if (flags[i]) CHECK_EQ(p[0] | p[n - 1], 0);
                memset(p, 1, n);
                p = quarry_pool_resize(pool, p, n, 2 * n, align, flags[i]);
                CHECK(p && (uintptr_t)p % align == 0 && p[n - 1] == 1);
                if (flags[i]) CHECK_EQ(p[2 * n - 1], 0);
                quarry_pool_free(pool, p, 2 * n);
            }
        }
    }
}

TEST(general_heap) {
    quarry_pool_t *pool = quarry_heap_pool(NULL, NULL);
    every_alignment(pool);
    quarry_pool_destroy(pool);
}

TEST(heap_of_its_own) {
    quarry_heap_t *heap = quarry_heap_create(NULL);
    CHECK(heap != NULL);
    quarry_pool_t *pool = quarry_heap_pool(heap, NULL);
    every_alignment(pool);
    CHECK_EQ(quarry_heap_check(heap), 0);
    quarry_pool_destroy(pool);
    quarry_heap_destroy(heap);
}

TEST_MAIN()
