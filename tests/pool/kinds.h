// SPDX-License-Identifier: MIT
// kinds.h: the kinds of pools, as the conformance suite sees them. Each kind_NAME.c of this folder adds its own
// with POOL_KIND.
#ifndef QUARRY_TESTS_POOL_KINDS_H
#define QUARRY_TESTS_POOL_KINDS_H

#include <quarry/pool.h>
#include <stdbool.h>

typedef struct pool_kind {
    const char *name;
    quarry_pool_t *(*create)(const quarry_pool_options_t *options);
    // For kinds with QUARRY_POOL_FRAMES: open the frame that all blocks of a test go to, and end it. NULL for others.
    void (*begin)(quarry_pool_t *pool);
    void (*end)(quarry_pool_t *pool);
    // For kinds whose pool object is part of something else: end that too. NULL: quarry_pool_destroy.
    void (*destroy)(quarry_pool_t *pool);
    // It clears for QUARRY_POOL_ZERO whatever it knows of the memory: its header says so, or it is not our memory.
    bool clears;
    struct pool_kind *next;
} pool_kind_t;

#ifdef __cplusplus
extern "C" pool_kind_t *pool_kinds;
#else
extern pool_kind_t *pool_kinds;
#endif

#define POOL_KIND(id, ...)                                          \
    __attribute__((constructor)) static void pool_kind_##id(void) { \
        static pool_kind_t kind = {.name = #id, __VA_ARGS__};       \
        kind.next = pool_kinds;                                     \
        pool_kinds = &kind;                                         \
    }

#endif
