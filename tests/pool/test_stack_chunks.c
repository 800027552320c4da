// SPDX-License-Identifier: MIT
// test_stack_chunks.c: which chunks a stack holds: sizes, search, the edge of a chunk, giving back. And the filter of
// sizes.
#include <math.h>
#include <quarry/pages.h>
#include <quarry/stack.h>

#include "harness.h"
#include "os/fake.h"
#include "os/os.h"
#include "pool/stack.h"
#include "pool/stack_align.h"
#include "pool_test.h"
#include "scenarios/greedy.h"

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

static quarry_pool_t *make(quarry_stack_options_t options) {
    quarry_pool_t *pool = quarry_stack_create(&options);
    CHECK(pool);
    return pool;
}
static qy_stack_t *inside(quarry_pool_t *pool) { return (qy_stack_t *)pool; }
static uint64_t gets(quarry_pool_t *pool) { return stats_of(pool).chunk_gets; }
static void take(quarry_pool_t *pool, size_t size) { CHECK(quarry_stack_alloc(pool, size, 1, 0)); }

// ---- alignment -----------------------------------------------------------------------------------------

TEST(both_forms_of_alignment_agree) {
    uint64_t state = test_seed;
    for (unsigned log = 0; log < 48; log++) {
        uintptr_t align = (uintptr_t)1 << log;
        for (int i = 0; i < 20000; i++) {
            uintptr_t a = i < 4000 ? (uintptr_t)i : test_random(&state) >> 14, full = qy_align_full(a, align);
            CHECK_EQ(full, qy_align_log(a, log));
            CHECK(full >= a && full - a < align && full % align == 0);
        }
    }
}

// ---- the filter ----------------------------------------------------------------------------------------

// As the document has it, with the checks that it proves to be needless.
typedef struct average {
    uint64_t sum, nb;
} average_t;
static void average_update(average_t *a, uint64_t size) {
    if (a->sum + size < a->sum || a->nb >= UINT16_MAX) {
        a->sum /= 4;
        a->nb /= 4;
    }
    a->sum += size;
    a->nb++;
}

TEST(filter_is_the_documents) {
    uint64_t state = test_seed;
    average_t a = {0, 1};
    qy_mean_t m = QY_MEAN_INIT, many = QY_MEAN_INIT;
    CHECK_EQ(qy_mean_get(&m), 0);
    for (int i = 0; i < 3000; i++) {
        uint64_t r = test_random(&state), size = r % 64 ? r >> 40 : r >> 34, n = (r >> 8) % (i % 100 ? 300 : 200000);
        for (uint64_t k = 0; k < n; k++) {
            average_update(&a, size);
            qy_mean_add(&m, size);
        }
        qy_mean_add_many(&many, size, n);
        CHECK(a.sum == m.sum && a.nb == m.count);
        CHECK(many.sum == m.sum && many.count == m.count);
    }
    // Larger than what counts: as the largest.
    qy_mean_t x = QY_MEAN_INIT, y = QY_MEAN_INIT;
    qy_mean_add(&x, UINT64_MAX);
    qy_mean_add_many(&y, (uint64_t)1 << 40, 1);
    CHECK(x.sum == QY_MEAN_SIZE_MAX && y.sum == QY_MEAN_SIZE_MAX);
}

// Old load of mean 1000, new load of mean 9000: after how many requests has half of the step been made? An exponential
// filter with decay 1/n has done so after n ln 2.
TEST(filter_decays) {
    qy_mean_t m = QY_MEAN_INIT;
    qy_mean_add_many(&m, 1000, 1000000);
    uint64_t n = 0;
    for (; qy_mean_get(&m) < 5000; n++) qy_mean_add(&m, 9000);
    printf("  half of a step after %llu requests; exponential with decay 1/27279: %.0f\n", (unsigned long long)n,
        27279 * log(2));
    CHECK_GE(n, 27279 * 0.69 / 2);
    CHECK_LE(n, 27279 * 0.69 * 2.5);
    for (n = 0; qy_mean_get(&m) < 8990; n++) qy_mean_add(&m, 9000);
    CHECK_LE(n, 10 * 27279);
}

