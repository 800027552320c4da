// SPDX-License-Identifier: MIT
// draw.h: the sampler's draw: which free blocks are chosen, so that the malloc that pops one of them is sampled.
//
// Think of points on the bytes that a program asks for, one in 2^rate bytes on average, each where it likes (a
// Poisson process). An allocation of n bytes is sampled if there is a point in it: with probability p(n) = 1 - exp(-n
// / 2^rate), whoever makes it.
//
// The fast paths do not count bytes. Each pop from a thread's list takes a block that was put there by exactly one
// earlier insertion: a free, or the fill from a slab. So the draw is made for insertions, each as if for a request of
// the whole block: one in which there is a point is *chosen* and gets another mark (link.h). The pop that meets it
// fails the test that is there anyway, and comes to the slow path, which knows how many bytes are asked for: it takes
// the sample if the point lies in them. Nobody knows at the insertion which call will pop, so each call site is
// sampled with the same right. What is popped otherwise costs no instruction more, whether the sampler is on or off.
//
// Points of a class come every so many insertions. The frees of the fast path are counted by the cache's `room`
// already: while the sampler is on, room ends where the next free is to be chosen, if that comes before the
// generation is full. What room does not say is here.
//
// A choice stays with its block: through prev, the depot and parked lists. It ends where the block is linked anew: at
// home, in a pending group. Then the next insertion draws again.
//
// Off, chosen blocks may remain on lists. Each costs one slow malloc, and no sample is taken.
#ifndef QY_HEAP_DRAW_H
#define QY_HEAP_DRAW_H

#include "heap/cache.h"
#include "heap/types.h"
#include "rt/stats_page.h"
#include "stacks/unwind_bounds.h"

// What is wanted of the sampler, written from outside: it may hold anything.
#define QY_DRAW_ON ((uint64_t)QUARRY_STATS_PAGE_SAMPLER_ON)
#define QY_DRAW_ADAPTS ((uint64_t)QUARRY_STATS_PAGE_SAMPLER_ADAPTS)
// It is on for guarded blocks alone (guards.h): no event is told.
#define QY_DRAW_GUARDS QUARRY_STATS_PAGE_SAMPLER_GUARDS
#define QY_DRAW_RATE_MOST 40u
QY_INLINE uint64_t qy_draw_control(void) { return __atomic_load_n(&qy_stats_sampler.control, __ATOMIC_RELAXED); }
QY_INLINE unsigned qy_draw_rate(uint64_t control) { return (unsigned)qy_min(control % QY_DRAW_ON, QY_DRAW_RATE_MOST); }
QY_INLINE bool qy_draw_is_wanted(void) { return QY_UNLIKELY(qy_draw_control() & QY_DRAW_ON); }
// What the control word is while nobody reads. 0: off.
uint64_t qy_draw_usual(void);
// From now on. The word follows, unless a reader has written to it.
void qy_draw_set_usual(uint64_t word);
QY_INLINE bool qy_draw_is_told(uint64_t control) {
    return (control & (QY_DRAW_ON | QY_DRAW_GUARDS)) == QY_DRAW_ON;
}

// What a thread has for it. [owner]
struct qy_draw {
    uint64_t random;
    // After what room counts: blocks that come before the one that is chosen (QY_DRAW_NONE: not drawn yet), ...
    uint64_t skip[QY_CLASS_COUNT];
    uint8_t held[QY_CLASS_COUNT];  // ... and pushes that are left in the generation
    uint64_t bounds_of;            // the thread whose stack's bounds are known
    qy_bounds_t bounds;
};
#define QY_DRAW_NONE UINT64_MAX

// Is the sampler on for this thread, or is there a change that it has not seen? One load and two tests on slow paths.
QY_INLINE bool qy_draw_has_say(const qy_thread_t *t) {
    return QY_UNLIKELY((t->drawn | qy_draw_control()) & QY_DRAW_ON);
}
QY_INLINE bool qy_draw_is_on(const qy_thread_t *t) { return QY_UNLIKELY(t->drawn & QY_DRAW_ON); }

// Do what the control word says, if that is new: all of the thread's lists are drawn for, or the rooms are whole
// again. No locks are held.
void qy_draw_look(qy_thread_t *t);

// A block is freed to the list of class c, where no room is left: is it to be chosen? *ret_full: as many were freed
// as a generation has; the next one begins.
bool qy_draw_push(qy_thread_t *t, unsigned c, bool *ret_full);
// The free block b is chosen, at the thread's rate.
void qy_draw_choose(const qy_thread_t *t, qy_block_t *b);

// These `count` blocks come onto the list of class c, from a slab.
void qy_draw_list(qy_thread_t *t, unsigned c, qy_block_t *list, uint32_t count);
// The free block b is on the list, and was popped in vain: as if it came onto it now.
void qy_draw_again(qy_thread_t *t, unsigned c, qy_block_t *b);

// A chosen block of class c is popped by who asks for n bytes: is there a point in these?
bool qy_draw_accepts(qy_thread_t *t, unsigned c, unsigned rate, size_t n);
// A block of 8 bytes, which was on no list, is asked for n bytes, and cache.tiny_left is 0: is it sampled? Sets
// tiny_left, by which requests are counted, whether the sampler is on or off. No locks.
bool qy_draw_tiny(qy_thread_t *t, size_t n);
// A sampler that was switched on or off is heard of after so many requests at the latest.
#define QY_DRAW_TINY_MOST 255u
// n bytes are given out that were on no list: is there a point in them? Threads: any; no locks.
bool qy_draw_at_once(unsigned rate, size_t n);

// So many bytes a sampled block of n bytes stands for: n / p(n).
uint64_t qy_draw_stands_for(unsigned rate, size_t n);

// Pushes left in the generation of class c, and setting them.
unsigned qy_draw_room_on(const qy_thread_t *t, unsigned c);
void qy_draw_set_room_on(qy_thread_t *t, unsigned c, unsigned room);
// A generation of class c is full with a free, as most are, and the next block to be chosen comes after the next one:
// that is counted here, and the next one may begin with all its room. False: ask qy_draw_push.
QY_INLINE bool qy_draw_passes_generation(const qy_thread_t *t, unsigned c) {
    if (QY_UNLIKELY(t->drawn != qy_draw_control() || !t->draw)) return false;
    uint64_t *skip = &t->draw->skip[c], most = qy_class_limit[c];
    if (QY_UNLIKELY(*skip <= most || *skip == QY_DRAW_NONE)) return false;
    qy_assert(!t->draw->held[c]);  // pushes are held back only where room ends at a choice: skip is 0 then
    *skip -= most + 1;
    return true;
}

// A push that finds none leaves 0 in the cache for a moment.
QY_INLINE unsigned qy_draw_room_of(const qy_cache_t *cache, unsigned c) {
    return cache->room[c] ? cache->room[c] - 1u : 0;
}
QY_INLINE void qy_draw_set_room_of(qy_cache_t *cache, unsigned c, unsigned room) {
    cache->room[c] = (uint8_t)(room + 1);
}
QY_INLINE unsigned qy_draw_room(const qy_thread_t *t, unsigned c) {
    return qy_draw_is_on(t) ? qy_draw_room_on(t, c) : qy_draw_room_of(&t->cache, c);
}
QY_INLINE void qy_draw_set_room(qy_thread_t *t, unsigned c, unsigned room) {
    if (qy_draw_is_on(t)) qy_draw_set_room_on(t, c, room);
    else qy_draw_set_room_of(&t->cache, c, room);
}

#endif
