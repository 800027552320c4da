// SPDX-License-Identifier: MIT
// leak_sites.h: what the blocks of each kind have in sum, by the stack that allocated them; and which sums grow.
//
// Threads: one, in the copy or while all others stand still. Only the history is shared between scans: it lies in
// memory that a copy of the process writes to as its parent does, and one scan at a time does so.
#ifndef QY_CHECK_LEAK_SITES_H
#define QY_CHECK_LEAK_SITES_H

#include "check/leak_flood.h"

typedef struct qy_leak_site {
    uint32_t stack;
    uint8_t kind;    // qy_leak_kind_t
    uint8_t family;  // of the example
    uint32_t pool;   // of the example
    bool used;
    uintptr_t example;
    uint64_t ordinal;  // of the example, which is the oldest
    uint64_t bytes, blocks, held_bytes, held_blocks;
} qy_leak_site_t;

typedef struct qy_leak_sites {
    qy_leak_site_t *table;
    size_t entries, used;
    bool full;  // no memory: some were left out
} qy_leak_sites_t;

void qy_leak_sites_add(
    qy_leak_sites_t *s, const qy_leak_block_t *block, qy_leak_kind_t kind, uint64_t held_bytes, uint64_t held_blocks);
// By kind, then by bytes with what they hold, the largest first; by their stack where that is the same. After
// this nothing can be added.
void qy_leak_sites_sort(qy_leak_sites_t *s);
void qy_leak_sites_end(qy_leak_sites_t *s);

// The reachable bytes of each site in the scans before. A site grows if its last three scans, this one among them, each
// found more than all scans before: what goes up and down only comes to do so by chance, and the more scans there were,
// the less.
#define QY_LEAK_GROWN_SCANS 3u
typedef struct qy_leak_history qy_leak_history_t;
// NULL: no memory, and nothing is known to grow.
qy_leak_history_t *qy_leak_history_new(void);
// The copy with this number has nothing left to do but to tell its answer and to end; has it come so far?
void qy_leak_history_ready(qy_leak_history_t *h, uint64_t number);
bool qy_leak_history_is_ready(const qy_leak_history_t *h, uint64_t number);
// A scan is told: after it, call `grows` for each site that grows, with its bytes of QY_LEAK_GROWN_SCANS - 1 scans ago.
void qy_leak_history_scan(qy_leak_history_t *h, const qy_leak_sites_t *s,
    void (*grows)(const qy_leak_site_t *site, uint64_t before, void *arg), void *arg);

#endif
