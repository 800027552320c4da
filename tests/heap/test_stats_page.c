// SPDX-License-Identifier: MIT
// The statistics page says what quarry_stats_read says, is whole whenever it is read, belongs to one process, and goes
// with it.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "heap/stats_cache.h"
#include "heap_test.h"
#include "heap/stats_page.h"
#include "rt/stats_page.h"
#include "stats_page_read.h"

// Enough through the slow paths for a page, and back.
static void move_some(size_t bytes) {
    static void *block[4096];
    size_t n = qy_min(bytes / 16384 + 1, sizeof block / sizeof *block);
    for (size_t i = 0; i < n; i++) CHECK((block[i] = quarry_malloc(16000)));
    for (size_t i = 0; i < n; i++) quarry_free(block[i]);
}

static const quarry_stats_page_t *page(void) {
    if (!qy_stats_page()) move_some(1 << 20);
    CHECK(qy_stats_page());
    return qy_stats_page();
}

// The list of classes is made anew; its budget may take a while to allow that.
static void classes_anew(const quarry_stats_page_t *p) {
    uint64_t turn = page_word(&p->heap.class_turn);
    TEST_AWAIT((qy_stats_page_round(), page_word(&p->heap.class_turn) > turn));
}

TEST(small_programs_have_none) {
    CHECK(!qy_stats_page());
    CHECK_EQ(page_at(getpid()), 0);
    move_some(20000);
    CHECK(!qy_stats_page());
    move_some(QY_STATS_PAGE_MIN * 4);
    CHECK(qy_stats_page());
    CHECK_EQ(qy_stats_page_number(), 1);
}

TEST(others_find_it) {
    const quarry_stats_page_t *mine = page(), *seen = page_of(getpid());
    CHECK_EQ(page_at(getpid()), (uintptr_t)mine);
    CHECK(seen);
    CHECK_EQ(memcmp(&seen->head, &mine->head, sizeof mine->head), 0);
    CHECK_EQ(seen->head.version, QUARRY_STATS_PAGE_VERSION);
    CHECK_EQ(seen->head.pid, getpid());
    CHECK_EQ(seen->head.bytes, sizeof *mine);
    CHECK(seen->head.parts & QUARRY_STATS_PAGE_HEAP);
    CHECK_EQ(seen->head.heap_at, offsetof(quarry_stats_page_t, heap));
    CHECK_EQ(seen->head.pools_at, offsetof(quarry_stats_page_t, pools));
    free((void *)seen);
}

static void check_equal(const quarry_stats_page_sums_t *s, const quarry_stats_t *st) {
    CHECK_EQ(s->mapped_bytes, st->mapped_bytes);
    CHECK_EQ(s->slab_free_bytes + s->slab_mailed_bytes, st->slab_free_bytes);
    CHECK_EQ(s->slab_fresh_bytes, st->slab_fresh_bytes);
    CHECK_EQ(s->run_slack_bytes, st->run_slack_bytes);
    CHECK_EQ(s->pages_dirty_bytes + s->huge_cached_bytes, st->pages_dirty_bytes);
    CHECK_EQ(s->pages_clean_bytes, st->pages_clean_bytes);
    CHECK_LE(s->metadata_bytes, st->metadata_bytes);
    CHECK_GE(s->metadata_bytes, qy_meta_bytes());
    size_t out = s->slabs_bytes - s->slab_free_bytes - s->slab_mailed_bytes - s->slab_fresh_bytes;
    CHECK_EQ(out + s->run_live_bytes + s->huge_live_bytes, st->live_bytes + st->cached_bytes);
    CHECK_EQ(s->slabs_bytes + s->run_live_bytes + s->run_slack_bytes + s->huge_live_bytes + s->huge_cached_bytes +
                 s->pages_dirty_bytes + s->pages_clean_bytes,
        s->mapped_bytes);
    CHECK_EQ(s->slabs, st->slabs);
    CHECK_EQ(s->runs + s->huges, st->runs);
    CHECK_EQ(s->heaps, st->heaps);
    CHECK_EQ(s->refills, st->refills);
    CHECK_EQ(s->flushes, st->flushes);
    CHECK_EQ(s->purged_bytes, st->purged_bytes);
    CHECK_EQ(s->regret_bytes, st->regret_bytes);
}

