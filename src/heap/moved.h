// SPDX-License-Identifier: MIT
// moved.h: each thread counts the bytes that it moves through its slow paths. After some of them it does what is due
// now and then: a period ends (cache.h), and the statistics page may be out of date (stats_page.h).
#ifndef QY_HEAP_MOVED_H
#define QY_HEAP_MOVED_H

#include "heap/cache.h"
#include "heap/types.h"

// The calling thread has moved t->moved bytes. No locks are held.
void qy_moved_much(qy_thread_t *t);
// The same for a caller without a record: large objects need none.
QY_COLD void qy_moved_without(size_t bytes);

// `bytes` went from the heap to a thread's lists or the other way, on a slow path. No locks are held.
QY_INLINE void qy_moved(qy_thread_t *t, size_t bytes) {
    t->period += bytes;
    t->moved += bytes;
    if (QY_UNLIKELY(t->moved >= t->moved_most)) qy_moved_much(t);
}
// The same past its lists. These bytes count in no period: a thread that needs large objects, too, would empty its
// lists for nothing.
QY_INLINE void qy_moved_here(size_t bytes) {
    qy_thread_t *t = QY_CACHE->thread;
    if (QY_UNLIKELY(!t)) {
        qy_moved_without(bytes);
        return;
    }
    t->moved += bytes;
    if (QY_UNLIKELY(t->moved >= t->moved_most)) qy_moved_much(t);
}

#endif
