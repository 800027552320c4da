// SPDX-License-Identifier: MIT
// The page layer against a model: one bit per unit, counted by hand. Each step compares the bitmaps
// and the counters with the model; contents decide whether "clean" was the truth.
#include "heap_test.h"

#include "base/compiler.h"
#include "pages/chunk.h"
#include "pages/arena.h"
#include "pages/chunk_state.h"
#include "pages/purging.h"

#define CHUNKS 64
#define SPANS 512

typedef struct mirror {
    qy_chunk_t *chunk;
    bool used[QY_CHUNK_UNITS], dirty[QY_CHUNK_UNITS];
} mirror_t;

typedef struct span {
    mirror_t *m;
    unsigned first, n;
    bool touched[QY_CHUNK_UNITS];  // written to, or dirty when taken
    uint64_t id;
} span_t;

static mirror_t mirrors[CHUNKS];
static unsigned nmirrors;
static span_t spans[SPANS];
static unsigned nspans;
static uint64_t rng, next_id;

static unsigned below(unsigned n) { return (unsigned)(test_random(&rng) % n); }

static mirror_t *mirror_of(qy_chunk_t *c) {
    for (unsigned i = 0; i < nmirrors; i++)
        if (mirrors[i].chunk == c) return &mirrors[i];
    CHECK_LT(nmirrors, CHUNKS);
    mirrors[nmirrors] = (mirror_t){.chunk = c};
    return &mirrors[nmirrors++];
}

static unsigned longest_run(const mirror_t *m) {
    unsigned best = 0, now = 0;
    for (unsigned i = 0; i < QY_CHUNK_UNITS; i++) {
        now = m->used[i] ? 0 : now + 1;
        if (now > best) best = now;
    }
    return best;
}

// How many units the free place with the most dirty ones has, -1: there is no place. *first: the lowest such. *places:
// how many there are.
static int most_dirty(const mirror_t *m, unsigned n, unsigned align, unsigned *first, unsigned *places) {
    int best = -1;
    *places = 0;
    for (unsigned at = 0; at + n <= QY_CHUNK_UNITS; at += align) {
        unsigned i = 0;
        int dirty = 0;
        for (; i < n && !m->used[at + i]; i++) dirty += m->dirty[at + i];
        if (i < n) continue;
        ++*places;
        if (dirty > best) best = dirty, *first = at;
    }
    return best;
}

static void compare(void) {
    size_t free = 0, dirty = 0;
    for (unsigned k = 0; k < nmirrors; k++) {
        mirror_t *m = &mirrors[k];
        qy_bits_t free_bits = 0, dirty_bits = 0;
        for (unsigned i = 0; i < QY_CHUNK_UNITS; i++) {
            free_bits |= (qy_bits_t)!m->used[i] << i;
            dirty_bits |= (qy_bits_t)m->dirty[i] << i;
            free += !m->used[i];
            dirty += m->dirty[i];
        }
        CHECK(m->chunk->free == free_bits);
        CHECK(m->chunk->dirty == dirty_bits);
        CHECK_EQ(m->chunk->longest, longest_run(m));
    }
    CHECK_EQ(qy_units_mapped_bytes(), nmirrors * QY_CHUNK);
    CHECK_EQ(qy_units_free_bytes(), free * QY_UNIT);
    CHECK_EQ(qy_units_dirty_bytes(), dirty * QY_UNIT);
}

static char *unit_of(const span_t *s, unsigned i) { return s->m->chunk->record.base + (s->first + i) * QY_UNIT; }

// Enter units [from, to) of s in the model as taken; what is said to be clean must be zero.
static void take_units(span_t *s, unsigned from, unsigned to, qy_bits_t dirty) {
    for (unsigned i = from; i < to; i++) {
        bool d = dirty >> (i - from) & 1;
        CHECK(!s->m->used[s->first + i]);
        CHECK_EQ(d, s->m->dirty[s->first + i]);
        if (!d) CHECK(is_zero(unit_of(s, i), QY_UNIT));
        s->m->used[s->first + i] = true;
        s->m->dirty[s->first + i] = false;
        s->touched[i] = d;
    }
    CHECK((dirty & ~qy_bits_run(0, to - from)) == 0);
}