TEST(sums_are_the_statistics) {
    const quarry_stats_page_t *p = page();
    uint64_t r = test_seed;
    void *block[500] = {0};
    for (int step = 0; step < 20000; step++) {
        size_t i = test_random(&r) % 500, n = test_random(&r) % 20 ? test_random(&r) % 2000 : test_random(&r) % 3000000;
        quarry_free(block[i]);
        CHECK((block[i] = quarry_malloc(n)));
        if (step % 400) continue;
        if (step % 4000 == 0) quarry_trim(0);
        depots_home();
        qy_stats_page_round();
        quarry_stats_page_sums_t s;
        quarry_stats_t st;
        quarry_stats_read(&st);
        CHECK(page_sums(p, &s));
        // A list of classes is not made each time; then what was never used is of the last one.
        if (s.fresh_at_ns != page_word(&p->heap.class_at_ns[p->heap.class_turn & 1]) ||
            s.slab_fresh_bytes != st.slab_fresh_bytes)
            continue;
        check_equal(&s, &st);
    }
    for (int i = 0; i < 500; i++) quarry_free(block[i]);
    classes_anew(p);
    quarry_stats_page_sums_t s;
    quarry_stats_t st;
    quarry_stats_read(&st);
    CHECK(page_sums(p, &s));
    check_equal(&s, &st);
    quarry_stats_page_class_t rows[QUARRY_STATS_PAGE_CLASSES];
    size_t n = page_classes(p, rows), slabs = 0, bytes = 0, free = 0, fresh = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK_EQ(rows[i].block_bytes, qy_class_size[rows[i].number]);
        slabs += rows[i].slabs;
        bytes += rows[i].slabs_bytes;
        free += rows[i].free_blocks * rows[i].block_bytes;
        fresh += rows[i].fresh_bytes;
        CHECK_EQ(rows[i].slabs_bytes,
            (rows[i].out_blocks + rows[i].free_blocks) * rows[i].block_bytes + rows[i].fresh_bytes);
    }
    CHECK_EQ(slabs, s.slabs);
    CHECK_EQ(bytes, s.slabs_bytes);
    CHECK_EQ(free, s.slab_free_bytes + s.slab_mailed_bytes);
    CHECK_EQ(fresh, s.slab_fresh_bytes);
}

// What is resident of the heap lies in the ranges that the page names.
TEST(places) {
    const quarry_stats_page_t *p = page();
    void *small = quarry_malloc(100), *run = quarry_malloc(500000), *huge = quarry_malloc(64 << 20);
    const void *wanted[] = {
        small, run, huge, qy_thread_get(), qy_heap_first(), (void *)(qy_map_slot(qy_map_tags, 0)), (void *)qy_map_tags};
    static const unsigned kind[] = {1, 1, 2, 3, 3, 3, 3};
    classes_anew(p);
    unsigned copy = p->heap.class_turn & 1;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        uint64_t in = 0;
        for (size_t k = 0; k < p->heap.range_rows[copy]; k++) {
            const quarry_stats_page_range_t *r = &p->heap.ranges[k][copy];
            if ((uintptr_t)wanted[i] - r->base < r->bytes) in = r->kind;
        }
        if (in != kind[i]) TEST_FAIL("%zu is in %d", i, (int)in);
    }
    CHECK_EQ(p->heap.range_missing_bytes[copy], 0);
    // More large objects than there are rows.
    void *more[QUARRY_STATS_PAGE_RANGES];
    for (size_t i = 0; i < QUARRY_STATS_PAGE_RANGES; i++) CHECK((more[i] = quarry_malloc(40 << 20)));
    classes_anew(p);
    copy = p->heap.class_turn & 1;
    CHECK_EQ(p->heap.range_rows[copy], QUARRY_STATS_PAGE_RANGES);
    CHECK_GT(p->heap.range_missing_bytes[copy], 0);
    for (size_t i = 0; i < QUARRY_STATS_PAGE_RANGES; i++) quarry_free(more[i]);
    quarry_free(small);
    quarry_free(run);
    quarry_free(huge);
}

