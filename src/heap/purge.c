// SPDX-License-Identifier: MIT
// purge.c: see purge.h.
#include "heap/purge.h"

#include "heap/cache.h"
#include "heap/cache_flush.h"
#include "heap/heaps.h"
#include "heap/helper.h"
#include "heap/huge.h"
#include "heap/lists.h"
#include "heap/remote.h"
#include "heap/slab.h"
#include "heap/stats_page.h"
#include "heap/waste.h"
#include "os/os.h"
#include "pages/purging.h"
#include "pages/chunk.h"
#include "pages/meta.h"
#include "rt/heuristics.h"
#include "rt/opts.h"

#define WASTE_REST ((size_t)256 << 10)  // with no more than this left the thread may end
#define STEP_SLABS 64                   // slabs looked at under one hold of a heap's lock
#define ENDING_MIN ((size_t)256 << 10)  // a process that ends gives back nothing where there is less
#define YOUNG_GROWS 2                   // so often a process of one thread may need again what it gave back itself;
#define YOUNG_SLABS ((size_t)32 << 20)  // with more than this in slabs the helper begins
#define UNITS_STEP ((size_t)4 << 20)    // of pages under one hold of their lock

static struct {
    _Atomic uint64_t last_ns;  // when the epoch last advanced
    _Atomic size_t stays;      // without a helper: waste that could not be given back (locked pages, denied)
    // memory in use and waste when a process of one thread last gave back what was far too much, ...
    _Atomic size_t used;
    _Atomic uint32_t grew;  // ... and how often it had grown since
} purge;

// ---- slabs --------------------------------------------------------------------------------------

// A few slabs of a locked heap, from where the last step ended, until `most` bytes have gone. *ret_waits: some were
// touched too recently. Returns bytes given back.
static size_t purge_some_slabs(qy_heap_t *h, uint32_t epoch, uint32_t age, size_t most, bool *ret_waits) {
    QY_NEEDS(&h->lock);
    size_t total = 0;
    qy_slab_t *s = h->purge_at;
    for (int i = 0; s && i < STEP_SLABS && total < most; i++) {
        qy_slab_t *next = s->all_next;
        if (s->kind == QY_SPAN_SLAB && qy_slab_home(s) && s->purge_seen != s->epoch + 1) {
            if (epoch - s->epoch < age) {
                *ret_waits = true;
            } else {
                // Never equal to the epoch of a slab not looked at. Of one that was touched in this epoch, more may
                // come home in it.
                if (s->epoch != epoch) s->purge_seen = s->epoch + 1;
                if (qy_slab_home(s) == s->ncarved && atomic_load_explicit(&s->remote, memory_order_acquire) == 0) {
                    h->bins[s->cls].nempty--;
                    qy_slab_release(h, s);  // its units are dirty now and age on their own
                } else {
                    total += qy_slab_purge(h, s);
                }
            }
        }
        s = next;
    }
    h->purge_at = s;
    return total;
}

// `patient`: wait for it, unless it is being walked, perhaps by the very thread that asks; or by one that asks for the
// purge lock next, so a walk is seen also when it begins while we wait.
static bool lock_heap(qy_heap_t *h, bool patient) {
    return patient ? qy_lock_take_unless_out(&h->lock) : qy_heap_trylock(h);
}

// Does somebody wait for the end of this round: of the helper's, who ends it, or of the purge lock?
static bool hurry(void) { return qy_lock_is_waited(qy_purging_lock()) || qy_helper_is_to_end(); }

// One round over all heaps, or until `most` has gone; heaps that are busy wait for the next.
static size_t purge_heaps(uint32_t epoch, uint32_t age, size_t most, bool patient, bool *ret_waits) {
    size_t total = 0;
    for (qy_heap_t *h = qy_heap_first(); h && total < most; h = h->next) {
        bool waits = false;
        for (bool first = true;; first = false) {
            if ((!patient && hurry()) || !lock_heap(h, patient)) {
                waits = true;
                break;
            }
            if (first) {
                qy_remote_drain(h);
                qy_lists_unpark(h);
                h->purge_at = h->all;
            }
            // Up to the first from which something goes: system calls are not made in a row under a lock that the
            // program's threads may want.
            total += purge_some_slabs(h, epoch, age, 1, &waits);
            bool more = h->purge_at != NULL;
            if (!more && !waits) h->purge_mark = qy_waste_bytes_in(h);
            qy_lock_drop(&h->lock);
            if (!more || total >= most) break;
        }
        *ret_waits |= waits;
    }
    return total;
}

// ---- the helper -----------------------------------------------------------------------------------

// A small step: pages go back under the lock of all of them, which the program may want.
static size_t purge_units(uint32_t epoch, uint32_t age) {
    size_t step = qy_max(UNITS_STEP, qy_units_touched_bytes() / 256), total = 0, gone;
    size_t most = qy_purging_may(QY_PURGING_AGED, SIZE_MAX, 0);
    do total += gone = qy_units_purge(epoch, age, 0, step);
    while (gone >= step && total < most && !hurry());
    return total;
}

