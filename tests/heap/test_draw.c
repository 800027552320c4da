// SPDX-License-Identifier: MIT
// The sampler: each call site is sampled by the probability that its sizes have, however its blocks come and go; the
// heap is the same with it as without; and what is wrong with a free block is found as ever.
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>

#include "heap/draw.h"
#include "heap/samples.h"
#include "heap_test.h"
#include "resident.h"
#include "rt/stats_page.h"
#include "stacks/stacks_thread.h"
#include "stacks/unwind_rules.h"

#define RATE 12  // a point in 4 KiB

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }

static void control(uint64_t word) {
    static uint64_t serial;
    __atomic_store_n(&qy_stats_sampler.control, word ? word | ++serial << 8 : 0, __ATOMIC_RELAXED);
}
static void on(unsigned rate) {
    control(QY_DRAW_ON | rate);
    qy_draw_look(qy_thread_get());
}
static void off(void) {
    control(0);
    qy_draw_look(qy_thread_get());
}

static bool is_sampled(const void *p) {
    qy_slab_t *s = span_of(p);
    return s && s->kind == QY_SPAN_SLAB && qy_samples_are_in(atomic_load(&s->heap));
}

static const quarry_stats_page_event_t *newest(void) {
    const quarry_stats_page_event_t *events = (const void *)(uintptr_t)qy_stats_sampler.events_at;
    return &events[(qy_stats_sampler.events - 1) % qy_stats_sampler.event_rows];
}
// Since there were `before` events, was the block at p sampled?
static bool was_sampled(uint64_t before, const void *p) {
    const quarry_stats_page_event_t *events = (const void *)(uintptr_t)qy_stats_sampler.events_at;
    for (uint64_t i = before; i < qy_stats_sampler.events; i++) {
        const quarry_stats_page_event_t *e = &events[i % qy_stats_sampler.event_rows];
        if (e->what == QUARRY_STATS_PAGE_EVENT_BIRTH && e->address == (uintptr_t)p) return true;
    }
    return false;
}

// Their chains are made longer and shorter while they live.
TEST(thousands_live_at_once) {
    enum { MANY = 5000 };
    static void *p[MANY];
    rng = test_seed;
    on(4);  // a point in 16 bytes: all are sampled
    uint32_t before = atomic_load(&qy_samples_live);
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < MANY; i++) {
            CHECK(p[i] = quarry_malloc(1000));
            CHECK(is_sampled(p[i]));
            if (i % 3 == 2) {  // and some go meanwhile
                size_t other = below(i);
                quarry_free(p[other]);
                CHECK(p[other] = quarry_malloc(1000));
            }
            CHECK_EQ(atomic_load(&qy_samples_live), before + i + 1);
        }
        for (size_t left = MANY; left; left--) {
            size_t i = below(left);
            quarry_free(p[i]);
            p[i] = p[left - 1];
            CHECK_EQ(atomic_load(&qy_samples_live), before + left - 1);
        }
    }
    off();
    verify_all();
}

// A fault of a page costs as much as 50 pairs of malloc and free: the first samples must not touch a table each.
static void touch_little(void *unused) {
    (void)unused;
    static void *p[1000];
    on(8);
    for (size_t i = 0; i < 1000; i++) CHECK(p[i] = quarry_malloc(100));
    CHECK_GT(atomic_load(&qy_samples_live), 200);
    const quarry_stats_page_sampler_t *s = &qy_stats_sampler;
    size_t tables = s->event_rows * s->event_bytes + s->live_rows * (s->live_bytes + 2 * sizeof(uint32_t));
    CHECK_LE(resident_pages((const void *)(uintptr_t)s->events_at, tables), 12);
    CHECK_LE(resident_pages(qy_rules.sets, qy_rules.mask + sizeof *qy_rules.sets), 16);
    CHECK_LE(resident_pages(qy_tree.heads, sizeof *qy_tree.heads << (64 - qy_tree.shift)), 4);
    CHECK_LE(resident_pages(atomic_load(&qy_stack_thread_self), sizeof(qy_stack_thread_t)), 12);
    for (size_t i = 0; i < 1000; i++) quarry_free(p[i]);
    off();
}
TEST(a_short_program_touches_little) { run_apart(touch_little, NULL); }