static size_t out_of_class(const quarry_stats_page_t *p, size_t block) {
    quarry_stats_page_class_t rows[QUARRY_STATS_PAGE_CLASSES];
    classes_anew(p);
    for (size_t n = page_classes(p, rows), i = 0; i < n; i++)
        if (rows[i].block_bytes == block) return rows[i].out_blocks;
    return 0;
}

TEST(blocks_by_class) {
    const quarry_stats_page_t *p = page();
    qy_thread_flush(qy_thread_get());
    size_t before = out_of_class(p, 4096);
    void *block[1000];
    for (int i = 0; i < 1000; i++) CHECK((block[i] = quarry_malloc(4000)));
    qy_thread_flush(qy_thread_get());
    CHECK_EQ(out_of_class(p, 4096), before + 1000);
    for (int i = 0; i < 1000; i++) quarry_free(block[i]);
    qy_thread_flush(qy_thread_get());
    CHECK_EQ(out_of_class(p, 4096), before);
}

TEST(caches_are_counted_by_their_threads) {
    const quarry_stats_page_t *p = page();
    qy_thread_t *t = qy_thread_get();
    void *block[200];
    for (int i = 0; i < 200; i++) block[i] = quarry_malloc(64);
    for (int i = 0; i < 200; i++) quarry_free(block[i]);
    t->cached_ns = 0;
    qy_stats_count_cache(t);
    depots_home();
    qy_stats_page_round();
    size_t blocks, bytes = qy_cache_bytes(&blocks);
    quarry_stats_page_sums_t s;
    CHECK(page_sums(p, &s));
    CHECK_GT(bytes, 0);
    CHECK_EQ(s.cached_bytes, bytes);
    CHECK_EQ(s.cached_blocks, blocks);
}

// What is live by class, and what is large, is what is live: whatever lies in lists, depots and groups for others.
TEST(live_blocks_by_class_are_all) {
    const quarry_stats_page_t *p = page();
    qy_thread_t *t = qy_thread_get();
    uint64_t r = test_seed;
    static void *block[5000];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 5000; i++) {
            quarry_free(block[i]);
            block[i] = test_random(&r) % 3 ? quarry_malloc(test_random(&r) % 3000) : NULL;
        }
        t->cached_ns = 0;
        qy_stats_count_cache(t);
        classes_anew(p);
        quarry_stats_page_class_t rows[QUARRY_STATS_PAGE_CLASSES];
        quarry_stats_page_sums_t s;
        CHECK(page_sums(p, &s));
        size_t n = page_classes(p, rows), live = 0, cached = 0;
        for (size_t i = 0; i < n; i++) {
            CHECK_LE(rows[i].cached_blocks, rows[i].out_blocks);
            live += (rows[i].out_blocks - rows[i].cached_blocks) * rows[i].block_bytes;
            cached += rows[i].cached_blocks;
        }
        CHECK_GT(cached, 0);
        CHECK_EQ(cached, s.cached_blocks);
        CHECK_EQ(live, s.slabs_bytes - s.slab_free_bytes - s.slab_mailed_bytes - s.slab_fresh_bytes - s.cached_bytes);
    }
    for (size_t i = 0; i < 5000; i++) quarry_free(block[i]);
}

