// SPDX-License-Identifier: MIT
// tiny_slab.c: slabs of blocks of 8 bytes, under their heap's lock: pages of them go out, come home and are given back;
// see tiny.h.
#include "heap/draw.h"
#include "heap/heaps.h"
#include "heap/lookup.h"
#include "heap/remote.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "heap/waste.h"
#include "os/os.h"
#include "pages/meta.h"
#include "pages/purging.h"
#include "rt/heuristics.h"

#define ALL UINT64_MAX

static qy_meta_records_t records_of_bits;

qy_tiny_t *qy_tiny_record_new(qy_slab_t *s) {
    qy_tiny_t *tiny = qy_meta_record_new(&records_of_bits, sizeof *tiny);
    if (tiny) tiny->slab = s;
    return tiny;
}
void qy_tiny_record_delete(qy_tiny_t *tiny) { qy_meta_record_delete(&records_of_bits, tiny); }

void qy_tiny_misfreed(void *p) {
    (void)qy_lookup_must(p);
    qy_fatal(QY_FAULT_DOUBLE_FREE, p, "block of %z byte%S", QY_TINY);
}

// ---- pages ----------------------------------------------------------------------------------------------------

static unsigned pages_carved(const qy_slab_t *s) { return s->ncarved / QY_TINY_PAGE_BLOCKS; }
static bool is_out(const qy_slab_t *s, unsigned page) { return !((s->home_pages | s->purged_pages) >> page & 1); }
static qy_tiny_word_t *words_of(const qy_slab_t *s, unsigned page) { return &s->tiny->word[page * QY_TINY_PAGE_WORDS]; }
static uint64_t some_bits(unsigned page) { return UINT64_C(0xFF) << (page * QY_TINY_PAGE_WORDS % 64); }

static void set_some(qy_slab_t *s, unsigned page, uint64_t of, uint64_t bits) {
    _Atomic uint64_t *some = &s->tiny->some[page * QY_TINY_PAGE_WORDS / 64];
    uint64_t now = atomic_load_explicit(some, memory_order_relaxed);
    atomic_store_explicit(some, (now & ~of) | bits, memory_order_relaxed);
}

// Is the heap's thread the caller, or is there none? Who holds the lock is told the truth: a thread that takes over an
// idle heap waits for the lock before it touches a block.
static bool tiny_is_mine(const qy_heap_t *h) {
    const qy_cache_t *cache = QY_CACHE;  // the helper has none
    return (cache && cache->thread && cache->thread->heap == h) || atomic_load_explicit(&h->idle, memory_order_relaxed);
}

// Is it the current word's page?
static bool is_current(const qy_heap_t *h, const qy_slab_t *s, unsigned page) {
    const char *at = atomic_load_explicit(&h->tiny_at, memory_order_relaxed);
    if (!at || atomic_load_explicit(&h->idle, memory_order_relaxed)) return false;
    return at >= s->base && (size_t)(at - s->base) / QY_TINY_PAGE == page;
}

// All words of the page say that all is free. Their bits in `some` are 0 already, or the caller's to write.
static void come_home(qy_heap_t *h, qy_slab_t *s, unsigned page, bool mine) {
    if (mine) set_some(s, page, some_bits(page), 0);
    s->home_pages |= UINT64_C(1) << page;
    s->nhome += QY_TINY_PAGE_BLOCKS;
    s->epoch = qy_purging_epoch();
    h->free_bytes += QY_TINY_PAGE;
}

void qy_tiny_page_home(qy_heap_t *h, qy_slab_t *s, unsigned page) {
    qy_heap_lock(h);
    come_home(h, s, page, true);
    qy_slab_settle(h, s);
    qy_waste_in_slabs(h);
    qy_heap_unlock(h);
}

void qy_tiny_has_some(qy_heap_t *h, qy_slab_t *s) {
    qy_heap_lock(h);
    qy_slab_relist(h, s);
    qy_heap_unlock(h);
}

// ---- taking ---------------------------------------------------------------------------------------------------

// Pages that were never used come home: one, four once the class has some slabs, as of other classes.
static void carve_pages(qy_heap_t *h, qy_slab_t *s) {
    unsigned first = pages_carved(s), n = h->bins[QY_CLASS_TINY].nslabs >= 4 && QY_WITH(carve) ? 4 : 1;
    n = (unsigned)qy_min(n, s->nblocks / QY_TINY_PAGE_BLOCKS - first);
    if (s->fresh) qy_slab_populate(s->base + first * QY_TINY_PAGE, n * QY_TINY_PAGE);
    for (unsigned page = first; page < first + n; page++) {
        qy_tiny_word_t *w = words_of(s, page);
        for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++) atomic_store_explicit(&w[i].free, ALL, memory_order_relaxed);
        come_home(h, s, page, true);
    }
    uint32_t since = s->ncarved;
    __atomic_store_n(&s->ncarved, since + n * QY_TINY_PAGE_BLOCKS, __ATOMIC_RELAXED);
    qy_slab_set_tags(h, s, since);
}

