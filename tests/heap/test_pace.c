// SPDX-License-Identifier: MIT
// The sampler's rate follows the number of samples, within bounds, and each sample stands for as many blocks as it
// should whichever way the rate goes: for sites that allocate when it is high, when it is low, and when it changes.
#include <math.h>
#include <pthread.h>

#include "heap/draw.h"
#include "heap/pace.h"
#include "heap/samples.h"
#include "heap_test.h"
#include "os/fake.h"
#include "rt/opts.h"
#include "rt/stats_page.h"

#define BOTH (QY_DRAW_ON | QY_DRAW_ADAPTS)
#define ROWS 1000u

// ---- the rule ---------------------------------------------------------------------------------------------

static qy_pace_t pace;
static uint64_t now, word;

static void start(unsigned rate) {
    static uint64_t serial;
    pace = (qy_pace_t){.judges = QY_PACE_JUDGES};
    now = 1000 * QY_PACE_SECOND;
    word = ++serial << 8 | BOTH | rate;
}

// So many births, each `apart` nanoseconds after the one before, while `live` live. The rate then.
static unsigned births(unsigned n, uint64_t apart, uint32_t live) {
    for (unsigned i = 0; i < n; i++) {
        now += apart;
        word = qy_pace_next(&pace, word, now, true, live, ROWS, QY_PACE_FINEST);
    }
    return qy_draw_rate(word);
}

TEST(many_in_a_second_are_too_many) {
    start(19);
    CHECK_EQ(births(QY_PACE_JUDGES - 1, 1000, 0), 19);
    CHECK_EQ(births(1, 1000, 0), 20);
    CHECK_EQ(births(QY_PACE_JUDGES - 1, 1000, 0), 20);
    CHECK_EQ(births(1, 1000, 0), 21);
    // Who says nothing waits for all that a second may have.
    start(19);
    pace.judges = 0;
    CHECK_EQ(births(QY_PACE_MANY - 1, 1000, 0), 19);
    CHECK_EQ(births(1, 1000, 0), 20);
    // A little faster than is allowed, and a little slower.
    start(19);
    CHECK_EQ(births(QY_PACE_JUDGES, QY_PACE_SECOND / (QY_PACE_MANY + 20), 0), 20);
    start(19);
    CHECK_EQ(births(QY_PACE_MANY * 10, QY_PACE_SECOND / (QY_PACE_MANY - 20), 0), 19);
    // As many in two seconds are not.
    start(19);
    CHECK_EQ(births(QY_PACE_MANY * 4, QY_PACE_SECOND / QY_PACE_MANY * 2, 0), 19);
    // It ends.
    start(19);
    CHECK_EQ(births(QY_PACE_MANY * 100, 1, 0), QY_PACE_COARSEST);
}

TEST(few_in_a_second_are_too_few) {
    start(19);
    births(1, 0, 0);
    CHECK_EQ(births(48, QY_PACE_SECOND / 49, 0), 19);
    CHECK_EQ(births(1, QY_PACE_SECOND / 40, 0), 18);
    // Just enough.
    start(19);
    CHECK_EQ(births(500, QY_PACE_SECOND / 51, 0), 19);
    // One that comes after long is one step, and it ends.
    start(19);
    births(1, 0, 0);
    CHECK_EQ(births(1, QY_PACE_SECOND * 1000, 0), 18);
    CHECK_EQ(births(100, QY_PACE_SECOND, 0), QY_PACE_FINEST);
    start(5);
    CHECK_EQ(births(100, QY_PACE_SECOND, 0), 5);
    // Ends of samples are none, but time passes with them, too.
    start(19);
    births(1, 0, 0);
    now += 2 * QY_PACE_SECOND;
    CHECK_EQ(qy_draw_rate(word = qy_pace_next(&pace, word, now, false, 0, ROWS, QY_PACE_FINEST)), 18);
}

// As many as are judged by are not many if they took longer.
TEST(a_late_one_is_not_too_many) {
    start(19);
    births(QY_PACE_JUDGES - 1, QY_PACE_SECOND / 2 / QY_PACE_MANY, 0);
    now += 600 * QY_PACE_SECOND;
    CHECK_EQ(births(1, 0, 0), 18);
}