// A program frees half of what it has within a moment, and sleeps: nobody looks again.
TEST(a_burst_of_frees_is_seen) {
    enum { BLOCKS = 20000,
        BYTES = 3000,
        LISTS = 8 << 20 };
    const quarry_stats_page_t *p = page();
    static void *block[BLOCKS];
    // A write that was interrupted seems to have cost much, and the next one is late. So an hour passes, then no time.
    qy_os_fake_now = qy_os_now_ns() + UINT64_C(3600000000000);
    for (int i = 0; i < BLOCKS; i++) CHECK((block[i] = quarry_malloc(BYTES)));
    for (int i = 0; i < BLOCKS / 2; i++) quarry_free(block[i]);
    qy_os_fake_now = 0;
    quarry_stats_page_sums_t s;
    CHECK(page_sums(p, &s));
    size_t out = s.slabs_bytes - s.slab_free_bytes - s.slab_mailed_bytes - s.slab_fresh_bytes;
    size_t live = out - s.cached_bytes + s.run_live_bytes + s.huge_live_bytes;
    // The thread's own lists may be counted as live, and what other tests left.
    CHECK_GT(live, BLOCKS / 2 * BYTES - (2 << 20));
    CHECK_LT(live, BLOCKS / 2 * BYTES + LISTS);
    for (int i = BLOCKS / 2; i < BLOCKS; i++) quarry_free(block[i]);
}

// ---- while threads work ---------------------------------------------------------------------------------

static _Atomic bool stop;

static void *worker(void *arg) {
    uint64_t r = test_seed + (uintptr_t)arg;
    void *block[300] = {0};
    for (int i = 0; !stop; i++) {
        size_t k = test_random(&r) % 300;
        quarry_free(block[k]);
        block[k] = quarry_malloc(test_random(&r) % 10 ? test_random(&r) % 5000 : test_random(&r) % 200000);
        CHECK(block[k]);
        if (i % 100 == 0) qy_stats_page_round();
    }
    for (int k = 0; k < 300; k++) quarry_free(block[k]);
    return NULL;
}

TEST(whole_while_threads_work) {
    const quarry_stats_page_t *p = page();
    pthread_t t[3];
    stop = false;
    for (size_t i = 0; i < 3; i++) CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)i), 0);
    quarry_stats_page_sums_t last = {0}, s;
    uint64_t r = test_seed, end = qy_os_now_ns() + 1500000000u, late = end + TEST_PATIENCE * UINT64_C(1000000000),
             turns = page_word(&p->heap.turn);
    quarry_stats_page_class_t rows[QUARRY_STATS_PAGE_CLASSES];
    // On a busy machine the workers need longer until they have written some.
    for (uint64_t now; (now = qy_os_now_ns()) < end || (now < late && page_word(&p->heap.turn) <= turns + 3);) {
        // From inside, and as another process reads it.
        bool any = test_random(&r) % 2 ? page_sums(p, &s) : page_sums_of(getpid(), (uintptr_t)p, &s);
        if (!any) continue;
        // Of one moment: counts go up together with the date, and sizes are multiples of what they consist of.
        CHECK(s.refills >= last.refills && s.flushes >= last.flushes && s.remote_publishes >= last.remote_publishes &&
              s.purged_bytes >= last.purged_bytes);
        CHECK_EQ(s.slabs_bytes % QY_UNIT, 0);
        CHECK_LE(s.slab_free_bytes, s.slabs_bytes);
        CHECK_EQ(s.reserved[0], 0);
        for (size_t n = page_classes(p, rows), i = 0; i < n; i++) {
            CHECK_EQ(rows[i].block_bytes, qy_class_size[rows[i].number]);
            CHECK_LE(rows[i].out_blocks * rows[i].block_bytes, rows[i].slabs_bytes);
        }
        last = s;
        sched_yield();
    }
    stop = true;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    CHECK_GT(page_word(&p->heap.turn), turns + 3);
}

// ---- processes ------------------------------------------------------------------------------------------

static void *large;
static void make_large(void) {
    if (!large) CHECK((large = quarry_malloc(QY_STATS_PAGE_CHILD_LARGE * 2)));
}
static void drop_large(void) {
    quarry_free(large);
    large = NULL;
    quarry_trim(0);
}