// A page goes out: the lowest one at home, one that was given back, or a new one.
static void let_out(qy_heap_t *h, qy_slab_t *s) {
    qy_slab_leaves_empty(h, s);
    s->epoch = qy_purging_epoch();
    if (!(s->home_pages | s->purged_pages)) carve_pages(h, s);
    bool purged = !s->home_pages;
    uint64_t *pages = purged ? &s->purged_pages : &s->home_pages;
    set_some(s, (unsigned)__builtin_ctzll(*pages), 0, some_bits((unsigned)__builtin_ctzll(*pages)));
    *pages &= *pages - 1;
    h->free_bytes -= QY_TINY_PAGE;
    if (!purged) {
        s->nhome -= QY_TINY_PAGE_BLOCKS;
        return;
    }
    s->npurged -= QY_TINY_PAGE_BLOCKS;
    h->purged_bytes -= QY_TINY_PAGE;
    qy_age_again(QY_TINY_PAGE);
    qy_purging_regret(QY_TINY_PAGE, s->purged_ns);
}

// A slab with something free by the bin's lists. `some` may have become 0 since it was put on one.
static qy_slab_t *tiny_listed(qy_heap_t *h) {
    qy_bin_t *bin = &h->bins[QY_CLASS_TINY];
    for (unsigned i = QY_LIST_SOME; i < QY_LIST_FRESH; i++) {
        for (qy_slab_t *s; (s = bin->list[i]);) {
            if (qy_tiny_any(s) || qy_slab_home(s)) return s;
            qy_slab_relist(h, s);
            qy_assert(bin->list[i] != s);
        }
    }
    return bin->list[QY_LIST_FRESH];
}

bool qy_tiny_refill(qy_thread_t *t) {
    qy_heap_t *h = t->heap;
    qy_heap_lock(h);
    h->refills++;
    qy_tiny_leave(t);
    qy_remote_drain(h);
    qy_slab_t *s = tiny_listed(h);
    if (!s) qy_tiny_forget(t);  // a slab that it gets may lie where one was released
    while (!s && qy_slab_steal_idle(h, QY_CLASS_TINY)) s = tiny_listed(h);
    if (!s) {
        qy_slab_reclaim(h, QY_CLASS_TINY);
        s = qy_slab_new(h, QY_CLASS_TINY);
    }
    if (s) {
        if (!qy_tiny_any(s)) let_out(h, s);
        (void)qy_tiny_next_word(t, s);
        qy_slab_relist(h, s);
    }
    qy_heap_unlock(h);
    return s != NULL;
}

void qy_tiny_leave(qy_thread_t *t) {
    qy_heap_t *h = t->heap;
    qy_slab_t *s = t->tiny_slab;
    QY_NEEDS(&h->lock);
    if (!s) return;
    unsigned w = (unsigned)(t->cache.tiny - s->tiny->word), page = w / QY_TINY_PAGE_WORDS;
    bool home = true;
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++)
        home &= !~atomic_load_explicit(&words_of(s, page)[i].free, memory_order_relaxed);
    if (atomic_load_explicit(&t->cache.tiny->free, memory_order_relaxed))
        set_some(s, page, 0, UINT64_C(1) << (w % 64));
    t->tiny_slab = NULL;
    t->cache.tiny = &qy_tiny_none;
    atomic_store_explicit(&h->tiny_at, NULL, memory_order_relaxed);
    if (home) {
        come_home(h, s, page, true);
        qy_slab_settle(h, s);
    } else {
        qy_slab_relist(h, s);
    }
}

// ---- what others freed -----------------------------------------------------------------------------------------

