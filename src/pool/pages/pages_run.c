// SPDX-License-Identifier: MIT
// pages_run.c: free runs of pages: bins, splitting, joining. All with the pool's lock.
#include "pool/pages.h"

#define CANDIDATES 16  // of the bin where some runs may be long enough
#define CANDIDATES_ALIGNED 64

// ---- bits -----------------------------------------------------------------------------------------------

void qy_bits_set(qy_page_bits_t *bits, size_t from, size_t n, bool value) {
    for (size_t end = from + n; from < end;) {
        size_t in_word = qy_min(64 - from % 64, end - from);
        uint64_t mask = (in_word == 64 ? ~UINT64_C(0) : (UINT64_C(1) << in_word) - 1) << from % 64;
        uint64_t word = atomic_load_explicit(&bits[from / 64], memory_order_relaxed);
        atomic_store_explicit(&bits[from / 64], value ? word | mask : word & ~mask, memory_order_relaxed);
        from += in_word;
    }
}

size_t qy_bits_find(const qy_page_bits_t *bits, size_t from, size_t end, bool value) {
    while (from < end) {
        uint64_t word = atomic_load_explicit(&bits[from / 64], memory_order_relaxed);
        word = (value ? word : ~word) >> from % 64;
        if (word) return qy_min(from + (size_t)__builtin_ctzll(word), end);
        from = (from / 64 + 1) * 64;
    }
    return end;
}

size_t qy_bits_find_back(const qy_page_bits_t *bits, size_t from) {
    for (;; from = from / 64 * 64 - 1) {
        uint64_t word = atomic_load_explicit(&bits[from / 64], memory_order_relaxed) << (63 - from % 64);
        if (word) return from - (size_t)__builtin_clzll(word);
        qy_assert(from >= 64);
    }
}

// ---- bins -------------------------------------------------------------------------------------------------

static void pages_run_insert(qy_pages_t *p, qy_pages_region_t *r, size_t first, size_t n) {
    qy_page_t *head = &r->page[first];
    QY_PAGES_NEEDS_LOCK(p);
    qy_assert(n && first + n <= r->pages);
    unsigned bin = qy_bin_of(n);
    head->count = r->page[first + n - 1].count = (uint32_t)n;
    head->region = r->number;
    // What has memory behind it is used first, what has none last: the ends tell which it is, nearly always.
    if (qy_bit(r->bits_dirty, first) || qy_bit(r->bits_dirty, first + n - 1))
        qy_list_push_front(&p->bins[bin], &head->link);
    else qy_list_push_back(&p->bins[bin], &head->link);
    p->bitmap[bin / 64] |= UINT64_C(1) << bin % 64;
    p->free_runs++;
}

