// SPDX-License-Identifier: MIT
// fifo_page.c: the life of a FIFO's pages: taken, current, left, ended, spare. The protocol is in fifo.h.
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/fifo.h"
#include "pool/log.h"
#include "pool/observe.h"

#define PAGE(l) QY_LIST_ITEM(l, qy_fifo_page_t, link)

static uint64_t local_of(const qy_fifo_page_t *page) { return __atomic_load_n(&page->hot.local, __ATOMIC_RELAXED); }
static uint64_t remote_of(const qy_fifo_page_t *page) { return __atomic_load_n(&page->hot.remote, __ATOMIC_ACQUIRE); }

static void event(qy_fifo_t *f, qy_log_event_t what) {
    if (f->hot.pool.mode & QY_MODE_COUNTED) qy_log_event(&f->hot.pool, what);
}

static bool is_owner(const qy_fifo_t *f) { return f->owner == qy_os_thread_token(); }

// With the lock, behind each change of the lists. The current page is for its owner to look at.
static void fifo_page_assert_sound(qy_fifo_t *f, bool by_owner) {
    qy_assert_walk(&f->hot.pool, f->npages + f->nspares, by_owner ? qy_fifo_check_owned(f) : qy_fifo_check_lists(f));
    (void)by_owner;
}

// ---- chunks ----------------------------------------------------------------------------------------

// A page whose blocks have `room` bytes, of which the first lies at a multiple of `alignment`. NULL: no memory.
static qy_fifo_page_t *page_get(qy_fifo_t *f, size_t room, size_t alignment, bool big) {
    quarry_pool_t *parent = f->hot.pool.info->parent;
    size_t page_bytes = f->page_bytes, bytes = page_bytes, extra = 0;
    if (big && (__builtin_add_overflow(room, QY_FIFO_ALIGN_MAX + alignment, &bytes) ||
                   bytes > QUARRY_POOL_MAX - 2 * page_bytes))
        return NULL;
    // A parent that cannot align so far is asked for so much more that an aligned page is within.
    size_t chunk_alignment = page_bytes;
    if (parent && parent->ops->max_alignment < page_bytes) {
        chunk_alignment = qy_min(parent->ops->max_alignment, 16);
        extra = page_bytes;
    }
    qy_pool_chunk_t chunk;
    if (!qy_chunk_get(&f->hot.pool, bytes + extra, bytes + extra, chunk_alignment, &chunk)) return NULL;
    char *base = qy_ptr_up(chunk.base, page_bytes);
    qy_fifo_page_t *page = (qy_fifo_page_t *)quarry_fifo_page_of(~(page_bytes - 1), base);
    if (!chunk.zero) memset(page, 0, sizeof *page);
    page->pool = f;
    page->chunk = chunk.base;
    page->chunk_bytes = chunk.bytes;
    page->big = big;
    page->end = big ? (char *)chunk.base + chunk.bytes : base + page_bytes;
    page->dirty = chunk.zero ? qy_fifo_start(page) : page->end;
    qy_list_init(&page->link);
    if (f->hot.pool.mode & QY_MODE_OBSERVED)
        qy_observe_hide(&f->hot.pool, qy_fifo_start(page), (size_t)(page->end - qy_fifo_start(page)));
    return page;
}

static void page_put(qy_fifo_t *f, qy_fifo_page_t *page) {
    void *base = page->chunk;
    size_t bytes = page->chunk_bytes;
    if (f->hot.pool.mode & QY_MODE_OBSERVED)
        qy_observe_show(&f->hot.pool, qy_fifo_start(page), (size_t)(page->end - qy_fifo_start(page)));
    qy_chunk_put(&f->hot.pool, base, bytes);
}

static void put_list(qy_fifo_t *f, qy_list_t *list) {
    qy_list_t *l;
    while ((l = qy_list_pop_front(list)) != NULL) page_put(f, PAGE(l));
}

// ---- empty pages -------------------------------------------------------------------------------------

