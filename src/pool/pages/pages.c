// SPDX-License-Identifier: MIT
// pages.c: the operations of a pool of page runs.
#include "pool/pages.h"

#include <errno.h>
#include <string.h>

#include "os/mapfile.h"
#include "os/os.h"
#include "pool/observe.h"
#include "pool/trace.h"

#define REGION_BYTES ((size_t)16 << 20)
#define REGION_BYTES_OF_PARENT ((size_t)1 << 20)
#define KEEP_BYTES ((size_t)32 << 20)
#define ALIGNMENT_MAX ((size_t)1 << 30)

static qy_pages_t *pages_of(quarry_pool_t *pool) { return (qy_pages_t *)pool; }

// An operation on the block `old` (NULL: there was none) that makes it the block `block` (NULL: there is none any
// more). With the lock: what is freed goes after it, and what is moved is still at both places.
typedef struct change {
    qy_count_t what;
    size_t size, alignment;
    void *old, *block;
} change_t;

static QY_COLD void count_and_tell(quarry_pool_t *pool, change_t c) {
    qy_count(pool, c.what, c.size);
    if (c.what == QY_COUNT_ALLOC) qy_pool_trace_alloc(pool, c.size, c.alignment, c.block);
    else if (c.what == QY_COUNT_RESIZE) qy_pool_trace_resized(pool, c.old, c.size, c.block);
    else qy_pool_trace_free(pool, c.old);
}

QY_INLINE void count(qy_pages_t *p, qy_count_t what, size_t size, size_t alignment, void *old, void *block) {
    qy_pool_info_t *i = p->pool.info;
    if (QY_UNLIKELY(p->pool.mode & QY_MODE_COUNTED)) {
        count_and_tell(&p->pool, (change_t){what, size, alignment, old, block});
        return;
    }
    qy_bump(what == QY_COUNT_ALLOC ? &i->allocs : what == QY_COUNT_FREE ? &i->frees
                                                                        : &i->resizes,
        1);
    if (size) qy_bump(&i->requested, size);
}

static size_t pages_for(const qy_pages_t *p, size_t size) { return size ? ((size - 1) >> p->shift) + 1 : 1; }

// ---- alloc ------------------------------------------------------------------------------------------------

// Pages that were used before are cleared; the others are known to be zero. Without the lock: the run is ours.
static void pages_clear(qy_pages_t *p, qy_pages_region_t *r, size_t first, size_t n) {
    size_t end = first + n, cleared = 0;
    for (size_t at = first, stop; (at = qy_bits_find(r->bits_dirty, at, end, true)) < end; at = stop) {
        stop = qy_bits_find(r->bits_dirty, at, end, false);
        memset(r->base + at * p->page, 0, (stop - at) * p->page);
        cleared += stop - at;
    }
    if (cleared) __atomic_fetch_add(&p->cleared, cleared, __ATOMIC_RELAXED);
}

// A run of n pages, with its region. With the lock, which is left while a region is fetched.
static qy_pages_region_t *pages_take(qy_pages_t *p, size_t n, size_t alignment, bool zero, size_t *ret_first) {
    qy_pages_region_t *r = qy_pages_take(p, n, alignment, zero, ret_first);
    // What was fetched is cut from at once: a search would look at a few others first, and not always reach it.
    if (!r) r = qy_pages_grow(p, n, alignment, ret_first);
    // Refused: what is empty may be in the way of a limit, or of the parent's.
    if (!r && qy_pages_drop_empty(p, 0)) r = qy_pages_grow(p, n, alignment, ret_first);
    if (!r) r = qy_pages_take(p, n, alignment, zero, ret_first);
    qy_assert(!r || (((uintptr_t)r->base + *ret_first * p->page) & (alignment - 1)) == 0);
    QY_PAGES_ASSERT_SOUND(p);
    return r;
}

static void *alloc(qy_pages_t *p, size_t size, size_t alignment, bool zero, bool counted) {
    size_t n = pages_for(p, size), first;
    if (p->foreign) return NULL;
    qy_pages_enter(p);
    qy_pages_region_t *r = pages_take(p, n, qy_max(alignment, p->page), zero, &first);
    if (r && counted) count(p, QY_COUNT_ALLOC, size, alignment, NULL, r->base + first * p->page);
    qy_pages_leave(p);
    if (!r) return NULL;
    char *at = r->base + first * p->page;
    qy_observe_show(&p->pool, at, n * p->page);
    if (zero) pages_clear(p, r, first, n);
    return at;
}

