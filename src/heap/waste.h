// SPDX-License-Identifier: MIT
// waste.h: memory that nobody uses is seen here, where it arises. What is done about it is in purge.h, which says so at
// the start.
#ifndef QY_HEAP_WASTE_H
#define QY_HEAP_WASTE_H

#include "heap/types.h"

// Units became free. Cheap; any locks but the page layer's may be held.
void qy_waste_of_pages(void);

// Blocks came home to h, which is locked.
void qy_waste_in_slabs(qy_heap_t *h);

// `bytes` were handed to h's mailbox: if its owner sleeps, another thread must take them in.
void qy_waste_in_mail(qy_heap_t *h, size_t bytes);

// How much there is beside free pages that are touched (qy_units_dirty_bytes): free blocks of a heap, on pages that are
// there.
size_t qy_waste_bytes_in(const qy_heap_t *h);

// Since when there has been waste of a kind, in ns of qy_os_now_coarse_ns; 0: there was none when it was last looked
// for.
typedef enum qy_waste_kind {
    QY_WASTE_PAGES,
    QY_WASTE_SLABS,
    QY_WASTE_KINDS
} qy_waste_kind_t;
extern _Atomic uint64_t qy_waste_since[QY_WASTE_KINDS];

// What is called when there is enough of it. `slabs`: bytes of waste in those of h, which is locked; or 0, and h may be
// NULL.
typedef void qy_waste_seen_t(qy_heap_t *h, qy_waste_kind_t kind, size_t slabs);
void qy_waste_notify(qy_waste_seen_t *seen);
void qy_waste_after_fork(void);

#endif