// A free of a block of an empty page finds local < remote.
static void mark_spare(qy_fifo_page_t *page) {
    __atomic_store_n(&page->hot.local, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->hot.remote, QY_FIFO_ENDED, __ATOMIC_RELAXED);
}

static size_t spares_allowed(const qy_fifo_t *f) { return f->spare_max ? f->spare_max : 1 + f->npages / 16; }

// Of two empty big pages the larger one is kept, unless that is too large.
static qy_fifo_page_t *keep_big(qy_fifo_t *f, qy_fifo_page_t *page) {
    qy_fifo_page_t *kept = f->big_spare;
    if (page->chunk_bytes > QY_FIFO_BIG_KEPT || (kept && kept->chunk_bytes >= page->chunk_bytes)) return page;
    f->big_spare = page;
    return kept;
}

// Under the lock: `page`, which was left, is empty, and the caller's alone. What comes of it: a spare (NULL), or
// the page that is to be given back.
static qy_fifo_page_t *retire(qy_fifo_t *f, qy_fifo_page_t *page) {
    QY_NEEDS(&f->lock);
    qy_assert(f->npages && local_of(page) == (remote_of(page) & ~QY_FIFO_ENDED));
    qy_list_remove(&page->link);
    f->npages--;
    atomic_store_explicit(
        &f->used_left, atomic_load_explicit(&f->used_left, memory_order_relaxed) - page->used, memory_order_relaxed);
    qy_bump(&f->blocks_ended, page->blocks);
    mark_spare(page);
    if (f->dying) return page;
    if (page->big) return keep_big(f, page);
    if (f->nspares >= spares_allowed(f)) return page;
    f->nspares++;
    qy_list_push_front(&f->spares, &page->link);
    return NULL;
}

// Under the lock: has the pool, which was destroyed, just lost its last page? True once: the caller finishes it.
static bool is_last(qy_fifo_t *f) {
    QY_NEEDS(&f->lock);
    if (!f->dying || f->finishing || f->npages || f->busy || (f->hot.pool.mode & QY_MODE_OBSERVED)) return false;
    return f->finishing = true;
}

// Drop the lock, and give `page` back (if any): now if this thread may use the parent, else when the owner comes
// by. `busy` keeps the pool until that is done. The pool may be gone afterwards.
static void unlock_and_give_back(qy_fifo_t *f, qy_fifo_page_t *page, bool by_owner) {
    QY_NEEDS(&f->lock);
    fifo_page_assert_sound(f, by_owner);
    bool now = page && (f->shared_parent || by_owner || f->dying);
    if (page && !now) qy_list_push_back(&f->waiting, &page->link);
    if (now) {
        f->busy++;
        qy_lock_drop(&f->lock);
        page_put(f, page);
        qy_lock_take(&f->lock);
        f->busy--;
    }
    bool last = is_last(f);
    qy_lock_drop(&f->lock);
    if (last) qy_fifo_finish(f);
}

// ---- the current page ----------------------------------------------------------------------------------

static void fifo_page_make_current(qy_fifo_t *f, qy_fifo_page_t *page) {
    char *start = qy_fifo_start(page);
    qy_assert(!page->big && page->dirty >= start && page->dirty <= page->end);
    __atomic_store_n(&page->hot.key, qy_fifo_key(f), __ATOMIC_RELAXED);
    __atomic_store_n(&page->hot.local, QY_FIFO_OPEN, __ATOMIC_RELAXED);
    __atomic_store_n(&page->hot.remote, 0, __ATOMIC_RELAXED);
    f->current = page;
    f->end = page->end;
    f->dirty = page->dirty;
    f->hot.clean = page->dirty > start ? start : page->end;
    __atomic_store_n(&f->hot.blocks, 0, __ATOMIC_RELAXED);
    qy_fifo_set_pos(f, start);
    if (!qy_fifo_hidden(f)) f->hot.limit = page->end;
}