static void *pages_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED))
        return qy_observe_alloc(pool, &QY_STACK_CALLER(), 0, size, alignment, flags);
    void *at = alloc(pages_of(pool), size, alignment, flags & QUARRY_POOL_ZERO, true);
    return at ? at : qy_pool_no_memory(pool, size);
}

static void *pages_raw_alloc(quarry_pool_t *pool, size_t size, size_t alignment) {
    return alloc(pages_of(pool), size, alignment, false, false);
}

// ---- free ---------------------------------------------------------------------------------------------------

// The region and page of what must be in use. Anything else is misuse, told exactly.
static qy_pages_region_t *must_be_used(qy_pages_t *p, const void *ptr, bool start, size_t *ret_page) {
    qy_pool_must_live(&p->pool);
    qy_pages_region_t *r = qy_pages_region_of(p, ptr);
    if (!r) qy_fatal(QY_FAULT_INVALID_FREE, ptr, "not in pages \"%s\"", p->pool.info->name);
    size_t offset = (size_t)((const char *)ptr - r->base);
    *ret_page = offset >> p->shift;
    if (!qy_bit(r->bits_used, *ret_page))
        qy_fatal(QY_FAULT_DOUBLE_FREE, ptr, "a free page of pages \"%s\"", p->pool.info->name);
    if (offset % p->page || (start && !qy_bit(r->bits_start, *ret_page)))
        qy_fatal(QY_FAULT_INTERIOR_FREE, ptr, "not the start of a run of pages \"%s\"", p->pool.info->name);
    return r;
}

// Free pages of one run in use. What follows of it becomes a run of its own.
static void pages_give(qy_pages_t *p, qy_pages_region_t *r, size_t first, size_t n) {
    size_t end = first + n;
    if (p->foreign) return;
    qy_observe_hide(&p->pool, r->base + first * p->page, n * p->page);
    if (end < r->pages && qy_bit(r->bits_used, end)) qy_bits_set(r->bits_start, end, 1, true);
    qy_bits_set(r->bits_start, first, 1, false);
    qy_bits_set(r->bits_used, first, n, false);
    qy_bits_set(r->bits_dirty, first, n, true);
    qy_assert(r->used >= n && p->used_pages >= n);
    r->used -= n;
    p->used_pages -= n;
    if (r->purgeable) p->dirty_pages += n;
    qy_pages_put(p, r, first, n);
    // One empty region stays, so that a run that comes and goes does not fetch a region each time.
    if (!r->used && !r->fixed) qy_pages_drop_empty(p, 1);
    // To half, so that not every further free is a call to the kernel.
    if (p->dirty_pages > p->keep_pages) qy_pages_purge(p, p->keep_pages / 2);
    QY_PAGES_ASSERT_SOUND(p);
}

static void free_run(qy_pages_t *p, void *ptr, bool counted) {
    size_t first;
    qy_pages_enter(p);
    qy_pages_region_t *r = must_be_used(p, ptr, true, &first);
    if (counted) count(p, QY_COUNT_FREE, 0, 0, ptr, NULL);
    pages_give(p, r, first, qy_pages_length(r, first));
    qy_pages_leave(p);
}

static void pages_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)size;
    if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED)) qy_observe_free(pool, &QY_STACK_CALLER(), ptr);
    else free_run(pages_of(pool), ptr, true);
}

static void pages_raw_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)size;
    free_run(pages_of(pool), ptr, false);
}

// A part goes: [first, first + n) of a run that ends at `end`. What remains of it, before and behind, are blocks of
// their own.
static QY_COLD void tell_part(qy_pages_t *p, qy_pages_region_t *r, size_t end, size_t first, size_t n) {
    quarry_pool_t *pool = &p->pool;
    size_t start = qy_bits_find_back(r->bits_start, first);
    char *run = r->base + start * p->page, *behind = r->base + (first + n) * p->page;
    size_t before_bytes = (first - start) * p->page, behind_bytes = (end - first - n) * p->page;
    if (before_bytes) qy_pool_trace_resized(pool, run, before_bytes, run);
    else if (behind_bytes) qy_pool_trace_resized(pool, run, behind_bytes, behind);
    else qy_pool_trace_free(pool, run);
    if (before_bytes && behind_bytes) qy_pool_trace_alloc(pool, behind_bytes, p->page, behind);
}

