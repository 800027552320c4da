// SPDX-License-Identifier: MIT
// pool_blocks.c: see pool_blocks.h. The table, its records, and what pools tell of them.
//
// An entry of the table is 0, a piece_t, or a block's number << 1 | 1: then no block's memory begins in these 64 KiB.
#include "check/pool_blocks.h"

#include <string.h>

#include "base/num.h"
#include "check/frames.h"
#include "check/memory.h"
#include "check/threads.h"

#define GRAIN ((size_t)16)
#define PIECE ((size_t)1 << QY_CHECK_POOL_PIECE)
#define PIECE_GRAINS (PIECE / GRAIN)
#define PIECE_WORDS (PIECE_GRAINS / 64)
#define LEAF_PIECES ((size_t)1 << (QY_CHECK_POOL_LEAF - QY_CHECK_POOL_PIECE))
#define LEAVES (sizeof qy_check_pool_leaves / sizeof qy_check_pool_leaves[0])

#define SLAB_SHIFT 12
#define SLAB_RECORDS ((uint32_t)1 << SLAB_SHIFT)
#define SLABS ((uint32_t)1 << 12)  // 16 million blocks; of more nothing is known
#define POOLS_SHIFT 8
#define POOLS_SLABS 4096u
#define NESTED 16u  // pools within pools
#define TRIES 4u    // of a look-up that meets changes

_Atomic(qy_check_pool_entry_t *) qy_check_pool_leaves[1 << (48 - QY_CHECK_POOL_LEAF)];

typedef struct piece {
    _Atomic uint32_t through;               // the block that its first byte is of, and that begins before it; 0: none
    _Atomic uint64_t begins[PIECE_WORDS];   // a bit for each 16 bytes in which a block's memory begins
    _Atomic uint32_t number[PIECE_GRAINS];  // of that block
} piece_t;

typedef enum about_state { ABOUT_NOTHING,
    ABOUT_LIVE,
    ABOUT_ENDED } about_state_t;

typedef struct about {
    uintptr_t memory, block;
    size_t bytes, size;
    uint32_t pool, alloc_stack, free_stack, ordinal;
    uint32_t outer;  // the block of another pool that all of it lies in; 0: none
    uint16_t alloc_thread, free_thread;
    uint32_t state, is_held;
} about_t;
#define ABOUT_WORDS (sizeof(about_t) / sizeof(uint64_t))
_Static_assert(sizeof(about_t) % sizeof(uint64_t) == 0, "it is copied by words");

typedef struct pool_record {
    _Atomic uint32_t version;  // odd: it changes
    _Atomic bool told;
    uint32_t spare;  // [lock] the next one that is no block's
    _Atomic uint64_t word[ABOUT_WORDS];
} pool_record_t;

typedef struct known_pool {
    char name[32], kind[12];
    quarry_check_pool_ends_t ends;
    uint32_t spare;  // [lock] the next number that is no pool's
} known_pool_t;

static struct {
    qy_lock_t lock;
    _Atomic(pool_record_t *) slab[SLABS];
    _Atomic(known_pool_t *) pools[POOLS_SLABS];
    uint32_t numbers, pool_numbers;  // [lock] given so far
    uint32_t spare, spare_pool;      // [lock] 0: none
    struct {
        _Atomic uintptr_t memory;
        _Atomic size_t bytes;  // 0: none
    } records[QY_CHECK_POOL_RECORDS];
} pool_known;

qy_lock_t *qy_check_pool_lock(void) { return &pool_known.lock; }

// ---- records --------------------------------------------------------------------------------------------------------

static pool_record_t *record_of(uint32_t number) {
    pool_record_t *slab = atomic_load_explicit(&pool_known.slab[number >> SLAB_SHIFT], memory_order_acquire);
    return slab ? &slab[number & (SLAB_RECORDS - 1)] : NULL;
}

static known_pool_t *pool_of(uint32_t number) {
    known_pool_t *slab = atomic_load_explicit(&pool_known.pools[number >> POOLS_SHIFT], memory_order_acquire);
    return slab ? &slab[number & ((1u << POOLS_SHIFT) - 1)] : NULL;
}

