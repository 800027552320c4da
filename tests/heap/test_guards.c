// SPDX-License-Identifier: MIT
// Guarded blocks of the heap: which requests get one, what they are to malloc's family, how much memory they take, and
// who else writes the sampler's control word. Faults at them are in tests/death/test_guarded.c.
//
// The option is guard:1, so each request of 24 bytes or more is drawn, but for one in 10^10.
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "heap/draw.h"
#include "heap/guards.h"
#include "heap/guards_choice.h"
#include "heap/samples.h"
#include "heap/sized.h"
#include "heap_test.h"
#include "os/guard.h"
#include "rt/stats_page.h"

#define PAGE qy_os_page_size()
#define RICH (INT64_MAX / 2)

static void *volatile sink;

// As much time as there is, or just so many guards; none is earned.
static void credit(int64_t guards) {
    qy_guards_credit.one_in = UINT32_MAX;
    atomic_store(&qy_guards_credit.ns, guards < RICH ? guards * QY_GUARDS_COST_NS : RICH);
}

static bool is_guarded(const void *p) { return qy_lookup_is_guarded(p) && qy_lookup(p).kind == QY_OBJECT_GUARDED; }
static size_t live_guards(void) {
    size_t blocks, bytes;
    qy_guards_live(&blocks, &bytes);
    return blocks;
}

// ---- the choice ---------------------------------------------------------------------------------------------

// A site that has 999 of 1,000 draws, and one that has the other. There is time for one guard in 100 draws. How many
// draws of the rare site it takes until one is guarded.
static unsigned until_guarded(uint64_t *random, bool blind) {
    uint32_t hot = (uint32_t)test_random(random) | 1, rare = hot + 2;
    credit(QY_GUARDS_START);
    unsigned phase = (unsigned)(test_random(random) % 1000), met = 0;
    for (unsigned draw = 0;; draw++) {
        bool is_rare = draw % 1000 == phase && draw > 1000;
        if (test_random(random) % 100 == 0 && atomic_load(&qy_guards_credit.ns) < QY_GUARDS_SAVED * QY_GUARDS_COST_NS)
            atomic_fetch_add(&qy_guards_credit.ns, QY_GUARDS_COST_NS);
        // Blind is whoever does not know that a site was met before.
        uint32_t site = blind ? (uint32_t)test_random(random) | 1 : is_rare ? rare
                                                                            : hot;
        qy_guards_turn_t turn;
        bool chosen = qy_guards_choose(site, 0, 1 << 18, &turn);
        if (chosen) qy_guards_chosen(&turn);
        met += is_rare;
        if (is_rare && chosen) return met;
    }
}

TEST(a_rare_site_has_its_guard_at_its_first_draw) {
    uint64_t random = test_seed, blind = 0;
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(until_guarded(&random, false), 1);
        blind += until_guarded(&random, true);
    }
    // One in a hundred draws has one: on average the hundredth. Less than 40 is one in 10^6.
    CHECK_GE(blind / 40, 40);
    credit(RICH);
}

TEST(a_site_waits_twice_as_long_each_time) {
    uint32_t site = 77777;
    qy_guards_turn_t turn;
    unsigned gaps[6], last = 0, n = 0;
    for (unsigned draw = 1; n < 6; draw++) {
        // There is time for those that are due, and for no more.
        credit(QY_GUARDS_SAVED / 2);
        if (!qy_guards_choose(site, 0, 1 << 18, &turn)) continue;
        CHECK_EQ(turn.side, n % 2 ? QY_GUARD_BEFORE : QY_GUARD_BEHIND);
        qy_guards_chosen(&turn);
        gaps[n++] = draw - last;
        last = draw;
    }
    for (unsigned i = 1; i < 6; i++) CHECK_EQ(gaps[i], 1u << i);
    // With time for all, each.
    credit(RICH);
    for (int i = 0; i < 10; i++) {
        CHECK(qy_guards_choose(site, 0, 1 << 18, &turn));
        qy_guards_chosen(&turn);
    }
    // Pages are divided likewise.
    CHECK(!qy_guards_choose(site, 150000, 1 << 18, &turn));
    for (int i = 0; i < 5000; i++) qy_guards_choose(site + 2, 1 << 18, 1 << 18, &turn);
    CHECK(qy_guards_choose(site, 150000, 1 << 18, &turn));
    CHECK(!qy_guards_choose(site, 200000, 1 << 18, &turn));
    CHECK(qy_guards_choose(site + 4, 200000, 1 << 18, &turn));
}

