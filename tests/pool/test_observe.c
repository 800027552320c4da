// SPDX-License-Identifier: MIT
// The observer: what it finds in checked pools, with a kind of pool that does nothing but ask libc. And the log.
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "captured.h"
#include "os/fake.h"
#include "pool/log.h"
#include "pool/node.h"
#include "pool/observe.h"
#include "pool/origin.h"
#include "rt/opts.h"

// ---- a plain kind -----------------------------------------------------------------------------------

static uint64_t group;
static void *plain_raw(quarry_pool_t *pool, size_t size, size_t alignment) {
    (void)pool;
    return quarry_pool_alloc(quarry_libc_pool(), size, alignment, 0);
}
static void plain_raw_free(quarry_pool_t *pool, void *p, size_t size) {
    (void)pool;
    quarry_pool_free(quarry_libc_pool(), p, size);
}
static void *plain_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    if (pool->mode & QY_MODE_OBSERVED) return qy_observe_alloc(pool, &QY_STACK_CALLER(), group, size, alignment, flags);
    if (pool->mode & QY_MODE_COUNTED) qy_count(pool, QY_COUNT_ALLOC, size);
    return quarry_pool_alloc(quarry_libc_pool(), size, alignment, flags);
}
static void *plain_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    (void)old_size;
    return qy_observe_resize(pool, &QY_STACK_CALLER(), group, ptr, size, alignment, flags);
}
static void plain_free(quarry_pool_t *pool, void *ptr, size_t size) {
    if (pool->mode & QY_MODE_OBSERVED) {
        qy_observe_free(pool, &QY_STACK_CALLER(), ptr);
        return;
    }
    if (pool->mode & QY_MODE_COUNTED) qy_count(pool, QY_COUNT_FREE, 0);
    quarry_pool_free(quarry_libc_pool(), ptr, size);
}
static void plain_destroy(quarry_pool_t *pool) {
    qy_observe_close(pool);
    qy_pool_drop(pool);
}
static const quarry_pool_ops_t plain = {.kind = "plain",
    .capabilities = QUARRY_POOL_FREES,
    .max_alignment = 4096,
    .alloc = plain_alloc,
    .resize = plain_resize,
    .free = plain_free,
    .destroy = plain_destroy,
    .raw_alloc = plain_raw,
    .raw_free = plain_raw_free};
static const quarry_pool_ops_t frames = {.kind = "frames",
    .capabilities = QUARRY_POOL_FRAMES,
    .max_alignment = 4096,
    .alloc = plain_alloc,
    .resize = plain_resize,
    .free = plain_free,
    .destroy = plain_destroy,
    .raw_alloc = plain_raw,
    .raw_free = plain_raw_free};

static quarry_pool_t *guarded(const quarry_pool_ops_t *ops) {
    group = 0;
    quarry_pool_t *pool =
        qy_pool_new(ops, sizeof *pool, &(quarry_pool_options_t){.name = "watched", .flags = QUARRY_POOL_GUARD});
    CHECK(pool && pool->mode == QY_MODE_GUARD);
    return pool;
}

static void dies(void (*body)(void *), const char *words) {
    captured_t c = capture(body, NULL);
    if (c.exit_signal != SIGABRT || !strstr(c.text, words))
        TEST_FAIL("signal %d, \"%.400s\", wanted \"%s\"", c.exit_signal, c.text, words);
}

// ---- what it finds --------------------------------------------------------------------------------------