static double unit(uint64_t *state) { return (double)(test_random(state) >> 11) / 9007199254740992.0; }
static double gauss(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += unit(state);
    return sum;
}

// On the same noise, smoother than an exponential filter of the same decay.
TEST(filter_is_smooth) {
    enum { N = 30000000 };
    uint64_t state = 1;  // statistics of one sequence
    qy_mean_t m = QY_MEAN_INIT;
    qy_mean_add_many(&m, 16384, 1000000);
    double e = 16384, sum_m = 0, sum_e = 0;
    for (int i = 0; i < N; i++) {
        double size = 16384 + 10640 * (unit(&state) - 0.5);
        qy_mean_add(&m, (uint64_t)(size + 0.5));
        e += (size - e) / 27279;
        double off = (double)m.sum / (double)m.count - 16384;
        sum_m += off * off;
        sum_e += (e - 16384) * (e - 16384);
    }
    printf("  standard deviation %.2f, exponential %.2f\n", sqrt(sum_m / N), sqrt(sum_e / N));
    CHECK_LE(sum_m, sum_e);
}

// The articles' sequence: 4 million requests of 16 KiB on average, five bunches of 2,000 of 256 KiB, one of 1 GiB.
TEST(filter_is_robust) {
    enum { N = 4000000,
        BUNCH = 2000 };
    uint64_t state = test_seed;
    qy_mean_t m = QY_MEAN_INIT;
    double before = 0, excess = 0;
    for (int i = 0; i < N; i++) {
        double size = 16384 + 3072 * gauss(&state);
        bool bunch = i % (N / 6) < BUNCH && i >= N / 6, peak = i == N / 2 + N / 12;
        if (peak) before = (double)qy_mean_get(&m);
        qy_mean_add(&m, peak ? (uint64_t)1 << 30 : bunch ? 256 * KIB
                                                         : (uint64_t)size);
        if (peak) excess = (double)qy_mean_get(&m) - before;
    }
    printf(
        "  a peak of 1 GiB adds %.0f bytes to the mean, %.1f MiB to a chunk\n", excess, excess * QY_STACK_MEANS / MIB);
    CHECK_GE(excess, ((uint64_t)1 << 30) / 65535.0 - 1);
    CHECK_LE(excess, ((uint64_t)1 << 30) / 16383.0);
    CHECK_LE(fabs((double)m.sum / (double)m.count - 16384), 800);  // forgotten
}

// ---- sizes ---------------------------------------------------------------------------------------------

TEST(sizes_of_chunks) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    CHECK_EQ(held(pool), 64 * KIB);
    size_t before = held(pool);
    for (uint64_t n = gets(pool); gets(pool) == n;) take(pool, 100);
    CHECK_EQ(held(pool) - before, 64 * KIB);
    // A load of 100 KiB blocks soon has chunks for 64 of them.
    for (int i = 0; i < 2000; i++) take(pool, 100 * KIB);
    before = held(pool);
    for (uint64_t n = gets(pool); gets(pool) == n;) take(pool, 100 * KIB);
    printf("  a chunk of %zu KiB for blocks of 100 KiB\n", (held(pool) - before) / KIB);
    CHECK_GE(held(pool) - before, 64 * 50 * KIB);
    CHECK_LE(held(pool) - before, QY_STACK_CHUNK_CAP);
    end(pool);
    // The mean is that of requests, not of those that happen not to fit: many small ones and some large.
    pool = make((quarry_stack_options_t){0});
    uint64_t state = test_seed, sum = 0, n = 0;
    for (; n < 2000000; n++) {
        size_t size = test_random(&state) % 20 ? 16 : 4000;
        sum += size;
        take(pool, size);
    }
    uint64_t mean = qy_mean_get(&inside(pool)->mean);
    printf("  mean request %llu, as estimated %llu\n", (unsigned long long)(sum / n), (unsigned long long)mean);
    // 134 to 451 by seed; of those that do not fit the mean is about 3700.
    CHECK_GE(mean, sum / n / 6);
    CHECK_LE(mean, sum / n * 6);
    end(pool);
    pool = make((quarry_stack_options_t){.chunk_bytes = 3 * MIB});
    CHECK_EQ(held(pool), 3 * MIB);
    end(pool);
}

