// SPDX-License-Identifier: MIT
// record_pool.h: how pools tell the recorder what happens in them; the contract between libquarry and libquarry-record.
//
// A process that is recorded has a table of this kind under the name quarry_record_pool_v1, which is looked for with
// dlsym(RTLD_DEFAULT) or as a weak symbol. Whoever has the table calls `created` for each pool and passes on the number
// it is given; 0 means that this pool is not recorded: nothing need be told of it.
//
// When to call: `alloc` and `resized` after the block is known and before anybody else can free it; `free`, `emptied`,
// `popped`, `released` and `destroyed` before the memory can be handed out again. From any thread; with locks of the
// pool held. No function allocates, fails or touches errno; each costs what recording a malloc does.
#ifndef QY_RT_RECORD_POOL_H
#define QY_RT_RECORD_POOL_H

#include <stddef.h>
#include <stdint.h>

#define QUARRY_RECORD_POOL_TABLE "quarry_record_pool_v1"

typedef struct quarry_record_pool {
    uint32_t bytes;  // of this structure: later versions only add functions at its end
    // `parent`: number of the pool it takes memory from, or 0. `kind` and `name` are copied.
    uint32_t (*created)(uint32_t parent, const char *kind, const char *name);
    void (*destroyed)(uint32_t pool);
    void (*pushed)(uint32_t pool);
    void (*popped)(uint32_t pool);
    void (*sealed)(uint32_t pool, uint64_t cookie);
    void (*released)(uint32_t pool, uint64_t cookie);
    void (*alloc)(uint32_t pool, size_t size, const void *block, size_t alignment);
    void (*free)(uint32_t pool, const void *block);
    void (*resized)(uint32_t pool, const void *old, size_t size, const void *block);
    void (*emptied)(uint32_t pool);
    void (*held)(uint32_t pool, uint64_t held, uint64_t used);
} quarry_record_pool_t;

#endif
