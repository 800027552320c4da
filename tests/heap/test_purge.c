// SPDX-License-Identifier: MIT
// Memory goes back while the program sleeps. Every test runs in a child with options of its own.
#include "heap_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>

#include "base/compiler.h"
#include "heap/helper.h"
#include "pages/purging.h"

#define MIB ((size_t)1 << 20)
#define BARE_THREADS (!QY_ASAN && !QY_TSAN)

static void options(bool on, bool thread, uint64_t delay) {
    qy_opts.purge = on;
    qy_opts.purge_thread = thread;
    qy_opts.purge_delay = delay;
    qy_helper_at_once = true;                         // these programs have one thread, and do nothing more
    qy_run_largest_first = SIZE_MAX / 2;              // no run is the first of its size
    qy_purging_of_runs.spent_until = UINT64_MAX / 2;  // no run goes at once: those that are old have spent theirs
}

static void sleep_ms(unsigned ms) { nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL); }

static unsigned threads_now(void) {
    if (QY_TSAN) return 1;  // it has a thread of its own, and we none
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static size_t rss(void) {
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK_GT(n, 0);
    text[n] = '\0';
    return strtoull(strchr(text, ' '), NULL, 10) * qy_os_page_size();
}

// Free bytes in slabs that still take memory.
static size_t waste_in_slabs(void) {
    size_t n = 0;
    depots_home();
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) {
        qy_heap_lock(h);
        n += h->free_bytes - h->purged_bytes;
        qy_heap_unlock(h);
    }
    return n;
}

// Sleep, and nothing else, until there is no more waste than `rest`. Machines that are busy get time;
// what is promised is counted in epochs.
static void sleep_until_given_back(size_t slabs, size_t pages) {
    for (int i = 0; i < TEST_PATIENCE * 50; i++) {
        if (qy_units_dirty_bytes() <= pages && waste_in_slabs() <= slabs) return;
        sleep_ms(20);
    }
    TEST_FAIL("never: %zu dirty, %zu in slabs", qy_units_dirty_bytes(), waste_in_slabs());
}

static void sleep_until_alone(void) { TEST_AWAIT(threads_now() == 1); }

// No time passes from here on, however slow the machine is.
static void stop_the_clock(void) { qy_os_fake_now = qy_os_now_ns(); }

#define BLOCKS 120000
static char *blocks[BLOCKS];
static void *runs[40], *huges[6];

// About 30 MiB of blocks, 20 of runs, 30 of huge objects, all touched.
static void use_memory(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] = quarry_malloc(256));
        memset(blocks[i], (int)i, 256);
    }
    for (int i = 0; i < 40; i++) {
        CHECK(runs[i] = quarry_malloc(500000));
        memset(runs[i], 1, 500000);
    }
    for (int i = 0; i < 6; i++) {
        CHECK(huges[i] = quarry_calloc(1, 5 * MIB));
        memset(huges[i], 1, 5 * MIB);
    }
}
// Of the blocks, 32 in a row of each 128 stay: pages inside slabs become free, few slabs wholly.
static bool stays(size_t i) { return i % 128 < 32; }
static void free_most(void) {
    for (int i = 0; i < 40; i++) quarry_free(runs[i]);
    for (int i = 0; i < 6; i++) quarry_free(huges[i]);
    for (size_t i = 0; i < BLOCKS; i++)
        if (!stays(i)) quarry_free(blocks[i]);
}
static void check_rest(void) {
    for (size_t i = 0; i < BLOCKS; i++)
        if (stays(i))
            for (int k = 0; k < 256; k += 15) CHECK_EQ((unsigned char)blocks[i][k], (unsigned char)i);
}

// ---- with the helper thread -------------------------------------------------------------------------

