// SPDX-License-Identifier: MIT
// test_fork_streams.c: fork beside threads that are in libc's streams, and allocate there. fork wants the lock of
// libc's list of streams; its holder (fflush(NULL)) wants a stream's; and who has that one allocates. So the heap may
// not be frozen before fork has the list.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "api/family.h"
#if FAMILY_QUARRY
#include <quarry/heap.h>
#include <quarry/tlsf.h>
#endif

// musl's fork takes its list after the handlers of others, and nothing of its own tells them of it: there this hangs.
#ifdef __GLIBC__
#define NEEDS_LIST_FIRST()
#else
#define NEEDS_LIST_FIRST() TEST_SKIP("needs glibc: musl's fork takes the list of streams behind our handlers")
#endif

// Who comes so far waits here until the fork has begun, and then until it is surely under way: if it is not yet, that
// is no fault.
static _Atomic int step;
static void reach(int n) {
    while (step < n) usleep(1000);
}
static void fork_begins(void) {
    if (step) step = 2;
}
static void amid_a_fork(void) {
    step = 1;
    reach(2);
    usleep(50000);
}

#if FAMILY_QUARRY
static quarry_pool_t *pool;
#endif
static void begin(void) {
    static bool registered;
    alarm(TEST_PATIENCE);
    m.free(m.malloc(100));  // the heap's handlers are registered
#if FAMILY_QUARRY
    if (!pool) CHECK((pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.flags = QUARRY_TLSF_LOCK})) != NULL);
#endif
    // later than those, so it is called before them
    if (!registered) CHECK_EQ(pthread_atfork(fork_begins, NULL, NULL), 0);
    registered = true;
    step = 0;
}

static void allocate(void) {
    void *p[3];
    for (int i = 0; i < 3; i++) CHECK((p[i] = m.malloc(i == 0 ? 400 : i == 1 ? 200000
                                                                             : 40000000)) != NULL);
    for (int i = 0; i < 3; i++) m.free(p[i]);
#if FAMILY_QUARRY
    CHECK((p[0] = quarry_pool_alloc(pool, 400, 16, 0)) != NULL);
    quarry_pool_free(pool, p[0], 400);
#endif
}

static ssize_t write_and_allocate(void *unused, const char *text, size_t n) {
    (void)unused, (void)text;
    if (step == 0) amid_a_fork();
    allocate();
    return (ssize_t)n;
}
static ssize_t read_and_allocate(void *unused, char *text, size_t n) {
    (void)unused;
    if (step == 0) amid_a_fork();
    allocate();
    memset(text, 'x', n);
    text[n - 1] = '\n';
    return (ssize_t)n;
}
// A buffer of its own: the thread that reads has not allocated before.
static FILE *open_stream(const char *mode) {
    static char buffer[4096];
    FILE *f = fopencookie(NULL, mode, (cookie_io_functions_t){.read = read_and_allocate, .write = write_and_allocate});
    CHECK(f && setvbuf(f, buffer, _IOFBF, sizeof buffer) == 0);
    return f;
}

static void use_streams(void) {
    FILE *f = fopen("/dev/null", "w");
    CHECK(f && fprintf(f, "%s\n", "a line") > 0 && fflush(NULL) == 0 && fclose(f) == 0);
}
static void *use_streams_too(void *unused) {
    use_streams();
    return unused;
}
static void from_a_thread(void) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, use_streams_too, NULL), 0);
    pthread_join(t, NULL);
}

// The child has streams, and so have threads of its own; so has the parent afterwards.
static void fork_once(void) {
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        alarm(TEST_PATIENCE);
        step = 3;
        allocate();
#if FAMILY_QUARRY
        quarry_pool_destroy(quarry_tlsf_create(NULL));
#endif
        use_streams();
        from_a_thread();
        use_streams();
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    use_streams();
    from_a_thread();
}

// ---- forks while the forking thread is in a stream -----------------------------------------------------------

// With the list's lock and a stream's, in a process that never had another thread: libc leaves both as they are, and so
// must we. It goes on in the child, where others find both free afterwards.
static ssize_t fork_in_write(void *unused, const char *text, size_t n) {
    (void)unused, (void)text;
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid) {
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    } else {
        alarm(TEST_PATIENCE);
        step = 4;
    }
    return (ssize_t)n;
}
static void fork_while_flushing(void *unused) {
    (void)unused;
    begin();
    FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = fork_in_write});
    CHECK(f && fputs("text", f) >= 0 && fflush(NULL) == 0);
    fclose(f);
    from_a_thread();
    use_streams();
}
TEST(of_a_thread_that_flushes) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        fork_while_flushing(NULL);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

// ---- two threads ------------------------------------------------------------------------------------------

static void *flush_all(void *unused) {
    CHECK_EQ(fflush(NULL), 0);
    return unused;
}
TEST(a_stream_whose_function_allocates) {
    NEEDS_LIST_FIRST();
    pthread_t t;
    begin();
    FILE *f = open_stream("w");
    CHECK(fputs("text", f) >= 0);
    CHECK_EQ(pthread_create(&t, NULL, flush_all, NULL), 0);
    reach(1);
    fork_once();
    pthread_join(t, NULL);
    step = 3;
    fclose(f);
    alarm(0);
}

