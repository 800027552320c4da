// SPDX-License-Identifier: MIT
// tiny.h: START HERE for blocks of 8 bytes: requests of 1 to 8 bytes, of a heap that has little else (sizeclass.c).
//
// A link and a mark do not fit into 8 bytes. So nothing is in a free block: a bit says that it is free, in a word of
// bits beside the slab's descriptor. Double frees are told by the bits, exactly. A write into a freed block is not
// seen, and changes nothing.
//
//   word   64 blocks, and two words of bits for them. `free`: written by the owner's thread alone, without a lock.
//          `remote`: blocks that other threads freed, by atomic operations. No block is in both.
//   page   512 blocks, 8 words, 4 KiB: what is carved, comes home and is given back. A carved page is one of
//            out     the owner's thread may use its words, ...
//            home    ... all its blocks are free, and they may not be used before the page is out again,
//            purged  likewise, and the kernel has the memory.
//          Of a page that is not out all bits of `free` are set. A page goes out and comes home under the heap's lock.
//
// The class is one that the fast paths miss by themselves: the tables of a thread lead requests of 1 to 8 bytes to
// class 0, whose list is empty, and its number is the first that free() sends on. So they cost no other size anything.
// The slow paths ask for it first.
//
// malloc   takes the lowest bit of the thread's current word (cache.tiny). When that is 0, the next word of the same
//          slab that has a free block by `some`; then, under the lock, pages of other slabs.
// free     by the owner: sets the bit. If it is the first of its word: the word becomes the current one if that has no
//          free block; else its bit in `some` is set, and if that was the first, the slab goes on its bin's list. If it
//          is the last of its page, and not the current word's: the page comes home. Where the words of a slab are is
//          kept for 256 frames of 64 KiB (tiny_seen), so that frees at random need not ask the map.
//          by another: sets the bit in `remote`, at once, so that a second free is told, by any thread. The owner
//          hears of it after some of them: the thread has a group open for the slab, which keeps its descriptor from
//          becoming another's; then the slab goes into the heap's mailbox (remote.h).
//
// Taking in (qy_tiny_take_in) moves bits from `remote` to `free`. The owner's thread does it, or anybody while the heap
// is idle. Others, who bring home what a sleeping thread does not, take whole pages that were freed by other threads
// alone, and are not the current word's: no word of such a page has a free block, so the owner does not look at it.
// What they leave waits in heap.tiny_mail, with the slab's QUEUED set.
//
// What the owner's thread writes without the lock: its current word, `free` of pages that are out, and `some`. Each is
// one word. What a fork leaves halfway is mended in the child (qy_tiny_mend).
// Heaps of several threads (arenas) have none of these blocks, nor have first-class heaps.
#ifndef QY_HEAP_TINY_H
#define QY_HEAP_TINY_H

#include "heap/cache.h"
#include "heap/types.h"

#define QY_TINY_PAGE ((size_t)4096)
#define QY_TINY_PAGE_BLOCKS 512u
#define QY_TINY_PAGE_WORDS 8u
#define QY_TINY_WORD_BYTES (64 * QY_TINY)
#define QY_TINY_FRAME ((size_t)64 << 10)  // what a slab fills
#define QY_TINY_WORDS (QY_TINY_FRAME / QY_TINY_WORD_BYTES)

struct qy_tiny_word {
    _Atomic uint64_t free;    // [owner], and who has the heap's lock of a page that is not out
    _Atomic uint64_t remote;  // [atomic]
};
struct qy_tiny {
    _Atomic uint64_t some[2];  // [owner] bit per word: it has a free block, is not the current one, and its page is out
    qy_slab_t *slab;           // [const] whose it is
    QY_ALIGNED(16)
    qy_tiny_word_t word[QY_TINY_WORDS];
};

// The current word of who has none: nothing is free.
extern QY_HIDDEN qy_tiny_word_t qy_tiny_none;  // [const]

// ---- any thread, no locks ---------------------------------------------------------------------------------

// The calling thread has tiny_on. n: 1 to 8. Perhaps a block of 16 bytes. NULL and ENOMEM.
void *qy_tiny_malloc(size_t n);
void *qy_tiny_calloc(size_t n);

// A block of the current word of the calling thread. NULL: it has none.
QY_INLINE void *qy_tiny_pop(qy_cache_t *cache) {
    qy_tiny_word_t *w = cache->tiny;
    uint64_t free = atomic_load_explicit(&w->free, memory_order_relaxed);
    if (QY_UNLIKELY(!free)) return NULL;
    atomic_store_explicit(&w->free, free & (free - 1), memory_order_relaxed);
    return cache->tiny_at + (size_t)__builtin_ctzll(free) * QY_TINY;
}