static void goes_back_while_asleep(void *unused) {
    (void)unused;
    options(true, true, 40);
    for (int round = 0; round < 2; round++) {
        use_memory();
        size_t high = rss();
        uint32_t epoch = qy_purging_epoch();
        uint64_t begun = qy_os_now_ns();
        free_most();
        // What is on one page with a live block stays; at most a page at each end of 8 in a row here.
        sleep_until_given_back(8 * MIB, MIB / 4);
        uint32_t epochs = qy_purging_epoch() - epoch;
        CHECK_GE(epochs, 2);
        CHECK_LE(epochs, 3 + (qy_os_now_ns() - begun) / 20000000);  // one is half of the delay
        CHECK_LT(rss() + 60 * MIB, high);
        sleep_until_alone();
        verify_all();
        check_rest();
        stats_add_up();
        size_t bytes;
        CHECK_GT(qy_purging_counted(&bytes), 0);
        CHECK_GT(bytes, (size_t)(round + 1) * 50 * MIB);
        for (size_t i = 0; i < BLOCKS; i++)
            if (stays(i)) quarry_free(blocks[i]);
        verify_all();
    }
}
TEST(thread_gives_back) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(goes_back_while_asleep, NULL);
}

static void young_memory_stays(void *unused) {
    (void)unused;
    options(true, true, 600000);
    use_memory();
    free_most();
    CHECK_EQ(threads_now(), 2);
    size_t dirty = qy_units_dirty_bytes();
    CHECK_GT(dirty, 10 * MIB);
    sleep_ms(300);
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
}
TEST(delay_is_kept) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(young_memory_stays, NULL);
}

// The program says that nothing is to go (mallopt) while the thread is there.
static void switched_off(void *unused) {
    (void)unused;
    options(true, true, 4000);  // time enough to say so
    use_memory();
    void *p = quarry_malloc(12 * MIB);
    CHECK(p);
    memset(p, 1, 12 * MIB);
    quarry_free(p);
    CHECK_EQ(threads_now(), 2);
    qy_opts.purge = false;
    qy_opts.purge_delay = 20;
    free_most();
    size_t slabs = waste_in_slabs(), dirty = qy_units_dirty_bytes();
    CHECK_GT(slabs, 10 * MIB);
    CHECK_GT(dirty, 10 * MIB);
    sleep_until_alone();
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    CHECK_EQ(waste_in_slabs(), slabs);
    check_rest();
}
TEST(off_while_the_thread_is_there) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(switched_off, NULL);
}

static void ends_and_starts(void *unused) {
    (void)unused;
    options(true, true, 20);
    for (int round = 0; round < 4; round++) {
        CHECK_EQ(threads_now(), 1);
        void *p = quarry_malloc(12 * MIB), *small = quarry_malloc(2 * MIB);
        memset(p, 1, 12 * MIB);
        quarry_free(small);  // little waste: not worth a thread
        CHECK_EQ(threads_now(), 1);
        uint32_t epoch = qy_purging_epoch();
        quarry_free(p);
        sleep_until_given_back(SIZE_MAX, 0);
        CHECK_GE(qy_purging_epoch() - epoch, 2);  // a thread was there
        sleep_until_alone();
        epoch = qy_purging_epoch();
        sleep_ms(100);
        CHECK_EQ(qy_purging_epoch(), epoch);  // it has ended, not only gone to sleep
    }
}
TEST(thread_ends_when_nothing_is_left) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(ends_and_starts, NULL);
}

