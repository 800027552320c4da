// SPDX-License-Identifier: MIT
// test_persist_watch.c: a persistent pool under a checker: what it tells, and what its file is afterwards for a process
// without one.
#include "bytes.h"
#include "check/pool_blocks.h"
#include "persist/told.h"
#include "persist_test.h"

static const unsigned unwatched = QUARRY_POOL_PASS;

static void *at(quarry_persist_t *s, uint64_t place) { return quarry_persist_at(s, place); }

static uint64_t made(quarry_persist_t *s, size_t size, unsigned flags) {
    uint64_t place = quarry_persist_alloc(s, size, flags);
    CHECK(place);
    return place;
}

static quarry_persist_t *fresh(void) {
    pt_pool_flags = 0;
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK(s->watch);
    told_faults = 0;
    return s;
}

static void is_told(const char *kind, int64_t offset, size_t bytes, size_t size) {
    CHECK_EQ(told_faults, 1);
    CHECK_STR_EQ(told_last.kind, kind);
    CHECK_EQ(told_last.offset, offset);
    if (bytes) CHECK_EQ(told_last.bytes, bytes);
    CHECK_EQ(told_last.size, size);
    told_faults = 0;
}

// The file as a process finds it that has no checker, while another has it open, or after it.
static void file_is_sound(void) {
    static char copy[1 << 22];
    size_t bytes = pt_read(pt_path, copy, sizeof copy);
    pt_write(pt_other, copy, bytes);
    pt_pool_flags = unwatched;
    quarry_persist_t *s = pt_open(pt_other, 0);
    CHECK(!s->watch);
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    pt_pool_flags = 0;
}

// ---- faults -----------------------------------------------------------------------------------------------------

// Of each size: one byte behind, one before. Whose the word between two blocks is, follows from its bytes.
TEST(one_byte_beside_a_block) {
    for (size_t size = 1; size < 120; size++) {
        quarry_persist_t *s = fresh();
        uint64_t a = made(s, size, 0), b = made(s, size, 0);
        CHECK_EQ(quarry_persist_size(s, a), size);
        ((unsigned char *)at(s, a))[size] ^= 0x20;
        quarry_persist_free(s, a);
        is_told("pool-overflow", (int64_t)size, 1, size);
        CHECK(told_last.alloc_stack && told_last.is_evidence);
        qy_persist_abandon(s);

        s = fresh();
        a = made(s, size, 0), b = made(s, size, 0);
        ((unsigned char *)at(s, b))[-1] ^= 0x20;
        CHECK_EQ(quarry_persist_free(s, b), -1);
        is_told("pool-overflow", -1, 1, size);
        CHECK_EQ(told_last.block, (uintptr_t)at(s, b));
        quarry_persist_free(s, a);
        qy_persist_abandon(s);
        CHECK_EQ(told_faults, 0);
    }
}

TEST(a_free_block_is_written) {
    for (size_t size = 1; size < 200; size += 7) {
        for (size_t i = 0; i < size; i += 5) {
            quarry_persist_t *s = fresh();
            uint64_t a = made(s, size, 0), behind = made(s, 1, 0);
            size_t bytes = *qy_word(s, a - 8) & QY_BLOCK_LOW48 & ~QY_BLOCK_FLAGS;
            CHECK_EQ(quarry_persist_free(s, a), 0);
            ((unsigned char *)at(s, a))[i] = 1;
            quarry_persist_close(s);
            if (i < 16 || i < bytes - 16) is_told("write-after-free", (int64_t)i, 1, size);
            else CHECK_EQ(told_faults, 0);
            (void)behind;
        }
    }
}

// What a link was is not known, but what one byte can have been.
TEST(several_bytes_of_a_link_are_written) {
    for (size_t from = 0; from < 16; from++) {
        for (size_t n = 1; n <= 16 - from; n++) {
            quarry_persist_t *s = fresh();
            uint64_t a = made(s, 64, 0), behind = made(s, 1, 0);
            CHECK_EQ(quarry_persist_free(s, a), 0);
            memset((char *)at(s, a) + from, 1, n);
            quarry_persist_close(s);
            bool second = from >= 8, both = !second && from + n > 8;
            if (n == 1) is_told("write-after-free", (int64_t)from, 1, 64);
            else is_told("write-after-free", second ? 8 : 0, both ? 16 : 8, 64);
            (void)behind;
        }
    }
}

