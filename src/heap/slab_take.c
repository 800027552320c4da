// SPDX-License-Identifier: MIT
// slab_take.c: free blocks of a class for a thread's cache: what is at home, purged pages, uncarved memory, a new slab.
#include "heap/depot.h"
#include "heap/heaps.h"
#include "heap/sizeclass.h"
#include "heap/link.h"
#include "heap/cache.h"
#include "heap/lists.h"
#include "heap/waste.h"
#include "heap/remote.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "os/os.h"
#include "pages/purging.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "rt/heuristics.h"

#define PAGE ((size_t)4096)

// To touch these pages at once takes two thirds of the time of one by one. What was begun is there already, and all
// where pages are huge. A kernel before 5.14 cannot.
void qy_slab_populate(char *at, size_t bytes) {
    static _Atomic bool denied;
    char *from = (char *)qy_round_up((uintptr_t)at, PAGE), *to = (char *)qy_round_up((uintptr_t)at + bytes, PAGE);
    if (!QY_WITH(carve) || to <= from + PAGE || qy_os_page_size() != PAGE || qy_os_thp_always()) return;
    if (atomic_load_explicit(&denied, memory_order_relaxed)) return;
    if (!qy_os_populate(from, (size_t)(to - from))) atomic_store_explicit(&denied, true, memory_order_relaxed);
}

// Fresh memory that is not: the block before was written past its end, or this one was freed, and perhaps given out,
// without having been allocated.
// The first block on a page is read by an operation that writes. At a mere read the kernel would map its page of zeros,
// and the write that follows would fault once more, and interrupt all other processors that run the process.
QY_INLINE void must_be_zero(qy_block_t *b, size_t size) {
    bool first = ((uintptr_t)b & (PAGE - 1)) < size;
    uint64_t link = first ? __atomic_exchange_n(&b->link, 0, __ATOMIC_ACQUIRE) : b->link;
    if (QY_UNLIKELY(link | b->mark)) qy_fatal(QY_FAULT_CORRUPT_LINK, b, "written to before it was allocated");
}

// Behind the last block there may be places for another one, too short or one too many: they carry the mark of a free
// block, so that who frees a pointer to one is sent to the slow path, which knows that no block is there.
QY_NOINLINE static void mark_edge(const qy_slab_t *s) {
    uintptr_t last = (uintptr_t)qy_slab_block(s, s->nblocks - 1), end = (uintptr_t)s->base + (size_t)s->units * QY_UNIT;
    end = qy_min(end, qy_round_down(last, QY_TAG_PAGE) + QY_TAG_PAGE);
    for (uint32_t i = s->nblocks; (uintptr_t)qy_slab_block(s, i) < end; i++) qy_link_set(qy_slab_block(s, i), NULL);
}

// Cut new blocks from the uncarved part: all that begin on the page that the first one begins on, so that
// a small heap touches no page it does not use, and no page with a tag (map.h) has a place where a block may yet begin;
// four pages once the class has some slabs. Fresh blocks of a page and more come one by one, and are not touched:
// whoever has them waits for
// their pages, not malloc.
static qy_block_t *carve(qy_heap_t *h, qy_slab_t *s, unsigned want, bool *ret_fresh) {
    size_t size = qy_class_size[s->cls], page = PAGE;
    if (h->bins[s->cls].nslabs >= 4 && QY_WITH(carve)) page *= 4;
    char *at = s->origin + (size_t)s->ncarved * size;
    char *page_end = (char *)qy_round_down((uintptr_t)at, page) + page;
    uint32_t n = s->fresh && size >= PAGE ? 1 : (uint32_t)(((size_t)(page_end - at) + size - 1) / size);
    n = (uint32_t)qy_min(qy_min(n, want), s->nblocks - s->ncarved);
    qy_slab_leaves_empty(h, s);
    __atomic_store_n(&s->ncarved, s->ncarved + n, __ATOMIC_RELAXED);
    qy_slab_set_tags(h, s, s->ncarved - n);
    *ret_fresh = n == 1 && s->fresh;
    if (*ret_fresh) {
        if (size < PAGE) must_be_zero((qy_block_t *)at, size);
        if (s->ncarved == s->nblocks) mark_edge(s);
        return (qy_block_t *)at;
    }
    if (s->fresh) qy_slab_populate(at, (n - 1) * size + sizeof(qy_block_t));  // where links will be
    if (s->ncarved == s->nblocks) mark_edge(s);
    qy_block_t *first = (qy_block_t *)at, *b = first;
    for (uint32_t i = 1;; i++) {
        if (s->fresh) must_be_zero(b, size);
        if (i == n) break;
        qy_block_t *next = (qy_block_t *)((char *)b + size);
        qy_link_set(b, next);
        b = next;
    }
    qy_link_set(b, NULL);
    return first;
}