// What a taken unit holds stays: write a few words in some of the units, and look at all later.
static void write_units(span_t *s, unsigned from) {
    for (unsigned i = from; i < s->n; i++) {
        if (below(3) == 0) continue;
        s->touched[i] = true;
        for (size_t at = 0; at < QY_UNIT; at += 4096) *(uint64_t *)(unit_of(s, i) + at) = s->id + i;
    }
}
static void check_units(const span_t *s) {
    for (unsigned i = 0; i < s->n; i++) {
        uint64_t v = *(uint64_t *)unit_of(s, i), w = *(uint64_t *)(unit_of(s, i) + QY_UNIT - 4096);
        if (!s->touched[i]) CHECK(v == 0 && w == 0);
        else CHECK_EQ(v, w);
    }
}

static unsigned partly_dirty;  // takes of a place that was dirty in part, as the model says

static void take(unsigned n, unsigned align) {
    // The place with the most dirty units (for slabs, or all of them), where all are seen: of each length four chunks
    // are looked at, and 128 places in all, for runs 32 chunks. If none is dirty, the chunk with the shortest
    // sufficient run (without alignment one can tell which that is).
    unsigned fit = QY_CHUNK_UNITS + 1, of_length[QY_CHUNK_UNITS + 1] = {0}, first = 0, places = 0, looked_at = 0;
    int best = 0;
    bool seen = true, partly = below(2);
    for (unsigned k = 0; k < nmirrors; k++) {
        unsigned l = longest_run(&mirrors[k]);
        if (l < n) continue;
        seen &= ++of_length[l] <= 4;
        if (l < fit) fit = l;
        int dirty = most_dirty(&mirrors[k], n, align, &first, &places);
        if (dirty > best && (partly || dirty == (int)n)) best = dirty;
        looked_at += partly ? places + 1 : 1;  // to look at a chunk at all counts, too
    }
    seen &= looked_at <= (partly ? 128 : 32);
    qy_units_t u;
    qy_units.most_touched = SIZE_MAX;  // no pages go back instead: that is test_growth.c's
    CHECK(partly ? qy_units_take_at(n, align, 1, &u) : qy_units_take(n, align, &u));
    CHECK_EQ(u.first % align, 0);
    CHECK_LE(u.first + n, QY_CHUNK_UNITS);
    CHECK_PTR_EQ(qy_map_chunk(u.chunk->record.base + u.first * QY_UNIT), u.chunk);
    CHECK_EQ((uintptr_t)u.chunk->record.base % QY_CHUNK, 0);
    unsigned known = nmirrors;
    mirror_t *m = mirror_of(u.chunk);
    if (align == 1) CHECK_EQ(nmirrors > known, fit > QY_CHUNK_UNITS);
    if (align == 1 && nmirrors == known && !best) CHECK_EQ(longest_run(m), fit);
    int here = most_dirty(m, n, align, &first, &places);
    CHECK_LE(qy_bits_count(u.dirty), here);
    if (seen && (partly || best)) {
        CHECK_EQ(qy_bits_count(u.dirty), nmirrors > known ? 0 : best);
        CHECK_EQ(u.first, first);  // in its chunk, the lowest of those that are as good
    }
    partly_dirty += seen && best > 0 && best < (int)n;
    span_t *s = &spans[nspans++];
    *s = (span_t){.m = m, .first = u.first, .n = n, .id = next_id += 1000};
    take_units(s, 0, n, u.dirty);
    write_units(s, 0);
}

// Give units [from, n) of a span back.
static void give(span_t *s, unsigned from) {
    check_units(s);
    qy_bits_t dirty = 0;
    for (unsigned i = from; i < s->n; i++) {
        dirty |= (qy_bits_t)s->touched[i] << (i - from);
        s->m->used[s->first + i] = false;
        s->m->dirty[s->first + i] = s->touched[i];
    }
    qy_units_give(s->m->chunk, s->first + from, s->n - from, dirty);
    s->n = from;
    if (!from) *s = spans[--nspans];
}

