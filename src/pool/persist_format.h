// SPDX-License-Identifier: MIT
// persist_format.h: the file of a persistent pool, version 1. docs/persist-format.md explains it.
//
//   0        header, state, journal mark: one sector each; the rest of this unit is zero
//   65536    words: the log's head, sizes, root, bins      (qy_persist_words_t)
//   73728    the undo log: log_words records               (qy_persist_record_t)
//   heap     blocks, up to `end`
//   (end of the pool)  while a sync is on: the journal
//
// All numbers are 64 bits in the byte order of the header. Units of 64 KiB make the file usable with
// every page size. Whatever is read from a file is checked before it is used as an offset or count.
#ifndef QY_POOL_PERSIST_FORMAT_H
#define QY_POOL_PERSIST_FORMAT_H

#include <stddef.h>

#include "pool/bins.h"

#define QY_PERSIST_MAGIC UINT64_C(0x1A0A0D505952519B)     // bytes 9B 'Q' 'R' 'Y' 'P' CR LF ^Z in little-endian order
#define QY_PERSIST_CREATING UINT64_C(0x1A0A0D3F5952519B)  // the same with '?': its making was interrupted
#define QY_PERSIST_ORDER UINT64_C(0x0102030405060708)
#define QY_PERSIST_VERSION 1u
#define QY_PERSIST_UNIT UINT64_C(65536)
#define QY_PERSIST_SECTOR 512u
#define QY_PERSIST_LOG_AT (QY_PERSIST_UNIT + 8192)
#define QY_PERSIST_LOG_MIN 256u
#define QY_PERSIST_LOG_MAX 65535u
#define QY_PERSIST_LOG_DEFAULT 2389u  // what fits into the unit of the words
#define QY_PERSIST_MAX_LOG2 44u       // files up to 16 TiB
#define QY_PERSIST_BINS QY_BINS(QY_PERSIST_MAX_LOG2 - 4)

// Sector 0. Written once, when the pool is made.
typedef struct qy_persist_header {
    uint64_t magic, order, version;
    uint64_t words_at, log_at, log_words, heap_at;
    uint64_t id;   // chance: no two pools have the same
    uint64_t sum;  // of the above
} qy_persist_header_t;

// Sector 1: is it open for writing in shared mode, and since which start of the machine?
typedef struct qy_persist_state {
    uint64_t open;  // 0 or 1
    uint64_t boot[2];
    uint64_t sum;
} qy_persist_state_t;

// Sector 2: the journal that is valid now. One count per sync, so that readers see that one happened.
typedef struct qy_persist_mark {
    uint64_t count;       // odd: a journal is valid
    uint64_t journal_at;  // the end of the pool
    uint64_t pages;       // in the journal
    uint64_t page_bytes;
    uint64_t journal_sum;
    uint64_t sum;
} qy_persist_mark_t;

// Unit 1. Changed only through the log (persist_log.c).
typedef struct qy_persist_words {
    uint64_t log;    // number of the transaction << 16 | records of it
    uint64_t end;    // bytes of the file that the pool uses; a multiple of the unit
    uint64_t root;   // a block, or 0
    uint64_t used;   // bytes of blocks in use, with their headers
    uint64_t count;  // blocks in use
    uint64_t zero[3];
    uint64_t bitmap[(QY_PERSIST_BINS + 63) / 64];  // bins that have a block
    uint64_t bins[QY_PERSIST_BINS];                // first free block of each
} qy_persist_words_t;

typedef struct qy_persist_record {
    uint64_t at;   // of a word
    uint64_t old;  // what it was
    uint64_t sum;  // of both, the transaction and the record's number
} qy_persist_record_t;

_Static_assert(sizeof(qy_persist_header_t) <= QY_PERSIST_SECTOR && sizeof(qy_persist_mark_t) <= QY_PERSIST_SECTOR,
    "a sector each");
_Static_assert(sizeof(qy_persist_words_t) <= 8192, "the log lies behind the words");
_Static_assert(QY_PERSIST_LOG_AT + QY_PERSIST_LOG_DEFAULT * sizeof(qy_persist_record_t) <= 2 * QY_PERSIST_UNIT,
    "the default log fits");

// A block at `at` (a multiple of 16) has its header in the word before: size in bytes up to the next
// block's `at`, flags in the low four bits, and in the high 16 a sum of the rest and of the place.
// A free block has next, previous (offsets) in its first words and its size in its last word.
// The last header, at end - 8, is a block of size 0.
#define QY_BLOCK_MIN UINT64_C(32)
#define QY_BLOCK_FREE 0x1u
#define QY_BLOCK_PREV_FREE 0x2u  // the block before is free
#define QY_BLOCK_FREEING 0x4u    // freed by the open transaction
#define QY_BLOCK_FLAGS UINT64_C(15)
#define QY_BLOCK_LOW48 ((UINT64_C(1) << 48) - 1)

// A sum is a chain of these; a changed word always changes it.
QY_INLINE uint64_t qy_persist_mix(uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return sum ^ sum >> 32;
}
QY_INLINE uint64_t qy_persist_sum(const void *words, size_t bytes, uint64_t sum) {
    const uint64_t *w = words;
    for (size_t i = 0; i < bytes / 8; i++) sum = qy_persist_mix(sum, w[i]);
    return sum;
}
// Of a structure that ends with its sum. The seed keeps all-zero sectors from being valid.
#define QY_PERSIST_SEED UINT64_C(0x7175617272790A01)
#define qy_persist_sum_of(s) qy_persist_sum((s), offsetof(__typeof__(*(s)), sum), QY_PERSIST_SEED)

QY_INLINE uint64_t qy_block_header(uint64_t at, uint64_t size, unsigned flags) {
    uint64_t low = size | flags;
    return low | qy_persist_mix(qy_persist_mix(QY_PERSIST_SEED, at), low) >> 48 << 48;
}
QY_INLINE bool qy_block_header_ok(uint64_t at, uint64_t header) {
    return header == qy_block_header(at, header & QY_BLOCK_LOW48, 0);
}

#endif
