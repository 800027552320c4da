// SPDX-License-Identifier: MIT
// persist_blocks.c: blocks and free lists inside the file of a persistent pool.
//
// Best fit by bins (bins.h) with headers of one word. Every offset that is read from the file is checked
// before it is followed: a damaged pool ends an operation with EUCLEAN, never with a wild access.
#include <string.h>

#include "pool/persist.h"

#define CLEAR_ASKS (UINT64_C(64) * 1024)
#define CANDIDATES 8  // of the bin where some blocks may be long enough

// ---- headers and links --------------------------------------------------------------------------------

static uint64_t *header_of(const quarry_persist_t *s, uint64_t at) { return qy_word(s, at - 8); }
static uint64_t *next_of(const quarry_persist_t *s, uint64_t at) { return qy_word(s, at); }
static uint64_t *prev_of(const quarry_persist_t *s, uint64_t at) { return qy_word(s, at + 8); }
static uint64_t *footer_of(const quarry_persist_t *s, uint64_t at, uint64_t size) { return qy_word(s, at + size - 16); }

static bool damaged(const char *reason, uint64_t at) { return qy_persist_fail(EUCLEAN, reason, at); }

// The size in a sound header within the pool, else 0 (as the end has).
uint64_t qy_persist_block(const quarry_persist_t *s, uint64_t at, unsigned *ret_flags) {
    uint64_t end = qy_persist_end(s);
    *ret_flags = 0;
    if (at < s->first || at >= end || at % 16) return 0;
    uint64_t header = __atomic_load_n(header_of(s, at), __ATOMIC_RELAXED),
             size = header & QY_BLOCK_LOW48 & ~QY_BLOCK_FLAGS;
    if (!qy_block_header_ok(at, header) || size < QY_BLOCK_MIN || size > end - at || size % 16) return 0;
    *ret_flags = (unsigned)(header & QY_BLOCK_FLAGS);
    return size;
}

static uint64_t blocks_free(const quarry_persist_t *s, uint64_t at) {
    unsigned flags;
    uint64_t size = qy_persist_block(s, at, &flags);
    if (size && (flags & QY_BLOCK_FREE) && *footer_of(s, at, size) == size) return size;
    damaged("a free block is damaged", at);
    return 0;
}

bool qy_persist_must_be_used(quarry_persist_t *s, uint64_t at, uint64_t *ret_size) {
    unsigned flags;
    *ret_size = qy_persist_block(s, at, &flags);
    if (!*ret_size) return qy_persist_fail(EINVAL, "this is no block of the pool", at);
    if (flags & (QY_BLOCK_FREE | QY_BLOCK_FREEING)) return qy_persist_fail(EALREADY, "this block is free", at);
    return true;
}

static void set_header(quarry_persist_t *s, uint64_t at, uint64_t size, unsigned flags) {
    qy_persist_store(s, header_of(s, at), qy_block_header(at, size, flags));
}

// The block behind: does it know that its neighbour is free? The end counts as a block.
static bool tell_next(quarry_persist_t *s, uint64_t at, bool prev_free) {
    uint64_t header = *header_of(s, at), low = header & QY_BLOCK_LOW48 & ~(uint64_t)QY_BLOCK_PREV_FREE;
    if (!qy_block_header_ok(at, header)) return damaged("a block's header is damaged", at);
    qy_persist_store(s, header_of(s, at), qy_block_header(at, low, prev_free ? QY_BLOCK_PREV_FREE : 0));
    return true;
}

static void set_bin(quarry_persist_t *s, unsigned bin, uint64_t first) {
    uint64_t *map = &s->words->bitmap[bin / 64], bit = UINT64_C(1) << bin % 64;
    if (!first != !(*map & bit)) qy_persist_store(s, map, *map ^ bit);
    qy_persist_store(s, &s->words->bins[bin], first);
}