TEST(one_large_block) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    char *p = quarry_pool_alloc(pool, (size_t)1 << 30, 8, QUARRY_POOL_ZERO);
    CHECK(p && !p[0] && !p[(1 << 30) - 1]);
    CHECK_LE(held(pool), ((size_t)1 << 30) + MIB);
    quarry_stack_pop(pool, &f);
    end(pool);
}

// ---- the edge of a chunk -------------------------------------------------------------------------------

// Fill the current chunk up to `rest` bytes.
static void fill_up(quarry_pool_t *pool, size_t rest) {
    qy_stack_t *s = inside(pool);
    take(pool, (size_t)(s->current->end - s->open.own.pos) - rest);
}

static void nested(quarry_pool_t *pool, int depth) {
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    for (int i = 0; i < (depth ? 5 : 1); i++) {
        take(pool, 30);
        if (depth) nested(pool, depth - 1);
    }
    quarry_stack_pop(pool, &f);
}

TEST(the_edge_of_a_chunk_costs_once) {
    for (size_t rest = 0; rest < 400; rest += 13) {
        quarry_pool_t *pool = make((quarry_stack_options_t){0});
        fill_up(pool, rest);
        quarry_stack_frame_t f, outer;
        for (int i = 0; i < 1000; i++) {
            quarry_stack_push(pool, &f);
            for (int k = 0; k < 10; k++) take(pool, 50);
            quarry_stack_pop(pool, &f);
        }
        CHECK_EQ(gets(pool), 2);
        uint64_t slow = stats_of(pool).slow_calls;
        CHECK_LE(slow, 8);  // the stack stays in the new chunk
        quarry_stack_push(pool, &outer);
        fill_up(pool, rest);
        for (int i = 0; i < 100; i++) nested(pool, 4);
        CHECK_LE(gets(pool), 3);
        CHECK_LE(stats_of(pool).slow_calls, slow + 500);  // of 100 * 781 scopes
        quarry_stack_pop(pool, &outer);
        CHECK_EQ(quarry_pool_check(pool), 0);
        end(pool);
    }
}

// Also where much is left and the request is large: no chunk is fetched twice.
TEST(no_chunk_is_fetched_twice) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    quarry_stack_frame_t f, g;
    for (int i = 0; i < 1000; i++) {
        quarry_stack_push(pool, &f);
        take(pool, 100);
        quarry_stack_push(pool, &g);
        take(pool, 300 * KIB);
        quarry_stack_pop(pool, &g);
        quarry_stack_pop(pool, &f);
    }
    CHECK_EQ(gets(pool), 2);
    CHECK_EQ(stats_of(pool).used_bytes, 0);
    end(pool);
}

// ---- the search ----------------------------------------------------------------------------------------

// What a search for chunks costs: bytes and chunks taken from the parent in all, and held at the most.
typedef struct cost {
    size_t taken, most;
    uint64_t chunks;
} cost_t;

// The articles' worst_case: many chunks of regular size, and an oversized block in each turn. As listed, the frame of a
// turn ends with it (`t_scope` in the body of the loop); nested, all frames stay open until the last turn.
enum { DEPTH = 20 };
static size_t oversized(void) { return 80000 + qy_os_page_size() * DEPTH; }