// A list of the lowest n blocks of these bits, which are cleared, from word w on.
static qy_block_t *lowest(qy_slab_t *s, uint64_t *bits, uint32_t w, uint32_t n, bool purged) {
    qy_block_t *first = NULL, *last = NULL;
    if (!n) return NULL;
    for (; n; w++) {
        uint64_t word = bits[w];
        for (; word && n; n--, word &= word - 1) {
            qy_block_t *b = qy_slab_block(s, w * 64 + (uint32_t)__builtin_ctzll(word));
            if (QY_UNLIKELY(!purged && !qy_link_valid(b)))
                qy_fatal(QY_FAULT_CORRUPT_LINK, b, QY_LINK_WRITTEN);
            if (last) qy_link_set(last, b);
            else first = b;
            last = b;
        }
        bits[w] = word;
    }
    qy_link_set(last, NULL);
    return first;
}

// Blocks at home by their bit, of small ones a generation at most. The lowest ones, in the order of their addresses: in
// whatever order they came home, who allocates then goes through memory forwards, and what is allocated together lies
// together.
static qy_block_t *take_home(qy_heap_t *h, qy_slab_t *s, unsigned want) {
    uint32_t n = (uint32_t)qy_min(want, s->nhome);
    if (s->cls <= QY_CLASS_SMALL) n = qy_min(n, qy_class_limit[s->cls]);
    qy_slab_leaves_empty(h, s);
    s->nhome -= n;
    h->free_bytes -= n * (size_t)qy_class_size[s->cls];
    while (!s->home[s->low]) s->low++;
    return lowest(s, s->home, s->low, n, false);
}

// The chain that another thread handed over, as it is: it is not walked here.
static qy_block_t *take_chain(qy_heap_t *h, qy_slab_t *s) {
    qy_block_t *chain = s->chain;
    qy_slab_leaves_empty(h, s);
    h->free_bytes -= (size_t)(s->nchain - s->nchain2) * qy_class_size[s->cls];
    s->chain = s->chain2;
    s->nchain = s->nchain2;
    s->chain2 = NULL;
    s->nchain2 = 0;
    return chain;
}

static qy_block_t *take_one_of_chain(qy_heap_t *h, qy_slab_t *s) {
    qy_block_t *b = s->chain;
    qy_slab_leaves_empty(h, s);
    h->free_bytes -= qy_class_size[s->cls];
    s->nchain--;
    s->chain = qy_link_next(b);
    qy_link_set(b, NULL);
    if (!s->chain) {
        s->chain = s->chain2;
        s->chain2 = NULL;
        s->nchain2 = 0;
    }
    return b;
}

// Take purged blocks into use again: the lowest ones, a page's worth.
static qy_block_t *recarve(qy_heap_t *h, qy_slab_t *s, unsigned want) {
    size_t size = qy_class_size[s->cls];
    uint32_t n = (uint32_t)qy_min(qy_max(1, 4096 / size), qy_min(want, s->npurged));
    qy_slab_leaves_empty(h, s);
    s->npurged -= n;
    h->free_bytes -= n * size;
    h->purged_bytes -= n * size;
    qy_age_again(n * size);
    qy_purging_regret(n * size, s->purged_ns);
    qy_block_t *first = lowest(s, s->purged, 0, n, true);
    if (s->npurged) return first;
    qy_slab_set_tags(h, s, 0);
    if (s->ncarved == s->nblocks) mark_edge(s);  // it may have gone with its page
    return first;
}

static qy_block_t *take_from(qy_heap_t *h, qy_slab_t *s, unsigned want, uint32_t *ret_count, bool *ret_fresh) {
    QY_NEEDS(&h->lock);
    *ret_fresh = false;
    s->epoch = qy_purging_epoch();
    uint32_t out = s->ncarved - qy_slab_home(s);
    qy_block_t *list;
    if (s->chain) list = want == 1 ? take_one_of_chain(h, s) : take_chain(h, s);
    else if (s->nhome) list = take_home(h, s, want);
    else if (s->npurged) list = recarve(h, s, want);
    else list = carve(h, s, want, ret_fresh);
    *ret_count = s->ncarved - qy_slab_home(s) - out;
    if (s->cls <= QY_CLASS_SMALL) h->lent += (size_t)*ret_count * qy_class_size[s->cls];
    qy_slab_relist(h, s);
    return list;
}

