// SPDX-License-Identifier: MIT
// test_persist_process.c: persistent pools and other processes: readers, forks, locks, files that go away.
#include <pthread.h>
#include <quarry/tlsf.h>
#include <sched.h>
#include <signal.h>

#include "captured.h"
#include "persist_test.h"

static bool only_bytes(const unsigned char *p, int value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != value) return false;
    return true;
}

TEST(one_writer) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK(!pt_try(pt_path, 0));
    CHECK_EQ(errno, EAGAIN);
    CHECK(!pt_try(pt_path, QUARRY_PERSIST_CREATE | QUARRY_PERSIST_JOURNAL));
    quarry_persist_t *r1 = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY), *r2 = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY);
    CHECK(!quarry_persist_alloc(r1, 8, 0));
    CHECK_EQ(errno, EROFS);
    CHECK_EQ(quarry_persist_begin(r1), -1);
    CHECK_EQ(quarry_persist_sync(r1), -1);
    uint64_t mark = quarry_persist_read_begin(r1);
    CHECK(mark && quarry_persist_read_ok(r1, mark));
    uint64_t *slots = pt_slots(s, 8);
    CHECK(!quarry_persist_read_ok(r1, mark));
    CHECK_EQ(quarry_persist_root(r1), quarry_persist_root(s));
    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK_EQ(quarry_persist_set(s, &slots[0], 1), 0);
    CHECK_EQ(quarry_persist_read_begin(r2), 0);
    CHECK_EQ(quarry_persist_abort(s), 0);
    // Nor does a reader resize in place.
    CHECK(quarry_persist_alloc_to(s, &slots[1], 10, 0));
    void *there = quarry_persist_at(r1, slots[1]);
    for (unsigned zero = 0; zero < 2; zero++) {
        errno = 0;
        CHECK(!quarry_pool_resize(quarry_persist_pool(r1), there, 10, 20, 8, zero ? QUARRY_POOL_ZERO : 0));
        CHECK_EQ(errno, EROFS);
    }
    // Growth is seen when asked for.
    uint64_t far = quarry_persist_alloc_to(s, &slots[0], 1 << 20, QUARRY_POOL_ZERO);
    memset(quarry_persist_at(s, far), 9, 1 << 20);
    char *base = quarry_persist_at(r1, 140000);
    CHECK_EQ(quarry_persist_refresh(r1), 0);
    CHECK_PTR_EQ(quarry_persist_at(r1, 140000), base);
    CHECK(only_bytes(quarry_persist_at(r1, far), 9, 1 << 20));
    CHECK_EQ(quarry_persist_check(r1), 0);
    CHECK_EQ(quarry_persist_close(r1), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    s = pt_open(pt_path, 0);  // readers are no obstacle
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(quarry_persist_close(r2), 0);
}

// Threads that share a reader all see what the file has grown by.
static quarry_persist_t *reader;
static _Atomic uint64_t grown;  // 0: it does not any more
static void *refresh(void *unused) {
    for (uint64_t bytes; (bytes = grown) != 0;) {
        CHECK_EQ(quarry_persist_refresh(reader), 0);
        CHECK(quarry_persist_at(reader, bytes - QY_PERSIST_UNIT));
    }
    return unused;
}
TEST(threads_refresh_a_reader) {
    enum { STEPS = QY_TSAN ? 200 : 2000,
        THREADS = 4 };
    pthread_t t[THREADS];
    struct stat st;
    CHECK_EQ(quarry_persist_close(pt_new(pt_path, 0)), 0);
    reader = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY);
    int fd = open(pt_path, O_RDWR);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    uint64_t first = (uint64_t)st.st_size, end = first;
    grown = end;
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, refresh, NULL), 0);
    for (int i = 0; i < STEPS; i++) {
        CHECK_EQ(ftruncate(fd, (off_t)(end + QY_PERSIST_UNIT)), 0);
        CHECK_EQ(pwrite(fd, &end, sizeof end, (off_t)end), sizeof end);
        grown = end += QY_PERSIST_UNIT;
        sched_yield();
    }
    grown = 0;
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(quarry_persist_refresh(reader), 0);
    // Each place in the mapping has its own place in the file.
    for (uint64_t at = first; at < end; at += QY_PERSIST_UNIT)
        CHECK_EQ(*(uint64_t *)quarry_persist_at(reader, at), at);
    close(fd);
    CHECK_EQ(quarry_persist_close(reader), 0);
}