// ---- sites ----------------------------------------------------------------------------------------------

typedef struct site {
    size_t calls, sampled;
    double mean, variance;
} site_t;

static void count(site_t *s, size_t n, unsigned rate, bool sampled) {
    double p = -expm1(-ldexp((double)n, -(int)rate));
    s->calls++;
    s->sampled += sampled;
    s->mean += p;
    s->variance += p * (1 - p);
}

static void *ask(site_t *s, size_t n) {
    void *p = quarry_malloc(n);
    CHECK(p);
    count(s, n, RATE, is_sampled(p));
    return p;
}

// How likely is a sum of independent calls this far from its mean? At most exp(-this), by Bennett's inequality. A
// normal distribution says the same where the variance is large. Where nearly every call is sampled, one that is not
// lies many sigmas away and is no wonder.
static double wonder(double distance, double variance) {
    double v = variance + 1e-9, u = fabs(distance) / v;
    return v * ((1 + u) * log1p(u) - u);
}
#define WONDER 20.0  // 2e-9, as six sigmas

static void is_right(const char *name, const site_t *s) {
    double off_by = (double)s->sampled - s->mean;
    if (wonder(off_by, s->variance) > WONDER)
        TEST_FAIL("%s: %zu of %zu calls were sampled, expected %.1f: %.1f sigmas",
            name, s->sampled, s->calls, s->mean, off_by / sqrt(s->variance));
}

static void begin(void) {
    rng = test_seed;
    on(RATE);
}
static void end(void) {
    off();
    verify_all();
}

// ---- the distribution -----------------------------------------------------------------------------------

TEST(a_point_lies_anywhere) {
    static const size_t sizes[] = {1, 16, 100, 4000, 4096, 5000, 20000, 100000};
    for (unsigned rate = 0; rate <= 20; rate += 4) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            site_t s = {0};
            for (size_t k = 0; k < 20000; k++) count(&s, sizes[i], rate, qy_draw_at_once(rate, sizes[i]));
            is_right("at once", &s);
        }
    }
}

// Of many sites as many are within 1.96 sigmas as of a normal distribution.
TEST(samples_vary_as_they_should) {
    enum { SITES = 4000,
        CALLS = 850 };
    rng = test_seed;
    size_t within = 0;
    for (size_t i = 0; i < SITES; i++) {
        site_t s = {0};
        size_t n = 40 + below(60);
        for (size_t k = 0; k < CALLS; k++) count(&s, n, 9, qy_draw_at_once(9, n));
        within += fabs((double)s.sampled - s.mean) < 1.96 * sqrt(s.variance);
    }
    CHECK_GE(within, SITES * 93 / 100);
    CHECK_LE(within, SITES * 97 / 100);
    // The same of what comes from lists.
    within = 0;
    on(9);
    for (size_t i = 0; i < SITES / 4; i++) {
        site_t s = {0};
        size_t n = 40 + below(60);
        for (size_t k = 0; k < CALLS; k++) {
            void *p = quarry_malloc(n);
            CHECK(p);
            count(&s, n, 9, is_sampled(p));
            quarry_free(p);
        }
        within += fabs((double)s.sampled - s.mean) < 1.96 * sqrt(s.variance);
    }
    CHECK_GE(within, SITES / 4 * 92 / 100);
    CHECK_LE(within, SITES / 4 * 98 / 100);
    off();
    verify_all();
}

// ---- sites that use the heap in unlike ways ---------------------------------------------------------------

TEST(two_sites_share_one_block) {
    begin();
    site_t a = {0}, b = {0}, c = {0};
    for (size_t i = 0; i < 300000; i++) {
        quarry_free(ask(&a, 64));
        quarry_free(ask(&b, 50));
        if (i % 3 == 0) quarry_free(ask(&c, 64));
    }
    is_right("first", &a);
    is_right("second", &b);
    is_right("third", &c);
    end();
}