// Blocks of the current page that are not freed.
static uint64_t live_in_current(const qy_fifo_t *f) {
    const qy_fifo_page_t *page = f->current;
    uint64_t freed = QY_FIFO_OPEN - local_of(page) + remote_of(page);
    if (QY_UNLIKELY(freed > f->hot.blocks))
        qy_fatal(QY_FAULT_DOUBLE_FREE, qy_fifo_start(f->current), "%l block%S allocated in this page, %l freed",
            f->hot.blocks, freed);
    return f->hot.blocks - freed;
}

// Add a bias to both counts, so that every thread that has read them reads them again. True: the page is empty, and
// the caller's.
static bool bias(qy_fifo_page_t *page, uint64_t local, uint64_t by) {
    __atomic_store_n(&page->hot.local, local + by, __ATOMIC_RELEASE);
    return __atomic_add_fetch(&page->hot.remote, by, __ATOMIC_ACQ_REL) == local + by;
}

// Under the lock: the current page is left. True: nothing lives in it; it is to be retired.
static bool fifo_page_leave(qy_fifo_t *f) {
    qy_fifo_page_t *page = f->current;
    QY_NEEDS(&f->lock);
    char *pos = qy_fifo_pos(f), *start = qy_fifo_start(page);
    live_in_current(f);  // checks the counts while they can be compared
    page->blocks = f->hot.blocks;
    page->used = (size_t)(pos - start);
    page->dirty = f->dirty > pos ? f->dirty : pos;
    f->npages++;
    qy_list_push_back(&f->pages, &page->link);
    atomic_store_explicit(
        &f->used_left, atomic_load_explicit(&f->used_left, memory_order_relaxed) + page->used, memory_order_relaxed);
    qy_bump(&f->blocks_left, page->blocks);
    qy_bump(&f->bytes_left, page->used);
    f->current = NULL;
    return bias(page, page->blocks - (QY_FIFO_OPEN - local_of(page)), QY_FIFO_LEFT);
}

// The current page has no live block: it is filled once more. What lies in it is cleaned when somebody asks for zero.
static void restart(qy_fifo_t *f) {
    qy_fifo_page_t *page = f->current;
    char *pos = qy_fifo_pos(f);
    qy_lock_take(&f->lock);
    page->dirty = f->dirty > pos ? f->dirty : pos;
    qy_bump(&f->blocks_left, f->hot.blocks);
    qy_bump(&f->blocks_ended, f->hot.blocks);
    qy_bump(&f->bytes_left, (uint64_t)(pos - qy_fifo_start(page)));
    fifo_page_make_current(f, page);
    fifo_page_assert_sound(f, true);
    qy_lock_drop(&f->lock);
    event(f, QY_LOG_RESET);
}

bool qy_fifo_first_page(qy_fifo_t *f) {
    qy_fifo_page_t *page = page_get(f, 0, 1, false);
    if (page) fifo_page_make_current(f, page);
    return page != NULL;
}

// Under the lock: the next page becomes current. Returns the left one if it is empty and no spare.
static qy_fifo_page_t *replace(qy_fifo_t *f, qy_fifo_page_t *next) {
    QY_NEEDS(&f->lock);
    qy_fifo_page_t *old = f->current, *back = fifo_page_leave(f) ? retire(f, old) : NULL;
    fifo_page_make_current(f, next);
    return back;
}

// ---- what the owner does when a page is full ------------------------------------------------------------------

// Under the lock: ends that were missed. Pages to give back go to `list`.
static void look_for_missed(qy_fifo_t *f, qy_list_t *list) {
    QY_NEEDS(&f->lock);
    for (int i = 0; i < QY_FIFO_LOOKED_AT && !qy_list_empty(&f->pages); i++) {
        qy_fifo_page_t *page = PAGE(qy_list_pop_front(&f->pages));
        qy_list_push_back(&f->pages, &page->link);
        if (remote_of(page) != local_of(page)) continue;
        qy_fifo_page_t *back = retire(f, page);
        if (back) qy_list_push_back(list, &back->link);
    }
}