void qy_persist_link(quarry_persist_t *s, uint64_t at, uint64_t size) {
    unsigned bin = qy_bin_of(size / 16);
    uint64_t second = s->words->bins[bin];
    if (QY_UNLIKELY(s->watch)) qy_persist_watch_links(s, at, true);
    qy_persist_store(s, next_of(s, at), second);
    qy_persist_store(s, prev_of(s, at), 0);
    qy_persist_store(s, footer_of(s, at, size), size);
    if (second) qy_persist_store(s, prev_of(s, second), at);
    set_bin(s, bin, at);
}

static bool link_checked(quarry_persist_t *s, uint64_t at, uint64_t size) {
    uint64_t second = s->words->bins[qy_bin_of(size / 16)];
    if (second && !blocks_free(s, second)) return false;
    qy_persist_link(s, at, size);
    return true;
}

// Afterwards nothing in it is needed but by a rollback: its links and footer are recorded even if they are
// zero already, since the caller may overwrite them without a record.
static bool unlink_block(quarry_persist_t *s, uint64_t at, uint64_t size) {
    uint64_t next = *next_of(s, at), prev = *prev_of(s, at);
    unsigned bin = qy_bin_of(size / 16);
    if (QY_UNLIKELY(s->watch)) qy_persist_watch_links(s, at, false);
    if (next && !blocks_free(s, next)) return false;
    if (prev ? !blocks_free(s, prev) : s->words->bins[bin] != at) return damaged("a free list is damaged", at);
    if (next) qy_persist_store(s, prev_of(s, next), prev);
    if (prev) qy_persist_store(s, next_of(s, prev), next);
    else set_bin(s, bin, next);
    if (QY_MUTANT(4)) return true;
    qy_persist_store(s, next_of(s, at), 0);
    qy_persist_store(s, prev_of(s, at), 0);
    qy_persist_store(s, footer_of(s, at, size), 0);
    return true;
}

// `at` and `size`: a range with no block in it. It becomes one free block, joined with what is free around it.
static bool make_free(quarry_persist_t *s, uint64_t at, uint64_t size, bool prev_free) {
    unsigned flags;
    uint64_t next = at + size, next_size = qy_persist_block(s, next, &flags);
    if (next_size && (flags & QY_BLOCK_FREE)) {
        if (!blocks_free(s, next) || !unlink_block(s, next, next_size)) return false;
        size += next_size;
    }
    if (prev_free) {
        uint64_t prev_size = *qy_word(s, at - 16);
        if (prev_size > at - s->first || prev_size % 16 || blocks_free(s, at - prev_size) != prev_size)
            return damaged("a free block's size is damaged", at);
        at -= prev_size;
        size += prev_size;
        if (!unlink_block(s, at, prev_size)) return false;
    }
    set_header(s, at, size, QY_BLOCK_FREE);
    return link_checked(s, at, size) && tell_next(s, at + size, true);
}

// ---- clearing -------------------------------------------------------------------------------------------------

// A part of the file that was never written reads as zero, and is not there before it is touched. Which part that is,
// is asked of the kernel each time: what a killed process stored is then seen like anything else. Below CLEAR_ASKS it
// is cheaper to clear. A private mapping may have pages of its own in the swap, of which mincore tells nothing.
void qy_persist_clear(quarry_persist_t *s, uint64_t at, uint64_t bytes) {
    uint64_t end = at + bytes, from, to;
    if (bytes < CLEAR_ASKS || s->private_map) {
        memset(s->base + at, 0, bytes);
        return;
    }
    for (; qy_os_map_written(s->fd, s->base, at, end, &from, &to); at = to) memset(s->base + from, 0, to - from);
}

// ---- taking -----------------------------------------------------------------------------------------------