TEST(blocks_that_only_grow) {
    enum { MANY = 200000 };
    static void *p[2 * MANY];
    begin();
    site_t a = {0}, b = {0};
    for (size_t i = 0; i < MANY; i++) {
        p[2 * i] = ask(&a, 48);
        p[2 * i + 1] = ask(&b, 33);
    }
    for (size_t i = 0; i < 2 * MANY; i++) quarry_free(p[i]);
    is_right("48 bytes", &a);
    is_right("33 bytes", &b);
    end();
}

// One site has the top of the list, the other what lies deep in it.
TEST(top_and_depth_of_a_list) {
    void *p[400];
    begin();
    site_t top = {0}, deep = {0};
    for (size_t round = 0; round < 3000; round++) {
        size_t n = 1 + below(400);
        for (size_t i = 0; i < n; i++) p[i] = ask(&deep, 128);
        for (size_t i = 0; i < n; i++) quarry_free(p[i]);
        for (size_t i = 0; i < 200; i++) quarry_free(ask(&top, 128));
    }
    is_right("top", &top);
    is_right("deep", &deep);
    end();
}

// As many as a generation has, one more, one less: what was freed passes to prev, and comes back.
TEST(batches_of_a_generation) {
    void *p[600];
    begin();
    site_t first = {0}, others = {0}, last = {0};
    size_t limit = qy_class_limit[64 / 16];
    for (size_t round = 0; round < 4000; round++) {
        size_t n = limit * (1 + round % 3) + round % 5 - 2;
        for (size_t i = 0; i < n; i++) p[i] = ask(i == 0 ? &first : i == n - 1 ? &last
                                                                               : &others,
                                           64);
        for (size_t i = n; i-- > 0;) quarry_free(p[i]);
    }
    is_right("first", &first);
    is_right("others", &others);
    is_right("last", &last);
    end();
}

// The slow path gives a block to who finds the list empty.
TEST(who_finds_the_list_empty) {
    enum { MANY = 100000 };
    static void *p[MANY];
    begin();
    site_t empty = {0}, others = {0};
    for (size_t round = 0; round < 6; round++) {
        for (size_t i = 0; i < MANY; i++) {
            const qy_cache_t *cache = &qy_thread_get()->cache;
            p[i] = ask(qy_cache_list(cache, cache->cls[qy_step(1008)]) ? &others : &empty, 1000);
        }
        for (size_t i = 0; i < MANY; i++) {
            size_t j = i + below(MANY - i);
            void *q = p[j];
            p[j] = p[i];
            quarry_free(q);
        }
    }
    is_right("with an empty list", &empty);
    is_right("others", &others);
    CHECK_GT(empty.calls, 100);
    end();
}

TEST(sizes_around_the_bounds_of_classes) {
    static const size_t sizes[] = {1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1008, 1009, 1024, 1025, 1100,
        2048, 2049, 8191, 8192, 8193, 16000, 32769, 65535, 65536};
    enum { SIZES = sizeof sizes / sizeof *sizes,
        LIVE = 300 };
    void *p[LIVE] = {0};
    site_t s[SIZES] = {0};
    begin();
    for (size_t i = 0; i < 600000; i++) {
        size_t k = below(SIZES), at = below(LIVE);
        quarry_free(p[at]);
        p[at] = ask(&s[k], sizes[k]);
    }
    for (size_t i = 0; i < LIVE; i++) quarry_free(p[i]);
    for (size_t k = 0; k < SIZES; k++) {
        char name[32];
        snprintf(name, sizeof name, "%zu bytes", sizes[k]);
        is_right(name, &s[k]);
    }
    end();
}

