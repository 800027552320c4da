// SPDX-License-Identifier: MIT
// What is printed of the pool that is malloc: no memory is asked for meanwhile, and nobody waits for who reads it.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <quarry/pow2.h>
#include <sys/syscall.h>

#include "harness.h"

static quarry_pool_t *pool;

static uint64_t calls(void) {
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    return s.allocs + s.frees + s.resizes;
}

// Every call of malloc in this process is one of the pool's.
TEST(nothing_is_allocated) {
    CHECK((pool = quarry_pow2_process_pool()));
    const int null = open("/dev/null", O_WRONLY);
    char *volatile p = malloc(100);
    void *many[200];
    uint64_t before = calls();
    for (int i = 0; i < 200; i++) many[i] = malloc((size_t)1 << i % 20);
    for (int i = 0; i < 200; i += 2) free(many[i]);
    CHECK_EQ(calls(), before + 300);  // so they are counted
    before = calls();
    CHECK_EQ(quarry_pow2_print_block(pool, p, null), 0);
    CHECK_EQ(quarry_pow2_print_block(pool, p + 50, null), 0);
    CHECK_EQ(quarry_pow2_print_block(pool, &before, null), -1);
    CHECK_EQ(quarry_pow2_print_free(pool, null), 0);
    CHECK_EQ(calls(), before);
    for (int i = 1; i < 200; i += 2) free(many[i]);
    free(p);
    close(null);
}

// ---- a printer whose reader does not read ---------------------------------------------------------------------

static struct {
    int fd;
    _Atomic int tid, what;
    void *block;
} printer;

static void *prints(void *unused) {
    printer.tid = (int)syscall(SYS_gettid);
    CHECK_EQ(printer.what ? quarry_pow2_print_block(pool, printer.block, printer.fd)
                          : quarry_pow2_print_free(pool, printer.fd),
        0);
    return unused;
}

// Does the thread sleep? Nobody holds a lock that it may want, so it does in the write.
static int sleeps(int tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    const int fd = open(path, O_RDONLY);
    CHECK_GE(fd, 0);
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK_GT(n, 0);
    text[n] = '\0';
    const char *name_ends = strrchr(text, ')');
    return name_ends && name_ends[2] == 'S';
}

// Reads what there is. Was it more than the zeros that filled the pipe?
static int drain(int fd) {
    char text[4096];
    int found = 0;
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) found |= text[i];
    return found;
}

TEST(nobody_waits_for_a_printer) {
    CHECK((pool = quarry_pow2_process_pool()));
    for (int what = 0; what < 2; what++) {
        int ends[2];
        static char full[4096];
        CHECK_EQ(pipe2(ends, O_NONBLOCK), 0);
        while (write(ends[1], full, sizeof full) > 0) {}
        CHECK_EQ(fcntl(ends[1], F_SETFL, 0), 0);  // who writes now waits
        printer.fd = ends[1];
        printer.tid = 0;
        printer.what = what;
        printer.block = malloc(100);
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, prints, NULL), 0);
        TEST_AWAIT(printer.tid && sleeps(printer.tid));
        alarm(TEST_PATIENCE);  // one partition has one lock: who found it taken would wait for ever
        for (int i = 0; i < 1000; i++) free(realloc(malloc((size_t)1 << i % 21), (size_t)1 << i % 19));
        char *other = malloc(200);
        CHECK_GE(malloc_usable_size(other), 200);
        free(other);
        CHECK_EQ(quarry_pool_check(pool), 0);
        alarm(0);
        CHECK(sleeps(printer.tid));  // it was there all the time
        int printed = drain(ends[0]);
        pthread_join(thread, NULL);
        printed |= drain(ends[0]);
        CHECK(printed);
        close(ends[0]);
        close(ends[1]);
        free(printer.block);
    }
}

TEST_MAIN()
