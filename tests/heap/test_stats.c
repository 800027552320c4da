// SPDX-License-Identifier: MIT
// The statistics add up exactly at every moment when nobody is working, and say how much is live to
// the block, whoever freed it.
#include "heap_test.h"

#include <pthread.h>

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }

// Not 0: of no bytes there is no block, and none is counted.
static size_t random_size(uint64_t *r) {
    switch (test_random(r) % 50) {
    case 0: return 1 + test_random(r) % 1048576;
    case 1: return 1 + test_random(r) % 5000000;
    case 2:
    case 3:
    case 4: return 1 + test_random(r) % 65537;
    default: return 1 + test_random(r) % 1100;
    }
}

#define BLOCKS 3000
static void *blocks[BLOCKS];

typedef struct model {
    size_t count, bytes;
} model_t;

static void check(const quarry_stats_t *base, model_t m) {
    quarry_stats_t st = stats_add_up();
    CHECK_EQ(st.live_blocks - base->live_blocks, m.count);
    CHECK_EQ(st.live_bytes - base->live_bytes, m.bytes);
}

TEST(one_thread) {
    rng = test_seed;
    quarry_free(quarry_malloc(1));
    quarry_stats_t base = stats_add_up(), last = base;
    model_t m = {0, 0};
    for (int step = 0; step < 60000; step++) {
        size_t i = below(BLOCKS), n = random_size(&rng);
        if (step / 10000 % 2 && !below(3)) n = 100;
        if (blocks[i]) {
            m.bytes -= quarry_usable_size(blocks[i]);
            if (below(4) == 0) {
                void *p = quarry_realloc(blocks[i], n + 1);
                CHECK(p);
                blocks[i] = p;
                m.bytes += quarry_usable_size(p);
            } else {
                quarry_free(blocks[i]);
                blocks[i] = NULL;
                m.count--;
            }
        } else {
            switch (below(3)) {
            case 0: blocks[i] = quarry_calloc(1, n); break;
            case 1: blocks[i] = quarry_aligned_alloc((size_t)16 << below(14), n); break;
            default: blocks[i] = quarry_malloc(n); break;
            }
            CHECK(blocks[i]);
            m.bytes += quarry_usable_size(blocks[i]);
            m.count++;
        }
        if (below(20) == 0) check(&base, m);
        if (below(2000) == 0) quarry_trim(below(2) ? 0 : 10 << 20);
        if (below(2000) == 0) {
            verify_all();
            // Events only become more.
            quarry_stats_t st = stats_add_up();
            CHECK(st.refills >= last.refills && st.flushes >= last.flushes && st.purges >= last.purges &&
                  st.purged_bytes >= last.purged_bytes && st.regret_bytes >= last.regret_bytes);
            last = st;
        }
    }
    CHECK_GT(last.refills, base.refills);
    CHECK_GT(last.purged_bytes, base.purged_bytes);
    for (int i = 0; i < BLOCKS; i++) {
        quarry_free(blocks[i]);
        blocks[i] = NULL;
    }
    check(&base, (model_t){0, 0});
    quarry_trim(0);
    check(&base, (model_t){0, 0});
    quarry_stats_t st = stats_add_up();
    CHECK_EQ(st.cached_bytes, 0);
    CHECK_EQ(st.runs, base.runs);
    CHECK_EQ(st.pages_dirty_bytes, 0);
    // Nothing is live: all of the slabs is free or was never used.
    verify_all();
}

// ---- with others --------------------------------------------------------------------------------------

#define THREADS 3
#define TABLE 4096
static _Atomic(void *) table[TABLE];
static pthread_barrier_t barrier;
static _Atomic bool stop, flush;
static _Atomic size_t in_their_caches, bytes_in_their_caches;

static void *worker(void *arg) {
    uint64_t r = test_seed * 31 + (uint64_t)(uintptr_t)arg;
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (stop) return NULL;
        for (int i = 0; i < 3000; i++) {
            void *p = test_random(&r) % 2 ? quarry_malloc(1 + random_size(&r) / 4) : NULL;
            quarry_free(atomic_exchange(&table[test_random(&r) % TABLE], p));
        }
        if (flush) qy_thread_flush(qy_thread_get());
        size_t n, bytes = qy_cache_bytes(&n);
        atomic_fetch_add(&in_their_caches, n);
        atomic_fetch_add(&bytes_in_their_caches, bytes);
        pthread_barrier_wait(&barrier);  // now all are quiet; the test looks
        pthread_barrier_wait(&barrier);
    }
}