TEST(other_ways_to_ask) {
    begin();
    site_t aligned = {0}, zeroed = {0}, grown = {0}, large = {0}, larger = {0};
    for (size_t i = 0; i < 60000; i++) {
        char *p = quarry_aligned_alloc(256, 512), *q = quarry_calloc(1, 200 + i % 2 * 5000), *r = quarry_malloc(24);
        CHECK(p && q && r);
        CHECK_EQ((uintptr_t)p % 256, 0);
        CHECK(is_zero(q, 200 + i % 2 * 5000));
        count(&aligned, 512, RATE, is_sampled(p));
        count(&zeroed, 200 + i % 2 * 5000, RATE, is_sampled(q));
        memset(q, 1, 200);
        CHECK(r = quarry_realloc(r, 700));
        count(&grown, 700, RATE, is_sampled(r));
        quarry_free(p), quarry_free(q), quarry_free(r);
    }
    on(20);
    for (size_t i = 0; i < 20000; i++) {
        uint64_t before = qy_stats_sampler.events;
        char *p = quarry_malloc(100000);
        count(&large, 100000, 20, was_sampled(before, p));
        before = qy_stats_sampler.events;
        CHECK(p = quarry_realloc(p, 300000));
        count(&larger, 300000, 20, was_sampled(before, p));
        quarry_free(p);
    }
    is_right("aligned", &aligned);
    is_right("zeroed", &zeroed);
    is_right("grown", &grown);
    is_right("large", &large);
    is_right("grown large", &larger);
    CHECK_EQ(atomic_load(&qy_samples_live), 0);
    end();
}

// ---- threads ----------------------------------------------------------------------------------------------

enum { HANDED = 2000 };
typedef struct hand {
    _Atomic(void *) p[HANDED];
    site_t site;
} hand_t;

static void *free_what_comes(void *arg) {
    hand_t *h = arg;
    for (size_t i = 0; i < 400000; i++) {
        void *p = NULL;
        TEST_AWAIT((p = atomic_exchange(&h->p[i % HANDED], NULL)));
        quarry_free(p);
    }
    return NULL;
}

TEST(all_are_freed_by_others) {
    static hand_t h;
    begin();
    pthread_t other;
    CHECK_EQ(pthread_create(&other, NULL, free_what_comes, &h), 0);
    for (size_t i = 0; i < 400000; i++) {
        void *p = ask(&h.site, 40);
        TEST_AWAIT(!atomic_load(&h.p[i % HANDED]));
        atomic_store(&h.p[i % HANDED], p);
    }
    CHECK_EQ(pthread_join(other, NULL), 0);
    is_right("freed by others", &h.site);
    CHECK_EQ(atomic_load(&qy_samples_live), 0);
    end();
}

static void *short_life(void *arg) {
    site_t *s = arg;
    void *p[100];
    for (size_t i = 0; i < 100; i++) p[i] = ask(s, 80);
    for (size_t i = 0; i < 100; i++) quarry_free(p[i]);
    return NULL;
}

// Lists are left to the heap, and taken by the next thread.
TEST(threads_that_live_shortly) {
    begin();
    site_t s = {0};
    for (size_t i = 0; i < 3000; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, short_life, &s), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    is_right("short lives", &s);
    end();
}

// ---- on, off, other rates -----------------------------------------------------------------------------------

TEST(what_is_on_the_lists_is_drawn_for) {
    rng = test_seed;
    site_t s = {0};
    void *p[300];
    for (size_t round = 0; round < 4000; round++) {
        size_t n = 1 + below(300);
        for (size_t i = 0; i < n; i++) CHECK(p[i] = quarry_malloc(96));
        for (size_t i = 0; i < n; i++) CHECK(!is_sampled(p[i]));
        for (size_t i = 0; i < n; i++) quarry_free(p[i]);
        on(RATE);
        for (size_t i = 0; i < n; i++) p[i] = ask(&s, 96);
        off();
        for (size_t i = 0; i < n; i++) quarry_free(p[i]);
    }
    is_right("just switched on", &s);
    end();
}