TEST(frames_make_a_site) {
    uintptr_t a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, b[] = {1, 2, 3, 4, 5, 6, 7, 8, 10}, c[] = {1, 2, 4};
    CHECK_EQ(qy_guards_site(a, 9, 10), qy_guards_site(b, 9, 20));
    CHECK_NE(qy_guards_site(a, 3, 10), qy_guards_site(c, 3, 10));
    CHECK_NE(qy_guards_site(a, 0, 10), qy_guards_site(a, 0, 20));
}

// ---- malloc's family ----------------------------------------------------------------------------------------

TEST(a_block_ends_at_its_guard) {
    credit(RICH);
    static const size_t sizes[] = {24, 32, 33, 100, 1000, 4096, 5000, 32768};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = quarry_malloc(sizes[i]);
        CHECK(is_guarded(p));
        CHECK_EQ(quarry_usable_size(p), qy_round_up(sizes[i], 16));
        CHECK_EQ((uintptr_t)p % 16, 0);
        memset(p, 1, quarry_usable_size(p));
        bool behind = (uintptr_t)(p + quarry_usable_size(p)) % PAGE == 0, before = (uintptr_t)p % PAGE == 0;
        CHECK(behind || before);
        if (behind) CHECK(!qy_os_readable(p + quarry_usable_size(p)));
        if (before) CHECK(!qy_os_readable(p - 8));
        quarry_free(p);
        CHECK(!qy_os_readable(p));
    }
    CHECK_EQ(live_guards(), 0);
    void *p = quarry_malloc(40000);
    CHECK(p && !qy_lookup_is_guarded(p));
    quarry_free(p);
}

TEST(zeroed_and_aligned) {
    credit(RICH);
    for (int i = 0; i < 50; i++) {
        unsigned char *p = quarry_calloc(7, 90);
        CHECK(is_guarded(p) && is_zero(p, 630));
        memset(p, 0xff, 630);
        quarry_free(p);
        p = quarry_aligned_alloc((size_t)16 << i % 9, 100);
        CHECK_EQ((uintptr_t)p % ((size_t)16 << i % 9), 0);
        CHECK(is_guarded(p));
        memset(p, 0xff, 100);
        quarry_free_aligned_sized(p, (size_t)16 << i % 9, 100);
    }
    CHECK_EQ(live_guards(), 0);
}

TEST(resized_across) {
    credit(RICH);
    for (int i = 0; i < 20; i++) {
        credit(RICH);
        char *p = quarry_malloc(300);
        CHECK(is_guarded(p));
        fill(p, 0, 300, 1);
        credit(0);
        char *q = quarry_realloc(p, 500);  // to the heap
        CHECK(q != p && !qy_lookup_is_guarded(q));
        check_filled(q, 0, 300, 1);
        CHECK(!qy_os_readable(p));
        credit(RICH);
        p = quarry_realloc(q, 5000);  // and back
        CHECK(is_guarded(p));
        check_filled(p, 0, 300, 1);
        q = quarry_realloc(p, 200);  // from one to another, however small the change
        CHECK(is_guarded(q) && q != p);
        check_filled(q, 0, 200, 1);
        CHECK(!qy_os_readable(p));
        CHECK(!quarry_realloc(q, 0));
        CHECK(!qy_os_readable(q));
    }
    CHECK_EQ(live_guards(), 0);
}

static void sized_wrongly(void *p) { qy_sized_check(p, 1, 200); }
static void freed_by_another_heap(void *p) {
    quarry_heap_t *h = quarry_heap_create(NULL);
    quarry_heap_free(h, p);
}
TEST(other_checks_know_it) {
    credit(RICH);
    void *p = quarry_malloc(100);
    CHECK(is_guarded(p));
    must_die(sized_wrongly, p, "quarry: wrong size: ");
    must_die(freed_by_another_heap, p, "quarry: block of another heap: ");
    quarry_free_sized(p, 100);
}

TEST(sums_stay_true) {
    credit(0);
    void *other = quarry_malloc(100);
    CHECK(other);
    quarry_stats_t before = stats_add_up(), after;
    credit(RICH);
    void *p = quarry_malloc(100), *q = quarry_malloc(5000);
    CHECK(is_guarded(p) && is_guarded(q));
    after = stats_add_up();
    CHECK_EQ(after.live_blocks, before.live_blocks + 2);
    CHECK_EQ(after.live_bytes, before.live_bytes + qy_round_up(100, PAGE) + qy_round_up(5000, PAGE));
    CHECK_EQ(after.mapped_bytes - before.mapped_bytes, after.live_bytes - before.live_bytes);
    quarry_free(p);
    quarry_free(q);
    after = stats_add_up();
    CHECK_EQ(after.live_bytes, before.live_bytes);
    CHECK_EQ(after.mapped_bytes, before.mapped_bytes);
    quarry_free(other);
}