// Between freed blocks that were joined there is no hole.
TEST(joined_blocks_are_watched) {
    quarry_persist_t *s = fresh();
    uint64_t a = made(s, 100, 0), b = made(s, 100, 0), c = made(s, 100, 0), last = made(s, 1, 0);
    CHECK(!quarry_persist_free(s, a) && !quarry_persist_free(s, c) && !quarry_persist_free(s, b));
    ((unsigned char *)at(s, b))[0] = 1;
    CHECK_EQ(made(s, 300, 0), a);
    is_told("write-after-free", 0, 1, 100);
    CHECK_EQ(told_last.block, (uintptr_t)at(s, b));
    CHECK_EQ(quarry_persist_free(s, last), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(told_faults, 0);
}

TEST(wrong_frees) {
    quarry_persist_t *s = fresh();
    uint64_t a = made(s, 100, 0), behind = made(s, 1, 0);
    CHECK_EQ(quarry_persist_free(s, a + 16), -1);
    is_told("interior-free", 16, 0, 100);
    CHECK_EQ(quarry_persist_free(s, 24), -1);
    CHECK_EQ(told_faults, 1);
    CHECK_STR_EQ(told_last.kind, "invalid-free");
    told_faults = 0;
    CHECK_EQ(quarry_persist_free(s, a), 0);
    CHECK_EQ(quarry_persist_free(s, a), -1);
    CHECK_EQ(errno, EALREADY);
    is_told("double-free", 0, 0, 100);
    CHECK(told_last.alloc_stack && told_last.free_stack && told_last.alloc_stack != told_last.free_stack);
    quarry_pool_free(quarry_persist_pool(s), at(s, a), QUARRY_SIZE_UNKNOWN);
    is_told("double-free", 0, 0, 100);
    // In a transaction: freed, and not yet at its end.
    CHECK(!quarry_persist_begin(s) && !quarry_persist_free(s, behind) && quarry_persist_free(s, behind));
    is_told("double-free", 0, 0, 1);
    CHECK_EQ(quarry_persist_abort(s), 0);
    CHECK_EQ(quarry_persist_free(s, behind), 0);
    CHECK_EQ(told_faults, 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// ---- what is no fault, and what is in the file --------------------------------------------------------------------

static bool known(quarry_persist_t *s, uint64_t place, size_t size) {
    qy_check_block_t b;
    return qy_check_pool_find((uintptr_t)at(s, place), &b) && !b.freed && b.size == size;
}

// Blocks of an earlier process may be used to their end.
TEST(blocks_that_were_there) {
    quarry_persist_t *s = fresh();
    uint64_t place = made(s, 20, 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    s = pt_open(pt_path, 0);
    CHECK_EQ(quarry_persist_size(s, place), 24);
    CHECK(known(s, place, 24));
    memset(at(s, place), 1, 24);
    CHECK_EQ(quarry_persist_free(s, place), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(told_faults, 0);
}

// What was asked for as zero, and the bytes behind it, are zero for whoever comes next.
TEST(zero_stays_zero) {
    quarry_persist_t *s = fresh();
    for (size_t size = 1; size < 100; size++) {
        uint64_t *root = quarry_persist_root_link(s);
        CHECK(quarry_persist_alloc_to(s, root, size, QUARRY_POOL_ZERO));
        if (size % 2) {
            CHECK(!quarry_persist_begin(s) && quarry_persist_resize_at(s, root, size + 200, 0));
            memset(at(s, *root), 1, size);
            memset(at(s, *root), 0, size);
            CHECK_EQ(quarry_persist_abort(s), 0);
        }
        CHECK_EQ(quarry_persist_close(s), 0);
        pt_pool_flags = unwatched;
        s = pt_open(pt_path, 0);
        CHECK(quarry_persist_resize_at(s, root = quarry_persist_root_link(s), 300, QUARRY_POOL_ZERO));
        CHECK_EQ(bytes_nonzero(at(s, *root), 300), 300);
        CHECK_EQ(quarry_persist_free_from(s, root), 0);
        CHECK_EQ(quarry_persist_close(s), 0);
        pt_pool_flags = 0;
        s = pt_open(pt_path, 0);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(told_faults, 0);
}

// A transaction that is taken back leaves each byte that the program could see, also of a block that it made shorter.
TEST(taken_back_as_it_was) {
    quarry_persist_t *s = fresh();
    uint64_t *root = quarry_persist_root_link(s);
    CHECK(quarry_persist_alloc_to(s, root, 500, 0));
    memset(at(s, *root), 0x5A, 500);
    for (size_t size = 1; size <= 500; size += 13) {
        CHECK_EQ(quarry_persist_begin(s), 0);
        CHECK(quarry_persist_resize_at(s, root, size, 0));
        CHECK(known(s, *root, size));
        made(s, 700, 0);
        CHECK_EQ(quarry_persist_abort(s), 0);
        CHECK(known(s, *root, 500));
        const unsigned char *p = at(s, *root);
        for (unsigned i = 0; i < 500; i++) CHECK_EQ(p[i], 0x5A);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(told_faults, 0);
}

// ---- a model ------------------------------------------------------------------------------------------------------

#define SLOTS 40

typedef struct slot {
    size_t size;
    unsigned char byte;
} slot_t;
static slot_t now[SLOTS], before[SLOTS];

static void slot_fill(quarry_persist_t *s, const uint64_t *slots, unsigned i, size_t size, uint64_t r) {
    now[i] = (slot_t){size, (unsigned char)(r >> 40)};
    memset(at(s, slots[i]), now[i].byte, size);
}

static void slot_check(quarry_persist_t *s, const uint64_t *slots, unsigned i) {
    CHECK_EQ(!slots[i], !now[i].size);
    if (!slots[i]) return;
    const unsigned char *p = at(s, slots[i]);
    CHECK(known(s, slots[i], now[i].size));
    CHECK_EQ(quarry_persist_size(s, slots[i]), now[i].size);
    for (size_t k = 0; k < now[i].size; k++) CHECK_EQ(p[k], now[i].byte);
}

// A transaction that will be aborted saves what it stores into.
static void slot_change(quarry_persist_t *s, uint64_t *slots, uint64_t *seed, bool inside) {
    uint64_t r = test_random(seed);
    unsigned i = r % SLOTS;
    size_t size = 1 + (r >> 16) % (r >> 60 == 0 ? 40000 : 200), old = now[i].size;
    slot_check(s, slots, i);
    if (!slots[i]) {
        CHECK(quarry_persist_alloc_to(s, &slots[i], size, r & 1u << 12 ? QUARRY_POOL_ZERO : 0));
        if (r & 1u << 12) CHECK_EQ(bytes_nonzero(at(s, slots[i]), size), size);
        slot_fill(s, slots, i, size, r);
    } else if (r & 1u << 13) {
        CHECK_EQ(quarry_persist_free_from(s, &slots[i]), 0);
        now[i].size = 0;
    } else {
        bool zero = r & 1u << 12;
        uint64_t place = slots[i];
        if (inside && old > 400) return;
        if (inside) CHECK_EQ(quarry_persist_save(s, at(s, place), old), 0);
        CHECK(quarry_persist_resize_at(s, &slots[i], size, zero ? QUARRY_POOL_ZERO : 0));
        if (zero && size > old) CHECK_EQ(bytes_nonzero((char *)at(s, slots[i]) + old, size - old), size - old);
        slot_fill(s, slots, i, size, r);
    }
}

TEST(random_model) {
    uint64_t seed = test_seed;
    memset(now, 0, sizeof now);
    quarry_persist_t *s = fresh();
    uint64_t *slots = pt_slots(s, SLOTS);
    for (unsigned round = 0; round < 3000; round++) {
        uint64_t r = test_random(&seed);
        bool inside = r % 4 == 0, back = r % 8 == 0;
        memcpy(before, now, sizeof now);
        if (inside) CHECK_EQ(quarry_persist_begin(s), 0);
        for (unsigned n = 0; n < (inside ? r >> 32 & 7 : 1); n++) slot_change(s, slots, &seed, inside);
        if (inside && !back) CHECK_EQ(quarry_persist_commit(s), 0);
        if (back) {
            CHECK_EQ(quarry_persist_abort(s), 0);
            memcpy(now, before, sizeof now);
        }
        for (unsigned i = 0; i < SLOTS; i++) slot_check(s, slots, i);
        if (quarry_persist_check(s)) TEST_FAIL("round %u: %s", round, quarry_persist_error(NULL));
        if (round % 300 == 299) file_is_sound();
        CHECK_EQ(told_faults, 0);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(told_faults, 0);
    file_is_sound();
}

TEST_MAIN()