// A block is sampled at the rate that it was drawn at, which the sample says: so the estimates are right.
TEST(the_rate_changes) {
    rng = test_seed;
    on(10);
    double blocks = 0, variance = 0;
    size_t sampled = 0, wanted = 400000;
    for (size_t i = 0; i < wanted; i++) {
        if (i % 500 == 0) {
            unsigned rate = 9 + (unsigned)below(6);
            // the same number above: only the rate is another
            uint64_t word = (qy_stats_sampler.control & ~UINT64_C(127)) | QY_DRAW_ON | rate;
            __atomic_store_n(&qy_stats_sampler.control, word, __ATOMIC_RELAXED);
            qy_draw_look(qy_thread_get());
        }
        uint64_t before = qy_stats_sampler.events;
        void *p = quarry_malloc(112);
        CHECK(p);
        if (was_sampled(before, p)) {
            const quarry_stats_page_event_t *e = newest();
            double q = -expm1(-ldexp(112, -(int)e->rate));
            blocks += 1 / q;
            variance += (1 - q) / (q * q);
            sampled++;
            CHECK_EQ(e->bytes, 112);
            CHECK_EQ(e->address, (uintptr_t)p);
        }
        quarry_free(p);
    }
    // Each term is at most 1 / q of the rarest rate: in these units it is a sum of terms below one.
    double most = 1 / -expm1(-ldexp(112, -14)), off_by = blocks - (double)wanted;
    if (wonder(off_by / most, variance / (most * most)) > WONDER)
        TEST_FAIL("%zu samples say %.0f blocks, there were %zu", sampled, blocks, wanted);
    end();
}

// ---- the heap is as ever ------------------------------------------------------------------------------------

// Generations pass when they would without it: what is counted for the draw changes nothing in what is counted for
// them.
TEST(generations_pass_as_ever) {
    enum { LIVE = 700 };
    static void *p[LIVE];
    static const uint8_t rates[] = {0, 4, 8, 12, 20, 40};
    rng = test_seed;
    const qy_thread_t *t = qy_thread_get();
    for (size_t i = 0; i < 300000; i++) {
        if (i % 1000 == 0) {
            control(below(4) ? QY_DRAW_ON | rates[below(sizeof rates)] : 0);
            qy_draw_look(qy_thread_get());
        }
        size_t at = below(LIVE), n = 1 + below(below(20) ? 100 : 10000);
        qy_tag_t tag = p[at] ? qy_map_tag(p[at]) ^ t->cache.key : 0;
        unsigned c = p[at] && !is_sampled(p[at]) && tag < QY_CLASS_COUNT ? (unsigned)tag : 0;
        unsigned room = c ? qy_draw_room(t, c) : 0;
        quarry_free(p[at]);
        if (c) CHECK_EQ(qy_draw_room(t, c), room ? room - 1 : qy_class_limit[c]);
        CHECK(p[at] = quarry_malloc(n));
    }
    for (size_t i = 0; i < LIVE; i++) quarry_free(p[i]);
    end();
}

// ---- anything at any time -------------------------------------------------------------------------------------

enum { MODEL = 2000 };
typedef struct slot {
    unsigned char *p;
    size_t n;
    uint64_t id;
} slot_t;

static void look_through(slot_t *slot) {
    for (size_t i = 0; i < MODEL; i++)
        if (slot[i].p) check_filled(slot[i].p, 0, qy_min(slot[i].n, 300), slot[i].id);
}

static void step(slot_t *slot, uint64_t *state, uint64_t id) {
    slot_t *s = &slot[test_random(state) % MODEL];
    size_t n = 1 + test_random(state) % (test_random(state) % 40 == 0 ? 200000 : 500);
    if (s->p) check_filled(s->p, 0, qy_min(s->n, 300), s->id);
    if (s->p && test_random(state) % 3 == 0) {
        size_t kept = qy_min(qy_min(s->n, n), 300);
        CHECK(s->p = quarry_realloc(s->p, n));
        check_filled(s->p, 0, kept, s->id);
    } else {
        quarry_free(s->p);
        size_t align = (size_t)16 << test_random(state) % 8;
        CHECK(s->p = test_random(state) % 4 ? quarry_malloc(n) : quarry_aligned_alloc(align, n));
    }
    s->n = n;
    s->id = id;
    CHECK_GE(quarry_usable_size(s->p), n);
    fill(s->p, 0, qy_min(n, 300), id);
}