static void extend(span_t *s, unsigned more) {
    if (s->first + s->n + more > QY_CHUNK_UNITS) return;  // into the next chunk: test_long.c
    bool can = true;
    for (unsigned i = s->n; can && i < s->n + more; i++) can = !s->m->used[s->first + i];
    qy_bits_t dirty = s->m->chunk->dirty >> (s->first + s->n) & qy_bits_run(0, more);
    CHECK_EQ(qy_units_extend(s->m->chunk, s->first, s->n, more), can);
    if (!can) return;
    take_units(s, s->n, s->n + more, dirty);
    s->n += more;
    write_units(s, s->n - more);
}

static void purged(void) {
    for (unsigned k = 0; k < nmirrors; k++)
        for (unsigned i = 0; i < QY_CHUNK_UNITS; i++) {
            bool dirty = mirrors[k].chunk->dirty >> i & 1;
            if (mirrors[k].dirty[i] && !dirty) CHECK(is_zero(mirrors[k].chunk->record.base + i * QY_UNIT, QY_UNIT));
            CHECK_LE(dirty, mirrors[k].dirty[i]);
            mirrors[k].dirty[i] = dirty;
        }
}

static void purge(size_t keep, size_t budget) {
    size_t before = qy_units_dirty_bytes(), count_bytes, after_bytes;
    qy_purging_counted(&count_bytes);
    size_t bytes = purge_units(qy_purging_epoch(), 0, keep, budget);
    qy_purging_counted(&after_bytes);
    CHECK_EQ(before - qy_units_dirty_bytes(), bytes);
    CHECK_EQ(after_bytes - count_bytes, bytes);
    // It goes on until one of its bounds is reached.
    if (bytes < budget) CHECK_LE(qy_units_dirty_bytes(), keep);
    if (before <= keep) CHECK_EQ(bytes, 0);
    purged();
}

static void release(void) {
    size_t bytes = 0;
    for (unsigned k = nmirrors; k-- > 0;) bytes += longest_run(&mirrors[k]) == QY_CHUNK_UNITS ? QY_CHUNK : 0;
    char *bases[CHUNKS];
    for (unsigned k = 0; k < nmirrors; k++) bases[k] = mirrors[k].chunk->record.base;
    unsigned known = nmirrors;
    CHECK_EQ(qy_units_release(), bytes);
    unsigned left = 0;
    for (unsigned k = 0; k < known; k++) {
        bool gone = longest_run(&mirrors[k]) == QY_CHUNK_UNITS;
        CHECK_EQ(qy_map_chunk(bases[k]) == NULL, gone);
        CHECK_EQ(is_mapped(bases[k]), !gone);
        if (gone) continue;
        for (unsigned i = 0; i < nspans; i++)
            if (spans[i].m == &mirrors[k]) spans[i].m = &mirrors[left];
        mirrors[left++] = mirrors[k];
    }
    nmirrors = left;
}

static void random_steps(int steps) {
    if (QY_TSAN || QY_ASAN) steps /= 4;
    for (int step = 0; step < steps; step++) {
        // Phases of growing and of shrinking, so that both few and many spans are seen.
        bool grow = step / 400 % 2 == 0;
        unsigned op = below(100);
        if (nspans == 0 || (nspans < SPANS && op < (grow ? 50u : 30u))) {
            unsigned n = below(4) ? 1 + below(8) : 1 + below(64);
            if (below(50) == 0) n = 65 + below(64);
            take(n, below(3) ? 1 : 1u << below(7));
        } else if (op < 80) {
            give(&spans[below(nspans)], 0);
        } else if (op < 88) {
            extend(&spans[below(nspans)], 1 + below(12));
        } else if (op < 95) {
            span_t *s = &spans[below(nspans)];
            if (s->n > 1) give(s, 1 + below(s->n - 1));
        } else if (op < 98) {
            purge(below(2) ? 0 : below(64) * QY_UNIT, below(2) ? SIZE_MAX : (1 + below(64)) * QY_UNIT);
        } else if (op == 98) {
            release();
        }
        compare();
    }
}

