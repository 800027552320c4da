// SPDX-License-Identifier: MIT
// purge.c: see purge.h.
#include "heap/purge.h"

#include "heap/age.h"
#include "heap/cache.h"
#include "heap/chunk.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/lists.h"
#include "heap/meta.h"
#include "heap/remote.h"
#include "heap/slab.h"
#include "heap/stats_page.h"
#include "os/os.h"
#include "rt/opts.h"

#define STACK_BYTES ((size_t)64 * 1024)
#define WASTE_MIN ((size_t)4 << 20)     // less than this is not worth a thread
#define WASTE_HEAP ((size_t)512 << 10)  // of one heap of many; together they have no more than that, or so much each
#define WASTE_REST ((size_t)256 << 10)  // with no more than this left the thread may end
#define STEP_BYTES ((size_t)256 << 20)  // most to purge in one round of the page layer
#define STEP_SLABS 64                   // slabs looked at under one hold of a heap's lock
#define ENDING_MIN ((size_t)256 << 10)  // a process that ends gives back nothing where there is less,
#define ENDING_MOST ((size_t)1 << 20)   // and so much,
#define ENDING_PART 32u                 // or this part of all
#define SYNC_KEEP ((size_t)32 << 20)    // without a thread: dirty memory above this goes at once

enum { THREAD_NONE,
    THREAD_RUNS,
    THREAD_IMPOSSIBLE };

static struct {
    qy_lock_t lock;  // held during each round: two rounds never overlap, and fork waits for it
    _Atomic uint32_t epoch;
    _Atomic uint32_t thread;
    _Atomic uint32_t alive;    // cleared by the kernel when the thread has let go of its stack
    _Atomic uint32_t asked;    // somebody found the thread running and left the work to it
    _Atomic uint32_t never;    // a word nobody wakes, to sleep on
    _Atomic uint64_t last_ns;  // without a thread: when the epoch last advanced; ...
    _Atomic size_t stays;      // ... and waste that could not be given back (locked pages, denied)
    void *stack;
    _Atomic size_t count, bytes;
} purge;

uint32_t qy_purge_epoch(void) { return atomic_load_explicit(&purge.epoch, memory_order_relaxed); }
bool qy_purge_epoch_runs(void) { return qy_opts.purge; }

void qy_purge_count(size_t bytes) {
    atomic_fetch_add_explicit(&purge.count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&purge.bytes, bytes, memory_order_relaxed);
}
size_t qy_purge_counted(size_t *ret_bytes) {
    *ret_bytes = atomic_load_explicit(&purge.bytes, memory_order_relaxed);
    return atomic_load_explicit(&purge.count, memory_order_relaxed);
}

static size_t waste_of_pages(void) { return qy_units_dirty_bytes() + qy_huge_cached_bytes(); }
static size_t waste_of_heap(const qy_heap_t *h) { return h->free_bytes - h->purged_bytes + h->depot_bytes; }
static size_t waste_worth_it(void) { return qy_max(WASTE_MIN / qy_max(1, qy_heaps_made()), WASTE_HEAP); }

// ---- slabs --------------------------------------------------------------------------------------