static void *work_at_random(void *arg) {
    uint64_t state = (uintptr_t)arg;
    slot_t *slot = quarry_calloc(MODEL, sizeof *slot);
    CHECK(slot);
    for (size_t i = 0; i < (QY_TSAN ? 15000 : 60000); i++) step(slot, &state, i);
    look_through(slot);
    for (size_t i = 0; i < MODEL; i++) quarry_free(slot[i].p);
    quarry_free(slot);
    return NULL;
}

static void switch_at_random(uint64_t *state) {
    switch (test_random(state) % 3) {
    case 0: control(0); break;
    case 1: control(QY_DRAW_ON | (test_random(state) % 22)); break;
    default: control(QY_DRAW_ON | test_random(state)); break;  // whatever may be written there
    }
}

TEST(anything_while_it_is_switched) {
    rng = test_seed;
    slot_t *slot = quarry_calloc(MODEL, sizeof *slot);
    for (size_t i = 0; i < 100000; i++) {
        step(slot, &rng, i);
        if (i % 700 == 0) switch_at_random(&rng);
        if (i % 10000 == 0) verify_all();
        if (i % 30000 == 0) quarry_trim(0);
    }
    look_through(slot);
    for (size_t i = 0; i < MODEL; i++) quarry_free(slot[i].p);
    quarry_free(slot);
    off();
    CHECK_EQ(atomic_load(&qy_samples_live), 0);
    verify_all();
}

TEST(threads_while_it_is_switched) {
    rng = test_seed;
    for (size_t round = 0; round < 3; round++) {
        pthread_t thread[4];
        for (size_t i = 0; i < 4; i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, work_at_random, (void *)(uintptr_t)(test_random(&rng) | 1)), 0);
        for (size_t i = 0; i < 300; i++) {
            switch_at_random(&rng);
            void *p = quarry_malloc(below(3000));
            quarry_free(p);
            sched_yield();
        }
        for (size_t i = 0; i < 4; i++) CHECK_EQ(pthread_join(thread[i], NULL), 0);
        verify_all();
    }
    off();
    CHECK_EQ(atomic_load(&qy_samples_live), 0);
}