static model_t count_table(void) {
    model_t m = {0, 0};
    for (int i = 0; i < TABLE; i++)
        if (table[i]) {
            m.count++;
            m.bytes += quarry_usable_size(table[i]);
        }
    return m;
}

TEST(frees_across_threads) {
    pthread_t t[THREADS];
    quarry_stats_t base = stats_add_up();
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)i), 0);
    for (int round = 0; round < 40; round++) {
        in_their_caches = bytes_in_their_caches = 0;
        flush = round % 4 == 3;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        // What others have cached counts as live, neither more nor less.
        model_t m = count_table();
        m.count += in_their_caches;
        m.bytes += bytes_in_their_caches;
        check(&base, m);
        if (flush) CHECK_EQ(in_their_caches, 0);
        // This thread takes part, and looks at its own cache.
        for (int i = 0; i < 200; i++) quarry_free(atomic_exchange(&table[test_random(&rng) % TABLE], NULL));
        m = count_table();
        m.count += in_their_caches;
        m.bytes += bytes_in_their_caches;
        check(&base, m);
        verify_all();
        pthread_barrier_wait(&barrier);
    }
    stop = true;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    check(&base, count_table());
    for (int i = 0; i < TABLE; i++) quarry_free(table[i]);
    check(&base, (model_t){0, 0});
    quarry_stats_t st = stats_add_up();
    CHECK_GT(st.remote_publishes, base.remote_publishes);
    CHECK_GE(st.heaps_idle, THREADS);
    quarry_trim(0);
    check(&base, (model_t){0, 0});
    st = stats_add_up();
    CHECK_GT(st.remote_adoptions, 0);
    CHECK_EQ(st.pages_dirty_bytes, 0);
    verify_all();
}

// One look at a time, at numbers that can be known.
TEST(each_number) {
    quarry_free(quarry_malloc(1));
    quarry_trim(0);
    quarry_stats_t a = stats_add_up(), b;
    void *p = quarry_malloc(100000), *q = quarry_calloc(1, 3000000);  // a run and a mapping
    b = stats_add_up();
    CHECK_EQ(b.runs, a.runs + 2);
    CHECK_EQ(b.live_blocks, a.live_blocks + 2);
    CHECK_EQ(b.live_bytes - a.live_bytes, quarry_usable_size(p) + quarry_usable_size(q));
    CHECK_EQ(b.run_slack_bytes - a.run_slack_bytes, qy_round_up(100000, QY_UNIT) - quarry_usable_size(p));
    quarry_free(p);
    quarry_free(q);
    b = stats_add_up();
    CHECK_EQ(b.runs, a.runs);
    CHECK_EQ(b.pages_dirty_bytes, a.pages_dirty_bytes + qy_round_up(100000, QY_UNIT));  // the mapping is gone
    quarry_trim(0);
    b = stats_add_up();
    CHECK_EQ(b.pages_dirty_bytes, 0);
    CHECK_GT(b.purges, a.purges);
    CHECK_GE(b.purged_bytes, a.purged_bytes + 3000000);

    // A block freed here lies in the cache; flushed, it is at home.
    p = quarry_malloc(48);
    a = stats_add_up();
    quarry_free(p);
    b = stats_add_up();
    CHECK_EQ(b.cached_bytes, a.cached_bytes + 48);
    CHECK_EQ(b.live_bytes, a.live_bytes - 48);
    CHECK_EQ(b.slab_free_bytes, a.slab_free_bytes);
    qy_thread_flush(qy_thread_get());
    b = stats_add_up();
    CHECK_EQ(b.cached_bytes, 0);
    CHECK_EQ(b.slab_free_bytes, a.slab_free_bytes + a.cached_bytes + 48);

    size_t slabs = 0;
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) slabs += h->nslabs;
    CHECK_EQ(b.slabs, slabs);
    qy_heap_t *h = qy_first_class_create("one more", 0);
    CHECK_EQ(stats_add_up().heaps, b.heaps + 1);
    CHECK(qy_first_class_alloc(h, 16, 1000, false));
    CHECK_EQ(stats_add_up().slabs, b.slabs + 1);
    qy_first_class_destroy(h);
    CHECK_EQ(stats_add_up().heaps, b.heaps);
    CHECK_EQ(stats_add_up().slabs, b.slabs);
}