// ---- memory that one class keeps and another one is about to need ----------------------------------------
//
// A thread's lists keep blocks of each class that was ever used, each of which keeps a slab from becoming empty, and
// empty slabs of each class stay (qy_slab_settle). That is what makes frees and allocations cheap, and a program that
// goes through phases of different sizes pays for it in memory. So, when a heap has made slabs of an eighth of what it
// holds, all of it goes where another class can take it. Who allocates the same sizes over and over makes slabs because
// of that, and would pay for it each time: it may take a thirty-second of the time.

#define RECLAIM_PART 8u                    // of the bytes in slabs so much has been made since the last time, ...
#define RECLAIM_LEAST ((size_t)128 << 10)  // ... and as much as this

// About what it costs, with what comes after: blocks are linked anew, slabs made. Of the time that passes, one part in
// so many.
#define NS_BEGIN 500u
#define NS_LIST 500u
#define NS_BLOCK 20u
#define NS_SLAB 1000u
#define RECLAIM_SHARE 32u

// Nanoseconds. The lists of class c stay: the calling thread is about to fill one.
static uint64_t lists_home(qy_heap_t *h, unsigned c) {
    uint64_t cost = 0;
    qy_thread_t *t = QY_CACHE->thread;
    if (!t || t->heap != h) return 0;
    for (unsigned d = 1; d < QY_CLASS_COUNT; d++) {
        if (d == c || qy_lists_are_empty(t, d)) continue;
        qy_block_t *prev, *head = qy_lists_empty(t, d, &prev);
        size_t bytes = 0;
        if (head) bytes += qy_slab_put_list(h, head);
        if (prev) bytes += qy_slab_put_list(h, prev);
        t->moved += bytes;
        cost += NS_LIST + bytes / qy_class_size[d] * NS_BLOCK;
    }
    return cost;
}

QY_NOINLINE static void reclaim(qy_heap_t *h, unsigned c) {
    uint64_t now = qy_os_now_ns();
    if (now < h->reclaim_at) {
        h->made_bytes /= 2;  // not the clock before each slab
        return;
    }
    h->made_bytes = 0;
    uint64_t cost = NS_BEGIN + lists_home(h, c);
    // after the lists, which empty some; class c has none, or it would make no slab
    cost += qy_slab_release_empty(h) * NS_SLAB;
    h->reclaim_at = now + cost * RECLAIM_SHARE;
    qy_waste_in_slabs(h);
}

void qy_slab_reclaim(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    if (QY_WITH(reclaim) && h->made_bytes >= qy_max(h->slab_bytes / RECLAIM_PART, RECLAIM_LEAST)) reclaim(h, c);
}

// ---- taking ----------------------------------------------------------------------------------------------

// Refine the heap's class table around class c once enough of it exists, 256 KiB: medium classes to the finest set,
// small ones, from 1,024 blocks on, to twice as fine a set, from 4,096 blocks on to 16-byte steps.
static void refine(qy_heap_t *h, unsigned c) {
    if (c <= 8 || qy_class_is_learned(c)) return;
    size_t bytes = qy_class_slabs_bytes(c, h->bins[c].nslabs), blocks = bytes / qy_class_size[c];
    if (bytes < ((size_t)256 << 10) || (c <= QY_CLASS_SMALL && blocks < 1024)) return;
    unsigned steps = c > QY_CLASS_SMALL || blocks >= 4096 ? 1 : qy_max(1, (1u << (qy_log2_floor(c - 1) - 2)) / 2);
    unsigned top = qy_step(qy_class_most(c)), low = top;
    while (low > 1 && h->cls[low - 1] == c) low--;
    // it is as fine already, or a neighbour with more blocks made it finer
    if (h->cls[low] <= qy_class_of_step((unsigned)qy_round_up(low, steps))) return;
    for (unsigned i = low; i <= top; i++) h->cls[i] = (uint8_t)qy_class_of_step((unsigned)qy_round_up(i, steps));
    atomic_fetch_add_explicit(&h->cls_version, 1, memory_order_release);
}

// What a heap needs of an idle one.
typedef struct steal_wish {
    qy_heap_t *heap;
    unsigned cls;
} steal_wish_t;

static bool steal_from(qy_heap_t *idle, void *arg) {
    const steal_wish_t *wish = arg;
    qy_tiny_mend(idle);
    qy_remote_drain(idle);  // what is still on its way makes slabs look used
    qy_lists_unpark_class(idle, wish->cls);
    return qy_slab_steal(wish->heap, idle, wish->cls);
}