void quarry_pages_free_part(quarry_pool_t *pool, void *ptr, size_t bytes) {
    qy_pages_t *p = pages_of(pool);
    size_t first;
    if (!bytes) return;
    if (!(p->flags & QUARRY_PAGES_PARTS)) {
        // Only a whole run then, whoever observes it. (0: no block, or an empty one, of a checked pool.)
        size_t usable = quarry_pool_usable(pool, ptr), n = pages_for(p, bytes);
        if (usable && n < pages_for(p, usable))
            qy_fatal(QY_FAULT_INTERIOR_FREE, ptr, "a part, in a pool without QUARRY_PAGES_PARTS");
        if (usable && n > pages_for(p, usable))
            qy_fatal(QY_FAULT_INVALID_FREE, ptr, "%z byte%S, beyond the run", bytes);
        pages_free(pool, ptr, bytes);
        return;
    }
    qy_pages_enter(p);
    qy_pages_region_t *r = must_be_used(p, ptr, false, &first);
    size_t n = pages_for(p, bytes), end = first + qy_pages_length(r, first);
    if (n > end - first) qy_fatal(QY_FAULT_INVALID_FREE, ptr, "%z byte%S, beyond the run", bytes);
    count(p, QY_COUNT_FREE, 0, 0, NULL, NULL);
    if (QY_UNLIKELY(pool->mode & QY_MODE_RECORDED)) tell_part(p, r, end, first, n);
    pages_give(p, r, first, n);
    qy_pages_leave(p);
}

// ---- resize ---------------------------------------------------------------------------------------------------

// In place, if that is `wanted`: the tail is freed, or the free pages behind are taken. `ret_region`, `ret_first`: for
// clearing.
static bool resize_here(qy_pages_t *p, void *ptr, size_t n, bool wanted, size_t *ret_old,
    qy_pages_region_t **ret_region, size_t *ret_first) {
    qy_pages_region_t *r = must_be_used(p, ptr, true, ret_first);
    size_t old = *ret_old = qy_pages_length(r, *ret_first);
    *ret_region = r;
    if (!wanted) return false;
    if (n < old) pages_give(p, r, *ret_first + n, old - n);
    bool here = n <= old || qy_pages_extend(p, r, *ret_first + old, n - old);
    QY_PAGES_ASSERT_SOUND(p);
    return here;
}

static void *pages_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    qy_pages_t *p = pages_of(pool);
    if (!ptr) return pages_alloc(pool, size, alignment, flags);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED))
        return qy_observe_resize(pool, &QY_STACK_CALLER(), 0, ptr, size, alignment, flags);
    size_t n = pages_for(p, size), old, first;
    qy_pages_region_t *r;
    bool zero = flags & QUARRY_POOL_ZERO, fits = ((uintptr_t)ptr & (alignment - 1)) == 0;
    qy_pages_enter(p);
    bool here = resize_here(p, ptr, n, fits && !p->foreign, &old, &r, &first);
    if (here) count(p, QY_COUNT_RESIZE, size, alignment, ptr, ptr);
    qy_pages_leave(p);
    size_t usable = old * p->page, kept = qy_min(old_size == QUARRY_SIZE_UNKNOWN ? usable : old_size, usable);
    if (here) {
        if (n > old) {
            qy_observe_show(pool, (char *)ptr + usable, (n - old) * p->page);
            if (zero) pages_clear(p, r, first + old, n - old);
        }
        if (zero && size > kept) memset((char *)ptr + kept, 0, qy_min(size, usable) - kept);
        return ptr;
    }
    char *to = alloc(p, size, alignment, zero, false);
    if (!to) return qy_pool_no_memory(pool, size);
    memcpy(to, ptr, qy_min(kept, size));
    qy_pages_enter(p);
    count(p, QY_COUNT_RESIZE, size, alignment, ptr, to);
    qy_pages_leave(p);
    free_run(p, ptr, false);
    return to;
}

// ---- what may be asked ------------------------------------------------------------------------------------------