// The first test, since the part of the map that the first chunk needs is opened only once: where that is denied, the
// chunk's own memory, made ready before, is so no longer.
TEST(no_memory_for_tags) {
    CHECK(qy_heap_init());
    qy_units_release();
    quarry_os_fault(3, 0, FAULT(COMMIT));  // the chunk, the map's entries, its tags
    qy_units_t u;
    CHECK(!qy_units_take(QY_CHUNK_UNITS, 1, &u));
    CHECK_EQ(quarry_os_fault_hits(), 1);
    quarry_os_fault(0, 0, 0);
    CHECK(qy_units_take(QY_CHUNK_UNITS, 1, &u));
    memset(u.chunk->record.base, 1, QY_CHUNK);
    qy_units_give(u.chunk, u.first, QY_CHUNK_UNITS, 0);
    qy_units_release();
}

TEST(random_steps_against_a_model) {
    rng = test_seed;
    CHECK_EQ(qy_units_mapped_bytes(), 0);  // nothing of the page layer was used before us
    random_steps(6000);
    while (nspans) give(&spans[below(nspans)], 0);
    compare();
    purge(0, SIZE_MAX);
    compare();
    release();
    CHECK_EQ(nmirrors, 0);
    compare();
    random_steps(1000);  // with recycled records
    CHECK_GT(partly_dirty, 0);
}

TEST(age_decides) {
    while (nspans) give(&spans[0], 0);
    purge_units(0, 0, 0, SIZE_MAX);
    purged();
    take(5, 1);
    spans[0].touched[2] = true;
    memset(unit_of(&spans[0], 2), 1, QY_UNIT);
    give(&spans[0], 0);
    compare();
    size_t dirty = qy_units_dirty_bytes();
    CHECK_GE(dirty, QY_UNIT);
    uint32_t now = qy_purging_epoch();
    CHECK_EQ(purge_units(now, 2, 0, SIZE_MAX), 0);
    CHECK_EQ(purge_units(now + 1, 2, 0, SIZE_MAX), 0);
    CHECK_EQ(purge_units(now + 2, 2, 0, SIZE_MAX), dirty);
    purged();
    compare();
}

TEST(kernel_denies_pages) {
    take(9, 1);
    for (unsigned i = 0; i < 9; i++) {
        spans[0].touched[i] = true;
        for (size_t at = 0; at < QY_UNIT; at += 4096) *(uint64_t *)(unit_of(&spans[0], i) + at) = 5;
    }
    give(&spans[0], 0);
    size_t dirty = qy_units_dirty_bytes();
    quarry_os_fault(1, 1, FAULT(PURGE));
    CHECK_EQ(purge_units(0, 0, 0, SIZE_MAX), 0);
    CHECK_GT(quarry_os_fault_hits(), 0);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    compare();
    purge(0, SIZE_MAX);
    CHECK_EQ(qy_units_dirty_bytes(), 0);
    compare();
}

TEST(kernel_denies_memory) {
    while (nspans) give(&spans[0], 0);
    release();
    CHECK_EQ(nmirrors, 0);
    size_t metadata = 0;
    for (int i = 0; i < 200; i++) {
        qy_units_t u;
        qy_units_release();  // the reserved rest of an arena too
        quarry_os_fault(1, 1, i % 2 ? FAULT(RESERVE) : FAULT(COMMIT));
        CHECK(!qy_units_take(3, 1, &u));
        CHECK_GT(quarry_os_fault_hits(), 0);
        compare();
        if (i == 99) metadata = qy_meta_bytes();
    }
    CHECK_EQ(qy_meta_bytes(), metadata);  // a failed try keeps its record for the next
    quarry_os_fault(0, 0, 0);
    take(3, 1);
    compare();
    // A chunk that cannot be unmapped stays as it is.
    give(&spans[0], 0);
    quarry_os_fault(1, 1, FAULT(UNMAP));
    CHECK_EQ(qy_units_release(), 0);
    quarry_os_fault(0, 0, 0);
    compare();
    take(3, 1);
    compare();
}