// Of a page that is the caller's. True: all of it is free now.
static bool take_in_own(const qy_heap_t *h, qy_slab_t *s, unsigned page) {
    qy_tiny_word_t *w = words_of(s, page);
    uint64_t all = ALL;
    const char *current = is_current(h, s, page) ? atomic_load_explicit(&h->tiny_at, memory_order_relaxed) : NULL;
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++) {
        uint64_t remote = atomic_exchange_explicit(&w[i].remote, 0, memory_order_acquire),
                 free = atomic_load_explicit(&w[i].free, memory_order_relaxed);
        char *at = s->base + page * QY_TINY_PAGE + i * QY_TINY_WORD_BYTES;
        if (QY_UNLIKELY(free & remote))
            qy_fatal(QY_FAULT_DOUBLE_FREE, at + (size_t)__builtin_ctzll(free & remote) * QY_TINY,
                "block of %z byte%S", QY_TINY);
        all &= free | remote;
        if (!remote) continue;
        atomic_store_explicit(&w[i].free, free | remote, memory_order_relaxed);
        if (at != current) set_some(s, page, 0, UINT64_C(1) << ((page * QY_TINY_PAGE_WORDS + i) % 64));
    }
    return !~all && !current;
}

// Of a page whose owner may be at work: only if all of it was freed by others. True: all of it is free now.
static bool take_in_others(const qy_heap_t *h, qy_slab_t *s, unsigned page) {
    qy_tiny_word_t *w = words_of(s, page);
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++)
        if (~atomic_load_explicit(&w[i].remote, memory_order_acquire)) return false;
    if (is_current(h, s, page)) return false;
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++) {
        if (atomic_load_explicit(&w[i].free, memory_order_relaxed)) return false;
    }
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++) {
        atomic_store_explicit(&w[i].remote, 0, memory_order_relaxed);
        atomic_store_explicit(&w[i].free, ALL, memory_order_relaxed);
    }
    return true;
}

static bool has_remote(const qy_slab_t *s, unsigned page) {
    uint64_t any = 0;
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++)
        any |= atomic_load_explicit(&words_of(s, page)[i].remote, memory_order_relaxed);
    return any != 0;
}

void qy_tiny_take_in(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    if (atomic_load_explicit(&h->idle, memory_order_relaxed)) qy_tiny_mend(h);
    bool mine = tiny_is_mine(h), left = false, home = false;
    // Who frees from here on, and is not seen below, queues the slab again.
    atomic_fetch_and_explicit(&s->remote, ~QY_REMOTE_QUEUED, memory_order_acq_rel);
    QY_FENCE_AFTER_RMW();
    for (unsigned page = 0; page < pages_carved(s); page++) {
        if (!is_out(s, page) || !has_remote(s, page)) continue;
        if (mine ? take_in_own(h, s, page) : take_in_others(h, s, page)) {
            come_home(h, s, page, mine);
            home = true;
        } else {
            left |= !mine;
        }
    }
    if (left && !(atomic_fetch_or_explicit(&s->remote, QY_REMOTE_QUEUED, memory_order_acq_rel) & QY_REMOTE_QUEUED)) {
        s->mail_next = h->tiny_mail;
        h->tiny_mail = s;
    }
    s->epoch = qy_purging_epoch();
    h->adoptions++;
    if (home) qy_slab_settle(h, s);
    else qy_slab_relist(h, s);
}

void qy_tiny_mend_words(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    atomic_store_explicit(&h->tiny_at, NULL, memory_order_relaxed);
    for (qy_slab_t *s = h->all, *next; s; s = next) {
        next = s->all_next;
        if (s->kind != QY_SPAN_SLAB || s->cls != QY_CLASS_TINY) continue;
        bool home = false;
        for (unsigned page = 0; page < pages_carved(s); page++) {
            uint64_t some = 0, all = ALL;
            for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++) {
                uint64_t free = atomic_load_explicit(&words_of(s, page)[i].free, memory_order_relaxed);
                some |= (uint64_t)(free != 0) << ((page * QY_TINY_PAGE_WORDS + i) % 64);
                all &= free;
            }
            if (!is_out(s, page)) continue;
            set_some(s, page, some_bits(page), some);
            if (~all) continue;
            come_home(h, s, page, true);
            home = true;
        }
        if (home) qy_slab_settle(h, s);
        else qy_slab_relist(h, s);
    }
}

void qy_tiny_take_mail(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    if (!tiny_is_mine(h)) return;
    qy_slab_t *s = h->tiny_mail, *next;
    h->tiny_mail = NULL;
    for (; s; s = next) {
        next = s->mail_next;
        qy_tiny_take_in(h, s);
    }
}

// ---- given back, counted, checked --------------------------------------------------------------------------------