static void *work(void *arg) {
    uint64_t r = test_seed + (uint64_t)(uintptr_t)arg;
    void *mine[128] = {0};
    for (int i = 0; i < 60000; i++) {
        size_t k = test_random(&r) % 128,
               n = test_random(&r) % 100 == 0 ? test_random(&r) % 1500000 : test_random(&r) % 6000;
        if (mine[k]) CHECK_EQ(*(size_t *)mine[k], k);
        quarry_free(mine[k]);
        CHECK(mine[k] = quarry_malloc(n + 8));
        *(size_t *)mine[k] = k;
        if (i % 5000 == 0) sleep_ms(15);
    }
    for (int k = 0; k < 128; k++) quarry_free(mine[k]);
    return NULL;
}
static void purged_while_working(void *unused) {
    (void)unused;
    options(true, BARE_THREADS, 10);
    use_memory();
    free_most();
    pthread_t t[3];
    for (size_t i = 0; i < 3; i++) CHECK_EQ(pthread_create(&t[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    verify_all();
    check_rest();
    if (BARE_THREADS) sleep_until_given_back(10 * MIB, MIB / 4);
    check_rest();
}
TEST(purging_during_work) { run_apart(purged_while_working, NULL); }

static int exit_code_of_child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        // The child has no helper; it starts one of its own.
        if (threads_now() != 1) _exit(2);
        void *p = quarry_malloc(8 * MIB);
        memset(p, 1, 8 * MIB);
        quarry_free(p);
        sleep_until_given_back(SIZE_MAX, MIB / 4);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return status;
}
static void forked(void *unused) {
    (void)unused;
    options(true, true, 20);
    void *p = quarry_malloc(20 * MIB);
    memset(p, 1, 20 * MIB);
    quarry_free(p);
    CHECK_EQ(exit_code_of_child(), 0);
    sleep_until_alone();
    CHECK_EQ(exit_code_of_child(), 0);
}
TEST(fork_child_purges_too) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(forked, NULL);
}

// ---- without ------------------------------------------------------------------------------------------

static void keeps(void *unused) {
    (void)unused;
    options(false, true, 10);
    use_memory();
    free_most();
    size_t waste = waste_in_slabs(), dirty = qy_units_dirty_bytes(), bytes, bytes_after;
    size_t count = qy_purging_counted(&bytes);
    CHECK_GT(dirty, 10 * MIB);
    sleep_ms(200);
    quarry_free(quarry_malloc(300000));
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    CHECK_EQ(waste_in_slabs(), waste);
    CHECK_EQ(qy_purging_counted(&bytes_after), count);
    CHECK_EQ(bytes_after, bytes);
    CHECK_EQ(qy_purging_epoch(), 0);
    CHECK_EQ(threads_now(), 1);
    CHECK_EQ(quarry_trim(0), 1);  // but on demand
    CHECK_EQ(qy_units_dirty_bytes(), 0);
    check_rest();
}
TEST(off_keeps) { run_apart(keeps, NULL); }

// The slow paths do it when an epoch has passed: some large frees, long enough apart.
static void inline_steps(void) {
    CHECK_EQ(threads_now(), 1);
    size_t before = qy_units_dirty_bytes();
    CHECK_GT(before, 10 * MIB);
    qy_opts.purge_delay = 100;
    void *p = quarry_malloc(2 * MIB);
    CHECK(p);
    for (int i = 0; i < 6; i++) {
        sleep_ms(60);
        void *q = quarry_malloc(MIB / 4 + (size_t)i * MIB / 16);
        quarry_free(q);
    }
    CHECK_GE(qy_purging_epoch(), 2);
    CHECK_LT(qy_units_dirty_bytes(), 3 * MIB);  // the last ones' chunk is young
    CHECK_EQ(threads_now(), 1);
    check_rest();
    verify_all();
    quarry_free(p);
}
static void inline_by_option(void *unused) {
    (void)unused;
    options(true, false, 600000);
    use_memory();
    free_most();
    inline_steps();
}
TEST(without_thread_inline) { run_apart(inline_by_option, NULL); }

// One step in an epoch is all there is: it takes many slabs, and what is in the depot as well.
static void inline_slabs(void *unused) {
    (void)unused;
    options(true, false, 600000);
    use_memory();
    free_most();
    size_t before = waste_in_slabs();
    CHECK_GT(before, 15 * MIB);
    qy_opts.purge_delay = 20;
    uint32_t epoch = qy_purging_epoch();
    // no step more once there is little left
    for (int turn = 0; turn < 1000 && qy_purging_epoch() - epoch < 120; turn++) {
        static void *p[1000];
        for (int i = 0; i < 1000; i++) CHECK(p[i] = quarry_malloc(48));
        for (int i = 0; i < 1000; i++) quarry_free(p[i]);
        sleep_ms(2);
    }
    CHECK_LE(waste_in_slabs(), before / 2);
    check_rest();
    verify_all();
}
TEST(without_thread_many_slabs_a_step) { run_apart(inline_slabs, NULL); }

// A walk over all slabs takes several steps. The first finds young ones, the last none: that is not the end of it.
static void inline_young_first(void *unused) {
    (void)unused;
    options(true, false, 100);
    enum { SIZE = 16384,
        IN_SLAB = 16,
        SLABS = 140 };
    static void *p[SLABS * IN_SLAB];
    for (int i = 0; i < SLABS * IN_SLAB; i++) {
        CHECK(p[i] = quarry_malloc(SIZE));
        memset(p[i], 1, SIZE);
    }
    for (int i = SLABS * IN_SLAB / 2; i < SLABS * IN_SLAB; i++)  // the later half: walks meet it first
        if (i % 4) quarry_free(p[i]);
    size_t before = waste_in_slabs();
    for (int turn = 0; turn < 2000 && waste_in_slabs() > before / 2; turn++) {
        static void *q[1000];
        for (int i = 0; i < 1000; i++) CHECK(q[i] = quarry_malloc(48));
        for (int i = 0; i < 1000; i++) quarry_free(q[i]);
        sleep_ms(5);
    }
    CHECK_LE(waste_in_slabs(), before / 2);
    verify_all();
}
TEST(without_thread_young_slabs_first) { run_apart(inline_young_first, NULL); }

static void inline_by_need(void *unused) {
    (void)unused;
    options(true, true, 600000);
    quarry_os_fault(1, 1, FAULT(SPAWN));
    use_memory();
    free_most();
    CHECK_GT(quarry_os_fault_hits() + !BARE_THREADS, 0);
    quarry_os_fault(0, 0, 0);
    inline_steps();
}
// What the kernel refused once it may give later.
static void refused_once(void *unused) {
    (void)unused;
    options(true, true, 40);
    stop_the_clock();  // it asks again after a time
    quarry_os_fault(1, 1, FAULT(SPAWN));
    use_memory();
    free_most();
    uint64_t hits = quarry_os_fault_hits();
    CHECK_GT(hits, 0);
    CHECK_LE(hits, 3);  // nor is it asked at each free
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(threads_now(), 1);
    qy_os_fake_now = 0;
    for (int i = 0; i < TEST_PATIENCE * 100 && threads_now() == 1; i++) {
        sleep_ms(10);
        void *p[20];
        for (int k = 0; k < 20; k++) CHECK((p[k] = quarry_malloc(MIB / 2)) && memset(p[k], 1, MIB / 2));
        for (int k = 0; k < 20; k++) quarry_free(p[k]);
    }
    CHECK_EQ(threads_now(), 2);
    sleep_until_given_back(8 * MIB, MIB / 4);
}
TEST(thread_refused_once) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(refused_once, NULL);
}

