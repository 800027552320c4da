// SPDX-License-Identifier: MIT
// persist_check.c: every block, list and count of a persistent pool, walked and verified.
//
// The walk goes forward by at least 32 bytes a step and stays below `end`; lists are followed for as many
// steps as the walk found free blocks. So it ends whatever the file says, and reads nothing outside of it.
#include "pool/persist.h"

typedef struct persist_sums {
    uint64_t used, count, free_count;
} persist_sums_t;

static bool wrong(const char *reason, uint64_t at) { return qy_persist_fail(EUCLEAN, reason, at); }

bool qy_persist_check_words(const quarry_persist_t *s) {
    const qy_persist_words_t *w = s->words;
    if (w->end % QY_PERSIST_UNIT || w->end > s->mapped || w->end < s->first + QY_BLOCK_MIN)
        return wrong("the pool's end lies outside of the file", QY_PERSIST_UNIT + offsetof(qy_persist_words_t, end));
    for (unsigned i = 0; i < 3; i++)
        if (w->zero[i])
            return wrong(
                "a word that must be zero is not", QY_PERSIST_UNIT + offsetof(qy_persist_words_t, zero) + i * 8);
    for (unsigned i = 0; i < QY_BINS(QY_PERSIST_MAX_LOG2 - 4); i++)
        if (!w->bins[i] != !(w->bitmap[i / 64] >> i % 64 & 1))
            return wrong("the bitmap of bins differs from the bins",
                QY_PERSIST_UNIT + offsetof(qy_persist_words_t, bins) + i * 8);
    for (unsigned i = QY_PERSIST_BINS; i % 64; i++)
        if (w->bitmap[i / 64] >> i % 64 & 1)
            return wrong("the bitmap names a bin that is none",
                QY_PERSIST_UNIT + offsetof(qy_persist_words_t, bitmap) + i / 64 * 8);
    return true;
}

static bool walk(const quarry_persist_t *s, persist_sums_t *sums) {
    uint64_t at = s->first, end = qy_persist_end(s), size;
    bool prev_free = false;
    for (; at < end; at += size) {
        unsigned flags;
        size = qy_persist_block(s, at, &flags);
        if (!size) return wrong("a block's header is damaged", at - 8);
        if (prev_free != !!(flags & QY_BLOCK_PREV_FREE))
            return wrong("a block is mistaken about the one before it", at - 8);
        if (flags & ~(QY_BLOCK_FREE | QY_BLOCK_PREV_FREE)) return wrong("a block is in no state that lasts", at - 8);
        if (flags & QY_BLOCK_FREE) {
            if (prev_free) return wrong("two free blocks lie side by side", at - 8);
            if (*qy_word(s, at + size - 16) != size)
                return wrong("a free block's size at its end is damaged", at + size - 16);
            sums->free_count++;
        } else {
            sums->used += size;
            sums->count++;
        }
        prev_free = flags & QY_BLOCK_FREE;
    }
    if (*qy_word(s, end - 8) != qy_block_header(end, 0, prev_free ? QY_BLOCK_PREV_FREE : 0))
        return wrong("the end of the pool is damaged", end - 8);
    return true;
}

static bool check_lists(const quarry_persist_t *s, uint64_t free_count) {
    for (unsigned bin = 0; bin < QY_PERSIST_BINS; bin++) {
        uint64_t prev = 0;
        for (uint64_t at = s->words->bins[bin]; at; prev = at, at = *qy_word(s, at)) {
            unsigned flags;
            uint64_t size = qy_persist_block(s, at, &flags);
            if (!size || !(flags & QY_BLOCK_FREE))
                return wrong("a free list names a block that is not free",
                    prev ? prev : QY_PERSIST_UNIT + offsetof(qy_persist_words_t, bins) + bin * 8);
            if (qy_bin_of(size / 16) != bin) return wrong("a free block is in the wrong list", at);
            if (*qy_word(s, at + 8) != prev) return wrong("a free block's link is damaged", at + 8);
            if (!free_count--) return wrong("the free lists name more blocks than there are", at);
        }
    }
    return !free_count || wrong("a free block is in no list", 0);
}

bool qy_persist_verify(quarry_persist_t *s) {
    persist_sums_t sums = {0, 0, 0};
    const qy_persist_words_t *w = s->words;
    if (!qy_persist_check_words(s) || !walk(s, &sums) || !check_lists(s, sums.free_count)) return false;
    if (sums.used != w->used || sums.count != w->count)
        return wrong(
            "the counts of blocks differ from the blocks", QY_PERSIST_UNIT + offsetof(qy_persist_words_t, used));
    unsigned flags;
    if (w->root && (!qy_persist_block(s, w->root, &flags) || (flags & QY_BLOCK_FREE)))
        return wrong("the root names no block", QY_PERSIST_UNIT + offsetof(qy_persist_words_t, root));
    return true;
}

int quarry_persist_check(quarry_persist_t *s) {
    if (!qy_persist_enter(s)) return -1;
    // An open transaction's freed blocks are in a passing state; its own checks are those of commit.
    bool sound = s->records ? qy_persist_fail(EBUSY, "within a transaction", 0) : qy_persist_verify(s);
    qy_persist_leave(s);
    return sound ? 0 : -1;
}

int quarry_persist_walk(quarry_persist_t *s, int (*visit)(quarry_persist_ptr_t at, size_t size, void *arg), void *arg) {
    if (!qy_persist_enter(s)) return -1;
    bool was_out = qy_lock_is_out(&s->lock);  // in a transaction of this thread
    qy_lock_go_out(&s->lock);
    int result = 0;
    for (uint64_t at = s->first, size; at < qy_persist_end(s) && !result; at += size) {
        unsigned flags;
        size = qy_persist_block(s, at, &flags);
        if (!size) {
            wrong("a block's header is damaged", at - 8);
            result = -1;
            break;
        }
        if (!(flags & (QY_BLOCK_FREE | QY_BLOCK_FREEING))) result = visit(at, size - 8, arg);
    }
    if (!was_out) qy_lock_come_back(&s->lock);
    qy_persist_leave(s);
    return result;
}
