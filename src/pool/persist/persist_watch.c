// SPDX-License-Identifier: MIT
// persist_watch.c: what a checker is told of a persistent pool's blocks (persist.h).
//
// The register is a table by place: for each unit of the file a leaf with a record for each 32 bytes, in which at most
// one block begins. It has places and numbers, and no addresses.
//
// What is written into the file for the checker lies where nobody reads: behind what the program asked for, in a block
// that is new or whose resize is committed, and in free blocks once their free is committed. Not where links, sizes and
// headers of free blocks are, or may come to be. So a killed process leaves nothing that recovery or a later process
// sees, and nothing of this needs a record of the log.
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/checker.h"
#include "pool/filling.h"
#include "pool/node.h"
#include "pool/origin.h"
#include "pool/persist.h"

#define LEAF_SLOTS (QY_PERSIST_UNIT / QY_BLOCK_MIN)
#define LEAF_WORDS (LEAF_SLOTS / 64)
#define WORDS_OF_POOL UINT64_C(16)  // at either end of a free block
#define DEAD_WORD (QY_DEAD_BYTE * UINT64_C(0x0101010101010101))

typedef enum watched_state { WATCHED_NOTHING,
    WATCHED_LIVE,
    WATCHED_ENDED } watched_state_t;

typedef struct watched {
    uint64_t at, bytes;   // the block, with the header of the next one, as its own header says
    uint64_t size;        // what the program asked for
    uint32_t born, died;  // stacks; died counts when it has ended, or its transaction frees it
    uint8_t state, slack_byte;
    bool slack_set;    // what lies between size and the next header is slack_byte
    bool header_told;  // the header before it was found damaged; of an ended block its links
    bool behind_told;  // the header behind it, of no live block, was found damaged
    bool linked;       // it has ended, and a free block begins there, or did: its first words are links or zero
} watched_t;

typedef struct watch_leaf {
    uint64_t begins[LEAF_WORDS];
    watched_t block[LEAF_SLOTS];
} watch_leaf_t;

static size_t leaf_bytes(void) { return qy_round_up(sizeof(watch_leaf_t), qy_os_page_size()); }

struct qy_persist_watch {
    watch_leaf_t **leaf;
    uint64_t leaves;
};

// ---- the register ---------------------------------------------------------------------------------------------

static watch_leaf_t *leaf_of(const struct qy_persist_watch *w, uint64_t at) {
    return at / QY_PERSIST_UNIT < w->leaves ? w->leaf[at / QY_PERSIST_UNIT] : NULL;
}

static bool leaves_grow(struct qy_persist_watch *w, uint64_t leaves) {
    watch_leaf_t **leaf = qy_pool_meta_alloc(leaves * sizeof(watch_leaf_t *));
    if (!leaf) return false;
    if (w->leaves) {
        memcpy(leaf, w->leaf, w->leaves * sizeof *leaf);
        qy_pool_meta_free(w->leaf, w->leaves * sizeof *leaf);
    }
    w->leaf = leaf;
    w->leaves = leaves;
    return true;
}

// NULL: no memory. Such a block is not watched.
static watched_t *watched_new(struct qy_persist_watch *w, uint64_t at) {
    uint64_t unit = at / QY_PERSIST_UNIT;
    if (unit >= w->leaves && !leaves_grow(w, qy_max(2 * w->leaves, unit + 16))) return NULL;
    if (!w->leaf[unit]) w->leaf[unit] = qy_os_map(leaf_bytes(), qy_os_page_size(), NULL);
    if (!w->leaf[unit]) return NULL;
    uint64_t slot = at % QY_PERSIST_UNIT / QY_BLOCK_MIN;
    w->leaf[unit]->begins[slot / 64] |= UINT64_C(1) << slot % 64;
    return &w->leaf[unit]->block[slot];
}

// The first that begins in [from, to), or NULL.
static watched_t *watched_next(const struct qy_persist_watch *w, uint64_t from, uint64_t to) {
    for (uint64_t at = qy_round_down(from, QY_BLOCK_MIN); at < to;) {
        watch_leaf_t *leaf = leaf_of(w, at);
        uint64_t slot = at % QY_PERSIST_UNIT / QY_BLOCK_MIN;
        uint64_t bits = leaf ? leaf->begins[slot / 64] & UINT64_MAX << slot % 64 : 0;
        for (; bits; bits &= bits - 1) {
            watched_t *b = &leaf->block[slot / 64 * 64 + qy_log2_floor(bits & -bits)];
            if (b->at >= to) return NULL;
            if (b->at >= from) return b;
        }
        at = leaf ? qy_round_down(at, 64 * QY_BLOCK_MIN) + 64 * QY_BLOCK_MIN
                  : qy_round_down(at, QY_PERSIST_UNIT) + QY_PERSIST_UNIT;
    }
    return NULL;
}