TEST(thread_denied_inline) { run_apart(inline_by_need, NULL); }

static void large_waste(void *unused) {
    (void)unused;
    options(true, false, 600000);
    enum { RUNS = 200 };
    static void *p[RUNS];
    for (int i = 0; i < RUNS; i++) {
        CHECK(p[i] = quarry_malloc(MIB));
        memset(p[i], 1, MIB);
    }
    size_t most = 0;
    for (int i = 0; i < RUNS; i++) {
        quarry_free(p[i]);
        most = qy_max(most, qy_units_dirty_bytes());
    }
    CHECK_LE(most, 65 * MIB);
    CHECK_GE(most, 33 * MIB);
    CHECK_LE(qy_units_dirty_bytes(), 64 * MIB);
    CHECK_GE(qy_units_dirty_bytes(), 31 * MIB);
}
TEST(without_thread_waste_is_bounded) { run_apart(large_waste, NULL); }

// Locked memory cannot be given back, and is not tried again with each free: only as more comes on top of it.
static void free_run(void) {
    void *p = quarry_malloc(MIB / 4);
    CHECK(p);
    quarry_free(p);
}
static void stuck_waste(void *unused) {
    (void)unused;
    options(true, false, 600000);
    enum { RUNS = 400 };
    static void *p[RUNS];
    for (int i = 0; i < RUNS; i++) {
        CHECK(p[i] = quarry_malloc(MIB / 2));
        memset(p[i], 1, MIB / 2);
    }
    quarry_os_fault(1, 1, FAULT(PURGE));
    for (int i = 0; i < RUNS; i++) quarry_free(p[i]);
    CHECK_GE(qy_units_dirty_bytes(), 200 * MIB);
    uint64_t tries = quarry_os_fault_calls();
    CHECK_GT(tries, 0);
    CHECK_LE(tries, 5 * RUNS);  // each run is a chunk's quarter; some five times all that is there then
    for (int i = 0; i < 1000; i++) free_run();
    CHECK_EQ(quarry_os_fault_calls(), tries);
    // It can go back again: as soon as there is more, which is what has been used in between.
    quarry_os_fault(0, 0, 0);
    for (int i = 0; i < 200; i++) CHECK(p[i] = quarry_malloc(MIB / 2));
    free_run();
    for (int i = 0; i < 200; i++) quarry_free(p[i]);
    CHECK_LE(qy_units_dirty_bytes(), 64 * MIB);
    CHECK_GE(qy_units_dirty_bytes(), 31 * MIB);
}
TEST(without_thread_what_stays_is_not_tried_again) { run_apart(stuck_waste, NULL); }