bool qy_slab_steal_idle(qy_heap_t *h, unsigned c) {
    return h->kind != QY_HEAP_FIRST_CLASS && qy_heaps_any_idle(steal_from, &(steal_wish_t){h, c});
}

// Memory that was touched comes before memory that must fault: where class c has none of it left, neither in its slabs
// nor in the page layer, one block of the next larger classes serves. Of these, which come and go at random, each would
// else grow to the most that it ever had at once, and all of them to the sum of that. A small heap has few blocks of
// each, and classes that are further apart.
#define LARGER_LEAST ((size_t)1 << 20)  // of slabs
#define LARGER_PART 4u                  // at most so much of what was asked for is wasted
static bool has_warm(const qy_heap_t *h, unsigned c) {
    const qy_slab_t *s = h->bins[c].list[QY_LIST_FRESH];
    if (!s) return qy_units_dirty_bytes() >= (size_t)qy_class_frame_units(c) << QY_UNIT_SHIFT;
    size_t at = (size_t)(s->origin - s->base) + s->ncarved * (size_t)qy_class_size[c];
    return s->touched >> (at >> QY_UNIT_SHIFT) & 1;
}

static qy_block_t *take_cached(qy_thread_t *t, unsigned d) {
    qy_block_t *b = qy_cache_list(&t->cache, d);
    if (b) {
        qy_cache_set_list(&t->cache, d, qy_link_next(b));
    } else if ((b = t->prev[d])) {
        t->prev[d] = qy_link_next(b);
    } else {
        return NULL;
    }
    qy_link_set(b, NULL);
    return b;
}

// One block of class c for n bytes.
QY_NOINLINE static qy_block_t *take_larger(qy_heap_t *h, unsigned c, size_t n, uint32_t *ret_count, bool *ret_fresh) {
    *ret_fresh = false;
    qy_thread_t *t = QY_CACHE->thread;
    if (t && t->heap != h) t = NULL;
    if (!QY_WITH(touched) || has_warm(h, c)) return NULL;
    for (unsigned d = c; qy_class_size[d] < QY_MEDIUM_MAX;) {
        d = h->cls[qy_step(qy_class_size[d] + 1u)];
        if (qy_class_size[d] > n + n / LARGER_PART) break;
        qy_block_t *b = t ? take_cached(t, d) : NULL;
        if (b) {
            *ret_count = 0;
            return b;
        }
        for (unsigned l = QY_LIST_SOME; l <= QY_LIST_EMPTY; l++) {
            qy_slab_t *s = h->bins[d].list[l];
            if (s && (s->chain || s->nhome)) return take_from(h, s, 1, ret_count, ret_fresh);
        }
    }
    return NULL;
}

qy_block_t *qy_slab_take_some(
    qy_heap_t *h, unsigned c, unsigned want, size_t larger, uint32_t *ret_count, bool *ret_fresh) {
    QY_NEEDS(&h->lock);
    qy_bin_t *bin = &h->bins[c];
    h->refills++;
    // What others gave back comes before fresh memory, and so do generations on their way home, of all classes: a slab
    // may become empty by them.
    qy_remote_drain(h);
    for (int more = 0; more < 3; more++) {
        if (more == 1 && !qy_depot_home(h)) continue;
        if (more == 2 && !qy_slab_steal_idle(h, c)) break;
        for (unsigned i = 0; i < QY_LIST_FRESH; i++)
            if (bin->list[i]) return take_from(h, bin->list[i], want, ret_count, ret_fresh);
        if (more == 0 && larger > QY_SMALL_MAX && h->slab_bytes >= LARGER_LEAST) {
            qy_block_t *b = take_larger(h, c, larger, ret_count, ret_fresh);
            if (b) return b;
        }
        if (bin->list[QY_LIST_FRESH]) return take_from(h, bin->list[QY_LIST_FRESH], want, ret_count, ret_fresh);
    }
    qy_slab_reclaim(h, c);
    qy_slab_t *s = qy_slab_new(h, c);
    if (!s) return NULL;
    refine(h, c);  // only now: a heap at its limit could not use another class
    qy_learn(h, c);
    return take_from(h, s, want, ret_count, ret_fresh);
}

qy_block_t *qy_slab_take(qy_heap_t *h, unsigned c, uint32_t *ret_count, bool *ret_fresh) {
    return qy_slab_take_some(h, c, UINT32_MAX, 0, ret_count, ret_fresh);
}
qy_block_t *qy_slab_take_one(qy_heap_t *h, unsigned c, bool *ret_fresh) {
    uint32_t one;
    return qy_slab_take_some(h, c, 1, 0, &one, ret_fresh);
}