static void pages_run_take_out(qy_pages_t *p, qy_page_t *head) {
    unsigned bin = qy_bin_of(head->count);
    QY_PAGES_NEEDS_LOCK(p);
    qy_assert(p->free_runs && head->count);
    qy_list_remove(&head->link);
    if (qy_list_empty(&p->bins[bin])) p->bitmap[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    p->free_runs--;
}

void qy_pages_put(qy_pages_t *p, qy_pages_region_t *r, size_t first, size_t n) {
    if (first && !qy_bit(r->bits_used, first - 1)) {
        size_t before = r->page[first - 1].count;
        first -= before;
        n += before;
        pages_run_take_out(p, &r->page[first]);
    }
    if (first + n < r->pages && !qy_bit(r->bits_used, first + n)) {
        qy_page_t *behind = &r->page[first + n];
        pages_run_take_out(p, behind);
        n += behind->count;
    }
    pages_run_insert(p, r, first, n);
}

// ---- taking -----------------------------------------------------------------------------------------------

// The first place for n aligned pages in a free run; SIZE_MAX: none.
static size_t place_in(
    const qy_pages_t *p, const qy_pages_region_t *r, const qy_page_t *head, size_t n, size_t alignment) {
    size_t run = (size_t)(head - r->page), count = head->count;
    uintptr_t at = (uintptr_t)r->base + run * p->page, aligned = qy_round_up(at, alignment);
    size_t first = run + ((aligned - at) >> p->shift);
    return aligned >= at && first - run <= count && count - (first - run) >= n ? first : SIZE_MAX;
}

static qy_page_t *first_of(const qy_list_t *bin, bool clean) {
    return QY_LIST_ITEM(clean ? bin->prev : bin->next, qy_page_t, link);
}

// A run that certainly has room; else one of a few that may have.
static qy_page_t *pages_run_find(qy_pages_t *p, size_t n, size_t alignment, bool clean) {
    size_t extra = alignment > p->page ? (alignment >> p->shift) - 1 : 0;
    if (n >> QY_PAGES_LOG2) return NULL;  // has no bin
    int tries = extra ? CANDIDATES_ALIGNED : CANDIDATES;
    unsigned bin = qy_bin_next(p->bitmap, qy_min(qy_bin_above(n + extra), QY_PAGES_BINS), QY_PAGES_BINS);
    if (bin < QY_PAGES_BINS) return first_of(&p->bins[bin], clean);
    unsigned last = extra ? QY_PAGES_BINS : qy_bin_of(n) + 1;
    for (bin = qy_bin_next(p->bitmap, qy_bin_of(n), last); bin < last; bin = qy_bin_next(p->bitmap, bin + 1, last)) {
        QY_LIST_EACH(link, &p->bins[bin]) {
            qy_page_t *head = QY_LIST_ITEM(link, qy_page_t, link);
            if (place_in(p, p->region[head->region], head, n, alignment) != SIZE_MAX) return head;
            if (!--tries) return NULL;
        }
    }
    return NULL;
}

// Pages [first, first + n) of the free run `head` are used from now on; what remains stays free.
static void pages_run_cut(qy_pages_t *p, qy_pages_region_t *r, qy_page_t *head, size_t first, size_t n) {
    size_t run = (size_t)(head - r->page), end = run + head->count;
    qy_assert(first >= run && n && first + n <= end);
    pages_run_take_out(p, head);
    if (first > run) pages_run_insert(p, r, run, first - run);
    if (first + n < end) pages_run_insert(p, r, first + n, end - first - n);
    qy_bits_set(r->bits_used, first, n, true);
    r->used += n;
    p->used_pages += n;
    if (!r->purgeable) return;
    for (size_t at = first, stop; (at = qy_bits_find(r->bits_dirty, at, first + n, true)) < first + n; at = stop) {
        stop = qy_bits_find(r->bits_dirty, at, first + n, false);
        qy_assert(p->dirty_pages >= stop - at);
        p->dirty_pages -= stop - at;
    }
}

qy_pages_region_t *qy_pages_take(qy_pages_t *p, size_t n, size_t alignment, bool clean, size_t *ret_first) {
    qy_page_t *head = pages_run_find(p, n, alignment, clean);
    if (!head) return NULL;
    qy_pages_region_t *r = p->region[head->region];
    *ret_first = place_in(p, r, head, n, alignment);
    pages_run_cut(p, r, head, *ret_first, n);
    qy_bits_set(r->bits_start, *ret_first, 1, true);
    return r;
}

size_t qy_pages_take_of_new(qy_pages_t *p, qy_pages_region_t *r, size_t n, size_t alignment) {
    size_t first = place_in(p, r, r->page, n, alignment);
    if (first == SIZE_MAX) return first;
    pages_run_cut(p, r, r->page, first, n);
    qy_bits_set(r->bits_start, first, 1, true);
    return first;
}

bool qy_pages_extend(qy_pages_t *p, qy_pages_region_t *r, size_t end, size_t n) {
    if (end >= r->pages || qy_bit(r->bits_used, end) || r->page[end].count < n) return false;
    pages_run_cut(p, r, &r->page[end], end, n);
    return true;
}

size_t qy_pages_length(const qy_pages_region_t *r, size_t first) {
    size_t end = qy_bits_find(r->bits_used, first, r->pages, false);
    return qy_bits_find(r->bits_start, first + 1, end, true) - first;
}

// ---- verification -------------------------------------------------------------------------------------------

typedef struct pages_sums {
    size_t used, dirty, runs, held;
} pages_sums_t;

static const char *verify_region(const qy_pages_region_t *r, pages_sums_t *sums) {
    size_t used = 0;
    bool free_before = false;
    for (size_t i = 0, n; i < r->pages; i += n) {
        if (qy_bit(r->bits_used, i)) {
            if (!qy_bit(r->bits_start, i)) return "a run in use has no start";
            n = qy_pages_length(r, i);
            used += n;
            free_before = false;
            continue;
        }
        n = r->page[i].count;
        if (free_before) return "two free runs are neighbours";
        if (!n || n > r->pages - i || r->page[i + n - 1].count != n || r->page[i].region != r->number)
            return "a free run's length is wrong";
        if (qy_bits_find(r->bits_used, i, i + n, true) != i + n || qy_bits_find(r->bits_start, i, i + n, true) != i + n)
            return "a free run has pages in use";
        for (size_t at = i; r->purgeable && at < i + n; at++) sums->dirty += qy_bit(r->bits_dirty, at);
        sums->runs++;
        free_before = true;
    }
    sums->used += used;
    sums->held += r->pages;
    return used == r->used ? NULL : "a region's count of used pages is wrong";
}

static const char *verify_bins(const qy_pages_t *p) {
    size_t runs = 0;
    for (unsigned bin = 0; bin < QY_PAGES_BINS; bin++) {
        if (qy_list_empty(&p->bins[bin]) == (p->bitmap[bin / 64] >> bin % 64 & 1)) return "the bitmap of bins is wrong";
        QY_LIST_EACH(link, &p->bins[bin]) {
            if (link->next->prev != link || link->prev->next != link) return "a bin's links are wrong";
            if (qy_bin_of(QY_LIST_ITEM(link, qy_page_t, link)->count) != bin) return "a free run is in the wrong bin";
            if (++runs > p->free_runs) return "the bins have more runs than there are";
        }
    }
    return runs == p->free_runs ? NULL : "a free run is in no bin";
}

const char *qy_pages_verify(const qy_pages_t *p) {
    QY_PAGES_NEEDS_LOCK(p);
    pages_sums_t sums = {0, 0, 0, 0};
    for (uint32_t i = 0; i < p->regions; i++) {
        const qy_pages_region_t *r = p->ordered[i];
        if (p->region[r->number] != r) return "a region has the wrong number";
        if (i && p->ordered[i - 1]->base + p->ordered[i - 1]->pages * p->page > r->base) return "regions overlap";
        const char *wrong = verify_region(r, &sums);
        if (wrong) return wrong;
    }
    if (sums.runs != p->free_runs) return "the count of free runs is wrong";
    if (sums.used != p->used_pages || sums.held != p->held_pages || sums.dirty != p->dirty_pages)
        return "a count of pages is wrong";
    return verify_bins(p);
}