// ---- on demand ------------------------------------------------------------------------------------------

static void everything(void *unused) {
    (void)unused;
    options(true, false, 600000);
    use_memory();
    free_most();
    size_t before = qy_units_dirty_bytes();
    CHECK_GT(before, 15 * MIB);
    size_t keep = 4 * MIB;
    CHECK_GT(qy_purge_all(keep), 15 * MIB);
    CHECK_LE(qy_units_dirty_bytes(), keep);
    CHECK_GE(qy_units_dirty_bytes(), keep / 2);
    CHECK_GT(qy_purge_all(0) + 1, 0);
    CHECK_EQ(qy_units_dirty_bytes(), 0);
    CHECK_LE(waste_in_slabs(), 8 * MIB);
    CHECK_EQ(qy_purge_all(0), 0);
    verify_all();
    check_rest();
    stats_add_up();
    size_t mapped = qy_units_mapped_bytes();
    for (size_t i = 0; i < BLOCKS; i++)
        if (stays(i)) quarry_free(blocks[i]);
    qy_purge_everything();
    CHECK_LT(qy_units_mapped_bytes() + 20 * MIB, mapped);
    verify_all();
    stats_add_up();
}
TEST(all_at_once) { run_apart(everything, NULL); }

// What is to stay may lie in slabs.
static void trim_keeps(void *unused) {
    (void)unused;
    options(false, true, 10);
    use_memory();
    free_most();
    size_t slabs = waste_in_slabs(), waste = slabs + qy_units_dirty_bytes(), keep = waste - 4 * MIB;
    CHECK_GT(slabs, 10 * MIB);
    CHECK_EQ(quarry_trim(SIZE_MAX), 0);
    slabs = waste_in_slabs();
    CHECK_GE(slabs + qy_units_dirty_bytes(), waste);
    CHECK_EQ(quarry_trim(keep), 1);
    slabs = waste_in_slabs();
    // about: a page that goes may have bytes of no block, and a block bytes on pages that stay
    CHECK_LE(slabs + qy_units_dirty_bytes(), keep + MIB);
    CHECK_GE(slabs + qy_units_dirty_bytes(), keep - 2 * MIB);
    CHECK_EQ(quarry_trim(0), 1);
    slabs = waste_in_slabs();
    CHECK_LE(slabs + qy_units_dirty_bytes(), 8 * MIB);
    verify_all();
    check_rest();
}
TEST(a_trim_keeps_what_is_to_stay) { run_apart(trim_keeps, NULL); }

// Blocks that lie in a mailbox or in a cache are waste too: the thread's rounds take in the mail.
static void *free_in_thread(void *unused) {
    (void)unused;
    free_most();
    return NULL;
}
static void mail_is_read(void *unused) {
    (void)unused;
    options(true, BARE_THREADS, 20);
    use_memory();
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, free_in_thread, NULL), 0);
    pthread_join(t, NULL);
    qy_heap_t *mine = qy_thread_get()->heap;
    if (BARE_THREADS) sleep_until_given_back(8 * MIB, MIB / 4);
    else qy_purge_all(0);
    CHECK(!atomic_load(&mine->mailbox));
    CHECK_GT(mine->purged_bytes, 10 * MIB);
    verify_all();
    check_rest();
}