static cost_t worst_case(bool nested) {
    quarry_pool_t *pages = quarry_pages_create(NULL), *pool = make((quarry_stack_options_t){.pool.parent = pages});
    quarry_stack_frame_t frames[DEPTH], f;
    for (int i = 0; i < DEPTH; i++) {
        quarry_stack_push(pool, &frames[i]);
        quarry_stack_push(pool, &f);
        for (int k = 0; k < 20000; k++) take(pool, 100);
        quarry_stack_pop(pool, &f);
        take(pool, oversized());
        if (!nested) quarry_stack_pop(pool, &frames[i]);
    }
    for (int i = DEPTH; nested && i--;) quarry_stack_pop(pool, &frames[i]);
    cost_t cost = {stats_of(pages).requested_bytes, stats_of(pool).peak_held_bytes, gets(pool)};
    end(pool);
    end(pages);
    return cost;
}

// The same on a stack that gives back every chunk that it passes.
static cost_t worst_case_greedy(bool nested) {
    quarry_pool_t *pages = quarry_pages_create(NULL);
    greedy_t g;
    greedy_frame_t frames[DEPTH], f;
    greedy_create(&g, pages, qy_os_page_size());
    for (int i = 0; i < DEPTH; i++) {
        frames[i] = f = g.top;
        for (int k = 0; k < 20000; k++) greedy_alloc(&g, 100);
        g.top = f;
        greedy_alloc(&g, oversized());
        if (!nested) g.top = frames[i];
    }
    cost_t cost = {stats_of(pages).requested_bytes, g.peak, g.gets};
    greedy_destroy(&g);
    end(pages);
    return cost;
}

static void show(const char *what, cost_t c) {
    printf("  %s: %.1f MiB in %llu chunks, at most %.2f MiB\n", what, (double)c.taken / MIB,
        (unsigned long long)c.chunks, (double)c.most / MIB);
}

TEST(worst_case_as_listed) {
    cost_t bounded = worst_case(false), greedy = worst_case_greedy(false);
    show("bounded", bounded);
    show("greedy", greedy);
    CHECK_LE(bounded.taken * 1.7, greedy.taken);
    CHECK_LE(bounded.chunks * 1.7, greedy.chunks);
    CHECK_LE(bounded.most, greedy.most);
}

TEST(worst_case_nested) {
    cost_t bounded = worst_case(true), greedy = worst_case_greedy(true);
    show("bounded", bounded);
    show("greedy", greedy);
    CHECK_LE(bounded.taken * 4, greedy.taken);
    CHECK_LE(bounded.chunks * 4, greedy.chunks);
    // Bounded all the same: what is in use at the most, and a third.
    CHECK_LE(bounded.most * 3, 4 * (2000000 + (DEPTH - 1) * oversized()));
}

TEST(search_puts_back_no_more_than_it_needs) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    while (gets(pool) < 11) take(pool, 100);
    quarry_stack_pop(pool, &f);
    CHECK_EQ(stats_of(pool).chunk_puts, 0);
    take(pool, 100000);
    CHECK_EQ(stats_of(pool).chunk_puts, 2);  // 2 * 64 KiB >= 100,000
    CHECK_EQ(gets(pool), 12);
    for (int i = 0; i < 8; i++) fill_up(pool, 0), take(pool, 60000);  // first fit: what is there
    CHECK_EQ(gets(pool), 12);
    end(pool);
}

// ---- giving back ---------------------------------------------------------------------------------------