size_t qy_tiny_purge(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    size_t os_page = qy_os_page_size(), total = 0;
    unsigned step = (unsigned)(qy_max(os_page, QY_TINY_PAGE) / QY_TINY_PAGE), end = pages_carved(s);
    if (os_page > QY_UNIT) return 0;
    for (unsigned from = 0, to; from < end; from = to) {
        uint64_t mask = 0;
        for (to = from; to + step <= end; to += step) {
            uint64_t bits = ((UINT64_C(1) << step) - 1) << to;
            if ((s->home_pages & bits) != bits) break;
            mask |= bits;
        }
        if (to == from) {
            to += step;
            continue;
        }
        size_t bytes = (to - from) * QY_TINY_PAGE;
        if (!qy_purging_pages(s->base + from * QY_TINY_PAGE, bytes)) continue;  // nothing is in free blocks
        s->home_pages &= ~mask;
        s->purged_pages |= mask;
        s->nhome -= (uint32_t)(bytes / QY_TINY);
        s->npurged += (uint32_t)(bytes / QY_TINY);
        h->purged_bytes += bytes;
        total += bytes;
    }
    if (!total) return 0;
    s->purged_ns = qy_os_now_coarse_ns();
    qy_slab_relist(h, s);
    return total;
}

uint32_t qy_tiny_free_blocks(const qy_slab_t *s) {
    uint32_t n = 0;
    for (uint32_t w = 0; w < s->ncarved / 64; w++) {
        const qy_tiny_word_t *word = &s->tiny->word[w];
        n += (uint32_t)__builtin_popcountll(atomic_load_explicit(&word->free, memory_order_relaxed) |
                                            atomic_load_explicit(&word->remote, memory_order_relaxed));
    }
    return n;
}

static const char *check_page(const qy_heap_t *h, const qy_slab_t *s, unsigned page, bool mine) {
    const qy_tiny_word_t *w = words_of(s, page);
    uint64_t some = atomic_load_explicit(&s->tiny->some[page * QY_TINY_PAGE_WORDS / 64], memory_order_relaxed);
    const char *current = is_current(h, s, page) ? atomic_load_explicit(&h->tiny_at, memory_order_relaxed) : NULL;
    bool all = true;
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++) {
        uint64_t free = atomic_load_explicit(&w[i].free, memory_order_relaxed),
                 remote = atomic_load_explicit(&w[i].remote, memory_order_relaxed);
        if (!is_out(s, page) && (~free || remote)) return "a block at home is not free";
        if (!mine) continue;
        bool now = current == s->base + page * QY_TINY_PAGE + i * QY_TINY_WORD_BYTES;
        bool marked = some >> ((page * QY_TINY_PAGE_WORDS + i) % 64) & 1;
        if (free & remote) return "a block was freed twice";
        if (marked != (free != 0 && !now && is_out(s, page))) return "a word with free blocks is not noted";
        all &= !~free;
    }
    return mine && all && !current && is_out(s, page) ? "a free page is not at home" : NULL;
}

// Can the caller know what the heap's thread writes without the lock? Not of another thread that is at work, nor of one
// that a fork left behind.
static bool is_still(const qy_heap_t *h) {
    return tiny_is_mine(h) && !(atomic_load_explicit(&h->idle, memory_order_relaxed) &&
                                  atomic_load_explicit(&h->tiny_at, memory_order_relaxed));
}

bool qy_tiny_may_be_on(const qy_heap_t *h, const qy_slab_t *s, unsigned wanted) {
    const char *at = atomic_load_explicit(&h->tiny_at, memory_order_relaxed);
    bool current = at >= s->base && at < s->base + ((size_t)s->units << QY_UNIT_SHIFT);
    return !is_still(h) || (s->list == QY_LIST_SOME && wanted > QY_LIST_EMPTY) || (wanted == QY_LIST_SOME && current);
}

const char *qy_tiny_check(const qy_heap_t *h, const qy_slab_t *s) {
    unsigned pages = pages_carved(s);
    if (s->ncarved % QY_TINY_PAGE_BLOCKS) return "part of a page was carved";
    if (s->home_pages & s->purged_pages) return "a page is at home and purged";
    if (((s->home_pages | s->purged_pages) >> pages) != 0) return "a page at home was never carved";
    if (s->nhome != (uint32_t)__builtin_popcountll(s->home_pages) * QY_TINY_PAGE_BLOCKS)
        return "free blocks are miscounted";
    if (s->npurged != (uint32_t)__builtin_popcountll(s->purged_pages) * QY_TINY_PAGE_BLOCKS)
        return "purged blocks are miscounted";
    if (s->chain || s->chain2 || s->nchain || s->purged) return "blocks of 8 bytes are on a chain";
    const char *wrong = NULL;
    for (unsigned page = 0; page < pages && !wrong; page++) wrong = check_page(h, s, page, is_still(h));
    return wrong;
}