TEST(rows_for_live_ones_last) {
    start(19);
    // Each time that half of what is left is taken. Rates between are such that time alone changes nothing.
    unsigned rate = 19;
    uint32_t live = 0, taken[QY_PACE_COARSEST + 1] = {0};
    for (; live < ROWS; live++) {
        unsigned next = births(1, QY_PACE_SECOND / 100, live);
        CHECK(next == rate || next == rate + 1);
        if (next > rate) taken[next] = live;
        rate = next;
    }
    CHECK_EQ(taken[20], ROWS / 2);
    CHECK_EQ(taken[21], ROWS * 3 / 4);
    CHECK_GE(rate, 26);
    // While half of them are taken it does not halve; then it does.
    start(25);
    births(1, 0, ROWS / 2);
    CHECK_GE(births(5, QY_PACE_SECOND, ROWS / 2), 25);
    start(25);
    births(1, 0, 10);
    CHECK_EQ(births(1, QY_PACE_SECOND, 10), 24);
}

TEST(who_wants_one_rate_has_it) {
    start(19);
    word &= ~QY_DRAW_ADAPTS;
    CHECK_EQ(births(100000, 1, ROWS), 19);
    word = 0;
    births(10, QY_PACE_SECOND, 0);
    CHECK_EQ(word, 0);
    // Whoever switches it on anew begins anew.
    start(19);
    births(QY_PACE_JUDGES - 1, 1, 0);
    word += 256;
    CHECK_EQ(births(QY_PACE_JUDGES - 1, 1, 0), 19);
    CHECK_EQ(births(1, 1, 0), 20);
}

// ---- samples -----------------------------------------------------------------------------------------------

static uint64_t rng;

static void control(uint64_t wanted) {
    static uint64_t serial = 1000;
    __atomic_store_n(&qy_stats_sampler.control, wanted ? wanted | ++serial << 8 : 0, __ATOMIC_RELAXED);
    qy_draw_look(qy_thread_get());
}

typedef struct site {
    double calls, blocks, variance, most;
} site_t;

static uint64_t seen;  // events
static unsigned finest, coarsest;

// Whatever was sampled since is of this site.
static void weigh(site_t *s) {
    const quarry_stats_page_event_t *events = (const void *)(uintptr_t)qy_stats_sampler.events_at;
    for (; seen < qy_stats_sampler.events; seen++) {
        const quarry_stats_page_event_t *e = &events[seen % qy_stats_sampler.event_rows];
        if (e->what != QUARRY_STATS_PAGE_EVENT_BIRTH) continue;
        double q = -expm1(-ldexp((double)e->bytes, -(int)e->rate));
        s->blocks += 1 / q;
        s->variance += (1 - q) / (q * q);
        s->most = fmax(s->most, 1 / q);
        finest = e->rate < finest ? e->rate : finest;
        coarsest = e->rate > coarsest ? e->rate : coarsest;
    }
}

static void *asked(site_t *s, size_t n) {
    void *p = quarry_malloc(n);
    CHECK(p);
    s->calls++;
    weigh(s);
    return p;
}

static void begin(unsigned rate) {
    rng = test_seed;
    finest = 63, coarsest = 0;
    atomic_store(&qy_os_fake_now, UINT64_C(5000000000000));
    control(BOTH | rate);
    seen = qy_stats_sampler.events;
}
static void end(void) {
    control(0);
    atomic_store(&qy_os_fake_now, 0);
    verify_all();
    CHECK_EQ(atomic_load(&qy_samples_live), 0);
}
static void pass(uint64_t ns) { atomic_fetch_add(&qy_os_fake_now, ns); }

// How likely is a sum of terms below one this far from its mean? At most exp(-this), by Bennett's inequality.
static double wonder(double distance, double variance) {
    double u = fabs(distance) / variance;
    return variance * ((1 + u) * log1p(u) - u);
}