// ---- memory -------------------------------------------------------------------------------------------------

// Exact, other than what /proc/self/status says.
static size_t anonymous_kib(void) {
    static char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nAnonymous:");
    return line ? strtoul(line + 11, NULL, 10) : 0;
}

// Another call stack for each number.
QY_NOINLINE static void *deep(unsigned path, size_t n, void *(*get)(size_t n)) {
    void *p = path == 0 ? get(n) : path % 2 ? deep(path / 2, n, get)
                                            : deep(path / 2 - 1, n, get);
    __asm__ volatile("" ::
                         : "memory");
    return p;
}

static void many_sites(void *unused) {
    (void)unused;
    credit(RICH);
    static void *p[4096];
    // What the heap itself has for so many blocks is there before.
    for (size_t i = 0; i < 4096; i++) p[i] = quarry_malloc(1);
    for (size_t i = 0; i < 4096; i++) quarry_free(p[i]);
    memset(p, 0, sizeof p);
    size_t before = anonymous_kib();
    CHECK_GT(before, 0);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 4096; i++) {
            quarry_free(p[i]);
            p[i] = deep(i, 1 + i % 8 * 16, quarry_malloc);
            if (is_guarded(p[i])) memset(p[i], 1, quarry_usable_size(p[i]));
        }
    }
    size_t blocks, bytes;
    qy_guards_live(&blocks, &bytes);
    CHECK_GE(blocks, 30);
    CHECK_LE(bytes, (size_t)256 << 10);
    size_t heap = 1024;  // KiB: for 4,096 blocks of up to 128 bytes that are not guarded
    CHECK_LE(anonymous_kib(), before + 512 + heap);
    // All other blocks go, and their pages; what is left is of guards.
    credit(0);
    for (unsigned i = 0; i < 4096; i++)
        if (!is_guarded(p[i])) quarry_free(p[i]);
    quarry_trim(0);
    CHECK_LE(anonymous_kib(), before + 512);
}
TEST(all_of_it_is_half_a_mebibyte) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they have memory of their own for ours");
    if (!anonymous_kib()) TEST_SKIP("this kernel has no smaps_rollup");
    if (PAGE > 4096) TEST_SKIP("tables are of whole pages: the limit is for pages of 4 KiB");
    run_apart(many_sites, NULL);
}

// ---- who else writes the control word -----------------------------------------------------------------------

static uint64_t control_word(void) { return __atomic_load_n(&qy_stats_sampler.control, __ATOMIC_RELAXED); }
static void control(uint64_t word) { __atomic_store_n(&qy_stats_sampler.control, word, __ATOMIC_RELAXED); }
static void allocate_some(void) {
    for (int i = 0; i < 100; i++) {
        sink = quarry_malloc(50);
        quarry_free(sink);
    }
}

static uint64_t of_kind(uint32_t what, uint64_t from, const void *p) {
    const quarry_stats_page_event_t *events = (const void *)(uintptr_t)qy_stats_sampler.events_at;
    uint64_t n = 0;
    for (; from < qy_stats_sampler.events; from++) {
        const quarry_stats_page_event_t *e = &events[from % qy_stats_sampler.event_rows];
        n += e->what == what && e->address == (uintptr_t)p;
    }
    return n;
}

TEST(nothing_is_told_while_nobody_reads) {
    CHECK_EQ(control_word(), QY_DRAW_GUARDS | QY_DRAW_ON);
    allocate_some();
    CHECK_EQ(qy_stats_sampler.events, 0);
    CHECK_EQ(qy_stats_sampler.events_at, 0);
}

TEST(a_reader_comes_and_goes) {
    for (uint64_t serial = 1; serial <= 5; serial++) {
        credit(RICH);
        control(serial << 8 | QY_DRAW_ON);
        uint64_t from = qy_stats_sampler.events;
        void *p = quarry_malloc(200);
        CHECK(is_guarded(p));
        CHECK_EQ(of_kind(QUARRY_STATS_PAGE_EVENT_BIRTH, from, p), 1);
        // The other half of the samples, without time for a guard.
        credit(0);
        void *q = quarry_malloc(200);
        CHECK(!qy_lookup_is_guarded(q));
        CHECK_EQ(of_kind(QUARRY_STATS_PAGE_EVENT_BIRTH, from, q), 1);
        // It leaves without a word of guards, as readers that know of none do.
        control(0);
        credit(RICH);
        allocate_some();
        CHECK_EQ(control_word(), qy_draw_usual());
        CHECK(control_word() & QY_DRAW_GUARDS);
        void *more = quarry_malloc(300);
        CHECK(is_guarded(more));
        CHECK_EQ(of_kind(QUARRY_STATS_PAGE_EVENT_BIRTH, from, more), 0);
        quarry_free(more);
        quarry_free(p);
        quarry_free(q);
        CHECK_EQ(of_kind(QUARRY_STATS_PAGE_EVENT_DEATH, from, p), 1);
        CHECK_EQ(of_kind(QUARRY_STATS_PAGE_EVENT_DEATH, from, q), 1);
        CHECK_EQ(atomic_load(&qy_samples_live), 0);
    }
}

