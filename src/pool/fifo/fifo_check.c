// SPDX-License-Identifier: MIT
// fifo_check.c: the invariants of a FIFO's pages.
#include "pool/fifo.h"

#define PAGE(l) QY_LIST_ITEM(l, qy_fifo_page_t, link)

// A page that was left. Its owner and others may be freeing blocks of it: both counts go towards each other, and local
// is read first.
static const char *fifo_check_left(const qy_fifo_t *f, qy_fifo_page_t *page) {
    uint64_t local = __atomic_load_n(&page->hot.local, __ATOMIC_ACQUIRE),
             remote = __atomic_load_n(&page->hot.remote, __ATOMIC_RELAXED);
    if (page->pool != f) return "a page that names another pool";
    if ((qy_fifo_page_t *)quarry_fifo_page_of(f->hot.mask, page) != page)
        return "a page that does not lie where its address says";
    if (page->dirty > page->end || page->dirty < qy_fifo_start(page)) return "a page whose mark of dirt lies outside";
    if (page->used > (size_t)(page->end - qy_fifo_start(page))) return "a page that uses more than it has";
    if (local < QY_FIFO_LEFT || (local & QY_FIFO_COUNT) > page->blocks)
        return "a page with a wrong count of its owner's frees";
    if (!(remote & QY_FIFO_ENDED) && remote > local) return "a page of which more was freed than allocated";
    return NULL;
}

static const char *check_spare(const qy_fifo_t *f, qy_fifo_page_t *page) {
    bool sound = page->pool == f && __atomic_load_n(&page->hot.local, __ATOMIC_RELAXED) == 0 &&
                 __atomic_load_n(&page->hot.remote, __ATOMIC_RELAXED) == QY_FIFO_ENDED;
    return sound ? NULL : "a spare page that was written to";
}

const char *qy_fifo_check_lists(qy_fifo_t *f) {
    size_t pages = 0, used = 0, spares = 0;
    QY_NEEDS(&f->lock);
    QY_LIST_EACH(l, &f->pages) {
        const char *wrong = fifo_check_left(f, PAGE(l));
        if (wrong) return wrong;
        pages++;
        used += PAGE(l)->used;
    }
    QY_LIST_EACH(l, &f->spares) {
        const char *wrong = check_spare(f, PAGE(l));
        if (wrong) return wrong;
        spares++;
    }
    QY_LIST_EACH(l, &f->waiting)
        if (PAGE(l)->pool != f) return "a page that waits for another pool's owner";
    if (f->big_spare && check_spare(f, f->big_spare)) return check_spare(f, f->big_spare);
    bool fits =
        pages == f->npages && used == atomic_load_explicit(&f->used_left, memory_order_relaxed) && spares == f->nspares;
    return fits ? NULL : "totals that do not fit the pages";
}

// The page that is being filled; for its owner.
static const char *fifo_check_current(const qy_fifo_t *f) {
    qy_fifo_page_t *page = f->current;
    const char *pos = qy_fifo_pos(f);
    if (!page) return NULL;
    if (page->pool != f || page->end != f->end) return "a current page of another pool";
    if (pos < qy_fifo_start(page) || pos > f->end || (uintptr_t)pos % 8)
        return "a position outside of the current page";
    if (f->hot.clean > f->end || f->dirty > f->end) return "a mark outside of the current page";
    if (qy_fifo_freed_of(page, f->hot.blocks, true) > f->hot.blocks)
        return "a current page of which more was freed than allocated";
    return NULL;
}

const char *qy_fifo_check_owned(qy_fifo_t *f) {
    const char *wrong = qy_fifo_check_lists(f);
    return wrong ? wrong : fifo_check_current(f);
}

// What is promised to be zero. A checked pool's free memory must not be read.
static const char *fifo_check_clean(const qy_fifo_t *f) {
    if (f->hot.pool.mode & QY_MODE_OBSERVED) return NULL;
    for (const char *c = qy_fifo_pos(f); f->current && c < f->hot.clean; c++)
        if (*c) return "free memory that was written to";
    return NULL;
}

const char *qy_fifo_check(quarry_pool_t *pool) {
    qy_fifo_t *f = (qy_fifo_t *)pool;
    qy_lock_take(&f->lock);
    const char *wrong = qy_fifo_check_owned(f);
    if (!wrong) wrong = fifo_check_clean(f);
    qy_lock_drop(&f->lock);
    return wrong;
}