static size_t round_of_helper(bool *ret_rest) {
    // Then it ends. The program's threads do it, or nobody, where the program has said so meanwhile (mallopt).
    if (qy_os_is_watched() || !qy_opts.purge) return *ret_rest = false;
    uint32_t epoch = qy_purging_next_epoch();
    atomic_store_explicit(&purge.last_ns, qy_os_now_coarse_ns(), memory_order_relaxed);
    if (!qy_lock_try(qy_purging_lock())) return SIZE_MAX;
    bool waits = false;
    uint32_t age = qy_age();
    size_t work = purge_heaps(epoch, age, SIZE_MAX, false, &waits);
    if (!hurry()) work += qy_huge_purge();
    if (!hurry()) work += purge_units(epoch, age);
    qy_age_released(work);
    *ret_rest = waits || hurry() || qy_units_dirty_bytes() > WASTE_REST;
    qy_lock_drop(qy_purging_lock());
    if (!qy_helper_is_to_end()) qy_stats_page_round();
    return work;
}

// There is twice as much waste as stays. What could not be given back the last time is not tried again with each free:
// as much must come on top of it as if it were not there. (Which may be used again meanwhile: then it is less.)
static bool purge_is_much(qy_purging_event_t event) {
    size_t waste = qy_units_dirty_bytes(), stays = atomic_load_explicit(&purge.stays, memory_order_relaxed);
    // a race costs a try too many or late
    if (waste < stays) atomic_store_explicit(&purge.stays, stays = waste, memory_order_relaxed);
    return waste > stays + 2 * qy_purging_keeps(event);
}

// Down to what stays, if it can be.
static void give_back_much(qy_purging_event_t event, uint32_t epoch) {
    size_t keep = qy_purging_keeps(event), most = qy_purging_may(event, SIZE_MAX, 0);
    if (qy_units_purge(epoch, 0, keep, most) >= most) return;  // there may be more that can go
    size_t waste = qy_units_dirty_bytes();
    atomic_store_explicit(&purge.stays, waste - qy_min(waste, keep), memory_order_relaxed);
}

// Without a helper: by the clock, from the slow paths. Other heaps' locks are not taken: the caller
// may hold one, `h` (or NULL).
static void step_inline(qy_heap_t *h) {
    uint64_t now = qy_os_now_coarse_ns(), last = atomic_load_explicit(&purge.last_ns, memory_order_relaxed);
    bool due = now - last >= qy_opts.purge_delay * 1000000 / 2, much = purge_is_much(QY_PURGING_ALONE);
    if ((!due && !much) || !qy_lock_try(qy_purging_lock())) return;
    uint32_t epoch = qy_purging_epoch();
    if (due) {
        atomic_store_explicit(&purge.last_ns, now, memory_order_relaxed);
        epoch = qy_purging_next_epoch();
        uint32_t age = qy_age();
        size_t work = 0;
        if (h) {
            if (!h->purge_at) {
                qy_lists_unpark(h);
                h->purge_at = h->all;
                h->purge_waits = false;
            }
            // There is one step in each epoch, so it may take long.
            work += purge_some_slabs(h, epoch, age, SIZE_MAX, &h->purge_waits);
            if (!h->purge_at && !h->purge_waits) h->purge_mark = qy_waste_bytes_in(h);
        }
        work += qy_huge_purge();
        work += qy_units_purge(epoch, age, 0, qy_purging_may(QY_PURGING_AGED, SIZE_MAX, 0));
        qy_age_released(work);
    }
    if (much) give_back_much(QY_PURGING_ALONE, epoch);
    qy_lock_drop(qy_purging_lock());
}

// ---- in a process of one thread ---------------------------------------------------------------------
// There the helper would be seen, and mostly for nothing: memory that has just been freed is often used again, or the
// process ends. But when such a thread falls asleep nobody can start a helper any more. So what is far too much goes
// back at once; which costs a program that needs it again, again and again, so that one gets its helper after the
// second time.

static size_t memory_now(void) { return qy_units_touched_bytes() + qy_huge_live_bytes(); }

// Does it go up and down?
static bool grows_again(void) {
    if (memory_now() <= atomic_load_explicit(&purge.used, memory_order_relaxed) + qy_purging_keeps(QY_PURGING_YOUNG))
        return false;
    return atomic_fetch_add_explicit(&purge.grew, 1, memory_order_relaxed) >= YOUNG_GROWS;
}

static void give_back_young(void) {
    if (!qy_lock_try(qy_purging_lock())) return;
    give_back_much(QY_PURGING_YOUNG, qy_purging_epoch());
    atomic_store_explicit(&purge.used, memory_now(), memory_order_relaxed);
    qy_lock_drop(qy_purging_lock());
}

