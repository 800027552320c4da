// SPDX-License-Identifier: MIT
// leak_pointer.h: what a word of memory may point to.
#ifndef QY_CHECK_LEAK_POINTER_H
#define QY_CHECK_LEAK_POINTER_H

#include "check/leak_blocks.h"
#include "os/touched.h"

// What words are looked at by.
typedef struct qy_leak_space {
    qy_leak_blocks_t *blocks;
    bool (*is_vtable)(uintptr_t address, void *arg);  // may the words there be the addresses of functions?
    void *arg;
    uint8_t new_array;  // the family of blocks that new[] gave
} qy_leak_space_t;

// Is it, though it leads into the block's middle, what its owner has of it?
bool qy_leak_is_owner(const qy_leak_space_t *space, const qy_leak_block_t *block, uintptr_t pointer);

// The block that the word leads to, or QY_LEAK_NONE. *ret_sure: to its start, or as good as that.
QY_INLINE uint32_t qy_leak_target(const qy_leak_space_t *space, uint64_t word, bool *ret_sure) {
    const unsigned address_bits = 48;
    uintptr_t address = word;
    uint32_t at = qy_leak_blocks_find(space->blocks, address);
    if (QY_LIKELY(at == QY_LEAK_NONE)) {
        // other bits in the upper 16
        address &= ((uint64_t)1 << address_bits) - 1;
        if (address == word) return QY_LEAK_NONE;
        *ret_sure = false;
        return qy_leak_blocks_find(space->blocks, address);
    }
    const qy_leak_block_t *block = &space->blocks->all[at];
    *ret_sure = block->address == address || qy_leak_is_owner(space, block, address);
    return at;
}

// The end of the part of [at, end) that can be read and may hold pointers; `at`: its first page has none.
uintptr_t qy_leak_readable_to(qy_os_touched_t *touched, uintptr_t at, uintptr_t end);

#endif