// The sum over all sites of the squared distance, in its variance. Of three normal distributions it is above BOUND once
// in 10^12. A sum of few terms has a longer tail: such a site is held to what is certain.
#define BOUND 60.0
static void are_right(const site_t *s, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double distance = s[i].blocks - s[i].calls, most = s[i].most, variance = s[i].variance;
        CHECK_GT(variance, 0);
        if (wonder(distance / most, variance / (most * most)) > 20)
            TEST_FAIL("site %zu: %.0f calls, estimate %.0f", i, s[i].calls, s[i].blocks);
        if (sqrt(variance) > 5 * most) sum += distance * distance / variance;
    }
    if (sum > BOUND) {
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, "site %zu: %.0f calls, estimate %.0f, sigma %.0f\n",
                i, s[i].calls, s[i].blocks, sqrt(s[i].variance));
        TEST_FAIL("chi-square of %zu sites: %.1f, at most %.1f", n, sum, BOUND);
    }
}

// One site allocates while much happens, the other while little does, a third one always.
TEST(sites_of_loud_and_of_quiet_times) {
    site_t s[3] = {0};
    begin(19);
    for (size_t round = 0; round < 60; round++) {
        bool loud = round / 10 % 2 == 0;
        for (size_t i = 0; i < 60000; i++) {
            quarry_free(asked(&s[loud ? 0 : 1], 3000));
            quarry_free(asked(&s[2], 3000));
            pass(loud ? 1000 : 5000000);
        }
    }
    are_right(s, 3);
    CHECK_EQ(finest, QY_PACE_FINEST);
    CHECK_GE(coarsest, 18);
    end();
}

// Sites that allocate just behind each change of the rate, when lists still have what was drawn before it.
TEST(sites_that_know_the_rate) {
    enum { KEPT = 300,
        SOON = 150 };
    void *p[KEPT] = {0};
    site_t s[3] = {0};
    begin(16);
    unsigned rate = 16;
    bool up = false;
    size_t since = SOON, changes = 0;
    for (size_t i = 0; i < 6000000; i++) {
        unsigned rate_now = qy_draw_rate(qy_draw_control());
        if (rate_now != rate) {
            up = rate_now > rate;
            since = 0;
            changes++;
        }
        rate = rate_now;
        size_t site = since++ < SOON ? up : 2, at = test_random(&rng) % KEPT;
        quarry_free(p[at]);
        p[at] = asked(&s[site], 1000 * (1 + test_random(&rng) % 16));
        // A second has 200 or 2,000,000 calls.
        pass(i % 33000 >= 30000 ? 5000000 : 500);
    }
    for (size_t at = 0; at < KEPT; at++) quarry_free(p[at]);
    are_right(s, 3);
    CHECK_GT(changes, 200);
    end();
}

// ---- from the start ------------------------------------------------------------------------------------------

static void some_calls(size_t n, uint64_t apart) {
    for (size_t i = 0; i < n; i++) {
        quarry_free(quarry_malloc(3000));
        pass(apart);
    }
}

static void options_say(uint64_t mean, bool adapts) {
    qy_opts.sample = mean;
    qy_opts.sample_adapts = adapts;
    qy_samples_begin();
    qy_draw_look(qy_thread_get());
}

TEST(what_the_options_say_is_the_finest) {
    begin(19);
    options_say(70000, true);
    CHECK_EQ(qy_draw_control(), BOTH | 16);
    some_calls(100000, 1000);
    CHECK_GT(qy_draw_rate(qy_draw_control()), 18);
    some_calls(4000, 50000000);
    CHECK_EQ(qy_draw_control(), BOTH | 16);
    // As it is without the option, when a reader wants it: finer than that.
    options_say(0, true);
    CHECK_EQ(qy_draw_control(), 0);
    control(BOTH | 17);
    some_calls(100000, 50000000);
    CHECK_EQ(qy_draw_rate(qy_draw_control()), QY_PACE_FINEST);
    end();
}

TEST(what_the_options_fix_stays) {
    begin(19);
    options_say(4096, false);
    CHECK_EQ(qy_draw_control(), QY_DRAW_ON | 12);
    uint64_t before = qy_stats_sampler.events;
    some_calls(100000, 1000);
    CHECK_GT(qy_stats_sampler.events, before + 50000);
    CHECK_EQ(qy_draw_control(), QY_DRAW_ON | 12);
    options_say(0, true);
    end();
}

TEST_MAIN()