static void peak(quarry_pool_t *pool, size_t bytes) {
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    for (size_t i = 0; i < bytes; i += 4000) {
        char *p = quarry_stack_alloc(pool, 4000, 8, 0);
        CHECK(p);
        p[0] = 1;
    }
    quarry_stack_pop(pool, &f);
}
static void small_scopes(quarry_pool_t *pool, int n) {
    quarry_stack_frame_t f;
    for (int i = 0; i < n; i++) {
        quarry_stack_push(pool, &f);
        take(pool, 40);
        quarry_stack_pop(pool, &f);
    }
}
static size_t resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long size, pages = 0;
    CHECK(file && fscanf(file, "%lu %lu", &size, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

TEST(a_peak_goes_back_inside_of_a_frame) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);  // stays open
    take(pool, 100);
    size_t before = resident();
    peak(pool, 100 * MIB);
    CHECK_GE(held(pool), 100 * MIB);
    size_t during = resident();
    small_scopes(pool, 10000);
    CHECK_LE(held(pool), 2 * MIB);
    printf("  resident: %zu KiB, with the peak %zu, 10,000 scopes later %zu\n", before / KIB, during / KIB,
        resident() / KIB);
    CHECK_GE(during, before + 90 * MIB);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK_LE(resident(), before + 4 * MIB);
#endif
    // And then all is as fast as before.
    uint64_t slow = stats_of(pool).slow_calls;
    small_scopes(pool, 10000);
    CHECK_LE(stats_of(pool).slow_calls, slow + 4);
    quarry_stack_pop(pool, &f);
    end(pool);
}

// A peak that comes back every so often is kept, after a few times.
TEST(no_ping_pong) {
    for (int period = 10; period <= 100000; period *= 10) {
        quarry_pool_t *pool = make((quarry_stack_options_t){0});
        for (int i = 0; i < 12; i++) {
            peak(pool, 20 * MIB);
            small_scopes(pool, period);
        }
        uint64_t n = gets(pool);
        for (int i = 0; i < 8; i++) {
            peak(pool, 20 * MIB);
            small_scopes(pool, period);
        }
        printf("  every %d scopes: %llu chunks taken at first, then %llu\n", period, (unsigned long long)n,
            (unsigned long long)(gets(pool) - n));
        CHECK_EQ(gets(pool), n);
        end(pool);
    }
}

// What is used of a peak again keeps only itself.
TEST(what_is_idle_all_the_time_goes) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    peak(pool, 100 * MIB);
    for (int i = 0; i < 3000; i++) {
        peak(pool, 5 * MIB);
        small_scopes(pool, 10);
    }
    CHECK_LE(held(pool), 12 * MIB);
    CHECK_GE(held(pool), 5 * MIB);
    end(pool);
}

TEST(reset_gives_back_at_once) {
    quarry_pool_t *pool = make((quarry_stack_options_t){0});
    peak(pool, 100 * MIB);
    quarry_stack_reset(pool);
    CHECK_EQ(held(pool), 64 * KIB);
    small_scopes(pool, 10);
    end(pool);
}

// ---- refusals ------------------------------------------------------------------------------------------

TEST(kernel_refuses) {
    for (int persist = 0; persist < 2; persist++) {
        bool met = true;
        uint64_t n = 1;
        for (; met; n++) {
            quarry_os_fault(n, persist, ~(1u << QY_OS_WRITE));
            quarry_pool_t *pool = quarry_stack_create(NULL);
            quarry_stack_frame_t f[20];
            for (int i = 0; pool && i < 20; i++) {
                quarry_stack_push(pool, &f[i]);
                for (int k = 0; k < 30; k++) {
                    char *p = quarry_stack_alloc(pool, (size_t)(i * k) * 300 + 10, 8, 0);
                    if (p) memset(p, i, (size_t)(i * k) * 300 + 10);
                }
            }
            for (int i = 20; pool && i--;) {
                quarry_stack_pop(pool, &f[i]);
                CHECK_EQ(quarry_pool_check(pool), 0);
            }
            met = quarry_os_fault_hits() > 0;
            quarry_os_fault(0, 0, 0);
            if (!pool) continue;
            CHECK(quarry_pool_alloc(pool, MIB, 8, 0));
            end(pool);
        }
        CHECK_GT(n, 10);
    }
}

TEST_MAIN()