static void overflow(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&plain);
    char *p = quarry_pool_alloc(pool, 13, 1, 0);
    *(volatile char *)(p + 13) = 0;
    quarry_pool_free(pool, p, 13);
}
static void underflow(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&plain);
    char *p = quarry_pool_alloc(pool, 13, 64, 0);
    *(volatile char *)(p - 1) = 0;
    quarry_pool_destroy(pool);
}
static void overflow_in_frame(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&frames);
    group = 3;
    char *p = quarry_pool_alloc(pool, 16, 1, 0);
    *(volatile char *)(p + 16 + 15) = 0;  // the last byte of the redzone
    qy_observe_end(pool, NULL, 4, UINT64_MAX);
    qy_observe_end(pool, NULL, 3, UINT64_MAX);
}
static void twice(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&plain);
    char *p = quarry_pool_alloc(pool, 100, 8, 0);
    quarry_pool_free(pool, p, 100);
    quarry_pool_free(pool, p, 100);
}
static void interior(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&plain);
    char *p = quarry_pool_alloc(pool, 100, 8, 0);
    quarry_pool_free(pool, p + 8, 100);
}
static void foreign(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&plain);
    int local;
    quarry_pool_free(pool, &local, 4);
}
static void write_after_free(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&plain);
    char *p = quarry_pool_alloc(pool, 100, 8, 0);
    quarry_pool_free(pool, p, 100);
    *(volatile char *)(p + 50) = 1;
    for (int i = 0; i < 2; i++)  // each of half its size
        quarry_pool_free(pool, quarry_pool_alloc(pool, QY_QUARANTINE_BYTES / 2, 1, 0), 0);
}
static void outer_frame(void *arg) {
    (void)arg;
    quarry_pool_t *pool = guarded(&frames);
    group = 1;
    char *p = quarry_pool_alloc(pool, 100, 8, 0);
    group = 2;
    quarry_pool_resize(pool, p, 100, 200, 8, 0);
}

TEST(finds) {
    dies(overflow, "overwritten canary: 0x");
    dies(overflow, "block of 13 bytes in plain \"watched\" was written behind its end");
    dies(overflow, "note: allocated at 0x");
    dies(underflow, "before its start");
    dies(overflow_in_frame, "behind its end");
    dies(twice, "double free: 0x");
    dies(twice, "note: freed at 0x");
    dies(interior, "free of an interior pointer: 0x");
    dies(foreign, "invalid free: 0x");
    dies(write_after_free, "write after free: 0x");
    dies(outer_frame, "block of another frame: 0x");
}