// A few slabs of a locked heap, from where the last step ended, until `most` bytes have gone. *ret_waits: some were touched too
// recently. Returns bytes given back.
static size_t purge_some_slabs(qy_heap_t *h, uint32_t epoch, uint32_t age, size_t most, bool *ret_waits) {
    size_t total = 0;
    qy_slab_t *s = h->purge_at;
    for (int i = 0; s && i < STEP_SLABS && total < most; i++) {
        qy_slab_t *next = s->all_next;
        if (s->kind == QY_SPAN_SLAB && qy_slab_home(s) && s->purge_seen != s->epoch + 1) {
            if (epoch - s->epoch < age) {
                *ret_waits = true;
            } else {
                // Never equal to the epoch of a slab not looked at. Of one that was touched in this epoch, more may come home in it.
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

// `patient`: wait for it, unless it is being walked, perhaps by the very thread that asks; or by one that asks for the purge lock
// next, so a walk is seen also when it begins while we wait.
static bool lock_heap(qy_heap_t *h, bool patient) { return patient ? qy_lock_take_unless_out(&h->lock) : qy_heap_trylock(h); }

// One round over all heaps, or until `most` has gone; heaps that are busy wait for the next.
static size_t purge_heaps(uint32_t epoch, uint32_t age, size_t most, bool patient, bool *ret_waits) {
    size_t total = 0;
    for (qy_heap_t *h = qy_heap_first(); h && total < most; h = h->next) {
        bool waits = false;
        for (bool first = true;; first = false) {
            if (!lock_heap(h, patient)) {
                waits = true;
                break;
            }
            if (first) {
                qy_remote_drain(h);
                qy_lists_unpark(h);
                h->purge_at = h->all;
            }
            // Up to the first from which something goes: system calls are not made in a row under a lock that the program's
            // threads may want.
            total += purge_some_slabs(h, epoch, age, 1, &waits);
            bool more = h->purge_at != NULL;
            if (!more && !waits) h->purge_mark = waste_of_heap(h);
            qy_lock_drop(&h->lock);
            if (!more || total >= most) break;
        }
        *ret_waits |= waits;
    }
    return total;
}

// ---- the thread -----------------------------------------------------------------------------------

static void run(void *arg) {
    (void)arg;
    // Nothing here, nor in what it calls, may use errno, libc or thread-local storage.
    if (!qy_os_sandbox_thread()) {
        atomic_store_explicit(&purge.thread, THREAD_IMPOSSIBLE, memory_order_release);
        return;
    }
    for (int rounds_without_work = 0;;) {
        qy_os_wait(&purge.never, 0, qy_opts.purge_delay * 1000000 / 2);
        uint32_t epoch = atomic_fetch_add_explicit(&purge.epoch, 1, memory_order_relaxed) + 1;
        if (!qy_lock_try(&purge.lock)) continue;
        atomic_store(&purge.asked, 0);  // whatever they saw is there for this round
        bool waits = false;
        uint32_t age = qy_age();
        size_t work = purge_heaps(epoch, age, SIZE_MAX, false, &waits);
        work += qy_huge_purge(epoch, age);
        work += qy_units_purge(epoch, age, 0, STEP_BYTES);
        qy_age_given(work);
        bool rest = waits || waste_of_pages() > WASTE_REST;
        qy_lock_drop(&purge.lock);
        qy_stats_page_round();
        // With a rest that cannot be given back (locked pages, denied) the thread ends all the same.
        rounds_without_work = work ? 0 : rounds_without_work + 1;
        if (rounds_without_work < (rest ? 40 : 4)) continue;
        // Who asked since this round began found a thread running. Who asks from here on finds none, and starts one, or finds that this
        // one is alive still, says so as well, and leaves it to that.
        atomic_store(&purge.thread, THREAD_NONE);
        if (!atomic_load(&purge.asked)) return;
        for (uint32_t none = THREAD_NONE; !atomic_compare_exchange_strong(&purge.thread, &none, THREAD_RUNS); none = THREAD_NONE) {
            if (none == THREAD_IMPOSSIBLE) return;
            qy_os_wait(&purge.never, 0, 100000);  // it is about to see that
        }
        rounds_without_work = 0;
    }
}

static void start_thread(void) {
    for (int tries = 16;; qy_os_join(&purge.alive, 1000000)) {
        uint32_t none = THREAD_NONE;
        if (!atomic_compare_exchange_strong(&purge.thread, &none, THREAD_RUNS)) return;
        if (!atomic_load_explicit(&purge.alive, memory_order_acquire)) break;
        // The last one is about to look whether it is wanted, or on its way out of the stack already.
        atomic_store(&purge.asked, 1);
        atomic_store(&purge.thread, THREAD_NONE);
        if (!--tries) return;
    }
    if (!purge.stack) purge.stack = qy_os_map(STACK_BYTES, qy_os_page_size(), NULL);
    if (!purge.stack || !qy_os_spawn(run, NULL, purge.stack, STACK_BYTES, &purge.alive))
        atomic_store_explicit(&purge.thread, THREAD_IMPOSSIBLE, memory_order_release);
}

// Without a thread there is more waste than may wait for the clock. What could not be given back the last time is not tried again
// with each free: as much must come on top of it as if it were not there. (Which may be used again meanwhile: then it is less.)
static bool is_much(void) {
    size_t waste = waste_of_pages(), stays = atomic_load_explicit(&purge.stays, memory_order_relaxed);
    if (waste < stays) atomic_store_explicit(&purge.stays, stays = waste, memory_order_relaxed);  // a race costs a try too many or late
    return waste > stays + 2 * SYNC_KEEP;
}

// Down to SYNC_KEEP, if it can be.
static void give_back_much(uint32_t epoch) {
    qy_huge_purge(epoch, 0);
    if (qy_units_purge(epoch, 0, SYNC_KEEP, STEP_BYTES) >= STEP_BYTES) return;  // there may be more that can go
    size_t waste = waste_of_pages();
    atomic_store_explicit(&purge.stays, waste - qy_min(waste, SYNC_KEEP), memory_order_relaxed);
}

// Without a thread: by the clock, from the slow paths. Other heaps' locks are not taken: the caller
// may hold one, `h` (or NULL).
static void step_inline(qy_heap_t *h) {
    uint64_t now = qy_os_now_coarse_ns(), last = atomic_load_explicit(&purge.last_ns, memory_order_relaxed);
    bool due = now - last >= qy_opts.purge_delay * 1000000 / 2, much = is_much();
    if ((!due && !much) || !qy_lock_try(&purge.lock)) return;
    uint32_t epoch = qy_purge_epoch();
    if (due) {
        atomic_store_explicit(&purge.last_ns, now, memory_order_relaxed);
        epoch = atomic_fetch_add_explicit(&purge.epoch, 1, memory_order_relaxed) + 1;
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
            if (!h->purge_at && !h->purge_waits) h->purge_mark = waste_of_heap(h);
        }
        work += qy_huge_purge(epoch, age);
        work += qy_units_purge(epoch, age, 0, STEP_BYTES);
        qy_age_given(work);
    }
    if (much) give_back_much(epoch);
    qy_lock_drop(&purge.lock);
}

// From before a fork until qy_purge_after_fork, which takes what runs for the parent's: a thread that the handler of another library
// started in the child would be forgotten, and the next one begin on the same stack. The next free that finds as much waste starts it.
// Held, not frozen, by this thread: a handler forks that interrupted a trim; or it is a trim, which gives back itself.
static bool is_forking(void) { return qy_lock_forks(&purge.lock) || qy_lock_is_mine(&purge.lock); }

static void kick(qy_heap_t *h) {
    if (!qy_opts.purge) return;
    uint32_t thread = atomic_load_explicit(&purge.thread, memory_order_relaxed);
    if (thread == THREAD_RUNS) {
        if (!atomic_load(&purge.asked)) atomic_store(&purge.asked, 1);
        if ((thread = atomic_load(&purge.thread)) == THREAD_RUNS) return;
    }
    if (thread != THREAD_NONE || !qy_opts.purge_thread) step_inline(h);
    else if (!is_forking()) start_thread();
}

void qy_purge_wanted(void) {
    if (waste_of_pages() > WASTE_MIN) kick(NULL);
}

void qy_purge_consider(qy_heap_t *h) {
    if (waste_of_heap(h) > h->purge_mark + waste_worth_it()) kick(h);
    else if (waste_of_heap(h) < h->purge_mark / 2) h->purge_mark = waste_of_heap(h);
}

void qy_purge_mailed(qy_heap_t *h, size_t bytes) {
    if (atomic_fetch_add_explicit(&h->mailed, bytes, memory_order_relaxed) + bytes > waste_worth_it()) kick(NULL);
}

// ---- all at once ------------------------------------------------------------------------------------

size_t qy_purge_all(size_t keep) {
    qy_thread_t *t = qy_thread_get();
    if (t) qy_thread_flush(t);
    bool waits = false;
    qy_lock_take(&purge.lock);
    // An epoch of its own, so that what is freed after this is not taken for what was looked at.
    uint32_t epoch = atomic_fetch_add_explicit(&purge.epoch, 1, memory_order_relaxed) + 1;
    size_t total = purge_heaps(epoch, 0, SIZE_MAX, true, &waits);
    total += qy_huge_purge(epoch, 0);
    total += qy_units_purge(epoch, 0, keep, SIZE_MAX);
    qy_lock_drop(&purge.lock);
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
    if (!t || !qy_opts.purge || qy_os_thp_always() || !is_free(qy_units_lock()) || !is_free(qy_meta_lock()) || !is_free(qy_huge_lock()) || !is_free(qy_heaps_lock()) || !qy_heap_trylock(t->heap)) return;
    size_t waste = waste_of_pages() + waste_of_heap(t->heap);
    qy_lock_drop(&t->heap->lock);
    if (waste < ENDING_MIN || !qy_lock_try(&purge.lock)) return;
    size_t most = qy_max(qy_units_touched_bytes() / ENDING_PART, ENDING_MOST);
    uint32_t epoch = qy_purge_epoch();
    size_t total = qy_units_purge(epoch, 0, 0, most);
    if (total < most) {
        bool waits = false;
        qy_thread_flush(t);
        total += purge_heaps(epoch, 0, most - total, false, &waits);
        qy_units_purge(epoch, 0, 0, most - qy_min(most, total));
    }
    qy_lock_drop(&purge.lock);
}

qy_purge_hold_t qy_purge_hold(void) {
    if (!qy_opts.purge_thread || atomic_load_explicit(&purge.thread, memory_order_relaxed) == THREAD_IMPOSSIBLE) return QY_PURGE_INLINE;
    return qy_lock_try(&purge.lock) ? QY_PURGE_HELD : QY_PURGE_BUSY;
}
void qy_purge_let_go(void) { qy_lock_drop(&purge.lock); }

qy_lock_t *qy_purge_lock(void) { return &purge.lock; }

void qy_purge_after_fork(void) {
    // The child has no purging thread, whatever its parent had.
    atomic_store_explicit(&purge.alive, 0, memory_order_relaxed);
    if (atomic_load_explicit(&purge.thread, memory_order_relaxed) == THREAD_RUNS)
        atomic_store_explicit(&purge.thread, THREAD_NONE, memory_order_relaxed);
}