// A part, if there is anything; and never where a lock is held, be it by this thread.
static void ending(void *unused) {
    (void)unused;
    options(true, false, 1000000);
    size_t before, after;
    use_memory();
    qy_purging_counted(&before);
    qy_purge_ending();
    qy_purging_counted(&after);
    CHECK_EQ(after, before);
    free_most();
    qy_heap_t *h = qy_thread_get()->heap;
    qy_purging_counted(&before);
    qy_heap_lock(h);
    qy_purge_ending();
    qy_heap_unlock(h);
    qy_lock_take(qy_units_lock());
    qy_purge_ending();
    qy_lock_drop(qy_units_lock());
    qy_lock_take(qy_meta_lock());
    qy_purge_ending();
    qy_lock_drop(qy_meta_lock());
    qy_opts.purge = false;
    qy_purge_ending();
    qy_opts.purge = true;
    qy_purging_counted(&after);
    CHECK_EQ(after, before);
    size_t touched = qy_units_touched_bytes();
    qy_purge_ending();
    qy_purging_counted(&after);
    CHECK_GE(after - before, touched / 32);
    CHECK_LE(after - before, touched / 32 + QY_CHUNK);
    check_rest();
    // Without free units, of what is free in slabs.
    purge_units(0, 0, 0, SIZE_MAX);
    touched = qy_units_touched_bytes();
    CHECK_GE(waste_in_slabs(), 2 * MIB);
    qy_purging_counted(&before);
    qy_purge_ending();
    qy_purging_counted(&after);
    CHECK_GE(after - before, qy_max(touched / 32, MIB));
    CHECK_LE(after - before, qy_max(touched / 32, MIB) + QY_CHUNK);
    check_rest();
    verify_all();
}
TEST(a_process_that_ends) {
    if (qy_os_thp_always())
        TEST_SKIP("needs huge pages that are not always on (/sys/kernel/mm/transparent_hugepage/enabled)");
    run_apart(ending, NULL);
}

TEST(owner_that_sleeps) { run_apart(mail_is_read, NULL); }

// Of each of many heaps too little is free to be worth a thread, of all together much.
#define SLEEPERS 8
#define EACH 6000  // of 256 bytes: about 1.1 MiB are free in the end
static pthread_barrier_t sleepers;

static void *works_and_sleeps(void *unused) {
    (void)unused;
    char **mine_too = quarry_malloc(EACH * sizeof *mine_too);
    for (size_t i = 0; i < EACH; i++) {
        CHECK(mine_too[i] = quarry_malloc(256));
        memset(mine_too[i], (int)i, 256);
    }
    for (size_t i = 0; i < EACH; i++)
        if (!stays(i)) quarry_free(mine_too[i]);
    pthread_barrier_wait(&sleepers);
    pthread_barrier_wait(&sleepers);
    for (size_t i = 0; i < EACH; i++)
        if (stays(i)) CHECK_EQ((unsigned char)mine_too[i][255], (unsigned char)i);
    return NULL;
}

static void many_sleep(void *unused) {
    (void)unused;
    options(true, true, 20);
    pthread_t t[SLEEPERS];
    CHECK_EQ(pthread_barrier_init(&sleepers, NULL, SLEEPERS + 1), 0);
    for (int i = 0; i < SLEEPERS; i++) CHECK_EQ(pthread_create(&t[i], NULL, works_and_sleeps, NULL), 0);
    pthread_barrier_wait(&sleepers);
    sleep_until_given_back(2 * MIB, MIB);
    pthread_barrier_wait(&sleepers);
    for (int i = 0; i < SLEEPERS; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
}
TEST(many_heaps_that_sleep) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(many_sleep, NULL);
}

// A large block that realloc shrinks leaves free pages as a free does.
static void shrunk(void *unused) {
    (void)unused;
    options(true, true, 20);
    void *p[40];
    for (int i = 0; i < 40; i++) {
        CHECK(p[i] = quarry_malloc(MIB));
        memset(p[i], 1, MIB);
    }
    for (int i = 0; i < 40; i++) CHECK_PTR_EQ(quarry_realloc(p[i], 70000), p[i]);
    sleep_until_given_back(SIZE_MAX, MIB / 4);
}
TEST(shrinking_gives_back) {
    if (!BARE_THREADS) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(shrunk, NULL);
}

TEST_MAIN()