static void ended(pid_t pid, int wanted) {
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status != wanted) TEST_FAIL("the child ended with 0x%x", (unsigned)status);
}

TEST(a_large_child_has_its_own) {
    const quarry_stats_page_t *p = page();
    make_large();
    uint64_t turn = p->heap.turn;
    pid_t pid = fork();
    if (!pid) {
        const quarry_stats_page_t *mine = qy_stats_page();
        CHECK(mine);
        CHECK_EQ(mine->head.pid, getpid());
        quarry_stats_page_sums_t s;
        CHECK(page_sums(mine, &s));
        CHECK_GE(s.mapped_bytes, QY_STATS_PAGE_CHILD_LARGE);
        CHECK_GT(s.slabs, 0);
        // The budget of the next turn is what the last one took, which is long if the child did not run meanwhile.
        TEST_AWAIT((move_some(40 << 20), page_word(&mine->heap.turn) > 1 && page_word(&mine->heap.class_turn) > 0));
        _exit(0);
    }
    ended(pid, 0);
    CHECK_EQ(p->heap.turn, turn);
    CHECK_EQ(p->head.pid, getpid());
    CHECK(!page_of(pid));
    drop_large();
}

TEST(a_small_child_has_none_until_it_works) {
    const quarry_stats_page_t *p = page();
    if (qy_units_mapped_bytes() >= QY_STATS_PAGE_CHILD_LARGE) quarry_trim(0), qy_units_release();
    if (qy_units_mapped_bytes() >= QY_STATS_PAGE_CHILD_LARGE) TEST_SKIP("needs a heap that can become small");
    uint64_t turn = p->heap.turn;
    pid_t pid = fork();
    if (!pid) {
        CHECK(!qy_stats_page());
        move_some(16384);
        CHECK(!qy_stats_page());
        move_some(8 << 20);
        CHECK(qy_stats_page() && qy_stats_page()->head.pid == getpid());
        _exit(0);
    }
    ended(pid, 0);
    CHECK_EQ(p->heap.turn, turn);
}

// Without fork handlers nobody can tell the library: its copy of the page names the parent, so no reader takes it for
// the child's.
TEST(a_child_of_clone_never_shows_its_parents) {
    const quarry_stats_page_t *p = page();
    qy_stats_page_round();
    static const int flags[] = {0, CLONE_VM | CLONE_VFORK, CLONE_FILES};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        // Of a child that shares the memory only the parent can be asked, and it waits: its own number is in the page.
        if (flags[i] & CLONE_VM) {
            pid_t pid = vfork();
            if (!pid) _exit(page_at((int)syscall(SYS_getpid)) ? 1 : 0);
            ended(pid, 0);
            continue;
        }
        int up[2], down[2];
        CHECK(pipe(up) == 0 && pipe(down) == 0);
        uint64_t turn = p->heap.turn;
        char byte = 1;
        pid_t pid = (pid_t)syscall(SYS_clone, flags[i] | SIGCHLD, NULL, NULL, NULL, NULL);
        if (!pid) {
            qy_stats_page_round();
            move_some(8 << 20);
            _exit(write(up[1], &byte, 1) == 1 && read(down[0], &byte, 1) == 1 ? 0 : 1);
        }
        CHECK_GT(pid, 0);
        CHECK_EQ(read(up[0], &byte, 1), 1);
        CHECK_EQ(page_at(pid), 0);
        CHECK_EQ(write(down[1], &byte, 1), 1);
        ended(pid, 0);
        CHECK_EQ(p->heap.turn, turn);
        CHECK_EQ(page_at(getpid()), (uintptr_t)p);
        for (int k = 0; k < 2; k++) close(up[k]), close(down[k]);
    }
}