TEST(a_reader_that_was_killed_leaves_guards) {
    atomic_store(&qy_os_fake_now, qy_os_now_ns());
    __atomic_store_n(&qy_stats_sampler.lease, 4711, __ATOMIC_RELAXED);
    control(99 << 8 | QY_DRAW_ON);
    credit(RICH);
    allocate_some();
    CHECK_EQ(control_word(), 99 << 8 | QY_DRAW_ON);
    atomic_fetch_add(&qy_os_fake_now, QUARRY_STATS_PAGE_SAMPLER_LEASE_NS + 1);
    allocate_some();
    CHECK_EQ(control_word(), qy_draw_usual());
    atomic_store(&qy_os_fake_now, 0);
}

// ---- fork ---------------------------------------------------------------------------------------------------

static void in_child(void *p) {
    CHECK(is_guarded(p));
    check_filled(p, 0, 200, 3);
    CHECK_EQ(control_word(), qy_draw_usual());
    void *q = quarry_malloc(200);
    CHECK(is_guarded(q) && q != p);
    quarry_free(p);
    CHECK(!qy_os_readable(p));
    quarry_free(q);
}
TEST(a_child_has_its_parents) {
    credit(RICH);
    for (int i = 0; i < 5; i++) {
        void *p = quarry_malloc(200);
        CHECK(is_guarded(p));
        fill(p, 0, 200, 3);
        run_apart(in_child, p);
        check_filled(p, 0, 200, 3);
        quarry_free(p);
    }
}

// ---- threads ------------------------------------------------------------------------------------------------

enum { THREADS = 4,
    BLOCKS = 64 };
static _Atomic(unsigned char *) shared[BLOCKS];

static void *works(void *seed) {
    uint64_t random = test_seed + (uintptr_t)seed;
    for (int i = 0; i < 3000; i++) {
        size_t n = 1 + test_random(&random) % 600;
        unsigned char *p = test_random(&random) % 2 ? quarry_malloc(n) : quarry_calloc(1, n), value = (unsigned char)n;
        CHECK(p);
        if (test_random(&random) % 4 == 0) {
            n = 1 + test_random(&random) % 600;
            p = quarry_realloc(p, n);
            value = (unsigned char)n;
        }
        memset(p, value, n);
        CHECK_GE(quarry_usable_size(p), n);
        // Each is freed by whoever comes.
        p = atomic_exchange(&shared[test_random(&random) % BLOCKS], p);
        if (p) quarry_free(p);
        if (i % 64 == 0) {
            quarry_stats_t st;
            quarry_stats_read(&st);
        }
    }
    return NULL;
}

static void work_together(void *unused) {
    (void)unused;
    credit(RICH);
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, works, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < BLOCKS; i++) quarry_free(atomic_exchange(&shared[i], NULL));
    CHECK_EQ(live_guards(), 0);
    qy_guard_stats_t stats;
    qy_guard_get_stats(&stats);
    CHECK_GT(stats.made, 1000);
    verify_all();
}
// Apart: so many draws in a second make the next ones rarer.
TEST(threads_free_each_others) { run_apart(work_together, NULL); }

// ---- without ------------------------------------------------------------------------------------------------

TEST(a_kernel_that_refuses_makes_none) {
    credit(RICH);
    quarry_os_fault(1, 1, FAULT(ADVISE) | FAULT(COMMIT));
    void *p = quarry_malloc(100);
    quarry_os_fault(0, 0, 0);
    CHECK(p && !qy_lookup_is_guarded(p));
    quarry_free(p);
}

// The last: there are none from here on.
TEST(denied_is_denied) {
    void *p = quarry_malloc(100);
    CHECK(is_guarded(p));
    qy_guards_deny();
    CHECK_EQ(control_word(), 0);
    allocate_some();
    CHECK_EQ(control_word(), 0);
    CHECK(!qy_lookup_is_guarded(sink));
    quarry_free(p);
    CHECK(!qy_os_readable(p));
}

TEST_MAIN()
