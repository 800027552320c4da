// SPDX-License-Identifier: MIT
// leak_blocks.h: the live blocks at the moment of a scan, sorted by address, and which of them an address lies in.
//
// A block may lie within another one: a pool's, within the block that is the pool's chunk. Then it comes behind that,
// and the bytes of the two are apart: what lies in the chunk behind a pool's block is found as no block's.
//
// A scan asks it of every word of the process, so the answer takes a look into a small table and some steps in a page
// of blocks. Memory: 32 bytes a block, 2 KiB for each 2 MiB with blocks, all from the kernel and given back whole.
// Threads: one at a time. The structure belongs to the scan.
#ifndef QY_CHECK_LEAK_BLOCKS_H
#define QY_CHECK_LEAK_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

// What a scan finds out of a block, in qy_leak_block_t.state.
enum {
    QY_LEAK_REACHED = 1,    // a pointer to its start leads to it from a root
    QY_LEAK_HINTED = 2,     // reached memory has a pointer into its middle, or one with bits of something else
    QY_LEAK_POSSIBLE = 4,   // such a pointer leads to it, by itself or through others
    QY_LEAK_VISITED = 8,    // unreached: its words were followed
    QY_LEAK_ASSIGNED = 16,  // unreached: it is a head, or counted for one
    QY_LEAK_HEAD = 32,
    QY_LEAK_HELD = 64,  // from the begin on: something ends it that needs no pointer to it
};

typedef struct qy_leak_block {
    uintptr_t address;
    uint64_t ordinal;  // the how-manyeth of its stack
    uint64_t size : 48, state : 8, family : 8;
    uint32_t stack;
    uint32_t pool;  // its number (pool_blocks.h), 0: none
} qy_leak_block_t;
_Static_assert(sizeof(qy_leak_block_t) == 32, "a scan of 32 million blocks has 1 GiB of these");

#define QY_LEAK_NONE UINT32_MAX

struct qy_leak_chunk;
typedef struct qy_leak_blocks {
    qy_leak_block_t *all;
    uint32_t count, room;
    uintptr_t begin, end;          // all blocks lie here
    struct qy_leak_chunk *chunks;  // a hash table of 2 MiB pieces of the address space
    uint32_t *pages;               // for each of them with a block's start in it: the first block of each page
    size_t chunk_mask, chunk_bytes, page_bytes;
} qy_leak_blocks_t;

// Room for so many blocks. False: no memory.
bool qy_leak_blocks_begin(qy_leak_blocks_t *b, uint32_t room);
// False: there is no room for it.
bool qy_leak_blocks_add(qy_leak_blocks_t *b, const qy_leak_block_t *block);
// All are there: sort them. False: no memory.
bool qy_leak_blocks_ready(qy_leak_blocks_t *b);
void qy_leak_blocks_end(qy_leak_blocks_t *b);

// The number of the block whose bytes hold the address, QY_LEAK_NONE if there is none. A block of size 0 holds its
// address.
uint32_t qy_leak_blocks_slow(const qy_leak_blocks_t *b, uintptr_t address);
QY_INLINE uint32_t qy_leak_blocks_find(const qy_leak_blocks_t *b, uintptr_t address) {
    return QY_LIKELY(address - b->begin >= b->end - b->begin) ? QY_LEAK_NONE : qy_leak_blocks_slow(b, address);
}

#endif
