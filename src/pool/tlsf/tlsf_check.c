// SPDX-License-Identifier: MIT
// tlsf_check.c: every invariant of a tlsf pool, the walk over its blocks, and what to say of a pointer that is none.
#include "pool/tlsf.h"

// ---- the walker -------------------------------------------------------------------------------------------

typedef struct tlsf_sums {
    size_t free_blocks, used_bytes;
} tlsf_sums_t;

static bool in_region(const tlsf_region_t *r, const void *p) {
    return (uintptr_t)p >= (uintptr_t)r && (uintptr_t)p <= (uintptr_t)r + r->bytes - TLSF_PAYLOAD;
}

// May a walk step over `b`? NULL, or what is wrong with it.
static const char *step_wrong(const tlsf_t *t, tlsf_region_t *r, tlsf_block_t *b) {
    if (!tlsf_is_head(t, b)) return "the head of a block was written over";
    if (b == tlsf_region_end(r))
        return (b->head & ~(MARK_MASK | FLAG_PREV_FREE)) == FLAG_END ? NULL : "the end of a region was written over";
    if (b->head & FLAG_END) return "a region ends too early";
    if (tlsf_bytes(b) < TLSF_MIN_BLOCK || !in_region(r, tlsf_next(b)) || tlsf_next(b) <= b)
        return "a block has no possible size";
    return NULL;
}

static const char *tlsf_check_region(const tlsf_t *t, tlsf_region_t *r, tlsf_sums_t *sums) {
    tlsf_block_t *before = NULL;
    for (tlsf_block_t *b = tlsf_region_first(r);; b = tlsf_next(b)) {
        const char *wrong = step_wrong(t, r, b);
        if (wrong) return wrong;
        bool before_free = before && (before->head & FLAG_FREE);
        if (!(b->head & FLAG_PREV_FREE) != !before_free) return "a block does not know what lies before it";
        if (before_free && b->prev != before) return "a block does not lead to the free block before it";
        if (!(b->head & FLAG_FIRST) != (b != tlsf_region_first(r))) return "the mark of the first block is wrong";
        if (b->head & FLAG_END) return NULL;
        if (before_free && (b->head & FLAG_FREE)) return "two free blocks are neighbours";
        if (b->head & FLAG_FREE) sums->free_blocks++;
        else sums->used_bytes += tlsf_bytes(b);
        before = b;
    }
}

static bool in_some_region(const tlsf_t *t, const void *p) {
    for (const tlsf_region_t *r = t->regions; r; r = r->next)
        if (in_region(r, p)) return true;
    return false;
}

// Lists that hold `limit` blocks in all are as long as they can be: a longer one is a circle.
static const char *tlsf_check_list(const tlsf_t *t, unsigned row, unsigned column, size_t limit, size_t *ret_sum) {
    const tlsf_block_t *before = NULL;
    for (tlsf_block_t *b = t->lists[row][column]; b; before = b, b = b->next_free) {
        if (!tlsf_within(t, b) || !in_some_region(t, b)) return "a list leads out of the pool";
        if (++*ret_sum > limit) return "a list holds a block that is not free, or runs in a circle";
        if (!tlsf_is_head(t, b) || !(b->head & FLAG_FREE)) return "a list holds a block that is not free";
        if (b->prev_free != before) return "a list does not lead back";
        tlsf_class_t c = tlsf_class(tlsf_bytes(b));
        if (c.row != row || c.column != column) return "a free block is in the list of another size";
    }
    return NULL;
}

static const char *tlsf_check_fresh(tlsf_t *t) {
    bool found = !t->open;
    for (tlsf_region_t *r = t->regions; r; r = r->next) {
        if (r == t->open) found = t->end == tlsf_region_end(r);
        if (r->bytes > tlsf_region_whole(r)) return "the end of a region is outside of it";
        if (r != t->open && tlsf_region_fresh(r)) return "memory that belongs to no block";
    }
    return found ? NULL : "the region with fresh memory is none of the pool's";
}

