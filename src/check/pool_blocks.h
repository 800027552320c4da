// SPDX-License-Identifier: MIT
// pool_blocks.h: what is known of blocks of Quarry's pools, found from any address within them.
//
// Pools tell of their blocks (rt/check_pool.h). A block's memory is that of the block and of the zones beside it.
//
//   address -> table of 4 GiB -> entry of its 64 KiB -> the nearest begin at or before it -> record
//
// An entry has a bit and a number for each 16 bytes in which a block's memory may begin. Where 64 KiB lie whole within
// one block, the entry is that block's number. A pool's chunk may be a block of another pool: then the inner block is
// found, and where none is, the outer one.
//
// Threads: changes take a lock. Look-ups take none, and may be made in signal handlers, in a forked child and in a
// stopped process: a record has a version, which is odd while it changes. Records are recycled and never unmapped.
#ifndef QY_CHECK_POOL_BLOCKS_H
#define QY_CHECK_POOL_BLOCKS_H

#include "check/check.h"
#include "rt/check_pool.h"

// What rt/check_pool.h has of these names.
uint32_t qy_check_pool_opened(const char *kind, const char *name, quarry_check_pool_ends_t ends);
void qy_check_pool_closed(uint32_t pool);
void qy_check_pool_began(const quarry_check_pool_block_t *block);
void qy_check_pool_held(uintptr_t memory);
void qy_check_pool_ended(uintptr_t memory, uint32_t free_stack);
void qy_check_pool_gone(uintptr_t memory);
void qy_check_pool_records(const void *memory, size_t bytes, bool there);

// The name and kind of the pool with this number; NULL: 0, none.
const char *qy_check_pool_name(uint32_t pool, const char **ret_kind);
// The block in whose memory the address lies, live or ended.
bool qy_check_pool_find(uintptr_t address, qy_check_block_t *ret);
// Does [at, at + n), which begins there, lie within one live block of a pool? *ret_known: it begins in some block's
// memory; else nothing is known of it here.
bool qy_check_pool_is_live(uintptr_t at, size_t n, bool *ret_known);
// The program's access to [at, at + n): reported unless it stays within one live block. False: nothing is known of it.
bool qy_check_pool_access(uintptr_t at, size_t n, bool is_write, const char *function);
// An overflow of the block was reported, and what it changed is not to be reported once more. False: none was.
bool qy_check_pool_was_told(uintptr_t block);

// All blocks, ascending, with the memory of each.
typedef void qy_check_pool_visit_t(const qy_check_block_t *b, uintptr_t memory, size_t bytes, void *arg);
void qy_check_pool_each(qy_check_pool_visit_t *visit, void *arg);

// Pools' own records. There is room for so many; others are taken for the program's memory.
#define QY_CHECK_POOL_RECORDS 1024u
void qy_check_pool_each_records(void (*fn)(const void *memory, size_t bytes, void *arg), void *arg);

qy_lock_t *qy_check_pool_lock(void);  // for fork

#endif