// The same for a request that the sampler need not see, which is counted. False: there is no block, or it must.
QY_INLINE bool qy_tiny_pop_unseen(qy_cache_t *cache, void **ret) {
    if (QY_UNLIKELY(!cache->tiny_left)) return false;
    qy_tiny_word_t *w = cache->tiny;
    uint64_t free = atomic_load_explicit(&w->free, memory_order_relaxed);
    if (QY_UNLIKELY(!free)) return false;
    cache->tiny_left--;
    atomic_store_explicit(&w->free, free & (free - 1), memory_order_relaxed);
    *ret = cache->tiny_at + (size_t)__builtin_ctzll(free) * QY_TINY;
    return true;
}

// p has the tag of the calling thread's heap, and this class.
void qy_tiny_free(qy_cache_t *cache, void *p);
// The thread's heap has another slab than before, which may lie where one was that the thread freed blocks of.
void qy_tiny_forget(qy_thread_t *t);
// Says what is wrong with p, and ends the process. (It is not said to, so that it is called by a jump.)
void qy_tiny_misfreed(void *p);
// p has that of another's heap. False: it is no block in use.
bool qy_tiny_free_remote(qy_thread_t *t, void *p);
// p is a block in use of slab s; t: the calling thread, or NULL.
void qy_tiny_free_any(qy_thread_t *t, qy_slab_t *s, void *p);

// Tell the owners of what t freed.
void qy_tiny_tell(qy_thread_t *t);

// Is the block in use, as far as it can be seen without a lock? i: of a block that was carved.
QY_INLINE bool qy_tiny_is_free(const qy_slab_t *s, size_t i) {
    qy_tiny_word_t *w = &s->tiny->word[i / 64];
    uint64_t free = atomic_load_explicit(&w->free, memory_order_relaxed) |
                    atomic_load_explicit(&w->remote, memory_order_relaxed);
    return free >> (i % 64) & 1;
}

// ---- the heap's lock is needed (tiny_slab.c) -----------------------------------------------------------------

// Bits for the slab, all 0; NULL: no memory.
qy_tiny_t *qy_tiny_record_new(qy_slab_t *s);
void qy_tiny_record_delete(qy_tiny_t *tiny);

// The next word of the slab that has a free block by `some` becomes the thread's current one. False: there is none.
bool qy_tiny_next_word(qy_thread_t *t, qy_slab_t *s);

// These three take the lock. Neither the thread's current word nor its slab has a free block: another one becomes the
// current one. False: no memory.
bool qy_tiny_refill(qy_thread_t *t);
// All blocks of this page are free: it comes home. The slab may go.
void qy_tiny_page_home(qy_heap_t *h, qy_slab_t *s, unsigned page);
// The slab's first free block: it is to be found by its bin's list.
void qy_tiny_has_some(qy_heap_t *h, qy_slab_t *s);

// The rest is called with it.

// The thread has no current word any more.
void qy_tiny_leave(qy_thread_t *t);
// The slab was in h's mailbox.
void qy_tiny_take_in(qy_heap_t *h, qy_slab_t *s);
// What others took out of the mailbox, if the caller may take it in now.
void qy_tiny_take_mail(qy_heap_t *h);
// Pages at home go back to the kernel. Bytes.
size_t qy_tiny_purge(qy_heap_t *h, qy_slab_t *s);
// All free blocks that were carved, on whatever pages.
uint32_t qy_tiny_free_blocks(const qy_slab_t *s);
// In a child of a fork a thread of the parent may have left something halfway: put it right, once.
void qy_tiny_mend_words(qy_heap_t *h);
QY_INLINE void qy_tiny_mend(qy_heap_t *h) {
    if (QY_UNLIKELY(atomic_load_explicit(&h->tiny_at, memory_order_relaxed))) qy_tiny_mend_words(h);
}
// NULL, or what is wrong with the bits.
const char *qy_tiny_check(const qy_heap_t *h, const qy_slab_t *s);
// May the slab be on the list that it is on, though it belongs on another one, since nobody looked at it under the
// lock?
bool qy_tiny_may_be_on(const qy_heap_t *h, const qy_slab_t *s, unsigned wanted);

QY_INLINE bool qy_tiny_any(const qy_slab_t *s) {
    return (atomic_load_explicit(&s->tiny->some[0], memory_order_relaxed) |
               atomic_load_explicit(&s->tiny->some[1], memory_order_relaxed)) != 0;
}

#endif