// The last that begins at or before `at`, or NULL.
static watched_t *watched_before(const struct qy_persist_watch *w, uint64_t at) {
    if (!w->leaves) return NULL;
    for (at = qy_min(at, w->leaves * QY_PERSIST_UNIT - 1);;) {
        watch_leaf_t *leaf = leaf_of(w, at);
        uint64_t slot = at % QY_PERSIST_UNIT / QY_BLOCK_MIN;
        uint64_t bits = leaf ? leaf->begins[slot / 64] & UINT64_MAX >> (63 - slot % 64) : 0;
        while (bits) {
            unsigned bit = qy_log2_floor(bits);
            watched_t *b = &leaf->block[slot / 64 * 64 + bit];
            if (b->at <= at) return b;
            bits &= ~(UINT64_C(1) << bit);
        }
        uint64_t from = qy_round_down(at, leaf ? 64 * QY_BLOCK_MIN : QY_PERSIST_UNIT);
        if (!from) return NULL;
        at = from - 1;
    }
}

static watched_t *watched_at(const quarry_persist_t *s, uint64_t at, watched_state_t state) {
    watched_t *b = watched_next(s->watch, at, at + 1);
    return b && b->state == state ? b : NULL;
}

static void watched_forget(const quarry_persist_t *s, watched_t *b) {
    qy_checker_gone(&s->pool, s->base + b->at);
    uint64_t slot = b->at % QY_PERSIST_UNIT / QY_BLOCK_MIN;
    leaf_of(s->watch, b->at)->begins[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    b->state = WATCHED_NOTHING;
}

// ---- what is written -------------------------------------------------------------------------------------------

static void watch_fill(const quarry_persist_t *s, uint64_t at, uint64_t bytes, unsigned char byte) {
    if (QY_CFG_FAKE && qy_persist_hook) qy_persist_hook(s->base + at);
    qy_fill_block((unsigned char *)s->base + at, bytes, byte);
}

static uint64_t slack_end(const watched_t *b) { return b->at + b->bytes - 8; }

static void slack_write(const quarry_persist_t *s, watched_t *b) {
    uint64_t from = b->at + b->size;
    b->slack_set = true;
    if (from < slack_end(b)) watch_fill(s, from, slack_end(b) - from, b->slack_byte);
}

// Of an ended block: the part that is always filled. Where free blocks were joined, so are the words before it.
static uint64_t dead_from(const watched_t *b) { return b->at + WORDS_OF_POOL; }
static uint64_t dead_bytes(const watched_t *b) { return b->bytes - 2 * WORDS_OF_POOL; }

// ---- faults ----------------------------------------------------------------------------------------------------

static quarry_check_pool_fault_t watch_fault(const quarry_persist_t *s, const watched_t *b, const char *kind) {
    quarry_check_pool_fault_t f = {.kind = kind, .pool = s->pool.info->name, .pool_kind = s->pool.ops->kind};
    if (!b) return f;
    f.has_block = true;
    f.block = (uintptr_t)s->base + b->at;
    f.size = b->size;
    f.freed = b->state == WATCHED_ENDED;
    f.alloc_stack = b->born;
    f.free_stack = f.freed ? b->died : 0;
    return f;
}

// Bytes in [from, to) were written over, which is seen now.
static void watch_tell_written(
    const quarry_persist_t *s, const watched_t *b, const char *kind, uint64_t from, uint64_t to) {
    quarry_check_pool_fault_t f = watch_fault(s, b, kind);
    f.address = (uintptr_t)s->base + from;
    f.offset = (int64_t)(from - b->at);
    f.bytes = to - from;
    f.is_write = f.is_evidence = true;
    qy_checker()->fault(&f);
}

// From the first to the last byte of [*from, *to) that is not `byte`. False: all are.
static bool watch_narrow(const quarry_persist_t *s, uint64_t *from, uint64_t *to, unsigned char byte) {
    const unsigned char *base = (const unsigned char *)s->base;
    while (*from < *to && base[*from] == byte) ++*from;
    while (*from < *to && base[*to - 1] == byte) --*to;
    return *from < *to;
}

static bool header_is_sound(const quarry_persist_t *s, uint64_t at) {
    return qy_block_header_ok(at, *qy_word(s, at - 8));
}

// By bytes, then by bits: a header of other flags has another checksum, which may be nearer by bits.
static unsigned differing(uint64_t diff) {
    unsigned bytes = 0;
    for (unsigned i = 0; i < 8; i++) bytes += (diff >> 8 * i & 255) != 0;
    return 64 * bytes + (unsigned)__builtin_popcountll(diff);
}

// Which bytes of the damaged header of `at` were written? The flags are not known, so those count that leave the fewest
// bytes different. Of a free block nor is the size: all eight, unless one changed byte explains it.
static void header_narrow(const quarry_persist_t *s, const watched_t *next, uint64_t at, uint64_t *from, uint64_t *to) {
    uint64_t word = *qy_word(s, at - 8), diff = UINT64_MAX;
    if (next) {
        for (unsigned flags = 0; flags < QY_BLOCK_FLAGS; flags++) {
            uint64_t d = word ^ qy_block_header(at, next->bytes, flags);
            if (differing(d) < differing(diff)) diff = d;
        }
    } else {
        for (unsigned byte = 0; byte < 8; byte++)
            for (uint64_t value = 1; value < 256; value++)
                if (qy_block_header_ok(at, word ^ value << 8 * byte)) diff = value << 8 * byte;
    }
    *from = at - 8 + (unsigned)__builtin_ctzll(diff) / 8;
    *to = at - __builtin_clzll(diff) / 8;
}

// The header of `at` is damaged: by an overflow of the block before it, or by an underflow of its own?
static void watch_tell_header(const quarry_persist_t *s, uint64_t at) {
    watched_t *next = watched_at(s, at, WATCHED_LIVE), *prev = watched_before(s->watch, at - 1);
    if (prev && (prev->state != WATCHED_LIVE || prev->at + prev->bytes != at)) prev = NULL;
    if (next ? next->header_told : !prev || prev->behind_told) return;
    *(next ? &next->header_told : &prev->behind_told) = true;
    uint64_t from, to, slack = prev ? prev->at + prev->size : 0, slack_to = at - 8;
    header_narrow(s, next, at, &from, &to);
    bool over = prev && prev->slack_set && watch_narrow(s, &slack, &slack_to, prev->slack_byte);
    if (over) from = slack;
    bool under = next && (!prev || (!over && from > at - 8));
    watch_tell_written(s, under ? next : prev, "pool-overflow", from, to);
    if (over) slack_write(s, prev);
}

// What lies around a block that is about to end.
static void watch_edges(const quarry_persist_t *s, watched_t *b) {
    uint64_t from = b->at + b->size, to = slack_end(b);
    if (!header_is_sound(s, b->at)) watch_tell_header(s, b->at);
    if (!header_is_sound(s, b->at + b->bytes)) {
        watch_tell_header(s, b->at + b->bytes);
    } else if (b->slack_set && watch_narrow(s, &from, &to, b->slack_byte)) {
        watch_tell_written(s, b, "pool-overflow", from, to);
        slack_write(s, b);
    }
}

// Is `other` a link of the free block `of`: does the block that it names name this one in its word `back`?
// A transaction that is taken back may take back that a free block begins there.
static bool link_is_sound(const quarry_persist_t *s, uint64_t of, uint64_t other, uint64_t back) {
    unsigned flags;
    return !other || other == DEAD_WORD ||
           (qy_persist_block(s, other, &flags) && (flags & QY_BLOCK_FREE) && *qy_word(s, other + back) == of);
}

// What the damaged link was is not known: all eight bytes, unless one changed byte explains it.
static void link_narrow(
    const quarry_persist_t *s, uint64_t of, uint64_t at, uint64_t back, uint64_t *from, uint64_t *to) {
    uint64_t word = *qy_word(s, at);
    unsigned explained = 0, which = 0;
    for (unsigned byte = 0; byte < 8; byte++) {
        bool by_it = false;
        for (uint64_t value = 1; value < 256 && !by_it; value++)
            by_it = link_is_sound(s, of, word ^ value << 8 * byte, back);
        explained += by_it;
        if (by_it) which = byte;
    }
    *from = at + (explained == 1 ? which : 0);
    *to = explained == 1 ? *from + 1 : at + 8;
}

static void watch_tell_links(const quarry_persist_t *s, watched_t *b) {
    uint64_t at = b->at, from = at, to = at + 16;
    bool next = link_is_sound(s, at, *qy_word(s, at), 8), prev = link_is_sound(s, at, *qy_word(s, at + 8), 0);
    if ((next && prev) || b->header_told) return;
    b->header_told = true;
    if (prev) link_narrow(s, at, at, 8, &from, &to);
    if (next) link_narrow(s, at, at + 8, 0, &from, &to);
    watch_tell_written(s, b, "write-after-free", from, to);
}

static void watch_dead(const quarry_persist_t *s, watched_t *b) {
    uint64_t first = b->at, first_to = dead_from(b);
    if (b->linked) watch_tell_links(s, b);
    else if (watch_narrow(s, &first, &first_to, QY_DEAD_BYTE))
        watch_tell_written(s, b, "write-after-free", first, first_to);
    const unsigned char *p = (const unsigned char *)s->base + dead_from(b);
    size_t n = dead_bytes(b);
    bool is_large = n > 3 * QY_FILLED;
    for (unsigned i = 0; i < (is_large ? 3 : 1); i++) {
        uint64_t from = dead_from(b) + (is_large ? qy_filled_part(p, n, i) : 0),
                 to = from + (is_large ? QY_FILLED : n);
        if (!watch_narrow(s, &from, &to, QY_DEAD_BYTE)) continue;
        watch_tell_written(s, b, "write-after-free", from, to);
        return;
    }
}

void qy_persist_watch_wrong(quarry_persist_t *s, uint64_t at, const qy_stack_regs_t *caller, const char *function) {
    int saved = errno;
    watched_t *b = watched_before(s->watch, at);
    if (b && b->at == at && b->state == WATCHED_LIVE && !header_is_sound(s, at)) {
        watch_tell_header(s, at);
        errno = saved;
        return;
    }
    bool inside = b && at - b->at < b->size && at != b->at, twice = saved == EALREADY && !inside;
    if (b && b->at != at && !inside) b = NULL;
    quarry_check_pool_fault_t f = watch_fault(s, b, twice ? "double-free" : inside ? "interior-free"
                                                                                   : "invalid-free");
    if (twice && b) f.freed = true, f.free_stack = b->died;
    f.function = function;
    f.address = (uintptr_t)s->base + at;
    f.offset = b ? (int64_t)(at - b->at) : 0;
    f.pc = caller->pc, f.sp = caller->sp, f.fp = caller->fp;
    qy_checker()->fault(&f);
    errno = saved;
}

// ---- blocks ----------------------------------------------------------------------------------------------------

static void watch_began(const quarry_persist_t *s, const watched_t *b) {
    char *p = s->base + b->at;
    qy_checker_began(&s->pool, p, b->size, p, b->bytes, b->born);
}

// Nobody relied on the fill of ended blocks in it until now; from now on nobody may.
void qy_persist_watch_taken(quarry_persist_t *s, uint64_t at, uint64_t bytes) {
    watched_t *b = watched_before(s->watch, at);
    if (!b || b->at + b->bytes <= at) b = watched_next(s->watch, at, at + bytes);
    for (; b; b = watched_next(s->watch, at, at + bytes)) {
        if (b->state == WATCHED_ENDED) watch_dead(s, b);
        watched_forget(s, b);
    }
}

void qy_persist_watch_made(
    quarry_persist_t *s, uint64_t at, uint64_t size, bool zero, const qy_stack_regs_t *caller) {
    unsigned flags;
    uint64_t bytes = qy_persist_block(s, at, &flags);
    watched_t *b = bytes ? watched_new(s->watch, at) : NULL;
    if (!b) return;
    *b = (watched_t){.at = at,
        .bytes = bytes,
        .size = size,
        .born = caller ? qy_origin(caller) : 0,
        .state = WATCHED_LIVE,
        .slack_byte = zero ? 0 : QY_CANARY_BYTE};
    // One that was there before may be used to its end.
    if (caller) slack_write(s, b);
    watch_began(s, b);
}

bool qy_persist_watch_asked(const quarry_persist_t *s, uint64_t at, qy_persist_asked_t *ret) {
    const watched_t *b = s->watch ? watched_at(s, at, WATCHED_LIVE) : NULL;
    if (b) *ret = (qy_persist_asked_t){b->size, !b->slack_byte};
    return b != NULL;
}

void qy_persist_watch_ends(quarry_persist_t *s, uint64_t at, const qy_stack_regs_t *caller) {
    watched_t *b = watched_at(s, at, WATCHED_LIVE);
    if (!b) return;
    watch_edges(s, b);
    b->died = qy_origin(caller);
}

static void watch_resized_to(quarry_persist_t *s, watched_t *b, uint64_t size) {
    unsigned flags;
    b->bytes = qy_persist_block(s, b->at, &flags);
    b->size = size;
    b->behind_told = false;
    watch_began(s, b);
}

void qy_persist_watch_resized(quarry_persist_t *s, uint64_t at, uint64_t size, bool zero) {
    watched_t *b = watched_at(s, at, WATCHED_LIVE);
    if (!b) return;
    // What lies behind may come back, if the transaction is taken back: its canary waits for the commit.
    b->slack_set = false;
    b->slack_byte = zero ? 0 : QY_CANARY_BYTE;
    watch_resized_to(s, b, size);
}

void qy_persist_watch_resettle(quarry_persist_t *s, uint64_t at) {
    watched_t *b = watched_at(s, at, WATCHED_LIVE);
    if (b && !b->slack_set) slack_write(s, b);
}

void qy_persist_watch_unmade(quarry_persist_t *s, uint64_t at) {
    watched_t *b = watched_at(s, at, WATCHED_LIVE);
    if (b) watched_forget(s, b);
}

void qy_persist_watch_unsized(quarry_persist_t *s, uint64_t at, uint64_t bytes, qy_persist_asked_t had) {
    watched_t *b = watched_at(s, at, WATCHED_LIVE);
    if (!b) return;
    b->bytes = bytes;
    b->size = had.size;
    b->slack_byte = had.is_zero ? 0 : QY_CANARY_BYTE;
    b->slack_set = false;
    watch_began(s, b);
}

void qy_persist_watch_ended(quarry_persist_t *s, uint64_t at) {
    watched_t *b = watched_at(s, at, WATCHED_LIVE);
    if (!b) return;
    b->state = WATCHED_ENDED;
    unsigned flags;
    b->header_told = false;
    b->linked = qy_persist_block(s, at, &flags) && (flags & QY_BLOCK_FREE);
    if (!b->linked) watch_fill(s, at, WORDS_OF_POOL, QY_DEAD_BYTE);
    if (dead_bytes(b)) watch_fill(s, dead_from(b), dead_bytes(b), QY_DEAD_BYTE);
    qy_checker_ended(&s->pool, s->base + at, b->died);
}

void qy_persist_watch_links(quarry_persist_t *s, uint64_t at, bool come) {
    watched_t *b = watched_at(s, at, WATCHED_ENDED);
    if (b && come) b->linked = true;
    if (b && !come && b->linked) watch_tell_links(s, b);
}

// ---- life ------------------------------------------------------------------------------------------------------

void qy_persist_watch_open(quarry_persist_t *s) {
    if (!s->pool.info->checked || (s->flags & QUARRY_PERSIST_READ_ONLY)) return;
    s->watch = qy_pool_meta_alloc(sizeof *s->watch);
    if (!s->watch) return;
    s->pool.mode |= QY_MODE_WATCHED;
    uint64_t size;
    for (uint64_t at = s->first; at < qy_persist_end(s); at += size) {
        unsigned flags;
        size = qy_persist_block(s, at, &flags);
        if (!size) return;  // damage, which a later operation will meet
        if (!(flags & QY_BLOCK_FREE)) qy_persist_watch_made(s, at, size - 8, false, NULL);
    }
}

void qy_persist_watch_close(quarry_persist_t *s) {
    struct qy_persist_watch *w = s->watch;
    if (!w) return;
    uint64_t all = w->leaves * QY_PERSIST_UNIT;
    for (watched_t *b; !s->foreign && (b = watched_next(w, 0, all)); watched_forget(s, b)) {
        if (b->state == WATCHED_LIVE) watch_edges(s, b);
        else watch_dead(s, b);
    }
    for (uint64_t i = 0; i < w->leaves; i++)
        if (w->leaf[i]) qy_os_unmap(w->leaf[i], leaf_bytes());
    if (w->leaves) qy_pool_meta_free(w->leaf, w->leaves * sizeof(watch_leaf_t *));
    qy_pool_meta_free(w, sizeof *w);
    s->watch = NULL;
}