// A child that has not opened its page names no process in it: so it shows nothing even where it has its parent's
// number, as the first process of a namespace within a namespace has.
TEST(a_child_s_copy_names_nobody) {
    page();
    pid_t pid = fork();
    if (!pid) {
        quarry_stats_page_head_t head;
        uintptr_t at = page_at(getppid());
        _exit(!at || !page_fetch(getpid(), at, &head, sizeof head) || head.pid != 0);
    }
    ended(pid, 0);
}

static void leaves_nothing(bool exec) {
    make_large();
    int fds[2];
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (!pid) {
        char byte = qy_stats_page() != NULL;
        if (write(fds[1], &byte, 1) != 1) _exit(1);
        if (exec) execlp("sleep", "sleep", "1000", (char *)NULL);
        for (;;) pause();
    }
    char byte = 0;
    CHECK_EQ(read(fds[0], &byte, 1), 1);
    CHECK_EQ(byte, 1);
    close(fds[1]);
    if (exec) {
        CHECK_EQ(read(fds[0], &byte, 1), 0);  // closed by exec: another program now, with the same number
    } else {
        const quarry_stats_page_t *its = page_of(pid);
        CHECK(its);
        CHECK_EQ(its->head.pid, pid);
        free((void *)its);
        kill(pid, SIGKILL);
        ended(pid, SIGKILL);
    }
    CHECK(!page_of(pid));
    if (exec) {
        kill(pid, SIGKILL);
        ended(pid, SIGKILL);
    }
    close(fds[0]);
    drop_large();
}
TEST(killed_it_leaves_nothing) {
    page();
    leaves_nothing(false);
}
TEST(another_program_in_its_place_has_none) {
    page();
    leaves_nothing(true);
}

// A stopped process is readable, and its numbers are whole.
TEST(stopped_it_is_readable) {
    page();
    make_large();
    pid_t pid = fork();
    if (!pid) {
        for (;;) qy_stats_page_round();
    }
    quarry_stats_page_sums_t s;
    for (uintptr_t at = 0; !at || !page_sums_of(pid, at, &s); usleep(1000)) at = page_at(pid);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        kill(pid, SIGSTOP);
        int status;
        CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
        const quarry_stats_page_t *its = page_of(pid);
        CHECK(its && page_sums(its, &s));
        CHECK_GE(s.mapped_bytes, QY_STATS_PAGE_CHILD_LARGE);
        free((void *)its);
        kill(pid, SIGCONT);
    }
    kill(pid, SIGKILL);
    ended(pid, SIGKILL);
    drop_large();
}