static size_t pages_usable(quarry_pool_t *pool, const void *ptr) {
    qy_pages_t *p = pages_of(pool);
    size_t first;
    if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED)) return qy_observe_usable(pool, ptr);
    qy_pages_enter(p);
    qy_pages_region_t *r = must_be_used(p, ptr, true, &first);
    size_t bytes = qy_pages_length(r, first) * p->page;
    qy_pages_leave(p);
    return bytes;
}

static const char *pages_check(quarry_pool_t *pool) {
    qy_pages_t *p = pages_of(pool);
    qy_pages_enter(p);
    const char *wrong = qy_pages_verify(p);
    qy_pages_leave(p);
    return wrong;
}

static void pages_pool_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    const qy_pages_t *p = pages_of(pool);  // without the lock: the log asks while it is held
    stats->used_bytes = atomic_load_explicit(&p->used_pages, memory_order_relaxed) * p->page;
}

void quarry_pages_stats(quarry_pool_t *pool, quarry_pages_stats_t *ret_stats) {
    qy_pages_t *p = pages_of(pool);
    *ret_stats = (quarry_pages_stats_t){.page_bytes = p->page};
    qy_pages_enter(p);
    ret_stats->regions = p->regions;
    ret_stats->held_pages = p->held_pages;
    ret_stats->used_pages = p->used_pages;
    ret_stats->dirty_pages = p->dirty_pages;
    ret_stats->free_runs = p->free_runs;
    ret_stats->purged_pages = p->purged;
    ret_stats->cleared_pages = __atomic_load_n(&p->cleared, __ATOMIC_RELAXED);
    for (unsigned bin = QY_PAGES_BINS; bin-- && !ret_stats->largest_run;)
        if (!qy_list_empty(&p->bins[bin]))
            ret_stats->largest_run = QY_LIST_ITEM(p->bins[bin].next, qy_page_t, link)->count;
    qy_pages_leave(p);
}

size_t quarry_pages_trim(quarry_pool_t *pool, size_t keep) {
    qy_pages_t *p = pages_of(pool);
    qy_pool_must_live(pool);
    qy_pages_enter(p);
    size_t pages = qy_pages_drop_empty(p, 0);
    pages += qy_pages_purge(p, keep >> p->shift);
    qy_pages_leave(p);
    return pages * p->page;
}

int quarry_pages_fd(const quarry_pool_t *pool) { return ((const qy_pages_t *)pool)->fd; }

uint64_t quarry_pages_file_offset(quarry_pool_t *pool, const void *ptr) {
    qy_pages_t *p = pages_of(pool);
    qy_pages_enter(p);
    qy_pages_region_t *r = p->fd >= 0 ? qy_pages_region_of(p, ptr) : NULL;
    uint64_t offset = r ? r->offset + (uint64_t)((const char *)ptr - r->base) : UINT64_MAX;
    qy_pages_leave(p);
    return offset;
}

// ---- life -----------------------------------------------------------------------------------------------------

static void pages_destroy(quarry_pool_t *pool) {
    qy_pages_t *p = pages_of(pool);
    qy_pool_retire(pool);
    qy_pool_trace_close(pool);
    qy_observe_close(pool);
    qy_pages_drop_all(p);
    if (p->fd >= 0) qy_os_close(p->fd);
    qy_pool_drop(pool);
}

static void pages_fork(quarry_pool_t *pool, int phase) {
    qy_pages_t *p = pages_of(pool);
    if (!(p->flags & QUARRY_PAGES_UNLOCKED)) qy_lock_fork(&p->lock, phase);
    // Memory in a file is the parent's memory still, and the parent goes on giving it out.
    if (phase == 2 && p->fd >= 0) p->foreign = true;
}

#define OPS(more, raw, give_raw)                                                                           \
    {                                                                                                      \
        .kind = "pages", .capabilities = QUARRY_POOL_FREES | QUARRY_POOL_SIZES | (more),                   \
        .max_alignment = ALIGNMENT_MAX, .alloc = pages_alloc, .resize = pages_resize, .free = pages_free,  \
        .usable = pages_usable, .check = pages_check, .stats = pages_pool_stats, .destroy = pages_destroy, \
        .raw_alloc = raw, .raw_free = give_raw, .fork = pages_fork                                         \
    }