// ---- three --------------------------------------------------------------------------------------------------

static void *get_line(void *f) {
    char *line = NULL;
    size_t n = 0;
#if FAMILY_QUARRY
    static char space[8192];
    line = space;  // libc's own malloc is not what is tested
    n = sizeof space;
#endif
    CHECK_GT(getline(&line, &n, f), 0);
#if !FAMILY_QUARRY
    free(line);
#endif
    return NULL;
}
TEST(one_reads_one_flushes_one_forks) {
    NEEDS_LIST_FIRST();
    pthread_t reads, flushes;
    begin();
    FILE *f = open_stream("r");
    CHECK_EQ(pthread_create(&reads, NULL, get_line, f), 0);
    reach(1);
    CHECK_EQ(pthread_create(&flushes, NULL, flush_all, NULL), 0);
    usleep(50000);  // it has the list, and waits for the stream
    fork_once();
    pthread_join(reads, NULL);
    pthread_join(flushes, NULL);
    step = 3;
    fclose(f);
    alarm(0);
}

// ---- walks --------------------------------------------------------------------------------------------------

#if FAMILY_QUARRY
// A function that is called for each block, or for each pool, may open a stream, and use pools and other heaps. So a
// fork that has the list of streams, and has frozen pools, does not wait for the walk.
static void in_a_walk(void) {
    amid_a_fork();
    FILE *f = fopen("/dev/null", "r");
    CHECK(f && fclose(f) == 0);
    allocate();
}
static int visit_block(void *block, size_t usable, void *unused) {
    (void)block, (void)usable, (void)unused;
    in_a_walk();
    return 1;
}
static int visit_pool(quarry_pool_t *any, void *unused) {
    (void)any, (void)unused;
    in_a_walk();
    return 1;
}
static void *walk_heap(void *heap) {
    CHECK_EQ(quarry_heap_walk(heap, visit_block, NULL), 1);
    CHECK(quarry_heap_alloc(heap, 100) != NULL);
    return NULL;
}
static int visit_block_of_tlsf(void *block, size_t bytes, int used, void *unused) {
    (void)block, (void)bytes, (void)used, (void)unused;
    in_a_walk();
    return 1;
}
static int stop_at_block(void *block, size_t bytes, int used, void *unused) {
    (void)block, (void)bytes, (void)used, (void)unused;
    return 1;
}
static void *walk_tlsf(void *tlsf) {
    CHECK_EQ(quarry_tlsf_walk(tlsf, visit_block_of_tlsf, NULL), 1);
    CHECK(quarry_pool_alloc(tlsf, 100, 16, 0) != NULL);
    return NULL;
}
static void *walk_pools(void *unused) {
    CHECK_EQ(quarry_pools_walk(visit_pool, NULL), 1);
    return unused;
}
static void fork_beside(void *(*walk)(void *arg), void *arg) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, walk, arg), 0);
    reach(1);
    fork_once();
    pthread_join(t, NULL);
    alarm(0);
}
TEST(beside_a_walk_of_a_heap) {
    begin();
    quarry_heap_t *heap = quarry_heap_create(NULL);
    CHECK(heap && quarry_heap_alloc(heap, 100));
    fork_beside(walk_heap, heap);
    quarry_heap_destroy(heap);
}
TEST(beside_a_walk_of_the_pools) {
    begin();
    fork_beside(walk_pools, NULL);
    quarry_pool_destroy(quarry_tlsf_create(NULL));
}
TEST(beside_a_walk_of_a_tlsf) {
    begin();
    quarry_pool_t *tlsf = quarry_tlsf_create(&(quarry_tlsf_options_t){.flags = QUARRY_TLSF_LOCK});
    CHECK(tlsf && quarry_pool_alloc(tlsf, 100, 16, 0));
    if (!quarry_tlsf_walk(tlsf, stop_at_block, NULL))
        TEST_SKIP("needs a build without AddressSanitizer: blocks of pools are malloc's there");
    fork_beside(walk_tlsf, tlsf);
    // It is whole, and its lock is free.
    CHECK(quarry_pool_alloc(tlsf, 100, 16, 0) != NULL && quarry_pool_check(tlsf) == 0);
    quarry_pool_destroy(tlsf);
}
#endif

// ---- whatever comes -------------------------------------------------------------------------------------------

static _Atomic bool stop;
static void *lines(void *path) {
    while (!stop) {
        FILE *f = fopen(path, "r");
        char *line = NULL;
        size_t n = 0;
        CHECK(f != NULL);
        for (int i = 0; i < 40 && getline(&line, &n, f) > 0; i++) allocate();
        free(line);
        fclose(f);
    }
    return NULL;
}
static void *flushes(void *unused) {
    while (!stop) fflush(NULL);
    return unused;
}
TEST(many) {
    NEEDS_LIST_FIRST();
    pthread_t t[3];
    begin();
    step = 3;
    stop = false;
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&t[i], NULL, lines, (void *)"/proc/self/maps"), 0);
    CHECK_EQ(pthread_create(&t[2], NULL, flushes, NULL), 0);
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) _exit(0);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
    }
    stop = true;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    alarm(0);
}

TEST_MAIN()