// Nor does a refresh come amid another operation.
static _Atomic bool refreshed;
static void *refresh_once(void *unused) {
    CHECK_EQ(quarry_persist_refresh(reader), 0);
    refreshed = true;
    return unused;
}
TEST(a_refresh_takes_its_turn) {
    pthread_t t;
    CHECK_EQ(quarry_persist_close(pt_new(pt_path, 0)), 0);
    reader = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY);
    refreshed = false;
    qy_lock_take(&reader->lock);
    CHECK_EQ(pthread_create(&t, NULL, refresh_once, NULL), 0);
    usleep(50000);
    CHECK(!refreshed);
    qy_lock_drop(&reader->lock);
    pthread_join(t, NULL);
    CHECK(refreshed);
    CHECK_EQ(quarry_persist_close(reader), 0);
}

// Readers that open while a writer works see a sound pool or wait for one.
TEST(readers_of_a_busy_pool) {
    quarry_persist_t *writer, *s = pt_new(pt_path, 0);
    pt_slots(s, 400);
    CHECK_EQ(quarry_persist_close(s), 0);
    for (unsigned mode = 0; mode < 2; mode++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            uint64_t seed = test_seed;
            writer = pt_try(pt_path, mode ? QUARRY_PERSIST_JOURNAL : 0);
            if (!writer) _exit(1);
            uint64_t *slots = pt_slots(writer, 400);
            for (;;) {
                uint64_t r = test_random(&seed), k = r % 400;
                if (slots[k] ? quarry_persist_free_from(writer, &slots[k])
                             : !quarry_persist_alloc_to(writer, &slots[k], r % 3000, 0))
                    _exit(2);
                if (mode && r >> 60 == 0 && quarry_persist_sync(writer)) _exit(3);
                if (r >> 58 == 0) usleep(200);
            }
        }
        for (unsigned i = 0; i < 60; i++) {
            quarry_persist_t *r = pt_try(pt_path, QUARRY_PERSIST_READ_ONLY);
            if (!r) CHECK_EQ(errno, EAGAIN);
            else CHECK_EQ(quarry_persist_close(r), 0);
            if (!r && mode == 0) printf("%s\n", quarry_persist_error(NULL));
        }
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        CHECK(WIFSIGNALED(status));
    }
}

static void child_of_fork(quarry_persist_t *s, uint64_t *slots) {
    if (((pt_block_t *)quarry_persist_at(s, slots[0]))->serial != 3) _exit(1);
    if (quarry_persist_alloc(s, 10, 0) || errno != EPERM) _exit(2);
    if (quarry_persist_free_from(s, &slots[0]) != -1 || errno != EPERM) _exit(3);
    if (quarry_persist_sync(s) != -1 || quarry_persist_begin(s) != -1) _exit(4);
    void *block = quarry_persist_at(s, slots[0]);
    if (quarry_pool_resize(quarry_persist_pool(s), block, 120, 180, 8, QUARRY_POOL_ZERO) || errno != EPERM) _exit(7);
    if (quarry_persist_check(s)) _exit(5);
    if (quarry_persist_close(s)) _exit(6);
    _exit(0);
}