// A free block of at least `size`. 0 and *ret_sound: there is none.
static uint64_t blocks_find(quarry_persist_t *s, uint64_t size, bool *ret_sound) {
    qy_persist_words_t *w = s->words;
    uint64_t at, found;
    unsigned bin = qy_bin_next(w->bitmap, qy_bin_above(size / 16), QY_PERSIST_BINS);
    *ret_sound = true;
    if (bin < QY_PERSIST_BINS) {
        at = w->bins[bin];
        if (blocks_free(s, at) >= size) return at;
        *ret_sound = damaged("a free list is damaged", QY_PERSIST_UNIT + offsetof(qy_persist_words_t, bins) + bin * 8);
        return 0;
    }
    at = w->bins[qy_bin_of(size / 16)];
    for (int i = 0; i < CANDIDATES && at; i++, at = *next_of(s, at)) {
        found = blocks_free(s, at);
        if (!found) *ret_sound = false;
        if (!found || found >= size) return found ? at : 0;
    }
    return 0;
}

// The file becomes longer, and so does its last free block. False: errno.
static bool blocks_grow(quarry_persist_t *s, uint64_t size) {
    uint64_t end = s->words->end, header = *header_of(s, end);
    if (!qy_block_header_ok(end, header) || (header & QY_BLOCK_LOW48 & ~(uint64_t)QY_BLOCK_PREV_FREE))
        return damaged("the end of the pool is damaged", end - 8);
    if (s->mapped - end < size && !qy_persist_extend(s, size)) return false;
    uint64_t more = s->mapped - end;
    // First the new end: joining looks at it. The old one's header becomes ordinary memory: recorded.
    set_header(s, end + more, 0, 0);
    qy_persist_store(s, header_of(s, end), 0);
    qy_persist_store(s, &s->words->end, end + more);
    return make_free(s, end, more, header & QY_BLOCK_PREV_FREE);
}

// Cut `size` bytes at `place` out of the free block at `at`, which is whole; what remains stays free.
static bool blocks_carve(quarry_persist_t *s, uint64_t at, uint64_t place, uint64_t *size) {
    uint64_t whole = blocks_free(s, at), before = place - at, behind;
    if (!whole || !unlink_block(s, at, whole)) return false;
    behind = whole - before - *size;
    if (behind < QY_BLOCK_MIN) *size += behind, behind = 0;
    if (QY_UNLIKELY(s->watch)) qy_persist_watch_taken(s, place, *size);
    if (before) {
        set_header(s, at, before, QY_BLOCK_FREE);
        if (!link_checked(s, at, before)) return false;
    }
    set_header(s, place, *size, before ? QY_BLOCK_PREV_FREE : 0);
    if (!behind) return tell_next(s, place + *size, false);
    set_header(s, place + *size, behind, QY_BLOCK_FREE);
    return link_checked(s, place + *size, behind);
}

static void blocks_count(quarry_persist_t *s, uint64_t bytes, uint64_t blocks) {
    qy_persist_store(s, &s->words->used, s->words->used + bytes);
    if (blocks) qy_persist_store(s, &s->words->count, s->words->count + blocks);
}

static uint64_t block_bytes(uint64_t size) { return qy_max(qy_round_up(size + 8, 16), QY_BLOCK_MIN); }

uint64_t qy_persist_take(quarry_persist_t *s, uint64_t size, uint64_t alignment, bool zero) {
    QY_NEEDS(&s->step);
    if (size >> (QY_PERSIST_MAX_LOG2 - 1)) {
        qy_persist_fail(ENOMEM, "no pool can be as large as this request", 0);
        return 0;
    }
    uint64_t bytes = block_bytes(size), search = alignment > 16 ? bytes + alignment + QY_BLOCK_MIN : bytes, at;
    bool sound;
    at = blocks_find(s, search, &sound);
    if (!at && sound) {
        if (!blocks_grow(s, search)) return 0;
        at = blocks_find(s, search, &sound);
    }
    if (!at) return 0;
    uint64_t place = qy_round_up(at, alignment);
    if (place != at && place - at < QY_BLOCK_MIN) place += alignment;
    if (!blocks_carve(s, at, place, &bytes)) return 0;
    blocks_count(s, bytes, 1);
    if (zero) qy_persist_clear(s, place, bytes - 8);
    return place;
}

// ---- giving back --------------------------------------------------------------------------------------------