// A block of a page of its own. Its page is never current, it is left from the start.
static char *big_block(qy_fifo_t *f, size_t size, size_t alignment, unsigned flags) {
    qy_lock_take(&f->lock);
    qy_fifo_page_t *page = f->big_spare;
    char *p = page ? qy_ptr_up(qy_fifo_start(page), alignment) : NULL;
    if (page && size <= (size_t)(page->end - p) && size >= page->chunk_bytes / 4) f->big_spare = NULL;
    else page = NULL;
    qy_lock_drop(&f->lock);
    if (!page && !(page = page_get(f, size, alignment, true))) return NULL;

    p = qy_ptr_up(qy_fifo_start(page), alignment);
    // Before others find the page in the list.
    if ((flags & QUARRY_POOL_ZERO) && page->dirty > p) memset(p, 0, qy_min(size, (size_t)(page->dirty - p)));
    if (page->dirty < p + size) page->dirty = p + size;
    page->blocks = 1;
    page->used = (size_t)(p + size - qy_fifo_start(page));
    __atomic_store_n(&page->hot.key, qy_fifo_key(f), __ATOMIC_RELAXED);
    __atomic_store_n(&page->hot.local, QY_FIFO_LEFT + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&page->hot.remote, QY_FIFO_LEFT, __ATOMIC_RELEASE);
    qy_lock_take(&f->lock);
    f->npages++;
    qy_list_push_back(&f->pages, &page->link);
    atomic_store_explicit(
        &f->used_left, atomic_load_explicit(&f->used_left, memory_order_relaxed) + page->used, memory_order_relaxed);
    qy_bump(&f->blocks_left, 1);
    qy_bump(&f->bytes_left, page->used);
    fifo_page_assert_sound(f, true);
    qy_lock_drop(&f->lock);
    qy_assert(p + size <= page->end);
    return p;
}

bool qy_fifo_turn(qy_fifo_t *f, size_t size, size_t alignment, unsigned flags, char **ret_block) {
    qy_list_t back;
    qy_list_init(&back);
    *ret_block = NULL;
    qy_assert(is_owner(f));
    if (size > f->page_bytes / 2) {
        *ret_block = big_block(f, size, alignment, flags);
        return *ret_block != NULL;
    }
    if (live_in_current(f) == 0) {
        restart(f);
        return true;
    }
    qy_fifo_page_t *next = NULL;
    qy_lock_take(&f->lock);
    look_for_missed(f, &back);
    while (!qy_list_empty(&f->waiting)) qy_list_push_back(&back, qy_list_pop_front(&f->waiting));
    qy_list_t *l = qy_list_pop_front(&f->spares);
    if (l) {
        next = PAGE(l);
        f->nspares--;
    }
    qy_lock_drop(&f->lock);
    // What is to go back goes first: under a limit it makes room for the new page.
    put_list(f, &back);
    if (!next && !(next = page_get(f, 0, 1, false))) return false;
    qy_lock_take(&f->lock);
    unlock_and_give_back(f, replace(f, next), true);
    return true;
}

// ---- frees ---------------------------------------------------------------------------------------------------

_Noreturn static QY_COLD void too_many_frees(const qy_fifo_page_t *page) {
    qy_fatal(QY_FAULT_DOUBLE_FREE, page + 1, "of a page of fifo \"%s\" more blocks were freed than allocated",
        page->pool->hot.pool.info->name);
}

// `page` was left, is empty, and this thread found it so.
static void end_page(qy_fifo_t *f, qy_fifo_page_t *page, bool by_owner) {
    qy_lock_take(&f->lock);
    qy_fifo_page_t *back = retire(f, page);
    // A page that would be given back while the current one is nearly full: it would be missed soon.
    if (back && by_owner && !back->big && !f->dying && (size_t)(f->end - qy_fifo_pos(f)) < f->page_bytes / 8)
        back = replace(f, back);
    unlock_and_give_back(f, back, by_owner);
}

