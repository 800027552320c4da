// SPDX-License-Identifier: MIT
// remote.h: frees of blocks that belong to another heap.
//
//   freer:  gathers blocks of one slab in a pending group (no atomic), then publishes it:
//           one compare-and-swap puts the chain into the slab's remote word and sets QUEUED; who
//           set QUEUED (it was clear) pushes the slab on its heap's mailbox. When many groups are published,
//           the slabs that go to one heap are linked first and pushed together.
//   owner:  (any holder of the heap's lock) takes the whole mailbox by one exchange, and each slab's
//           whole chain by one exchange, which clears QUEUED. Chains come home in O(1): the word says which
//           block is the first and which the last.
//
// Why it is safe
//  - A slab is in at most one mailbox, since only the clear-to-set transition of QUEUED pushes; so
//    mail_next has one writer at a time. The drainer reads it before it clears QUEUED.
//  - Removal takes everything, so there is no ABA: neither stack ever pops a single element.
//  - A slab with QUEUED set, or with blocks in a pending group, is not empty, so it is not released
//    between publish and push. Descriptors and heaps are type-stable.
//  - A slab may change heaps while it is not queued (steal). A freer that read the old heap pushes
//    there; the drainer sees that the slab is not its own and forwards it. Still one mailbox.
//  - mail_next of a slab belongs to who set QUEUED from then on, so that it may link slabs that are in no mailbox yet.
//  - A freer stopped between the two steps delays the blocks of the slabs that it has linked (a group of each at most,
//    and what others add to these slabs), nothing else. It goes on to the push at once: no user's code and no wait lies
//    between.
// tests/heap/models/remote.pml checks it with two heaps and two freers, and that seven broken variants are found out.
// First-class heaps never get mail: their frees take the lock, so that destroy finds all at home.
#ifndef QY_HEAP_REMOTE_H
#define QY_HEAP_REMOTE_H

#include "heap/types.h"

// Put a block (a start, not marked free) of slab s and class c aside in t's pending groups. Touches nothing that the
// slab's owner writes to but once per group.
void qy_remote_free(qy_thread_t *t, qy_slab_t *s, qy_block_t *b, unsigned c);

// Publish all pending groups of t.
void qy_remote_flush(qy_thread_t *t);

// Bring home what lies in h's mailbox. h is locked. True if anything came.
bool qy_remote_drain(qy_heap_t *h);

// The slab s of h, if not NULL, is to be taken in, since the caller set its QUEUED; of h's blocks so many bytes more
// were freed.
void qy_remote_mail(qy_heap_t *h, qy_slab_t *s, size_t bytes);

// Free a block by taking its heap's lock; for threads without a cache, and first-class heaps.
void qy_remote_free_locked(qy_slab_t *s, qy_block_t *b);

#endif
