// SPDX-License-Identifier: MIT
// counts.h: how much the page layer has. Written under its lock, read by anybody at any time.
#ifndef QY_PAGES_COUNTS_H
#define QY_PAGES_COUNTS_H

#include "pages/types.h"

typedef struct qy_units_counts {
    _Atomic size_t dirty_bytes;   // free, and perhaps touched
    _Atomic size_t free_bytes;    // of all units, dirty ones too
    _Atomic size_t mapped_bytes;  // of all chunks
} qy_units_counts_t;

extern QY_HIDDEN qy_units_counts_t qy_units_counts;

// Under the lock: plain arithmetic, atomic for readers.
QY_INLINE void qy_units_count(_Atomic size_t *counter, size_t add, size_t sub) {
    atomic_store_explicit(
        counter, atomic_load_explicit(counter, memory_order_relaxed) + add - sub, memory_order_relaxed);
}

QY_INLINE size_t qy_units_dirty_bytes(void) {
    return atomic_load_explicit(&qy_units_counts.dirty_bytes, memory_order_relaxed);
}
QY_INLINE size_t qy_units_free_bytes(void) {
    return atomic_load_explicit(&qy_units_counts.free_bytes, memory_order_relaxed);
}
QY_INLINE size_t qy_units_mapped_bytes(void) {
    return atomic_load_explicit(&qy_units_counts.mapped_bytes, memory_order_relaxed);
}
// In use, or free and dirty.
QY_INLINE size_t qy_units_touched_bytes(void) {
    return qy_units_mapped_bytes() - qy_units_free_bytes() + qy_units_dirty_bytes();
}

#endif