#define ANY_THREAD (QUARRY_POOL_SHARED | QUARRY_POOL_ANY_FREE)
// By [unlocked][not observed]: parts of a run, and memory in a file, cannot be put elsewhere or framed.
static const quarry_pool_ops_t pages_ops[2][2] = {
    {OPS(ANY_THREAD, pages_raw_alloc, pages_raw_free), OPS(ANY_THREAD, NULL, NULL)},
    {OPS(0, pages_raw_alloc, pages_raw_free), OPS(0, NULL, NULL)},
};

static bool pages_options_sane(const quarry_pages_options_t *o) {
    const unsigned all = QUARRY_PAGES_UNLOCKED | QUARRY_PAGES_HUGE | QUARRY_PAGES_NO_HUGE | QUARRY_PAGES_MEMFD |
                         QUARRY_PAGES_FIXED | QUARRY_PAGES_PARTS;
    bool in_file = o->file || (o->flags & QUARRY_PAGES_MEMFD), huge = o->flags & QUARRY_PAGES_HUGE;
    if (o->flags & ~all || (huge && (o->flags & QUARRY_PAGES_NO_HUGE)) || (o->file && (o->flags & QUARRY_PAGES_MEMFD)))
        return false;
    if (o->pool.parent && o->pool.parent->ops->max_alignment < qy_os_page_size()) return false;
    return !in_file || (!o->pool.parent && !(o->flags & QUARRY_PAGES_FIXED) && !huge);
}

static bool pages_open_file(qy_pages_t *p, const quarry_pages_options_t *o) {
    if (o->file) p->fd = qy_os_file_open(o->file, QY_FILE_WRITE | QY_FILE_CREATE);
    else if (o->flags & QUARRY_PAGES_MEMFD) p->fd = qy_os_file_memory(p->pool.info->name);
    if (p->fd >= -1) return true;
    errno = -p->fd;
    p->fd = -1;
    return false;
}

quarry_pool_t *quarry_pages_create(const quarry_pages_options_t *options) {
    static const quarry_pages_options_t none;
    const quarry_pages_options_t *o = options ? options : &none;
    if (!pages_options_sane(o)) {
        errno = EINVAL;
        return NULL;
    }
    bool plain = o->file || (o->flags & (QUARRY_PAGES_MEMFD | QUARRY_PAGES_PARTS));
    qy_pages_t *p = qy_pool_new(&pages_ops[!!(o->flags & QUARRY_PAGES_UNLOCKED)][plain], sizeof *p, &o->pool);
    if (!p) return NULL;
    p->flags = o->flags;
    p->page = qy_os_page_size();
    p->shift = qy_log2_floor(p->page);
    // What one table of the page directory maps; where that is too much to ask for, nothing is aligned.
    p->huge_bytes = p->page <= 16384 ? p->page * (p->page / 8) : p->page;
    size_t region = o->region_bytes ? qy_min(o->region_bytes, (size_t)1 << 40) : o->pool.parent ? REGION_BYTES_OF_PARENT
                                                                                                : REGION_BYTES;
    p->region_bytes = qy_round_up(region, p->page);
    p->keep_pages = (o->keep_bytes ? o->keep_bytes : KEEP_BYTES) >> p->shift;
    p->fd = -1;
    for (unsigned bin = 0; bin < QY_PAGES_BINS; bin++) qy_list_init(&p->bins[bin]);
    if (pages_open_file(p, o)) {
        qy_pool_ready(&p->pool);
        return &p->pool;
    }
    int saved = errno;
    pages_destroy(&p->pool);
    errno = saved;
    return NULL;
}

int quarry_pages_add_region(quarry_pool_t *pool, void *base, size_t bytes, int zero) {
    qy_pages_t *p = pages_of(pool);
    qy_pool_must_live(pool);
    bool sane = base && bytes && ((uintptr_t)base | bytes) % p->page == 0 && bytes >> p->shift <= UINT32_MAX &&
                (uintptr_t)base + bytes > (uintptr_t)base && p->fd < 0;
    qy_pages_enter(p);
    for (uint32_t i = 0; i < p->regions && sane; i++) {
        const qy_pages_region_t *r = p->ordered[i];
        sane = (char *)base + bytes <= r->base || r->base + r->pages * p->page <= (char *)base;
    }
    bool added = sane && qy_pages_region_add(
                             p, (qy_pages_region_t){.base = base, .pages = bytes >> p->shift, .fixed = true}, zero);
    qy_pages_leave(p);
    if (added) return 0;
    errno = sane ? ENOMEM : EINVAL;
    return -1;
}