void quarry_fifo_page_end(quarry_pool_t *pool, quarry_fifo_page_t *page) {
    qy_fifo_page_t *p = (qy_fifo_page_t *)page;
    // The owner's last write and read tell an empty page from one whose counts contradict each other.
    if (__atomic_load_n(&page->remote, __ATOMIC_RELAXED) != page->local) too_many_frees(p);
    end_page((qy_fifo_t *)pool, p, true);
}

void qy_fifo_free_own(qy_fifo_t *f, qy_fifo_page_t *page) {
    qy_assert(is_owner(f));
    uint64_t remote = remote_of(page), local = local_of(page) - 1;
    __atomic_store_n(&page->hot.local, local, __ATOMIC_RELEASE);
    if ((int64_t)(local - remote) <= 0) quarry_fifo_page_end(&f->hot.pool, &page->hot);
}

void qy_fifo_free_remote(qy_fifo_t *f, qy_fifo_page_t *page) {
    uint64_t remote = remote_of(page), next;
    bool ends;
    do {
        uint64_t local = __atomic_load_n(&page->hot.local, __ATOMIC_ACQUIRE);
        // Only counts of a page that was left can be compared.
        if (QY_UNLIKELY(remote >= QY_FIFO_LEFT && local < QY_FIFO_OPEN / 2 && remote >= local)) too_many_frees(page);
        next = remote + 1;
        ends = next == local;
        if (ends) next |= QY_FIFO_ENDED;
    } while (!__atomic_compare_exchange_n(&page->hot.remote, &remote, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    if (ends) end_page(f, page, false);
}

// ---- the end of the pool ----------------------------------------------------------------------------------------

bool qy_fifo_freeze(qy_fifo_t *f) {
    qy_list_t back;
    qy_list_init(&back);
    qy_lock_take(&f->lock);
    f->dying = true;
    f->hot.pool.alive = QY_POOL_DYING;
    qy_fifo_page_t *current = f->current;
    if (fifo_page_leave(f)) qy_list_push_back(&back, &retire(f, current)->link);
    QY_LIST_EACH(l, &f->pages) {
        qy_fifo_page_t *page = PAGE(l);
        // From here on the former owner frees like everybody.
        __atomic_store_n(&page->hot.key, 0, __ATOMIC_RELAXED);
        if (bias(page, local_of(page), QY_FIFO_FROZEN)) qy_list_push_back(&back, &retire(f, page)->link);
    }
    while (!qy_list_empty(&f->spares)) qy_list_push_back(&back, qy_list_pop_front(&f->spares));
    while (!qy_list_empty(&f->waiting)) qy_list_push_back(&back, qy_list_pop_front(&f->waiting));
    if (f->big_spare) qy_list_push_back(&back, &f->big_spare->link);
    f->big_spare = NULL;
    f->nspares = 0;
    f->busy++;
    qy_lock_drop(&f->lock);
    put_list(f, &back);
    qy_lock_take(&f->lock);
    f->busy--;
    bool last = is_last(f);
    qy_lock_drop(&f->lock);
    return last;
}

void qy_fifo_put_spares(qy_fifo_t *f) {
    qy_list_t back;
    qy_list_init(&back);
    qy_lock_take(&f->lock);
    qy_list_t *l;
    while ((l = qy_list_pop_front(&f->spares)) != NULL) qy_list_push_back(&back, l);
    while ((l = qy_list_pop_front(&f->waiting)) != NULL) qy_list_push_back(&back, l);
    f->nspares = 0;
    qy_fifo_page_t *big = f->big_spare;
    f->big_spare = NULL;
    fifo_page_assert_sound(f, false);
    qy_lock_drop(&f->lock);
    put_list(f, &back);
    if (big) page_put(f, big);
}

void qy_fifo_put_all(qy_fifo_t *f) {
    put_list(f, &f->pages);
    if (f->current) page_put(f, f->current);
    f->current = NULL;
    qy_fifo_put_spares(f);
}
