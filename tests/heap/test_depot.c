// SPDX-License-Identifier: MIT
// Generations in a heap's depot: handed out again whole, bounded by whether they are in order, and home before anybody
// misses what they hold.

#include <pthread.h>

#include "heap_test.h"

enum { SIZE = 256,
    CLASS = SIZE / 16,
    MANY = 20000 };  // 5 MiB: a depot of 160 KiB, ten generations, or of 2.5 MiB, 160

static void *block[MANY];

static qy_heap_t *mine(void) { return qy_thread_get()->heap; }
static uint32_t shelved(qy_heap_t *h, unsigned c) { return h->depot ? h->depot->stack[c].count : 0; }

static void get(size_t from, size_t to, size_t size) {
    for (size_t i = from; i < to; i++) {
        CHECK(block[i] = quarry_malloc(size));
        memset(block[i], (int)i, size);
    }
}
static void give(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) quarry_free(block[i]);
}

// Put the first n blocks into random order.
static void scatter(size_t n) {
    uint64_t seed = 1;
    for (size_t i = n; i-- > 1;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t j = (seed >> 33) % (i + 1);
        void *p = block[i];
        block[i] = block[j];
        block[j] = p;
    }
}

// A heap of MANY blocks, of which so many were freed that there is something in its depot.
static void fill_depot(void) {
    quarry_trim(0);
    CHECK_EQ(mine()->depot_bytes, 0);
    get(0, MANY, SIZE);
    give(MANY - 3000, MANY);
    CHECK_GT(shelved(mine(), CLASS), 4);
}
static void empty_all(void) {
    give(0, MANY - 3000);
    quarry_trim(0);
    CHECK_EQ(mine()->depot_bytes, 0);
    CHECK_EQ(blocks_out(mine()), 0);
    verify_all();
}

TEST(handed_out_again) {
    fill_depot();
    verify_all();
    size_t lists = shelved(mine(), CLASS), refills = mine()->refills, flushes = mine()->flushes;
    // One generation is in the cache itself; the first of them may be short.
    size_t n = lists * qy_class_limit[CLASS];
    get(MANY - 3000, MANY - 3000 + n, SIZE);
    CHECK_EQ(mine()->refills, refills);  // no slab was asked
    CHECK_EQ(mine()->flushes, flushes);
    CHECK_LE(shelved(mine(), CLASS), 3);
    verify_all();
    // nothing was given out twice
    for (size_t i = 0; i < MANY - 3000 + n; i++) CHECK_EQ(*(unsigned char *)block[i], (unsigned char)i);
    give(MANY - 3000, MANY - 3000 + n);
    empty_all();
}

// Lists in no order of addresses.
TEST(bounded) {
    get(0, MANY, SIZE);
    scatter(MANY);
    size_t most = 0, in_slabs = 0;
    for (size_t i = 0; i < MANY; i++) {
        quarry_free(block[i]);
        most = qy_max(most, mine()->depot_bytes);
        in_slabs = qy_max(in_slabs, mine()->slab_bytes);
    }
    CHECK_GT(most, 0);
    CHECK_LE(most, in_slabs / 32);
    verify_all();
    quarry_trim(0);
    CHECK_EQ(mine()->depot_bytes, 0);
    // A small heap has 64 KiB.
    get(0, 1000, SIZE);
    CHECK_LT(mine()->slab_bytes, 64 * 1024 * 32);
    scatter(1000);
    most = 0;
    for (size_t i = 0; i < 1000; i++) {
        quarry_free(block[i]);
        most = qy_max(most, mine()->depot_bytes);
    }
    CHECK_GT(most, 0);
    CHECK_LE(most, 64 * 1024);
    quarry_trim(0);
    CHECK_EQ(mine()->depot_bytes, 0);
    verify_all();
}

// Lists in the order of addresses, or against it.
static void bounded_in_order(bool backwards) {
    quarry_trim(0);
    get(0, MANY, SIZE);
    size_t most = 0, in_slabs = mine()->slab_bytes;
    for (size_t i = 0; i < MANY; i++) {
        quarry_free(block[backwards ? MANY - 1 - i : i]);
        most = qy_max(most, mine()->depot_bytes);
        if (i == MANY / 2) verify_all();
    }
    CHECK_GT(most, in_slabs / 5 * 2);
    CHECK_LE(most, in_slabs / 2);
    CHECK_GT(shelved(mine(), CLASS), 4 * QY_DEPOT_NODE_LISTS);
    verify_all();
    // All of it is handed out again, each block once.
    get(0, MANY, SIZE);
    CHECK_EQ(shelved(mine(), CLASS), 0);
    for (size_t i = 0; i < MANY; i++) CHECK_EQ(*(unsigned char *)block[i], (unsigned char)i);
    give(0, MANY);
    quarry_trim(0);
    CHECK_EQ(mine()->depot_bytes, 0);
    CHECK_EQ(blocks_out(mine()), 0);
    verify_all();
}
TEST(in_order) { bounded_in_order(false); }
TEST(against_the_order) { bounded_in_order(true); }