// From when an arena could not be had until a large one can.
TEST(scarce_space_goes_back) {
    enum { MANY = 24 };
    qy_units_t u[MANY];
    while (nspans) give(&spans[0], 0);
    release();
    quarry_os_fault(1, 1, FAULT(RESERVE));
    CHECK(!qy_units_take(3, 1, &u[0]));
    quarry_os_fault(0, 0, 0);
    CHECK(qy_units_are_scarce());
    CHECK(qy_units_take(QY_CHUNK_UNITS, 1, &u[0]));
    qy_units_give(u[0].chunk, 0, QY_CHUNK_UNITS, 0);  // one may stay: the next malloc wants it
    CHECK_EQ(qy_units_mapped_bytes(), QY_CHUNK);
    for (int denied = 1; denied >= 0; denied--) {
        for (unsigned i = 0; i < MANY; i++) CHECK(qy_units_take(QY_CHUNK_UNITS, 1, &u[i]));
        atomic_store(&qy_units.scarce, true);
        if (denied) quarry_os_fault(1, 1, FAULT(UNMAP));
        for (unsigned i = 0; i < MANY; i++) {
            qy_units_give(u[i].chunk, 0, QY_CHUNK_UNITS, i % 2 ? ~(qy_bits_t)0 : 0);
            if (!denied) CHECK_LT(qy_units_free_bytes(), qy_max(qy_units_mapped_bytes() / 8, 2 * QY_CHUNK) + QY_CHUNK);
        }
        quarry_os_fault(0, 0, 0);
        CHECK_EQ(qy_units_mapped_bytes(), (denied ? MANY : 2) * QY_CHUNK);
    }
    CHECK_LE(qy_units_dirty_bytes(), 2 * QY_CHUNK);
    qy_units_release();
    // A second one is larger than the least there may be, and all of it could be had.
    for (unsigned i = 0; i < MANY; i++) CHECK(qy_units_take(QY_CHUNK_UNITS, 1, &u[i]));
    CHECK(!qy_units_are_scarce());
    for (unsigned i = 0; i < MANY; i++) qy_units_give(u[i].chunk, 0, QY_CHUNK_UNITS, 0);
    CHECK_EQ(qy_units_mapped_bytes(), MANY * QY_CHUNK);
    // A trim looks again, and leaves what is dirty to who wants to keep that.
    qy_units_release_if_scarce();
    CHECK_EQ(qy_units_mapped_bytes(), MANY * QY_CHUNK);
    quarry_os_fault(1, 1, FAULT(RESERVE));
    qy_units_t dirty;
    CHECK(qy_units_take(QY_CHUNK_UNITS, 1, &dirty));
    atomic_store(&qy_units.scarce, false);
    qy_units_give(dirty.chunk, 0, QY_CHUNK_UNITS, ~(qy_bits_t)0);
    qy_units_release_if_scarce();
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(qy_units_mapped_bytes(), QY_CHUNK);
    CHECK_EQ(qy_units_dirty_bytes(), QY_CHUNK);
    qy_units_release();
    take(3, 1);
    compare();
}

TEST(one_unit_keeps_its_chunk) {
    while (nspans) give(&spans[0], 0);
    take(128, 1);
    for (int end = 0; end < 2; end++) {
        span_t *s = &spans[0];
        qy_units_give(s->m->chunk, end ? 0 : 1, 127, ~(qy_bits_t)0);
        CHECK_EQ(s->m->chunk->longest, 127);
        qy_units_release();
        CHECK_PTR_EQ(qy_map_chunk(s->m->chunk->record.base), s->m->chunk);
        CHECK(is_mapped(s->m->chunk->record.base));
        qy_units_t u;
        CHECK(qy_units_take(127, 1, &u));
        CHECK_PTR_EQ(u.chunk, s->m->chunk);
        CHECK_EQ(u.first, end ? 0 : 1);
    }
    nmirrors = 1;  // the others were wholly free
    if (spans[0].m != &mirrors[0]) mirrors[0] = *spans[0].m;
    spans[0].m = &mirrors[0];
    compare();
}