TEST(children_have_their_own) {
    enum { MANY = 5000 };
    static void *p[MANY];
    begin();
    site_t s = {0};
    for (size_t i = 0; i < MANY; i++) p[i] = ask(&s, 1000);
    CHECK_GT(atomic_load(&qy_samples_live), 0);
    uint32_t live = atomic_load(&qy_samples_live);
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (!child) {
        bool wrong = qy_stats_sampler.control || atomic_load(&qy_samples_live) || qy_stats_sampler.live_at;
        for (size_t i = 0; i < MANY; i++) quarry_free(p[i]);
        wrong |= atomic_load(&qy_samples_live) != 0;
        for (size_t i = 0; i < MANY; i++) wrong |= is_sampled(p[i] = quarry_malloc(1000));
        for (size_t i = 0; i < MANY; i++) quarry_free(p[i]);
        on(RATE);
        for (size_t i = 0; i < MANY; i++) wrong |= !(p[i] = quarry_malloc(1000));
        wrong |= atomic_load(&qy_samples_live) == 0;
        for (size_t i = 0; i < MANY; i++) quarry_free(p[i]);
        wrong |= atomic_load(&qy_samples_live) != 0;
        for (qy_heap_t *h = qy_heap_first(); h; h = h->next) wrong |= qy_heap_verify(h) != NULL;
        _exit(wrong);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    CHECK_EQ(atomic_load(&qy_samples_live), live);
    for (size_t i = 0; i < MANY; i++) quarry_free(p[i]);
    CHECK_EQ(atomic_load(&qy_samples_live), 0);
    end();
}

// ---- a reader that was killed -------------------------------------------------------------------------------

static bool sampler_is_on(void) { return (qy_draw_control() & QY_DRAW_ON) != 0; }
static void lease(uint64_t number) { __atomic_store_n(&qy_stats_sampler.lease, number, __ATOMIC_RELAXED); }
// At rate 0 each block is sampled: is this one?
static bool sample_one(void) {
    void *p = quarry_malloc(100);
    bool sampled = is_sampled(p);
    quarry_free(p);
    return sampled;
}

TEST(a_lease_that_nobody_renews_ends) {
    const uint64_t TIME = QUARRY_STATS_PAGE_SAMPLER_LEASE_NS;
    qy_os_fake_now = qy_os_now_ns();  // from here on time passes where it says so
    on(0);
    CHECK(sample_one());
    qy_os_fake_now += 100 * TIME;
    CHECK(sample_one() && sampler_is_on());  // without a lease it stays on
    // Time is the process's own: it begins when a sample sees the number.
    lease(1);
    CHECK(sample_one());
    qy_os_fake_now += TIME - 1;
    CHECK(sample_one() && sampler_is_on());
    lease(2);
    qy_os_fake_now += TIME;
    CHECK(sample_one() && sampler_is_on());
    void *kept = quarry_malloc(100);
    CHECK(is_sampled(kept));
    // The end of a sample is enough.
    qy_os_fake_now += TIME;
    quarry_free(kept);
    CHECK(!sampler_is_on());
    CHECK_EQ(qy_stats_sampler.lease, 0);
    qy_draw_look(qy_thread_get());
    for (int i = 0; i < 1000; i++) sample_one();  // those that were chosen
    CHECK(!sample_one());
    // Who comes then has it as ever, and who is there in time when one goes has it too.
    lease(3);
    on(0);
    CHECK(sample_one() && sampler_is_on());
    qy_os_fake_now += 2 * TIME;
    lease(4);
    CHECK(sample_one() && sampler_is_on());
    lease(0);
    off();
    qy_os_fake_now = 0;
    verify_all();
}

// ---- what is wrong is found as ever ---------------------------------------------------------------------------

// Every free block is chosen, and every block is sampled.
static void *chosen_block(size_t n) {
    on(0);
    for (size_t i = 0; i < 200; i++) quarry_free(quarry_malloc(n));
    off();  // so that the next one is from the list
    void *p = quarry_malloc(n);
    on(0);
    return p;
}

static void free_twice(void *arg) {
    void *p = chosen_block((size_t)(uintptr_t)arg);
    quarry_free(p);
    quarry_free(p);
}
static void free_sampled_twice(void *arg) {
    on(0);
    void *p = quarry_malloc((size_t)(uintptr_t)arg);
    CHECK(is_sampled(p));
    quarry_free(p);
    quarry_free(p);
}
static void write_after_free(void *arg) {
    void *p = chosen_block((size_t)(uintptr_t)arg);
    quarry_free(p);
    memset(p, 'x', 16);
    for (size_t i = 0; i < 1000; i++)
        if (!quarry_malloc((size_t)(uintptr_t)arg)) return;
}
static void change_the_mark(void *arg) {
    qy_block_t *b = chosen_block((size_t)(uintptr_t)arg);
    quarry_free(b);
    b->mark ^= UINT64_C(1) << 40;
    for (size_t i = 0; i < 1000; i++)
        if (!quarry_malloc((size_t)(uintptr_t)arg)) return;
}
// What is drawn anew is verified first.
static void write_and_switch_on(void *arg) {
    size_t n = (size_t)(uintptr_t)arg;
    void *p = quarry_malloc(n), *q = quarry_malloc(n);
    quarry_free(p);
    quarry_free(q);
    memset(p, 'x', 16);
    on(0);
}

TEST(faults_are_found) {
    static const size_t sizes[] = {16, 64, 1000, 5000, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *n = (void *)(uintptr_t)sizes[i];
        must_die(free_twice, n, "double free");
        must_die(free_sampled_twice, n, "double free");
        must_die(write_after_free, n, "written to after it was freed");
        must_die(change_the_mark, n, "written to after it was freed");
        must_die(write_and_switch_on, n, "written to after it was freed");
    }
}

TEST_MAIN()