// A signal handler forks while the page is written, and the child goes on with what was interrupted.
static volatile sig_atomic_t in_child, forks;
static void fork_now(void) {
    pid_t pid = fork();
    if (!pid) {
        in_child = 1;
        return;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (status) _exit(3);
    forks++;
}
// Rounds, until one was interrupted by a fork. In the child this does not return.
static void rounds_until_forked(int before) {
    while (forks == before && !in_child) qy_stats_page_round();
    if (!in_child) return;
    qy_stats_page_round();
    move_some(4 << 20);
    _exit(0);
}
#if QY_TSAN
#define HANDLERS_FORK() TEST_SKIP("needs a build without ThreadSanitizer, which allocates when a handler forks")
#else
#define HANDLERS_FORK() (void)0
#endif

// At the first store to each of its parts.
static char *guarded;
static void fork_at_store(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if ((uintptr_t)info->si_addr - (uintptr_t)guarded >= QUARRY_STATS_PAGE_ALIGN) _exit(4);
    if (mprotect(guarded, QUARRY_STATS_PAGE_ALIGN, PROT_READ | PROT_WRITE)) _exit(5);
    fork_now();
}
TEST(a_fork_at_a_store) {
    HANDLERS_FORK();
    const quarry_stats_page_t *p = page();
    CHECK_EQ(QUARRY_STATS_PAGE_ALIGN % qy_os_page_size(), 0);
    struct sigaction action = {.sa_sigaction = fork_at_store, .sa_flags = SA_SIGINFO}, old;
    CHECK_EQ(sigaction(SIGSEGV, &action, &old), 0);
    const void *const stored_to[] = {
        &p->heap.sums[0], &p->heap.class_turn, &p->heap.classes[0][0], &p->heap.ranges[0][0]};
    for (size_t i = 0; i < 4 * sizeof stored_to / sizeof *stored_to; i++) {
        guarded = (char *)((uintptr_t)stored_to[i / 4] / QUARRY_STATS_PAGE_ALIGN * QUARRY_STATS_PAGE_ALIGN);
        CHECK_EQ(mprotect(guarded, QUARRY_STATS_PAGE_ALIGN, PROT_READ), 0);
        rounds_until_forked(forks);
    }
    CHECK_EQ(sigaction(SIGSEGV, &old, NULL), 0);
}

// At any time. Each signal is asked for when the handler of the last has returned: where a fork takes longer than a
// timer's interval, the handler would be all that runs.
static void fork_at_alarm(int signal) {
    (void)signal;
    fork_now();
}
TEST(a_fork_while_it_is_written) {
    HANDLERS_FORK();
    page();
    qy_heap_t *heap[50];  // so that a round takes its time
    for (int i = 0; i < 50; i++) CHECK((heap[i] = qy_first_class_create("one of many", 0)));
    signal(SIGALRM, fork_at_alarm);
    uint64_t random = test_seed;
    for (int i = 0; i < 60; i++) {
        struct itimerval once = {{0, 0}, {0, 50 + (long)(test_random(&random) % 3000)}};
        int before = forks;
        CHECK_EQ(setitimer(ITIMER_REAL, &once, NULL), 0);
        rounds_until_forked(before);
    }
    signal(SIGALRM, SIG_DFL);
    for (int i = 0; i < 50; i++) qy_first_class_destroy(heap[i]);
}

// The same while a child makes its page: the child's child, which goes on with that, has no such page.
static void fork_and_wait(int signal) {
    (void)signal;
    pid_t pid = fork();
    if (!pid) return;
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status) _exit(4);
}
TEST(a_fork_while_it_is_made) {
    HANDLERS_FORK();
    page();
    for (int i = 0; i < 300; i++) {
        pid_t pid = fork();
        if (!pid) {
            alarm(TEST_PATIENCE);
            signal(SIGVTALRM, fork_and_wait);
            timer_t timer;
            struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
            CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
            struct itimerspec soon = {.it_value = {.tv_nsec = 1000 + i * 200}};
            CHECK_EQ(timer_settime(timer, 0, &soon, NULL), 0);
            qy_stats_page_moved(QY_STATS_PAGE_MIN);
            usleep(100);  // for those that come late
            CHECK(qy_stats_page_moved(QY_STATS_PAGE_MIN));
            CHECK_EQ(qy_stats_page()->head.pid, getpid());
            _exit(0);
        }
        ended(pid, 0);
    }
}

// With QUARRY_CONF=stats_page:off, and with purge_thread:off, each in a run of its own.
TEST(option_off) {
    const char *conf = getenv("QUARRY_CONF");
    if (!conf || !strstr(conf, "stats_page:off")) TEST_SKIP("needs stats_page:off, as in heap_stats_page_off");
    qy_opts.purge_thread = true;
    move_some(40 << 20);
    CHECK(!qy_stats_page());
    CHECK(!page_of(getpid()));
}
TEST(without_a_thread_it_is_the_same) {
    const char *conf = getenv("QUARRY_CONF");
    if (!conf || !strstr(conf, "purge_thread:off"))
        TEST_SKIP("needs purge_thread:off, as in heap_stats_page_without_thread");
    CHECK_EQ(qy_stats_page_number(), 0);
    page();
    CHECK_EQ(qy_stats_page_number(), 1);
    pid_t pid = fork();
    if (!pid) {
        move_some(40 << 20);
        _exit(page_at(getpid()) != (uintptr_t)qy_stats_page());
    }
    ended(pid, 0);
}

TEST_MAIN()