// What was given back inside slabs is counted by whole blocks, also where a page is only a part of one.
TEST(purged_blocks_are_whole) {
    enum { SIZE = 3000,
        STAY = 10 };
    quarry_trim(0);
    quarry_stats_t before = stats_add_up();
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = quarry_malloc(SIZE);
        CHECK(blocks[i]);
    }
    size_t each = quarry_usable_size(blocks[0]);
    CHECK_NE(each % qy_os_page_size(), 0);
    for (int i = 0; i < BLOCKS; i++)
        if (i % STAY) quarry_free(blocks[i]);
    quarry_trim(0);
    quarry_stats_t after = stats_add_up();
    CHECK_GT(after.slab_purged_bytes, before.slab_purged_bytes);
    CHECK_EQ((after.slab_purged_bytes - before.slab_purged_bytes) % each, 0);
    for (int i = 0; i < BLOCKS; i += STAY) quarry_free(blocks[i]);
    memset(blocks, 0, sizeof blocks);
    verify_all();
}

// Metadata is what the maps and records take: it is there, and small.
TEST(metadata) {
    quarry_free(quarry_malloc(1));
    quarry_stats_t st = stats_add_up();
    CHECK_EQ(st.metadata_bytes, qy_meta_bytes() + qy_map_bytes());
    CHECK_GT(st.metadata_bytes, sizeof(qy_heap_t));
}

// The line of JSON has every number of the structure.
TEST(json_line) {
    char text[4096];
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(quarry_stats_write(fds[1], 1), 0);
    close(fds[1]);
    ssize_t n = read(fds[0], text, sizeof text - 1);
    close(fds[0]);
    CHECK_GT(n, 0);
    text[n] = '\0';
    CHECK(text[0] == '{' && text[n - 2] == '}' && text[n - 1] == '\n');
    quarry_stats_t st = stats_add_up();
    size_t colons = 0;
    for (char *c = text; *c; c++) colons += *c == ':';
    CHECK_EQ(colons, 2 + sizeof st / sizeof(size_t));
    char want[64];
    snprintf(want, sizeof want, "\"mapped_bytes\":%zu,", st.mapped_bytes);
    CHECK(strstr(text, want));
    snprintf(want, sizeof want, "\"regret_bytes\":%zu}", st.regret_bytes);
    CHECK(strstr(text, want));
}

// A walk's function may end the process.
static int ends(void *block, size_t usable, void *arg) {
    (void)block, (void)usable, (void)arg;
    qy_stats_at_exit();
    return 1;
}
TEST(the_end_within_a_walk) {
    char path[] = "/tmp/quarry-stats-XXXXXX", line[4096];
    int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    quarry_heap_t *heap = quarry_heap_create(NULL);
    CHECK(heap && quarry_heap_alloc(heap, 100));
    qy_opts.stats_file = path;
    CHECK_EQ(quarry_heap_walk(heap, ends, NULL), 1);
    qy_opts.stats_file = NULL;
    CHECK_GT(read(fd, line, sizeof line), 100);
    close(fd);
    CHECK_EQ(unlink(path), 0);
    quarry_heap_destroy(heap);
}

// A path may have as many characters as the options have.
TEST(long_path) {
    static char path[3000];
    size_t n = (size_t)snprintf(path, sizeof path, "/tmp/");
    while (n < 2000) path[n++] = '.', path[n++] = '/';
    snprintf(path + n, sizeof path - n, "quarry-stats-%d", (int)getpid());
    qy_opts.stats_file = path;
    qy_stats_at_exit();
    qy_opts.stats_file = NULL;
    CHECK_EQ(unlink(path), 0);
}

TEST_MAIN()