// A chunk at an address whose entry in the map is taken must be somewhere else.
TEST(taken_map_entries_are_avoided) {
    while (nspans) give(&spans[0], 0);
    take(128, 1);
    char *next = spans[0].m->chunk->record.base + QY_CHUNK;
    static qy_map_record_t alias[3];
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(qy_map_add(&alias[i], next + (qy_map_mask + 1) * QY_TAG_PAGE + (size_t)i * QY_CHUNK, true),
            QY_MAP_ADDED);
    }
    quarry_os_fault(1, 1, FAULT(RESERVE_READABLE));  // where the map cannot grow
    for (int i = 0; i < 5; i++) take(128, 128);
    quarry_os_fault(0, 0, 0);
    compare();
    for (unsigned k = 0; k < nspans; k++)
        for (int i = 0; i < 3; i++) CHECK(spans[k].m->chunk->record.base != next + (size_t)i * QY_CHUNK);
    for (int i = 0; i < 3; i++) qy_map_remove(&alias[i]);
}

// Not chunk by chunk: what is opened must have its neighbour's name from the start, or both are mappings of their own.
TEST(arenas_are_named_as_a_whole) {
    while (nspans) give(&spans[0], 0);
    release();
    quarry_os_fault(0, 0, FAULT(NAME));
    qy_os_names(true);  // as before the end of the constructor
    for (int i = 0; i < 7; i++) take(128, 1);
    CHECK_GE(quarry_os_fault_calls(), 1);
    CHECK_LE(quarry_os_fault_calls(), 6);  // of 1, 4 and 16 chunks, and perhaps metadata and two tables that grew
    quarry_os_fault(0, 0, 0);
    while (nspans) give(&spans[0], 0);
    release();
}

// All units of so many new chunks, each written to.
static void take_and_write(int chunks) {
    for (int i = 0; i < chunks; i++) {
        take(QY_CHUNK_UNITS, 1);
        write_units(&spans[nspans - 1], 0);
    }
}

// The next address is not to be had, since something else has its place in the map: the one after it is.
TEST(an_address_is_taken) {
    while (nspans) give(&spans[0], 0);
    release();
    take_and_write(17);  // arenas of 1 and 4 chunks, and 12 of 16
    qy_arena_t *a = qy_units.arenas;
    uint32_t opened = a->opened;
    static qy_map_record_t other;
    CHECK_EQ(qy_map_add(&other, qy_arena_at(a, opened) + (qy_map_mask + 1) * QY_TAG_PAGE, true), QY_MAP_ADDED);
    quarry_os_fault(1, 1, FAULT(RESERVE_READABLE));
    take_and_write(1);
    CHECK_EQ(a->opened, opened + 2);
    take_and_write(12);
    quarry_os_fault(0, 0, 0);
    qy_map_remove(&other);
    while (nspans) give(&spans[0], 0);
    release();
}

// Pages larger than a unit: only whole pages go back, and one that cannot does not keep others from it.
TEST(large_pages) {
    while (nspans) give(&spans[0], 0);
    purge(0, SIZE_MAX);
    release();
    take(128, 1);
    qy_chunk_t *c = spans[0].m->chunk;
    memset(c->record.base, 1, QY_CHUNK);
    quarry_os_fake_page_size(4 * QY_UNIT);
    qy_units_give(c, 1, 2, 3);                // within one page: cannot go
    qy_units_give(c, 4, 4, 15);               // a page
    qy_units_give(c, 18, 13, ~(qy_bits_t)0);  // two pages and parts of two
    purge_units(qy_purging_epoch(), 0, 0, SIZE_MAX);
    quarry_os_fake_page_size(0);
    for (unsigned i = 0; i < QY_CHUNK_UNITS; i++) {
        bool goes = (i >= 4 && i < 8) || (i >= 20 && i < 28), free = goes || i == 1 || i == 2 || (i >= 18 && i < 31);
        CHECK_EQ((unsigned)(c->free >> i & 1), free);
        CHECK_EQ((unsigned)(c->dirty >> i & 1), free && !goes);
        CHECK_EQ(is_zero(c->record.base + i * QY_UNIT, QY_UNIT), goes);
    }
}

TEST_MAIN()