TEST(fork_with_a_pool) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *slots = pt_slots(s, 4);
    CHECK(quarry_persist_alloc_to(s, &slots[0], 200, 0));
    pt_fill(s, slots[0], 3, 100);
    int status;
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) child_of_fork(s, slots);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    // A child's stray store is its own death, not damage to the pool.
    pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile uint64_t *)quarry_persist_at(s, slots[0]) = 1;
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_NE(status, 0);
    CHECK(!pt_audit(s, 4));
    // Within a transaction: it stays the parent's.
    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK_EQ(quarry_persist_set(s, &slots[1], 0), 0);
    pid = fork();
    if (pid == 0) _exit(quarry_persist_set(s, &slots[2], 0) == -1 ? 0 : 1);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(quarry_persist_commit(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// A child of a journal's writer has copies of some pages, as they were at the fork. The others are the file's, which
// has what the parent's next sync stores.
TEST(a_child_reads_until_the_next_sync) {
    int ready[2], synced[2], status;
    char c = 0;
    quarry_persist_t *s = pt_new(pt_path, QUARRY_PERSIST_JOURNAL);
    uint64_t *slots = pt_slots(s, 4);
    CHECK(quarry_persist_alloc_to(s, &slots[0], 200, 0) && quarry_persist_alloc_to(s, &slots[1], 70000, 0));
    CHECK_EQ(quarry_persist_sync(s), 0);
    pt_fill(s, slots[0], 1, 100);
    CHECK(pipe(ready) == 0 && pipe(synced) == 0);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        close(synced[1]);
        uint64_t mark = quarry_persist_read_begin(s);
        if (!mark || !quarry_persist_read_ok(s, mark) || write(ready[1], &c, 1) != 1) _exit(1);
        if (read(synced[0], &c, 1) != 1) _exit(2);
        _exit(quarry_persist_read_ok(s, mark) || quarry_persist_read_begin(s) ? 3 : 0);
    }
    close(ready[1]);
    CHECK_EQ(read(ready[0], &c, 1), 1);
    pt_fill(s, slots[0], 2, 100);
    pt_fill(s, slots[1], 2, 60000);
    CHECK_EQ(quarry_persist_sync(s), 0);
    CHECK_EQ(write(synced[1], &c, 1), 1);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    close(ready[0]);
    for (int i = 0; i < 2; i++) close(synced[i]);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// In shared mode it may follow what the parent's pool grows by, and only read that.
TEST(a_child_refreshes) {
    int grown_by[2], status;
    uint64_t at;
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK(pipe(grown_by) == 0);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        close(grown_by[1]);
        if (read(grown_by[0], &at, sizeof at) != sizeof at || quarry_persist_at(s, at + (1 << 20))) _exit(1);
        if (quarry_persist_refresh(s)) _exit(2);
        const unsigned char *p = quarry_persist_at(s, at);
        if (!p || !quarry_persist_at(s, at + (1 << 20)) || !only_bytes(p, 9, 2 << 20)) _exit(3);
        signal(SIGSEGV, SIG_DFL);
        *(volatile unsigned char *)(uintptr_t)p = 1;
        _exit(4);
    }
    at = quarry_persist_alloc(s, 2 << 20, 0);
    CHECK(at);
    memset(quarry_persist_at(s, at), 9, 2 << 20);
    CHECK_EQ(write(grown_by[1], &at, sizeof at), sizeof at);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    for (int i = 0; i < 2; i++) close(grown_by[i]);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// A transaction and a walk run the user's code with the pool's lock: that may need what a fork, which waits for them,
// has frozen.
static quarry_persist_t *open_pool;
static quarry_pool_t *newer;
static _Atomic int stage;
static void fork_begins(void) {
    if (stage == 1) stage = 2;
}
static void use_newer(void) {
    stage = 1;
    while (stage == 1) usleep(1000);
    usleep(50000);  // the fork is under way by now; if it is not yet, that is no fault either
    void *p = quarry_pool_alloc(newer, 100, 8, 0);
    CHECK(p);
    quarry_pool_free(newer, p, QUARRY_SIZE_UNKNOWN);
}
static void *in_transaction(void *unused) {
    CHECK_EQ(quarry_persist_begin(open_pool), 0);
    quarry_persist_ptr_t at = quarry_persist_alloc(open_pool, 100, 0);
    CHECK(at);
    use_newer();
    CHECK_EQ(quarry_persist_free(open_pool, at), 0);
    CHECK_EQ(quarry_persist_commit(open_pool), 0);
    return unused;
}
static int visit(quarry_persist_ptr_t at, size_t size, void *arg) {
    (void)at, (void)size, (void)arg;
    use_newer();
    return 1;
}
static int go_on(quarry_persist_ptr_t at, size_t size, void *arg) {
    (void)at, (void)size, (void)arg;
    return 0;
}
static void *in_walk(void *unused) {
    CHECK_EQ(quarry_persist_walk(open_pool, visit, NULL), 1);
    return unused;
}
// The transaction goes on behind a walk.
static void *in_transaction_behind_walk(void *unused) {
    CHECK_EQ(quarry_persist_begin(open_pool), 0);
    CHECK_EQ(quarry_persist_walk(open_pool, go_on, NULL), 0);
    use_newer();
    CHECK_EQ(quarry_persist_commit(open_pool), 0);
    return unused;
}
TEST(fork_beside_users_code) {
    void *(*const threads[])(void *) = {in_transaction, in_walk, in_transaction_behind_walk};
    CHECK_EQ(pthread_atfork(fork_begins, NULL, NULL), 0);
    open_pool = pt_new(pt_path, 0);
    CHECK(pt_slots(open_pool, 8));
    newer = quarry_tlsf_create(&(quarry_tlsf_options_t){.flags = QUARRY_TLSF_LOCK});
    CHECK(newer);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        alarm(TEST_PATIENCE);
        stage = 0;
        CHECK_EQ(pthread_create(&thread, NULL, threads[i], NULL), 0);
        while (!stage) usleep(1000);
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            alarm(TEST_PATIENCE);
            if (quarry_persist_begin(open_pool) != -1 || errno != EPERM) _exit(1);
            if (quarry_persist_walk(open_pool, go_on, NULL) != 0) _exit(2);
            _exit(quarry_persist_close(open_pool) == 0 ? 0 : 3);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(quarry_persist_check(open_pool), 0);
        alarm(0);
    }
    quarry_pool_destroy(newer);
    CHECK_EQ(quarry_persist_close(open_pool), 0);
}

// Between the end of a pool and that of its record a fork's child leaves alone what was the pool's.
TEST(fork_beside_a_close) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    char *base = s->base;
    size_t bytes = s->mapped;
    int lock_fd = s->lock_fd, status;
    qy_pool_retire(&s->pool);  // as a close does
    qy_persist_let_go(s);
    CHECK_EQ(dup2(1, lock_fd), lock_fd);
    CHECK(mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        *(volatile char *)base = 1;
        _exit(fcntl(lock_fd, F_GETFD) < 0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    munmap(base, bytes);
    close(lock_fd);
    qy_persist_abandon(s);
}

// A signal handler forks that interrupted an operation: what that holds is this thread's.
static pid_t handlers_child;
static void fork_in_handler(void *where) {
    (void)where;
    qy_persist_hook = NULL;  // once
    handlers_child = fork();
    if (handlers_child == 0) _exit(0);
}
TEST(fork_within_an_operation) {
    int status;
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *slots = pt_slots(s, 8);
    qy_persist_hook = fork_in_handler;
    CHECK(quarry_persist_alloc_to(s, &slots[0], 100, QUARRY_POOL_ZERO));
    CHECK_GT(handlers_child, 0);
    CHECK_EQ(waitpid(handlers_child, &status, 0), handlers_child);
    CHECK_EQ(status, 0);
    const char *wrong = pt_audit(s, 8);
    if (wrong) TEST_FAIL("%s", wrong);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// The lock goes with its process, also if a child of it lives on with the pool mapped.
TEST(stale_locks_vanish) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    quarry_persist_close(pt_new(pt_path, 0));
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        quarry_persist_t *s = pt_try(pt_path, 0);
        pid_t heir = s ? fork() : -1;
        if (heir == 0) {
            alarm(TEST_PATIENCE);
            pid_t self = getpid();
            if (write(fds[1], &self, sizeof self) < 0) _exit(1);
            for (;;) pause();
        }
        if (heir < 0) _exit(1);
        for (;;) pause();
    }
    pid_t heir;
    CHECK_EQ(read(fds[0], &heir, sizeof heir), sizeof heir);
    CHECK_GT(heir, 0);
    CHECK(!pt_try(pt_path, 0));
    CHECK_EQ(errno, EAGAIN);
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(kill(heir, 0), 0);  // it is there, and has the pool
    CHECK_EQ(quarry_persist_close(pt_open(pt_path, 0)), 0);
    kill(heir, SIGKILL);
    close(fds[0]);
    close(fds[1]);
}

TEST(deleted_and_replaced) {
    quarry_persist_t *s = pt_new(pt_path, 0), *other;
    uint64_t a = quarry_persist_alloc(s, 100, 0);
    unlink(pt_path);
    CHECK(quarry_persist_alloc(s, 1 << 20, 0));
    other = pt_open(pt_path, QUARRY_PERSIST_CREATE);  // another file, another lock
    CHECK_EQ(quarry_persist_free(s, a), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(quarry_persist_check(other), 0);
    CHECK_EQ(quarry_persist_close(other), 0);
}

static void without_descriptors(void *arg) {
    (void)arg;
    for (int i = 0; i < 3; i++) close(i);
    quarry_persist_t *s = quarry_persist_open(pt_path, NULL);
    if (!s || s->fd < 3 || s->lock_fd < 3) _exit(1);
    if (write(2, "x", 1) != -1 || quarry_persist_close(s)) _exit(2);
}
TEST(standard_descriptors_are_closed) {
    quarry_persist_close(pt_new(pt_path, 0));
    run_apart(without_descriptors, NULL);
}

// An interrupted making is told from a foreign file, and finished on request.
TEST(interrupted_making) {
    static char zeros[512];
    quarry_persist_close(pt_new(pt_path, 0));
    int fd = open(pt_path, O_RDWR);
    uint64_t creating = QY_PERSIST_CREATING;
    CHECK_EQ(pwrite(fd, &creating, 8, 0), 8);
    CHECK_EQ(pwrite(fd, zeros, 512, QY_PERSIST_UNIT), 512);
    // A reader is told whether its maker is still at it.
    CHECK_EQ(qy_os_file_lock(fd), 0);
    CHECK(!pt_try(pt_path, QUARRY_PERSIST_READ_ONLY));
    CHECK_EQ(errno, EAGAIN);
    close(fd);
    CHECK(!pt_try(pt_path, QUARRY_PERSIST_READ_ONLY));
    CHECK_EQ(errno, EUCLEAN);
    CHECK(!pt_try(pt_path, 0));
    CHECK_EQ(errno, EUCLEAN);
    quarry_persist_t *s = pt_open(pt_path, QUARRY_PERSIST_CREATE);
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// So is one that comes before there is anything in the file.
TEST(nothing_made_yet) {
    unlink(pt_path);
    int fd = open(pt_path, O_RDWR | O_CREAT, 0600);
    CHECK_GE(fd, 0);
    CHECK_EQ(qy_os_file_lock(fd), 0);
    CHECK(!pt_try(pt_path, QUARRY_PERSIST_READ_ONLY));
    CHECK_EQ(errno, EAGAIN);
    close(fd);
    CHECK(!pt_try(pt_path, QUARRY_PERSIST_READ_ONLY));
    CHECK_EQ(errno, EMEDIUMTYPE);
}

// A file may have no name from the start, and yet a path.
TEST(in_a_file_without_a_name) {
    char path[64];
    unlink(pt_path);
    int fd = open(pt_path, O_RDWR | O_CREAT, 0600);
    CHECK_GE(fd, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    unlink(pt_path);
    for (int i = 0; i < 2; i++) {  // it is made, and then it is there
        quarry_persist_t *s = pt_try(path, QUARRY_PERSIST_CREATE);
        CHECK(s && quarry_persist_alloc(s, 100, 0));
        CHECK_EQ(quarry_persist_close(s), 0);
    }
    close(fd);
}

// A writer died in an operation: a reader, who may not write, sees the pool without it.
TEST(readers_repair_for_themselves) {
    static char before[1 << 20], after[1 << 20];
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *slots = pt_slots(s, 4);
    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK(quarry_persist_alloc_to(s, &slots[1], 100, 0));
    qy_persist_abandon(s);
    size_t n = pt_read(pt_path, before, sizeof before);
    quarry_persist_t *r = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY);
    CHECK(!pt_audit(r, 4));
    CHECK_EQ(pt_slots(r, 4)[1], 0);
    uint64_t mark = quarry_persist_read_begin(r);
    CHECK(mark);
    CHECK(quarry_persist_read_ok(r, mark));
    CHECK_EQ(pt_read(pt_path, after, sizeof after), n);
    CHECK_EQ(memcmp(before, after, n), 0);
    // The next writer repairs the file; from then on the view is of no moment, as some of its pages are the file's
    // still.
    s = pt_open(pt_path, 0);
    CHECK(!quarry_persist_read_ok(r, mark));
    CHECK(!quarry_persist_read_begin(r));
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK(!quarry_persist_read_ok(r, mark));
    CHECK(!quarry_persist_read_begin(r));
    CHECK_EQ(quarry_persist_close(r), 0);
    r = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY);
    CHECK(quarry_persist_read_begin(r));
    CHECK_EQ(quarry_persist_close(r), 0);
}

TEST_MAIN()