TEST(trays_are_used_again) {
    size_t bytes = 0;
    for (int round = 0; round < 20; round++) {
        get(0, MANY, SIZE);
        give(0, MANY);
        CHECK_GT(shelved(mine(), CLASS), 4 * QY_DEPOT_NODE_LISTS);
        verify_all();
        quarry_trim(0);
        CHECK_EQ(shelved(mine(), CLASS), 0);
        verify_all();
        if (round == 2) bytes = qy_meta_bytes();
    }
    CHECK_EQ(qy_meta_bytes(), bytes);
}

// Of several classes, the one that has as many lists as there is place for leaves the rest to others.
TEST(shelf_is_full) {
    enum { N = 100000 };
    static void *p[N];
    quarry_trim(0);
    for (size_t i = 0; i < N; i++) CHECK(p[i * 7919 % N] = quarry_malloc(128));
    uint32_t most = 0;
    for (size_t i = 0; i < N; i++) {
        quarry_free(p[i]);
        most = qy_max(most, shelved(mine(), 8));
        if (i % 10000 == 0) verify(mine());
    }
    CHECK_EQ(most, 15);
    quarry_trim(0);
    CHECK_EQ(blocks_out(mine()), 0);
    verify_all();
}

TEST(home_before_a_new_slab) {
    fill_depot();
    size_t held = mine()->slab_bytes;
    // A class that the heap has no slab of.
    unsigned other = qy_class_fine(640);
    CHECK_EQ(mine()->bins[other].nslabs, 0);
    void *p = quarry_malloc(640);
    CHECK(p);
    CHECK_EQ(mine()->depot_bytes, 0);
    CHECK_LE(mine()->slab_bytes, held + 64 * 1024);
    verify_all();
    quarry_free(p);
    empty_all();
}

TEST(counted_as_free) {
    quarry_stats_t before = stats_add_up();
    fill_depot();
    quarry_stats_t st = stats_add_up();
    CHECK_EQ(mine()->depot_bytes, 0);
    CHECK_EQ(st.live_blocks, before.live_blocks + MANY - 3000);
    empty_all();
}

static void *takes_over(void *arg) {
    (void)arg;
    fill_depot();
    give(0, MANY - 3000);
    return mine();
}
TEST(end_of_a_thread) {
    pthread_t t;
    void *heap;
    CHECK_EQ(pthread_create(&t, NULL, takes_over, NULL), 0);
    CHECK_EQ(pthread_join(t, &heap), 0);
    qy_heap_t *h = heap;
    CHECK_EQ(h->depot_bytes, 0);
    CHECK_EQ(blocks_out(h), 0);
    verify_all();
}

TEST(without_a_cache) {
    fill_depot();
    qy_opts.tcache = false;
    qy_thread_options_changed();
    CHECK_EQ(mine()->depot_bytes, 0);
    CHECK_EQ(blocks_out(mine()), MANY - 3000);
    qy_opts.tcache = true;
    qy_thread_options_changed();
    empty_all();
}

static void free_again(void *p) { quarry_free(p); }
static void written_to(void *p) {
    memset(p, 7, 8);
    get(MANY - 3000, MANY, SIZE);
}
TEST(faults_are_seen) {
    fill_depot();
    void *first = mine()->depot->stack[CLASS].top->list[0], *inside = qy_link_next(first);
    must_die(free_again, inside, "double free");
    must_die(written_to, inside, "written to");
    empty_all();
}

TEST(random_calls) {
    enum { SLOTS = 4000 };
    static struct {
        unsigned char *p;
        size_t n;
    } slot[SLOTS];
    static const size_t sizes[] = {16, 48, 200, 256, 700, 1024, 1500, 5000, 20000};
    uint64_t seed = 1;
    bool used = false;
    for (size_t turn = 0; turn < 400000; turn++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        // Mostly mallocs for a while, then mostly frees.
        bool grow = (turn / 20000) % 2 == 0 ? (seed >> 33) % 8 != 0 : (seed >> 33) % 8 == 0;
        size_t i = (seed >> 40) % SLOTS;
        if (grow && !slot[i].p) {
            slot[i].n = sizes[(seed >> 20) % 9];
            CHECK(slot[i].p = quarry_malloc(slot[i].n));
            slot[i].p[0] = slot[i].p[slot[i].n - 1] = (unsigned char)i;
        } else if (!grow && slot[i].p) {
            CHECK_EQ(slot[i].p[0], (unsigned char)i);
            CHECK_EQ(slot[i].p[slot[i].n - 1], (unsigned char)i);
            quarry_free(slot[i].p);
            slot[i].p = NULL;
        }
        used |= mine()->depot_bytes != 0;
        if (turn % 20000 == 0) verify_all();
    }
    CHECK(used);
    for (size_t i = 0; i < SLOTS; i++) quarry_free(slot[i].p);
    quarry_trim(0);
    CHECK_EQ(blocks_out(mine()), 0);
    verify_all();
}

TEST_MAIN()