static void about_write(uint32_t number, const about_t *a) {
    QY_NEEDS(&pool_known.lock);
    pool_record_t *r = record_of(number);
    uint64_t word[ABOUT_WORDS];
    memcpy(word, a, sizeof word);
    uint32_t version = atomic_load_explicit(&r->version, memory_order_relaxed);
    atomic_store_explicit(&r->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < ABOUT_WORDS; i++) atomic_store_explicit(&r->word[i], word[i], memory_order_relaxed);
    atomic_store_explicit(&r->version, version + 2, memory_order_release);
}

// False: it changes at this moment.
static bool about_read(uint32_t number, about_t *ret) {
    pool_record_t *r = record_of(number);
    if (!r) return false;
    uint64_t word[ABOUT_WORDS];
    uint32_t version = atomic_load_explicit(&r->version, memory_order_acquire);
    for (size_t i = 0; i < ABOUT_WORDS; i++) word[i] = atomic_load_explicit(&r->word[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    memcpy(ret, word, sizeof word);
    return !(version & 1) && atomic_load_explicit(&r->version, memory_order_relaxed) == version;
}

// 0: no memory.
static uint32_t number_new(void) {
    QY_NEEDS(&pool_known.lock);
    uint32_t number = pool_known.spare;
    if (number) {
        pool_known.spare = record_of(number)->spare;
        return number;
    }
    number = pool_known.numbers + 1;
    if (number >> SLAB_SHIFT >= SLABS) return 0;
    if (!record_of(number)) {
        pool_record_t *slab = qy_check_memory(SLAB_RECORDS * sizeof *slab, true);
        if (!slab) return 0;
        atomic_store_explicit(&pool_known.slab[number >> SLAB_SHIFT], slab, memory_order_release);
    }
    return pool_known.numbers = number;
}

static void number_spare(uint32_t number) {
    QY_NEEDS(&pool_known.lock);
    about_write(number, &(about_t){.state = ABOUT_NOTHING});
    record_of(number)->spare = pool_known.spare;
    pool_known.spare = number;
}

// ---- the table ------------------------------------------------------------------------------------------------------

// NULL: there is none. `make`: with the lock; NULL: no memory.
static qy_check_pool_entry_t *entry_of(uintptr_t address, bool make) {
    if (address >> 48) return NULL;
    _Atomic(qy_check_pool_entry_t *) *top = &qy_check_pool_leaves[address >> QY_CHECK_POOL_LEAF];
    qy_check_pool_entry_t *leaf = atomic_load_explicit(top, memory_order_acquire);
    if (!leaf && make) {
        leaf = qy_check_memory(LEAF_PIECES * sizeof *leaf, true);
        if (leaf) atomic_store_explicit(top, leaf, memory_order_release);
    }
    return leaf ? &leaf[(address & UINT32_MAX) >> QY_CHECK_POOL_PIECE] : NULL;
}

static piece_t *piece_in(uintptr_t entry) { return entry & 1 ? NULL : (piece_t *)entry; }

static piece_t *piece_make(uintptr_t address) {
    QY_NEEDS(&pool_known.lock);
    qy_check_pool_entry_t *entry = entry_of(address, true);
    if (!entry) return NULL;
    uintptr_t word = atomic_load_explicit(entry, memory_order_relaxed);
    piece_t *piece = piece_in(word);
    if (piece) return piece;
    piece = qy_check_memory(sizeof *piece, true);
    if (!piece) return NULL;
    atomic_store_explicit(&piece->through, (uint32_t)(word >> 1), memory_order_relaxed);
    atomic_store_explicit(entry, (uintptr_t)piece, memory_order_release);
    return piece;
}

// The first byte of the piece is the block's. False: no memory.
static bool piece_set_through(uintptr_t address, uint32_t number) {
    qy_check_pool_entry_t *entry = entry_of(address, true);
    if (!entry) return false;
    piece_t *piece = piece_in(atomic_load_explicit(entry, memory_order_relaxed));
    if (piece) atomic_store_explicit(&piece->through, number, memory_order_release);
    else atomic_store_explicit(entry, (uintptr_t)number << 1 | 1, memory_order_release);
    return true;
}

static uint32_t piece_through(uintptr_t address) {
    qy_check_pool_entry_t *entry = entry_of(address, false);
    uintptr_t word = entry ? atomic_load_explicit(entry, memory_order_acquire) : 0;
    piece_t *piece = piece_in(word);
    return piece ? atomic_load_explicit(&piece->through, memory_order_acquire) : (uint32_t)(word >> 1);
}

// The number of the block whose memory begins nearest at or before the address, in its piece; else of that which
// reaches into the piece. 0: none.
static uint32_t number_near(uintptr_t address) {
    qy_check_pool_entry_t *entry = entry_of(address, false);
    uintptr_t word = entry ? atomic_load_explicit(entry, memory_order_acquire) : 0;
    piece_t *piece = piece_in(word);
    if (!piece) return (uint32_t)(word >> 1);
    size_t grain = address % PIECE / GRAIN, at = grain / 64;
    uint64_t bits = atomic_load_explicit(&piece->begins[at], memory_order_acquire) & (UINT64_MAX >> (63 - grain % 64));
    for (; !bits && at; at--) bits = atomic_load_explicit(&piece->begins[at - 1], memory_order_acquire);
    if (!bits) return atomic_load_explicit(&piece->through, memory_order_acquire);
    return atomic_load_explicit(&piece->number[at * 64 + qy_log2_floor(bits)], memory_order_acquire);
}

// 0: no block has this address in its memory.
static uint32_t pool_number_at(uintptr_t address, about_t *ret) {
    for (unsigned tries = 0; tries < TRIES; tries++) {
        uint32_t number = number_near(address);
        bool sure = true;
        for (unsigned depth = 0; number && sure && depth < NESTED; depth++) {
            sure = about_read(number, ret);
            if (sure && ret->state != ABOUT_NOTHING && address - ret->memory < ret->bytes) return number;
            number = sure ? ret->outer : 0;
        }
        if (sure) return 0;
    }
    return 0;
}

// The number of the block whose memory begins there; 0: none.
static uint32_t number_beginning(uintptr_t memory, about_t *ret) {
    QY_NEEDS(&pool_known.lock);
    uint32_t number = memory % GRAIN ? 0 : number_near(memory);
    return number && about_read(number, ret) && ret->state != ABOUT_NOTHING && ret->memory == memory ? number : 0;
}

// Calls for the begin of each piece that the memory reaches into.
static bool each_piece_behind(const about_t *a, uint32_t number) {
    bool all = true;
    for (uintptr_t at = qy_round_down(a->memory, PIECE) + PIECE; at < a->memory + a->bytes; at += PIECE)
        all &= piece_set_through(at, number);
    return all;
}

static void pool_forget(uint32_t number, const about_t *a) {
    QY_NEEDS(&pool_known.lock);
    piece_t *piece = piece_in(atomic_load_explicit(entry_of(a->memory, false), memory_order_relaxed));
    size_t grain = a->memory % PIECE / GRAIN;
    atomic_fetch_and_explicit(&piece->begins[grain / 64], ~(UINT64_C(1) << grain % 64), memory_order_release);
    for (uintptr_t at = qy_round_down(a->memory, PIECE) + PIECE; at < a->memory + a->bytes; at += PIECE)
        if (piece_through(at) == number) piece_set_through(at, a->outer);
    number_spare(number);
}

// A block is about to have this memory: those that were known in it are not there any more.
static void pool_forget_within(uintptr_t memory, size_t bytes) {
    for (uintptr_t at = memory; at < memory + bytes; at = qy_round_down(at, PIECE) + PIECE) {
        qy_check_pool_entry_t *entry = entry_of(at, false);
        piece_t *piece = entry ? piece_in(atomic_load_explicit(entry, memory_order_relaxed)) : NULL;
        if (!piece) continue;
        uintptr_t until = qy_min(memory + bytes, qy_round_down(at, PIECE) + PIECE);
        size_t first = at % PIECE / GRAIN, last = (until - 1) % PIECE / GRAIN;
        for (size_t i = first / 64; i <= last / 64; i++) {
            uint64_t bits = atomic_load_explicit(&piece->begins[i], memory_order_relaxed);
            if (i == first / 64) bits &= UINT64_MAX << first % 64;
            if (i == last / 64) bits &= UINT64_MAX >> (63 - last % 64);
            for (about_t a; bits; bits &= bits - 1) {
                size_t grain = i * 64 + qy_log2_floor(bits & -bits);
                uint32_t number = atomic_load_explicit(&piece->number[grain], memory_order_relaxed);
                if (about_read(number, &a)) pool_forget(number, &a);
            }
        }
    }
}

// ---- what pools tell ------------------------------------------------------------------------------------------------

static void copy_text(char *to, size_t room, const char *from) {
    size_t n = 0;
    while (n < room - 1 && from[n]) to[n] = from[n], n++;
    to[n] = 0;
}

static uint32_t pool_number_new(void) {
    QY_NEEDS(&pool_known.lock);
    uint32_t number = pool_known.spare_pool;
    if (number) {
        pool_known.spare_pool = pool_of(number)->spare;
        return number;
    }
    number = pool_known.pool_numbers + 1;
    if (number >> POOLS_SHIFT >= POOLS_SLABS) return 0;
    if (!pool_of(number)) {
        known_pool_t *slab = qy_check_memory(sizeof *slab << POOLS_SHIFT, false);
        if (!slab) return 0;
        atomic_store_explicit(&pool_known.pools[number >> POOLS_SHIFT], slab, memory_order_release);
    }
    return pool_known.pool_numbers = number;
}

uint32_t qy_check_pool_opened(const char *kind, const char *name, quarry_check_pool_ends_t ends) {
    qy_lock_take(&pool_known.lock);
    uint32_t number = pool_number_new();
    known_pool_t *p = number ? pool_of(number) : NULL;
    if (p) {
        copy_text(p->name, sizeof p->name, name);
        copy_text(p->kind, sizeof p->kind, kind);
        p->ends = ends;
    }
    qy_lock_drop(&pool_known.lock);
    return number;
}

void qy_check_pool_closed(uint32_t pool) {
    if (!pool) return;
    qy_lock_take(&pool_known.lock);
    pool_of(pool)->spare = pool_known.spare_pool;
    pool_known.spare_pool = pool;
    qy_lock_drop(&pool_known.lock);
}

static void began_locked(const quarry_check_pool_block_t *b, uint32_t ordinal) {
    QY_NEEDS(&pool_known.lock);
    about_t around;
    pool_forget_within(b->memory, b->bytes);
    uint32_t outer = pool_number_at(b->memory, &around);
    if (outer && (around.state != ABOUT_LIVE || b->memory + b->bytes > around.memory + around.bytes)) outer = 0;
    const about_t a = {.memory = b->memory,
        .block = b->block,
        .bytes = b->bytes,
        .size = b->size,
        .pool = b->pool,
        .alloc_stack = b->alloc_stack,
        .ordinal = ordinal,
        .outer = outer,
        .alloc_thread = qy_check_thread_number(),
        .state = ABOUT_LIVE};
    piece_t *piece = piece_make(b->memory);
    uint32_t number = piece ? number_new() : 0;
    if (!number) return;
    size_t grain = b->memory % PIECE / GRAIN;
    atomic_store_explicit(&record_of(number)->told, false, memory_order_relaxed);
    about_write(number, &a);
    atomic_store_explicit(&piece->number[grain], number, memory_order_release);
    atomic_fetch_or_explicit(&piece->begins[grain / 64], UINT64_C(1) << grain % 64, memory_order_release);
    if (!each_piece_behind(&a, number)) pool_forget(number, &a);
}

void qy_check_pool_began(const quarry_check_pool_block_t *b) {
    if (!b->pool || b->memory % GRAIN || !b->bytes || (b->memory + b->bytes) >> 48) return;
    uint32_t ordinal = qy_check_ordinal(b->alloc_stack);
    qy_lock_take(&pool_known.lock);
    began_locked(b, ordinal);
    qy_lock_drop(&pool_known.lock);
}

void qy_check_pool_held(uintptr_t memory) {
    about_t a;
    qy_lock_take(&pool_known.lock);
    uint32_t number = pool_number_at(memory, &a);
    a.is_held = true;
    if (number) about_write(number, &a);
    qy_lock_drop(&pool_known.lock);
}

void qy_check_pool_ended(uintptr_t memory, uint32_t free_stack) {
    about_t a;
    qy_lock_take(&pool_known.lock);
    uint32_t number = number_beginning(memory, &a);
    if (number) {
        a.state = ABOUT_ENDED;
        a.free_stack = free_stack;
        a.free_thread = qy_check_thread_number();
        about_write(number, &a);
    }
    qy_lock_drop(&pool_known.lock);
}

void qy_check_pool_gone(uintptr_t memory) {
    about_t a;
    qy_lock_take(&pool_known.lock);
    uint32_t number = number_beginning(memory, &a);
    if (number) pool_forget(number, &a);
    qy_lock_drop(&pool_known.lock);
}

void qy_check_pool_records(const void *memory, size_t bytes, bool there) {
    qy_lock_take(&pool_known.lock);
    for (unsigned i = 0; i < QY_CHECK_POOL_RECORDS; i++) {
        bool is_free = !atomic_load_explicit(&pool_known.records[i].bytes, memory_order_relaxed);
        bool is_it = atomic_load_explicit(&pool_known.records[i].memory, memory_order_relaxed) == (uintptr_t)memory;
        if (there ? !is_free : is_free || !is_it) continue;
        atomic_store_explicit(&pool_known.records[i].memory, (uintptr_t)memory, memory_order_relaxed);
        atomic_store_explicit(&pool_known.records[i].bytes, there ? bytes : 0, memory_order_release);
        break;
    }
    qy_lock_drop(&pool_known.lock);
}

// ---- what is asked --------------------------------------------------------------------------------------------------

static qy_check_block_t block_of(const about_t *a) {
    const known_pool_t *p = pool_of(a->pool);
    return (qy_check_block_t){.address = a->block,
        .size = a->size,
        .alloc_stack = a->alloc_stack,
        .free_stack = a->free_stack,
        .alloc_thread = qy_check_thread_id(a->alloc_thread),
        .free_thread = qy_check_thread_id(a->free_thread),
        .ordinal = a->ordinal,
        .family = QY_CHECK_POOL,
        .freed = a->state == ABOUT_ENDED,
        .is_held = a->is_held || p->ends == QUARRY_CHECK_POOL_FRAMES,
        .is_lasting = p->ends == QUARRY_CHECK_POOL_LASTING,
        .pool_number = a->pool,
        .pool = p->name,
        .pool_kind = p->kind};
}

const char *qy_check_pool_name(uint32_t pool, const char **ret_kind) {
    const known_pool_t *p = pool ? pool_of(pool) : NULL;
    *ret_kind = p ? p->kind : NULL;
    return p ? p->name : NULL;
}

bool qy_check_pool_find(uintptr_t address, qy_check_block_t *ret) {
    about_t a;
    if (!pool_number_at(address, &a)) return false;
    *ret = block_of(&a);
    return true;
}

static bool pool_holds(const about_t *a, uintptr_t at, size_t n) {
    return a->state == ABOUT_LIVE && at - a->block <= a->size && n <= a->size - (at - a->block);
}

bool qy_check_pool_is_live(uintptr_t at, size_t n, bool *ret_known) {
    about_t a;
    *ret_known = pool_number_at(at, &a) != 0;
    return *ret_known && pool_holds(&a, at, n);
}

static const char *access_kind(const qy_check_block_t *b, uintptr_t at, bool is_write) {
    if (b->freed && !strcmp(b->pool_kind, "stack")) return "use-after-pop";
    if (b->freed && !strcmp(b->pool_kind, "ring")) return "use-after-release";
    if (b->freed) return is_write ? "use-after-free-write" : "use-after-free-read";
    if (is_write) return "pool-overflow";
    return at < b->address ? "underflow-read" : "overflow-read";
}

// In a file two blocks have one word between them, and before the first block there may be none that is known. Does the
// access, which begins outside of a block, belong to the one behind? The number of that, or what it was.
static uint32_t number_behind(uintptr_t at, size_t n, uint32_t number, about_t *a) {
    uintptr_t next = qy_round_up(at + 1, GRAIN);
    about_t behind;
    uint32_t found = pool_number_at(next, &behind);
    if (!found || behind.memory != next || pool_of(behind.pool)->ends != QUARRY_CHECK_POOL_LASTING) return number;
    if (number && n <= next - at && at - (a->block + a->size) <= next - at) return number;
    *a = behind;
    return found;
}

bool qy_check_pool_access(uintptr_t at, size_t n, bool is_write, const char *function) {
    about_t a;
    uint32_t number = pool_number_at(at, &a);
    if (number && pool_holds(&a, at, n)) return true;
    if (!number || at - a.block >= a.size) number = number_behind(at, n, number, &a);
    if (!number || pool_holds(&a, at, n)) return number != 0;
    qy_check_block_t b = block_of(&a);
    qy_check_fault_t f = {.kind = access_kind(&b, at, is_write),
        .function = function,
        .address = at,
        .is_write = is_write,
        .bytes = n,
        .has_block = true,
        .block = b,
        .offset = (int64_t)(at - b.address)};
    if (is_write) atomic_store_explicit(&record_of(number)->told, true, memory_order_relaxed);
    qy_check_report(&f, NULL);
    return true;
}

bool qy_check_pool_was_told(uintptr_t block) {
    about_t a;
    uint32_t number = pool_number_at(block, &a);
    return number && a.block == block && atomic_load_explicit(&record_of(number)->told, memory_order_relaxed);
}

static void visit_piece(const piece_t *piece, qy_check_pool_visit_t *visit, void *arg) {
    for (size_t i = 0; i < PIECE_WORDS; i++) {
        uint64_t bits = atomic_load_explicit(&piece->begins[i], memory_order_acquire);
        for (about_t a; bits; bits &= bits - 1) {
            size_t grain = i * 64 + qy_log2_floor(bits & -bits);
            uint32_t number = atomic_load_explicit(&piece->number[grain], memory_order_acquire);
            if (!about_read(number, &a) || a.state == ABOUT_NOTHING) continue;
            qy_check_block_t b = block_of(&a);
            visit(&b, a.memory, a.bytes, arg);
        }
    }
}

void qy_check_pool_each_records(void (*fn)(const void *memory, size_t bytes, void *arg), void *arg) {
    for (unsigned i = 0; i < QY_CHECK_POOL_RECORDS; i++) {
        size_t bytes = atomic_load_explicit(&pool_known.records[i].bytes, memory_order_acquire);
        uintptr_t memory = atomic_load_explicit(&pool_known.records[i].memory, memory_order_relaxed);
        if (bytes) fn((const void *)memory, bytes, arg);
    }
}

void qy_check_pool_each(qy_check_pool_visit_t *visit, void *arg) {
    for (size_t top = 0; top < LEAVES; top++) {
        qy_check_pool_entry_t *leaf = atomic_load_explicit(&qy_check_pool_leaves[top], memory_order_acquire);
        for (size_t i = 0; leaf && i < LEAF_PIECES; i++) {
            const piece_t *piece = piece_in(atomic_load_explicit(&leaf[i], memory_order_acquire));
            if (piece) visit_piece(piece, visit, arg);
        }
    }
}
