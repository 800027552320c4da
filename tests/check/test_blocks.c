// SPDX-License-Identifier: MIT
// test_blocks.c: what is known of blocks while threads allocate and free them and others look: each live block is
// found by every address in it, records are counted right, and no error is reported that is none.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check/block.h"
#include "check/evidence.h"
#include "check/options.h"
#include "check/quarantine.h"
#include "check/records.h"
#include "check/zone.h"
#include "harness.h"
#include "os/os.h"

enum { THREADS = 4,
    HELD = 300,
    STEPS = 60000 };

static const qy_check_call_t call = {.function = "test"};
static void *get(size_t n) { return qy_check_alloc(&call, 16, n, 0); }
static void put(void *p) { qy_check_free(&call, p, NULL); }

// Small ones most, of all classes, runs, and objects that are a mapping.
static size_t size_of(uint64_t chance) {
    switch (chance % 64) {
    case 0: return chance / 64 % (3 << 20);
    case 1:
    case 2: return chance / 64 % 200000;
    case 3 ... 10: return chance / 64 % 20000;
    default: return chance / 64 % 700;
    }
}

static void check_known(char *p, size_t n) {
    qy_check_block_t b;
    CHECK(qy_check_find((uintptr_t)p, &b));
    CHECK(b.address == (uintptr_t)p && b.size == n && !b.freed);
    CHECK(qy_check_find((uintptr_t)p + n, &b));
    CHECK(b.address == (uintptr_t)p && b.size == n);
    CHECK(qy_check_find((uintptr_t)p + n / 2, &b));
    CHECK(b.address == (uintptr_t)p);
}

static _Atomic(char *) passed[64];  // from thread to thread

static void *work(void *arg) {
    uint64_t state = test_seed + (uintptr_t)arg * 7919;
    char *held[HELD] = {0};
    size_t size[HELD];
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t chance = test_random(&state);
        unsigned i = (unsigned)(chance % HELD);
        if (held[i]) {
            check_known(held[i], size[i]);
            held[i] = chance >> 20 & 1 ? atomic_exchange(&passed[chance >> 30 & 63], held[i]) : held[i];
            put(held[i]);
            held[i] = NULL;
        } else {
            size[i] = size_of(test_random(&state));
            held[i] = get(size[i]);
            if (size[i]) held[i][0] = held[i][size[i] - 1] = (char)step;
        }
    }
    for (unsigned i = 0; i < HELD; i++) put(held[i]);
    return NULL;
}

static _Atomic bool over;
static bool see(const qy_check_block_t *b, void *arg) {
    *(size_t *)arg += b->size;
    return true;
}
static void *look(void *arg) {
    while (!atomic_load(&over)) {
        size_t bytes = 0;
        qy_check_each_live(see, &bytes);
        sched_yield();
    }
    return arg;
}

typedef struct freed {
    uint64_t *blocks, *bytes;
} freed_t;
static bool see_freed(const qy_check_place_t *place, void *arg) {
    freed_t *f = arg;
    bool waits = qy_check_state_of(qy_check_word(place->record)) == QY_CHECK_FREED;
    *f->blocks += waits;
    *f->bytes += waits ? place->room : 0;
    return true;
}

TEST(threads) {
    size_t before = qy_check_live_bytes();
    qy_check_options.quarantine = (uint64_t)1 << 20;
    qy_check_options.abort = true;  // at the first error that is none
    pthread_t t[THREADS], looker;
    CHECK_EQ(pthread_create(&looker, NULL, look, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, work, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    atomic_store(&over, true);
    CHECK_EQ(pthread_join(looker, NULL), 0);
    for (unsigned i = 0; i < 64; i++) put(atomic_exchange(&passed[i], NULL));
    qy_check_blocks_sweep();
    const char *wrong = qy_check_records_wrong();
    if (wrong) TEST_FAIL("%s", wrong);
    size_t live = 0;
    qy_check_each_live(see, &live);
    CHECK_EQ(live, 0);
    qy_check_quarantine_stats_t waiting = qy_check_quarantine_stats();
    CHECK(waiting.bytes <= ((size_t)1 << 20) + THREADS * ((size_t)4 << 20));
    // What each thread counted for itself is all there, also of threads that have ended.
    CHECK_EQ(qy_check_live_bytes(), before);
    uint64_t blocks = 0, bytes = 0;
    freed_t freed = {&blocks, &bytes};
    qy_check_each_place(see_freed, &freed);
    CHECK_EQ(waiting.blocks, blocks);
    CHECK_EQ(waiting.bytes, bytes);
}

// More threads than have accounts of their own. Each frees less than a round.
static void *free_few(void *arg) {
    for (unsigned i = 0; i < 5; i++) put(get(100 + i));
    return arg;
}
TEST(many_threads) {
    size_t before = qy_check_live_bytes();
    uint64_t blocks = qy_check_quarantine_stats().blocks + qy_check_quarantine_stats().passed;
    for (unsigned i = 0; i < 3 * QY_CHECK_ACCOUNTS; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, free_few, NULL), 0);
        CHECK_EQ(pthread_join(t, NULL), 0);
    }
    CHECK_EQ(qy_check_live_bytes(), before);
    CHECK_EQ(qy_check_quarantine_stats().blocks + qy_check_quarantine_stats().passed,
        blocks + 15 * QY_CHECK_ACCOUNTS);
}