bool qy_persist_defer(quarry_persist_t *s, uint64_t at) {
    QY_NEEDS(&s->step);
    uint64_t size;
    if (!qy_persist_must_be_used(s, at, &size)) return false;
    if (s->frees == QY_PERSIST_FREES_MAX)
        return qy_persist_fail(E2BIG, "too many blocks are freed in one transaction", at);
    qy_persist_store(
        s, header_of(s, at), qy_block_header(at, (*header_of(s, at) & QY_BLOCK_LOW48) | QY_BLOCK_FREEING, 0));
    s->freed[s->frees++] = at;
    return true;
}

bool qy_persist_give(quarry_persist_t *s, uint64_t at) {
    QY_NEEDS(&s->step);
    unsigned flags;
    uint64_t size = qy_persist_block(s, at, &flags);
    if (!size) return damaged("a block's header is damaged", at);
    blocks_count(s, -size, UINT64_MAX);
    return make_free(s, at, size, flags & QY_BLOCK_PREV_FREE);
}

// ---- resizing -------------------------------------------------------------------------------------------------

static int shrink(quarry_persist_t *s, uint64_t at, uint64_t old, uint64_t bytes, unsigned flags) {
    if (old - bytes < QY_BLOCK_MIN) return 1;
    set_header(s, at, bytes, flags & QY_BLOCK_PREV_FREE);
    blocks_count(s, bytes - old, 0);
    return make_free(s, at + bytes, old - bytes, false) ? 1 : -1;
}

// Into the free block behind. Its header becomes ordinary memory of the block: recorded as well.
static int extend(quarry_persist_t *s, uint64_t at, uint64_t old, uint64_t bytes, unsigned flags, bool zero) {
    unsigned next_flags;
    uint64_t next = at + old, next_size = qy_persist_block(s, next, &next_flags), size = old + next_size;
    if (!next_size || !(next_flags & QY_BLOCK_FREE) || size < bytes) return 0;
    if (!blocks_free(s, next) || !unlink_block(s, next, next_size)) return -1;
    qy_persist_store(s, header_of(s, next), 0);
    uint64_t rest = size - bytes;
    if (rest < QY_BLOCK_MIN) bytes = size, rest = 0;
    if (QY_UNLIKELY(s->watch)) qy_persist_watch_taken(s, next, bytes - old);
    set_header(s, at, bytes, flags & QY_BLOCK_PREV_FREE);
    blocks_count(s, bytes - old, 0);
    if (rest) {
        set_header(s, at + bytes, rest, QY_BLOCK_FREE);
        if (!link_checked(s, at + bytes, rest)) return -1;
    } else if (!tell_next(s, at + bytes, false)) {
        return -1;
    }
    if (zero) qy_persist_clear(s, at + old - 8, bytes - old);
    return 1;
}

// A shrunk block's end could be taken by the next operation of the same transaction and overwritten; so in
// transactions of the caller blocks keep their length.
int qy_persist_resize_here(quarry_persist_t *s, uint64_t at, uint64_t size, bool zero) {
    QY_NEEDS(&s->step);
    unsigned flags;
    uint64_t old = qy_persist_block(s, at, &flags), bytes;
    if (size >> (QY_PERSIST_MAX_LOG2 - 1)) return 0;
    bytes = block_bytes(size);
    if (bytes > old) return extend(s, at, old, bytes, flags, zero);
    return atomic_load_explicit(&s->tx_owner, memory_order_relaxed) ? 1 : shrink(s, at, old, bytes, flags);
}

// ---- a new pool -------------------------------------------------------------------------------------------------

void qy_persist_format(quarry_persist_t *s, uint64_t end) {
    uint64_t size = end - s->first;
    s->words->end = end;
    *header_of(s, s->first) = qy_block_header(s->first, size, QY_BLOCK_FREE);
    *header_of(s, end) = qy_block_header(end, 0, QY_BLOCK_PREV_FREE);
    qy_persist_link(s, s->first, size);
    qy_persist_log_commit(s);
}
