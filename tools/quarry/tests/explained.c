// SPDX-License-Identifier: MIT
// explained.c: a process whose memory is what it is for a reason that is known: leak, mapped, fragmentation,
// caches THREADS STEP, file NAME, written NAME, shared, lazy, live, busy THREADS PAUSE.
// It says "ready" and works on until its input ends.
// Runs on any malloc.
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BLOCKS 20000  // of 1000 bytes

static int input_ended(int ms) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, ms) > 0;
}

// Large memory that is not touched: a malloc has something to do, and RSS stays what it is. Quarry counts caches and
// writes its statistics page on such occasions.
static void work(void) {
    void *volatile p = malloc((size_t)640 << 10);
    free(p);
}

// It has worked, so that what a malloc makes, and what the kernel brings of its code, at the first such occasion is
// there.
static void ready(void) {
    if (!input_ended(0)) work();
    puts("ready");
    fflush(stdout);
}

static void work_on(void) {
    while (!input_ended(20)) work();
}

static void *block(size_t size) {
    char *p = malloc(size);
    if (!p) exit(9);
    memset(p, 'x', size);
    return p;
}

// Grows by some 20 MiB a second, in small blocks that nobody frees.
static void leak(void) {
    static void *volatile kept;
    ready();
    while (!input_ended(10)) {
        for (size_t i = 0; i < 200; i++) {
            void **p = block(1000);
            *p = kept;
            kept = p;
        }
    }
}

// Grows by some 25 MiB a second, by mappings of its own.
static void mapped(void) {
    size_t bytes = MIB / 4;
    ready();
    while (!input_ended(10)) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) exit(9);
        memset(p, 'x', bytes);
    }
}

// Of each ten blocks one stays.
static void fragmentation(void) {
    static void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = block(1000);
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % 10) free(blocks[i]);
    ready();
    work_on();
}

static pthread_barrier_t all_done;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

// Each thread frees blocks of each size at once, some times over so that caches that learn what is needed have learned
// it, and then does nothing any more. No block stays live.
static void *hoard(void *step_of_sizes) {
    enum { MOST = 256,
        ROUNDS = 8,
        COUNTS = 3 };
    size_t step = *(const size_t *)step_of_sizes;
    void *blocks[MOST];
    // One at a time: who is interrupted while it counts its cache takes that for the cost of counting, and does it
    // seldom.
    pthread_mutex_lock(&turn);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t size = step; size <= 1024; size += step) {
            // As much as a cache of Quarry takes: two lists of 16 KiB or 128 blocks.
            size_t n = 32768 / size < MOST ? 32768 / size : MOST;
            for (size_t i = 0; i < n; i++) blocks[i] = block(size);
            for (size_t i = 0; i < n; i++) free(blocks[i]);
        }
    }
    pthread_mutex_unlock(&turn);
    // Quarry's threads count their caches 20 times a second at most.
    for (int i = 0; i < COUNTS; i++) {
        usleep(60000);
        work();
    }
    pthread_barrier_wait(&all_done);
    pause();
    return NULL;
}

static void caches(int threads, size_t step) {
    pthread_barrier_init(&all_done, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, hoard, &step)) exit(9);
    }
    pthread_barrier_wait(&all_done);
    ready();
    work_on();
}

// `how`: MAP_SHARED or MAP_PRIVATE.
static void file(const char *name, int how) {
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    size_t bytes = 40 * MIB;
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) exit(9);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, fd, 0);
    if (p == MAP_FAILED) exit(9);
    for (size_t i = 0; i < bytes; i += 4096) p[i] = 1;
    ready();
    work_on();
}

// 50 MiB that children would share.
static void shared(void) {
    char *p = mmap(NULL, 50 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(9);
    memset(p, 1, 50 * MIB);
    ready();
    work_on();
}

// 40 MiB of its own, of which the kernel may take 30.
static void lazy(void) {
    char *p = mmap(NULL, 40 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(9);
    memset(p, 1, 40 * MIB);
    if (madvise(p, 30 * MIB, MADV_FREE)) exit(9);
    ready();
    work_on();
}

// Small and large blocks, all of them in use.
static void live(void) {
    for (size_t i = 0; i < 20000; i++) block(1000);
    for (size_t i = 0; i < 10; i++) block(2 * MIB);
    ready();
    work_on();
}

// ---- busy -------------------------------------------------------------------------------------------------

enum { SLOTS = 5000,
    BATCH = 200 };
#define MOST_KEPT (64 * MIB)

static _Atomic size_t held;
static _Atomic size_t kept_bytes;
static unsigned pause_us;

static size_t busy_block(void **slot, size_t size) {
    *slot = block(size);
    return malloc_usable_size(*slot);
}

// Frees and allocates blocks of all sizes in turn, and keeps one of each batch for good, so that the heap changes and
// grows. Counts what it holds, with what malloc rounds sizes up to.
static void *busy_thread(void *number) {
    void **slots = calloc(SLOTS, sizeof *slots);
    if (!slots) exit(9);
    size_t bytes = malloc_usable_size(slots);
    uint64_t state = (uintptr_t)number * 0x9e3779b97f4a7c15u + 1;
    void *kept = NULL;
    for (size_t i = 0; i < SLOTS; i++) bytes += busy_block(&slots[i], 16 + i % 1500);
    atomic_fetch_add(&held, bytes);
    pthread_barrier_wait(&all_done);
    for (;;) {
        size_t before = 0, after = 0;
        for (int i = 0; i < BATCH; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            void **slot = &slots[(state >> 33) % SLOTS];
            before += malloc_usable_size(*slot);
            free(*slot);
            after += busy_block(slot, 16 + (state >> 40) % 1500);
        }
        if (atomic_load(&kept_bytes) < MOST_KEPT) {
            void **p = NULL;
            size_t more = busy_block((void **)&p, 1000);
            *p = kept;
            kept = p;
            after += more;
            atomic_fetch_add(&kept_bytes, more);
        }
        atomic_fetch_add(&held, after - before);
        if (pause_us) usleep(pause_us);
    }
    return NULL;
}

// Says how many bytes it holds for each line of its input.
static void busy(int threads, unsigned microseconds) {
    pause_us = microseconds;
    pthread_barrier_init(&all_done, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, busy_thread, (void *)(uintptr_t)i)) exit(9);
    }
    pthread_barrier_wait(&all_done);
    ready();
    char line[8];
    while (fgets(line, sizeof line, stdin)) {
        printf("%zu\n", atomic_load(&held));
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "leak")) leak();
    else if (!strcmp(what, "mapped")) mapped();
    else if (!strcmp(what, "fragmentation")) fragmentation();
    else if (!strcmp(what, "caches") && argc > 3) caches(atoi(argv[2]), (size_t)atoi(argv[3]));
    else if (!strcmp(what, "file") && argc > 2) file(argv[2], MAP_SHARED);
    else if (!strcmp(what, "written") && argc > 2) file(argv[2], MAP_PRIVATE);
    else if (!strcmp(what, "shared")) shared();
    else if (!strcmp(what, "lazy")) lazy();
    else if (!strcmp(what, "live")) live();
    else if (!strcmp(what, "busy") && argc > 3) busy(atoi(argv[2]), (unsigned)atoi(argv[3]));
    else return 2;
    return 0;
}
