// SPDX-License-Identifier: MIT
// dense.h: which chunks get a huge page. docs/design.md ("Huge pages") has the model.
//
// A huge page is one fault instead of 512, and all of it is resident from its first byte on. So it is asked for only
// where memory is about to be used as a whole: for a chunk of which units are taken for the first time, when the heap
// has shown that it fills its chunks. What such chunks have that nobody took yet is the waste: it is counted, and
// bounded.
// Threads: qy_dense_* under the page layer's lock, but for those that say otherwise.
#ifndef QY_PAGES_DENSE_H
#define QY_PAGES_DENSE_H

#include "pages/types.h"

#define QY_DENSE_LEAST (16 * QY_CHUNK)             // a heap that has touched less does not ask
#define QY_DENSE_PART 100u                         // the waste is at most this part of what is touched, and a page
#define QY_DENSE_SLOW UINT64_C(2000000)            // ns: 512 small faults take less than such a fault
#define QY_DENSE_REST UINT64_C(62500000)           // ns without asking after two of them; twice as long each time, ...
#define QY_DENSE_REST_MOST (1024 * QY_DENSE_REST)  // ... up to this
#define QY_DENSE_FORK UINT64_C(1000000000)         // ns after a fork: most children end, or exec, by then

// ---- the policy: what it knows, and what follows ---------------------------------------------------------------

typedef struct qy_dense {
    size_t waste;          // bytes of asked chunks that are free and were never taken since
    uint64_t rests_until;  // ns of qy_os_now_coarse_ns
    uint64_t rest;         // how long it rested the last time
    unsigned slow;         // faults in a row that took long
} qy_dense_t;

// With `touched` bytes in use or dirty: may a chunk have a huge page of which `taken` bytes are taken now? Where it
// may, no more than qy_dense_most is wasted afterwards.
bool qy_dense_may(const qy_dense_t *d, size_t touched, size_t taken, uint64_t now);
QY_INLINE size_t qy_dense_most(size_t touched) { return touched / QY_DENSE_PART + QY_CHUNK; }
// The first touch of such a chunk took so long.
void qy_dense_took(qy_dense_t *d, uint64_t ns, uint64_t now);
// It asks for nothing until then.
void qy_dense_rest(qy_dense_t *d, uint64_t until);

// ---- in the page layer ---------------------------------------------------------------------------------------

// A chunk's `huge`
enum { QY_DENSE_NONE,
    QY_DENSE_ASKED,
    QY_DENSE_UNTIMED };  // asked, and nobody took the time of its first fault yet

// Units are about to be taken. Where all of the chunk is free and clean the kernel is asked for a huge page, or told
// that none is wanted any more. `full`: they are for slabs, which are filled. Who has a large object may not fill it.
void qy_dense_begin(qy_chunk_t *c, qy_bits_t run, bool full);
// Clean units were taken from the free ones of an asked chunk, or came back clean.
void qy_dense_taken(const qy_chunk_t *c, size_t units);
void qy_dense_given(const qy_chunk_t *c, size_t units);
// Pages of the chunk went, or are about to: it has no huge page any more, and is to get none, least of all from the
// kernel's thread that makes them where a few pages are there. (`all`: no page is left.)
void qy_dense_split(qy_chunk_t *c, bool all);
// The same for pages that are about to go back. Without the lock.
void qy_dense_goes(const char *base, size_t bytes);
// Has the chunk a huge page, as far as is known, which lives on while all its pages stay? Any thread, no lock.
QY_INLINE bool qy_dense_has(const qy_chunk_t *c) { return atomic_load_explicit(&c->huge, memory_order_relaxed) != 0; }
// Was its first touch not seen yet?
QY_INLINE bool qy_dense_is_first(const qy_chunk_t *c) {
    return atomic_load_explicit(&c->huge, memory_order_relaxed) == QY_DENSE_UNTIMED;
}
// The caller, who holds no lock, has units of this chunk, which may be the first ones of it. It is touched there, and
// the time is taken. `at`: they are clean, and zero.
void qy_dense_first(qy_chunk_t *c, void *at);
// In both processes of a fork.
void qy_dense_after_fork(void);

// Bytes of chunks that were asked for and not split, and what of them is wasted. Relaxed, no lock.
size_t qy_dense_bytes(void);
size_t qy_dense_waste(void);

#endif