#if defined(__SANITIZE_THREAD__)
#define STEP ((size_t)31 << 10)  // it takes hundreds of times as long there
#else
#define STEP ((size_t)9 << 10)
#endif

// Sheets that nobody uses are looked for when there are many. A block may reach into a unit in which no other is.
TEST(long_blocks_stay_known) {
    enum { LONG = 40,
        SHORT = 400000 };
    static char *p[LONG], *q[SHORT];
    qy_check_options.quarantine = 1 << 16;
    for (size_t n = 17 << 10; n < 80 << 10; n += STEP) {
        for (size_t i = 0; i < LONG; i++) CHECK(p[i] = get(n));
        for (size_t i = 0; i < LONG; i++)
            if (i % 3) put(p[i]);
        for (size_t i = 0; i < SHORT; i++) CHECK(q[i] = get(1 + i % 16));
        for (size_t i = 0; i < SHORT; i++) put(q[i]);
        for (size_t i = 0; i < LONG; i += 3) {
            for (size_t at = 0; at < n; at += 1 << 10) {
                qy_check_block_t b;
                CHECK(qy_check_find((uintptr_t)p[i] + at, &b));
                CHECK(b.address == (uintptr_t)p[i] && b.size == n && !b.freed);
            }
            check_known(p[i], n);
            put(p[i]);
        }
    }
    const char *wrong = qy_check_records_wrong();
    if (wrong) TEST_FAIL("%s", wrong);
}

// Each byte of the slack, and each value that differs.
TEST(canary_bytes) {
    qy_check_zone_begin();
    _Alignas(16) unsigned char room[128];
    for (size_t n = 0; n <= sizeof room - QY_CHECK_ZONE; n++) {
        memset(room, 'x', sizeof room);
        qy_check_zone_make((uintptr_t)room, n, sizeof room);
        CHECK_EQ(qy_check_zone_look((uintptr_t)room, n, sizeof room).last, 0);
        CHECK(qy_check_zone_is_good((uintptr_t)room, n, sizeof room));
        for (size_t i = 0; i < n; i++) CHECK_EQ(room[i], 'x');
        unsigned zeros = 0;
        for (size_t i = n; i < sizeof room; i++) {
            zeros += room[i] == 0;
            room[i] ^= 0x10;
            qy_check_damage_t d = qy_check_zone_look((uintptr_t)room, n, sizeof room);
            CHECK(d.first == i && d.last == i + 1);
            CHECK(!qy_check_zone_is_good((uintptr_t)room, n, sizeof room));
            CHECK(i < sizeof room - 16 || !qy_check_zone_end_is_good((uintptr_t)room, n, sizeof room));
            room[i] ^= 0x10;
        }
        CHECK(zeros == 1 && room[n] != 0);
        qy_check_zone_mend((uintptr_t)room, n, sizeof room);
        CHECK_EQ(qy_check_zone_look((uintptr_t)room, n, sizeof room).last, 0);
    }
}

TEST(fill_bytes) {
    static _Alignas(16) unsigned char room[65536 + 16];
    for (size_t n = 0; n <= 65536; n = n < 200 ? n + 1 : n * 2 + n % 7) {
        memset(room, 'x', sizeof room);
        qy_check_fill((uintptr_t)room, n);
        CHECK_EQ(qy_check_fill_look((uintptr_t)room, n).last, 0);
        CHECK(qy_check_fill_is_good((uintptr_t)room, n));
        for (size_t i = n; i < n + 16; i++) CHECK_EQ(room[i], 'x');
        for (size_t i = 0; i < n; i += n <= 16384 ? 1 + n / 200 : n - 1) {
            room[i] ^= 1;
            qy_check_damage_t d = qy_check_fill_look((uintptr_t)room, n);
            CHECK(d.first == i && d.last == i + 1);
            CHECK(!qy_check_fill_is_good((uintptr_t)room, n));
            room[i] ^= 1;
        }
    }
}

TEST_MAIN()