const char *qy_tlsf_check(tlsf_t *t) {
    tlsf_sums_t sums = {0, 0};
    size_t listed = 0;
    const char *wrong = tlsf_check_fresh(t);
    for (tlsf_region_t *r = t->regions; r && !wrong; r = r->next) wrong = tlsf_check_region(t, r, &sums);
    for (unsigned row = 0; row < TLSF_FL && !wrong; row++) {
        if (!(t->rows >> row & 1) != !t->columns[row]) return "the bitmap of the rows is wrong";
        for (unsigned column = 0; column < TLSF_SL && !wrong; column++) {
            if (!(t->columns[row] >> column & 1) != !t->lists[row][column]) return "the bitmap of the lists is wrong";
            wrong = tlsf_check_list(t, row, column, sums.free_blocks, &listed);
        }
    }
    if (wrong) return wrong;
    if (listed != sums.free_blocks) return "a free block is in no list";
    if (!(t->pool.mode & QY_MODE_OBSERVED) && sums.used_bytes != atomic_load_explicit(&t->used, memory_order_relaxed))
        return "the sum of used blocks is wrong";
    return NULL;
}

int quarry_tlsf_walk(quarry_pool_t *pool, int (*visit)(void *block, size_t bytes, int used, void *arg), void *arg) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_pool_must_live(pool);
    int result = 0;
    tlsf_lock(t);
    qy_lock_go_out(&t->lock);  // of a pool without a lock it is nobody's
    for (tlsf_region_t *r = t->regions; r && !result; r = r->next) {
        for (tlsf_block_t *b = tlsf_region_first(r); !result; b = tlsf_next(b)) {
            const char *wrong = step_wrong(t, r, b);
            if (wrong) qy_tlsf_damaged(t, b, wrong);
            if (b->head & FLAG_END) {
                size_t fresh = tlsf_region_fresh(r);
                if (fresh) result = visit(tlsf_payload(b), fresh - QUARRY_TLSF_BLOCK_OVERHEAD, 0, arg);
                break;
            }
            result = visit(tlsf_payload(b), tlsf_room(b), !(b->head & FLAG_FREE), arg);
        }
    }
    if (t->flags & QUARRY_TLSF_LOCK) {
        qy_lock_take(&t->walk_ends);
        qy_lock_come_back(&t->lock);
        qy_lock_drop(&t->lock);
        qy_lock_drop(&t->walk_ends);
    }
    return result;
}

// ---- faults -----------------------------------------------------------------------------------------------

void qy_tlsf_damaged(tlsf_t *t, const tlsf_block_t *b, const char *what) {
    qy_fatal(QY_FAULT_DAMAGED_POOL, (const char *)b + TLSF_PAYLOAD, "%s, in %s \"%s\"", what, t->pool.ops->kind,
        t->pool.info->name);
}

// A pointer into the block `b`, which is none of its own.
_Noreturn static void inside(const tlsf_t *t, tlsf_block_t *b, const void *ptr) {
    size_t offset = (size_t)((const char *)ptr - (char *)tlsf_payload(b));
    if (b->head & FLAG_FREE)
        qy_fatal(QY_FAULT_DOUBLE_FREE, ptr, "memory of %s \"%s\" that is free", t->pool.ops->kind, t->pool.info->name);
    qy_fatal(QY_FAULT_INTERIOR_FREE, ptr, "%z byte%S into a block of %z byte%S of %s \"%s\"", offset, tlsf_room(b),
        t->pool.ops->kind, t->pool.info->name);
}

void qy_tlsf_bad_pointer(tlsf_t *t, const void *ptr) {
    qy_pool_must_live(&t->pool);
    for (tlsf_region_t *r = t->regions; r; r = r->next) {
        if ((uintptr_t)ptr < (uintptr_t)tlsf_payload(tlsf_region_first(r)) ||
            (uintptr_t)ptr >= (uintptr_t)tlsf_region_end(r))
            continue;
        for (tlsf_block_t *b = tlsf_region_first(r); b != tlsf_region_end(r); b = tlsf_next(b)) {
            const char *wrong = step_wrong(t, r, b);
            if (wrong) qy_tlsf_damaged(t, b, wrong);
            if ((uintptr_t)ptr < (uintptr_t)tlsf_payload(tlsf_next(b))) inside(t, b, ptr);
        }
    }
    qy_fatal(QY_FAULT_INVALID_FREE, ptr, "not memory of %s \"%s\"", t->pool.ops->kind, t->pool.info->name);
}