TEST(sound_use_is_let_pass) {
    quarry_pool_t *pool = guarded(&frames);
    for (group = 1; group < 50; group++)
        for (size_t i = 0; i < 20; i++) {
            char *p = quarry_pool_alloc(pool, i * 7, (size_t)1 << i % 8, i & 1 ? QUARRY_POOL_ZERO : 0);
            CHECK(p);
            memset(p, 1, i * 7);
            p = quarry_pool_resize(pool, p, i * 7, i * 9, 1, 0);
            memset(p, 2, i * 9);
        }
    CHECK_EQ(qy_observe_live(pool), 49 * 20);
    qy_observe_end(pool, NULL, 10, 19);
    CHECK_EQ(qy_observe_live(pool), 39 * 20);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

TEST(check_sees_a_canary) {
    quarry_pool_t *pool = guarded(&plain);
    char *p = quarry_pool_alloc(pool, 10, 1, 0), kept = p[10];
    p[10] = 0;
    CHECK_EQ(quarry_pool_check(pool), -1);
    p[10] = kept;
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

TEST(many_blocks_grow_the_table) {
    quarry_pool_t *pool = guarded(&plain);
    enum { N = 20000 };
    static char *p[N];
    for (int i = 0; i < N; i++) CHECK((p[i] = quarry_pool_alloc(pool, 8, 8, 0)));
    CHECK_EQ(qy_observe_live(pool), N);
    for (int i = 0; i < N; i++) quarry_pool_free(pool, p[(i * 7919) % N], 8);
    CHECK_EQ(qy_observe_live(pool), 0);
    quarry_pool_destroy(pool);
}

TEST(pass_through_is_malloc) {
    quarry_pool_t *pool = qy_pool_new(&plain, sizeof *pool, &(quarry_pool_options_t){.flags = QUARRY_POOL_PASS});
    CHECK_EQ(pool->mode, QY_MODE_PASS);
    char *p = quarry_pool_alloc(pool, 100, 8, QUARRY_POOL_ZERO);
    CHECK_EQ(p[99], 0);
    quarry_pool_free(pool, p, 100);
    void *aligned = quarry_pool_alloc(pool, 100, 1024, 0);
    CHECK_EQ((uintptr_t)aligned % 1024, 0);
    // Also under a malloc that has smaller blocks: pool_observe_tiny.
    for (size_t i = 0; i < 200; i++) CHECK_EQ((uintptr_t)quarry_pool_alloc(pool, i % 13, 16, 0) % 16, 0);
    quarry_pool_destroy(pool);
}

// ---- modes -----------------------------------------------------------------------------------------------

static unsigned mode_with(const char *conf) {
    qy_opts.pools = conf;
    quarry_pool_t *pool = qy_pool_new(&plain, sizeof *pool, NULL);
    unsigned mode = pool->mode;
    quarry_pool_destroy(pool);
    qy_opts.pools = "off";
    return mode;
}
static void warns(void *arg) {
    if (mode_with(arg) == QY_MODE_GUARD) _exit(3);
}
TEST(the_options_choose) {
    CHECK_EQ(mode_with("off"), 0);
    CHECK_EQ(mode_with("guard"), QY_MODE_GUARD);
    CHECK_EQ(mode_with("pass,arenas:3"), QY_MODE_PASS);
    captured_t c = capture(warns, (void *)"nonsense");
    CHECK(strstr(c.text, "none of auto, off"));
}

// ---- the log ---------------------------------------------------------------------------------------------

static void logs(void *arg) {
    qy_opts.pool_log = arg;
    qy_opts.pool_log_every = 10;
    quarry_pool_t *pool = qy_pool_new(&plain, sizeof *pool, &(quarry_pool_options_t){.name = "logged"});
    CHECK_EQ(pool->mode, QY_MODE_COUNTED);
    for (int i = 0; i < 1000; i++) quarry_pool_free(pool, quarry_pool_alloc(pool, 100, 8, 0), 100);
    qy_pool_chunk_t chunk;
    CHECK(qy_chunk_get(pool, 1000, 1000, 16, &chunk));
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    CHECK_EQ(s.allocs, 1000);
    CHECK_EQ(s.frees, 1000);
    CHECK_EQ(s.requested_bytes, 100000);
    CHECK_EQ(s.chunk_gets, 1);
    qy_chunk_put(pool, chunk.base, chunk.bytes);
    quarry_pool_destroy(pool);
}

TEST(log_file) {
    char path[] = "/tmp/quarry-pool-log-XXXXXX";
    int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    run_apart(logs, path);
    unsigned char r[64];
    int n = 0, periods = 0, gets = 0, puts = 0, deaths = 0, names = 0;
    for (; read(fd, r, 64) == 64; n++) {
        uint16_t event;
        memcpy(&event, r + 16, 2);
        if (n == 0) {
            CHECK(!memcmp(r, "QYPOOLS1", 8));
            continue;
        }
        if (event == 0xFFFE) {
            names++;
            CHECK(!memcmp(r + 24, "plain", 6) && !strcmp((char *)r + 32, "logged"));
        }
        periods += event == QY_LOG_PERIOD;
        gets += event == QY_LOG_CHUNK_GET;
        puts += event == QY_LOG_CHUNK_PUT;
        deaths += event == QY_LOG_DEATH;
    }
    close(fd);
    unlink(path);
    CHECK_EQ(names, 1);
    CHECK_EQ(periods, 200);
    CHECK_EQ(gets, 1);
    CHECK_EQ(puts, 1);
    CHECK_EQ(deaths, 1);
    CHECK_EQ(n, 1 + 1 + 200 + 3);
}

TEST(log_file_with_a_long_path) {
    static char path[3000];
    size_t n = (size_t)snprintf(path, sizeof path, "/tmp/");
    while (n < 2000) path[n++] = '.', path[n++] = '/';
    snprintf(path + n, sizeof path - n, "quarry-pool-log-%d", (int)getpid());
    run_apart(logs, path);
    CHECK_EQ(unlink(path), 0);
}

// ---- the log in a program that closes what it finds ----------------------------------------------------------

static char victim[] = "/tmp/quarry-pool-victim-XXXXXX";

// Every number that the log may have had is now a file of the program's own.
static void daemonized(int first) {
    int fd = open(victim, O_RDWR);
    CHECK_GE(fd, 0);
    for (int to = first; to < 1024; to++)
        if (to != fd) dup2(fd, to);
}
static void works(quarry_pool_t *pool, int n) {
    for (int i = 0; i < n; i++) quarry_pool_free(pool, quarry_pool_alloc(pool, 100, 8, 0), 100);
}
static quarry_pool_t *logged_pool(char *path) {
    qy_opts.pool_log = path;
    qy_opts.pool_log_every = 1;
    return qy_pool_new(&plain, sizeof(quarry_pool_t), &(quarry_pool_options_t){.name = "logged"});
}
static long bytes_of(const char *path) {
    struct stat s;
    CHECK_EQ(stat(path, &s), 0);
    return (long)s.st_size;
}

static void closes_all(void *arg) {
    int before = dup(2), free_number;
    quarry_pool_t *pool = logged_pool(arg);
    free_number = dup(2);
    CHECK_EQ(free_number, before + 1);  // the log takes no number that the program would get
    works(pool, 100);
    CHECK_GE(bytes_of(arg), 64 * 64);
    daemonized(3);
    works(pool, 1000);
    quarry_pool_destroy(pool);
}
static void closes_errors_as_well(void *arg) {
    quarry_pool_t *pool = logged_pool(arg);
    works(pool, 100);
    daemonized(0);
    works(pool, 1000);
    quarry_pool_destroy(pool);
}
// The child of a program that has closed the log opens its own, and closes nothing that it does not know.
static void forks_on(void *arg) {
    quarry_pool_t *pool = logged_pool(arg);
    works(pool, 100);
    daemonized(3);
    pid_t pid = fork();
    if (pid == 0) {
        works(pool, 1000);
        quarry_pool_destroy(pool);
        for (int fd = 3; fd < 1024; fd++)
            if (fcntl(fd, F_GETFD) < 0) _exit(1);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

TEST(log_writes_to_no_file_of_the_program) {
    char path[] = "/tmp/quarry-pool-log-XXXXXX", own[64], found[80];
    int fd = mkstemp(path), stranger = mkstemp(victim);
    captured_t c = capture(closes_all, path);
    if (c.exit_code) TEST_FAIL("%.400s", c.text);
    CHECK_STR_EQ(c.text, "quarry: warning: the program has closed the pool log: no more is written to it\n");
    CHECK_EQ(bytes_of(victim), 0);
    c = capture(closes_errors_as_well, path);
    CHECK_STR_EQ(c.text, "");
    CHECK_EQ(bytes_of(victim), 0);

    snprintf(own, sizeof own, "%s.%%p", path);
    c = capture(forks_on, own);
    if (c.exit_code) TEST_FAIL("%.400s", c.text);
    CHECK_EQ(bytes_of(victim), 0);
    snprintf(found, sizeof found, "%s.*", path);
    glob_t logs;
    CHECK_EQ(glob(found, 0, NULL, &logs), 0);
    CHECK_EQ(logs.gl_pathc, 2);
    for (size_t i = 0; i < logs.gl_pathc; i++) {
        CHECK_GE(bytes_of(logs.gl_pathv[i]), 64 * 64);
        unlink(logs.gl_pathv[i]);
    }
    globfree(&logs);
    close(fd);
    close(stranger);
    unlink(path);
    unlink(victim);
}

TEST_MAIN()