// Has there been waste for an epoch?
static bool is_old(_Atomic uint64_t *since) {
    uint64_t now = qy_os_now_coarse_ns(), first = atomic_load_explicit(since, memory_order_relaxed);
    if (!first) atomic_store_explicit(since, first = now, memory_order_relaxed);
    return now - first >= qy_opts.purge_delay * 1000000 / 2;
}

// ---- waste is seen ------------------------------------------------------------------------------------

// From before a fork until qy_purge_after_fork, which takes what runs for the parent's: a thread that the handler of
// another library started in the child would be forgotten, and the next one begin on the same stack. The next free that
// finds as much waste starts it. Held, not frozen, by this thread: a handler forks that interrupted a trim; or it is a
// trim, which gives back itself.
static bool is_forking(void) { return qy_lock_forks(qy_purging_lock()) || qy_lock_is_mine(qy_purging_lock()); }

static void see_to_it(qy_heap_t *h, qy_waste_kind_t kind, size_t slabs) {
    if (!qy_opts.purge) return;
    bool watched = qy_os_is_watched();  // then a helper that runs is not asked to stay
    if (!watched && qy_helper_runs()) return;
    if (watched || !qy_opts.purge_thread || qy_helper_impossible()) {
        step_inline(h);
        return;
    }
    if (is_forking()) return;
    bool at_once = qy_heaps_threads() > 1 || slabs > YOUNG_SLABS || qy_helper_at_once,
         much = !at_once && purge_is_much(QY_PURGING_YOUNG);
    if (is_old(&qy_waste_since[kind]) || at_once || (much && grows_again())) {
        // It is to count from now on, and to go on counting if it is ended meanwhile.
        uint64_t now = qy_os_now_coarse_ns();
        if (now - atomic_load_explicit(&purge.last_ns, memory_order_relaxed) >= qy_opts.purge_delay * 1000000 / 2)
            atomic_store_explicit(&purge.last_ns, now, memory_order_relaxed);
        qy_helper_start(round_of_helper, &purge.last_ns);
    } else if (much) {
        give_back_young();
    }
}

void qy_purge_begin(void) { qy_waste_notify(see_to_it); }

// ---- all at once ------------------------------------------------------------------------------------

// What is free on pages that are there, once all blocks are at home that can be.
static size_t waste_now(void) {
    size_t slabs = 0;
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) {
        if (!lock_heap(h, true)) continue;
        qy_remote_drain(h);
        qy_lists_unpark(h);
        slabs += qy_waste_bytes_in(h);
        qy_lock_drop(&h->lock);
    }
    return slabs + qy_units_dirty_bytes();
}

size_t qy_purge_all(size_t keep) {
    qy_thread_t *t = qy_thread_get();
    if (t) qy_thread_flush(t);
    bool waits = false;
    qy_lock_take(qy_purging_lock());
    // An epoch of its own, so that what is freed after this is not taken for what was looked at.
    uint32_t epoch = qy_purging_next_epoch();
    size_t most = SIZE_MAX;
    if (keep) {
        size_t waste = waste_now();
        most = waste - qy_min(waste, keep);
    }
    // What stays are free units rather than pages in slabs: they serve all sizes.
    size_t total = purge_heaps(epoch, 0, most, true, &waits);
    total += qy_huge_purge();
    total += qy_units_purge(epoch, 0, keep, SIZE_MAX);
    qy_units_release_if_scarce();
    qy_lock_drop(qy_purging_lock());
    return total;
}

void qy_purge_everything(void) {
    qy_purge_all(0);
    qy_units_release();
}

// Is it free? If not it may be held by what a signal interrupted whose handler ends the process.
static bool is_free(qy_lock_t *lock) {
    bool ours = qy_lock_try(lock);
    if (ours) qy_lock_drop(lock);
    return ours;
}

void qy_purge_ending(void) {
    qy_thread_t *t = qy_thread_state == QY_THREAD_LIVE ? QY_CACHE->thread : NULL;
    size_t most = QY_WITH(early) && t ? qy_purging_may(QY_PURGING_ENDING, SIZE_MAX, qy_units_touched_bytes()) : 0;
    if (!most || !is_free(qy_units_lock()) ||
        !is_free(qy_meta_lock()) || !is_free(qy_huge_lock()) || !is_free(qy_heaps_lock()) || !qy_heap_trylock(t->heap))
        return;
    size_t waste = qy_units_dirty_bytes() + qy_waste_bytes_in(t->heap);
    qy_lock_drop(&t->heap->lock);
    if (waste < ENDING_MIN || !qy_lock_try(qy_purging_lock())) return;
    uint32_t epoch = qy_purging_epoch();
    size_t total = qy_units_purge(epoch, 0, 0, most);
    if (total < most) {
        bool waits = false;
        qy_thread_flush(t);
        total += purge_heaps(epoch, 0, most - total, false, &waits);
        qy_units_purge(epoch, 0, 0, most - qy_min(most, total));
    }
    qy_lock_drop(qy_purging_lock());
}

void qy_purge_after_fork(void) {
    qy_helper_after_fork();
    qy_waste_after_fork();
}
