// SPDX-License-Identifier: MIT
// test_pages.c: runs of pages: against a model, exhaustively at small size, cleared, given back, in files.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "captured.h"
#include "os/fake.h"
#include "os/os.h"
#include "pool/pages.h"

static size_t page;
static quarry_pool_t *make(const quarry_pages_options_t *o) {
    page = qy_os_page_size();
    quarry_pool_t *pool = quarry_pages_create(o);
    CHECK(pool);
    return pool;
}
static quarry_pool_t *parts(unsigned flags) {
    return make(&(quarry_pages_options_t){.flags = flags | QUARRY_PAGES_PARTS});
}

static quarry_pages_stats_t stats_of(quarry_pool_t *pool) {
    quarry_pages_stats_t s;
    quarry_pages_stats(pool, &s);
    return s;
}

static bool only(const char *p, char value, size_t n) { return n == 0 || (p[0] == value && !memcmp(p, p + 1, n - 1)); }

// Is there memory behind any page of the range?
static size_t resident(const void *at, size_t bytes) {
    static unsigned char in[65536];
    CHECK_LE(bytes / page, sizeof in);
    CHECK_EQ(mincore((void *)at, bytes, in), 0);
    size_t n = 0;
    for (size_t i = 0; i < bytes / page; i++) n += in[i] & 1;
    return n;
}

TEST(runs) {
    quarry_pool_t *pool = make(NULL);
    char *p = quarry_pool_alloc(pool, 0, 1, 0), *q = quarry_pool_alloc(pool, page + 1, 1, 0);
    CHECK(p && q);
    CHECK_EQ(((uintptr_t)p | (uintptr_t)q) % page, 0);
    CHECK_EQ(quarry_pool_usable(pool, p), page);
    CHECK_EQ(quarry_pool_usable(pool, q), 2 * page);
    memset(q, 1, 2 * page);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_free(pool, p, 0);
    quarry_pool_free(pool, q, page + 1);
    CHECK_EQ(stats_of(pool).free_runs, 1);
    CHECK_EQ(stats_of(pool).used_pages, 0);
    for (size_t align = page; align <= (size_t)1 << 28; align *= 2) {
        CHECK((p = quarry_pool_alloc(pool, 3 * page, align, QUARRY_POOL_ZERO)));
        CHECK_EQ((uintptr_t)p & (align - 1), 0);
        CHECK(only(p, 0, 3 * page));
        memset(p, 2, 3 * page);
    }
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// A run goes in pieces, in every order of four; what remains stays intact, and in the end all is one free run.
TEST(partial_release) {
    quarry_pool_t *pool = parts(0);
    for (unsigned order = 0; order < 256; order++) {
        unsigned piece[4] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6 & 3};
        if ((1u << piece[0] | 1u << piece[1] | 1u << piece[2] | 1u << piece[3]) != 15) continue;
        char *p = quarry_pool_alloc(pool, 8 * page, 1, 0);
        for (unsigned i = 0; i < 4; i++) memset(p + i * 2 * page, (int)i, 2 * page);
        for (unsigned k = 0; k < 4; k++) {
            quarry_pages_free_part(pool, p + piece[k] * 2 * page, 2 * page - (order & 1));
            CHECK_EQ(quarry_pool_check(pool), 0);
            for (unsigned left = k + 1; left < 4; left++)
                CHECK(only(p + piece[left] * 2 * page, (char)piece[left], 2 * page));
        }
        CHECK_EQ(stats_of(pool).free_runs, 1);
    }
    // The remains are runs: resized and freed as such.
    char *p = quarry_pool_alloc(pool, 10 * page, 1, 0);
    quarry_pages_free_part(pool, p + 4 * page, 2 * page);
    CHECK_EQ(quarry_pool_usable(pool, p), 4 * page);
    CHECK_EQ(quarry_pool_usable(pool, p + 6 * page), 4 * page);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 4 * page, 6 * page, 1, 0), p);
    quarry_pool_free(pool, p + 6 * page, 4 * page);
    quarry_pool_free(pool, p, 6 * page);
    CHECK_EQ(stats_of(pool).free_runs, 1);
    quarry_pool_destroy(pool);
    // Without the option, a whole run only.
    pool = make(NULL);
    p = quarry_pool_alloc(pool, 2 * page, 1, 0);
    quarry_pages_free_part(pool, p, 2 * page);
    quarry_pool_destroy(pool);
}

TEST(bits_are_found_back) {
    enum { N = 300 };
    qy_page_bits_t bits[(N + 63) / 64];
    uint64_t seed = test_seed;
    for (unsigned round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) bits[i] = 0;
        qy_bits_set(bits, 0, 1, true);
        for (unsigned i = 0; i < round % 8; i++) qy_bits_set(bits, test_random(&seed) % N, 1, true);
        for (size_t from = 0, last = 0; from < N; from++) {
            if (qy_bit(bits, from)) last = from;
            CHECK_EQ(qy_bits_find_back(bits, from), last);
        }
    }
}

// A long run goes page by page, from its end: no call looks at all that is before.
TEST(the_end_goes_first) {
    enum { PAGES = 1 << 20 };
    quarry_pool_t *pool = parts(0);
    alarm(TEST_PATIENCE);
    char *p = quarry_pool_alloc(pool, PAGES * page, page, 0);
    if (!p) TEST_SKIP("needs more address space (ulimit -v, vm.overcommit_memory)");
    for (size_t i = PAGES; i--;) quarry_pages_free_part(pool, p + i * page, page);
    CHECK_EQ(stats_of(pool).used_pages, 0);
    quarry_pool_destroy(pool);
    alarm(0);
}

// Every sequence of five operations on a region of six pages: take 1, 2, 3 or 4 pages, or free one of what is there.
static uint64_t sequences;
static void exhaust(const unsigned *ops, unsigned n) {
    static char *region;
    if (!region) region = qy_os_map(6 * page, page, NULL);
    quarry_pool_t *pool = make(&(quarry_pages_options_t){
        .flags = QUARRY_PAGES_FIXED | QUARRY_PAGES_UNLOCKED | QUARRY_PAGES_PARTS, .pool.flags = QUARRY_POOL_UNTRACKED});
    CHECK_EQ(quarry_pages_add_region(pool, region, 6 * page, 0), 0);
    unsigned owner[6] = {0};
    for (unsigned i = 0; i < n; i++) {
        if (ops[i] < 4) {
            size_t want = ops[i] + 1, longest = 0;
            for (size_t k = 0, run = 0; k < 6; k++)
                run = owner[k] ? 0 : run + 1, longest = run > longest ? run : longest;
            char *p = quarry_pool_alloc(pool, want * page, 1, 0);
            CHECK_EQ(!p, longest < want);  // never refused while there is room
            for (size_t k = 0; p && k < want; k++) {
                CHECK_EQ(owner[(size_t)(p - region) / page + k], 0);
                owner[(size_t)(p - region) / page + k] = i + 1;
            }
        } else {
            // A single page, if it is in use: of any run, at any place in it.
            unsigned k = ops[i] - 4;
            if (!owner[k]) continue;
            quarry_pages_free_part(pool, region + k * page, page);
            owner[k] = 0;
        }
        CHECK(!qy_pages_verify((qy_pages_t *)pool));
    }
    quarry_pool_destroy(pool);
    sequences++;
}
static void all_sequences(unsigned *ops, unsigned n, unsigned length) {
    if (n == length) {
        exhaust(ops, n);
        return;
    }
    for (ops[n] = 0; ops[n] < 10; ops[n]++) all_sequences(ops, n + 1, length);
}
TEST(exhaustively_small) {
    unsigned ops[8];
    quarry_pool_destroy(make(NULL));
    all_sequences(ops, 0, QY_ASAN || QY_TSAN ? 4 : 5);
    printf("%llu sequences\n", (unsigned long long)sequences);
}

// ---- a model ----------------------------------------------------------------------------------------------

typedef struct run {
    char *p;
    size_t pages;
    char value;
} run_t;

static void against_model(quarry_pool_t *pool, unsigned steps, size_t longest) {
    enum { N = 60 };
    static run_t runs[N];
    uint64_t seed = test_seed;
    bool in_parts = ((qy_pages_t *)pool)->flags & QUARRY_PAGES_PARTS;
    memset(runs, 0, sizeof runs);
    for (unsigned i = 0; i < steps; i++) {
        uint64_t r = test_random(&seed);
        run_t *run = &runs[r % N];
        size_t n = 1 + (r >> 8) % (r >> 60 ? 8 : longest), align = page << ((r >> 32) % 40 ? 0 : (r >> 40) % 6);
        bool zero = r >> 63;
        if (run->p) CHECK(only(run->p, run->value, run->pages * page));
        if (!run->p) {
            run->p = quarry_pool_alloc(pool, n * page, align, zero ? QUARRY_POOL_ZERO : 0);
            CHECK(run->p);
            CHECK_EQ((uintptr_t)run->p % align, 0);
            if (zero) CHECK(only(run->p, 0, n * page));
            run->pages = n;
        } else if (r >> 59 & 1 && in_parts && run->pages > 2) {
            size_t from = (r >> 20) % run->pages, some = 1 + (r >> 30) % (run->pages - from);
            quarry_pages_free_part(pool, run->p + from * page, some * page);
            if (from + some < run->pages) quarry_pool_free(pool, run->p + (from + some) * page, QUARRY_SIZE_UNKNOWN);
            run->pages = from;
            if (!from) run->p = NULL;
            continue;
        } else if (r >> 58 & 1) {
            char *p = quarry_pool_resize(pool, run->p, run->pages * page, n * page, 1, zero ? QUARRY_POOL_ZERO : 0);
            CHECK(p);
            size_t kept = n < run->pages ? n : run->pages;
            CHECK(only(p, run->value, kept * page));
            if (zero) CHECK(only(p + kept * page, 0, (n - kept) * page));
            run->p = p;
            run->pages = n;
        } else {
            quarry_pool_free(pool, run->p, run->pages * page);
            run->p = NULL;
            continue;
        }
        run->value = (char)(r >> 50);
        memset(run->p, run->value, run->pages * page);
        if (i % 100 == 0) {
            CHECK_EQ(quarry_pool_check(pool), 0);
            if (i % 700 == 0) quarry_pages_trim(pool, (size_t)(r >> 20) % (8 << 20));
        }
    }
    for (unsigned i = 0; i < N; i++) quarry_pool_free(pool, runs[i].p, QUARRY_SIZE_UNKNOWN);
    CHECK_EQ(quarry_pool_check(pool), 0);
    CHECK_EQ(stats_of(pool).used_pages, 0);
}

TEST(random_model) {
    quarry_pool_t *pool = parts(0);
    against_model(pool, QY_ASAN || QY_TSAN ? 3000 : 15000, 200);
    quarry_pool_destroy(pool);
}
TEST(random_model_small_regions) {
    quarry_pool_t *pool = make(&(quarry_pages_options_t){
        .flags = QUARRY_PAGES_PARTS | QUARRY_PAGES_UNLOCKED, .region_bytes = 1, .keep_bytes = 1 << 20});
    against_model(pool, QY_ASAN || QY_TSAN ? 2000 : 8000, 40);
    CHECK_LE(stats_of(pool).regions, 1);
    quarry_pool_destroy(pool);
}
TEST(random_model_in_a_file) {
    quarry_pool_t *pool = parts(QUARRY_PAGES_MEMFD);
    against_model(pool, QY_ASAN || QY_TSAN ? 1000 : 4000, 100);
    quarry_pool_destroy(pool);
}
TEST(random_model_on_pages) {
    quarry_pool_t *below = make(&(quarry_pages_options_t){0}),
                  *pool = make(&(quarry_pages_options_t){.pool.parent = below, .flags = QUARRY_PAGES_PARTS});
    against_model(pool, 2000, 100);
    quarry_pool_destroy(pool);
    if (!below->mode) CHECK_EQ(stats_of(below).used_pages, 0);  // a checked one has a quarantine
    quarry_pool_destroy(below);
}

// ---- clean pages --------------------------------------------------------------------------------------------

TEST(only_dirty_pages_are_cleared) {
    quarry_pool_t *pool = parts(0);
    char *p = quarry_pool_alloc(pool, 1000 * page, 1, QUARRY_POOL_ZERO);
    CHECK_EQ(stats_of(pool).cleared_pages, 0);
    CHECK_EQ(resident(p, 1000 * page), 0);  // known to be zero, so not touched
    memset(p, 1, 1000 * page);
    quarry_pages_free_part(pool, p + 100 * page, 50 * page);
    char *q = quarry_pool_alloc(pool, 50 * page, 1, QUARRY_POOL_ZERO);
    CHECK(only(q, 0, 50 * page));
    uint64_t cleared = stats_of(pool).cleared_pages;
    CHECK(cleared == 0 || cleared == 50);  // clean ones if they were at hand
    quarry_pool_free(pool, q, 50 * page);
    quarry_pool_free(pool, p, QUARRY_SIZE_UNKNOWN);
    // Given back, they are clean again.
    size_t dirty = stats_of(pool).dirty_pages;
    CHECK_GE(dirty, 100);
    quarry_pages_trim(pool, 0);
    CHECK_EQ(stats_of(pool).dirty_pages, 0);
    cleared = stats_of(pool).cleared_pages;
    CHECK((q = quarry_pool_alloc(pool, 100 * page, 1, QUARRY_POOL_ZERO)));
    CHECK(only(q, 0, 100 * page));
    CHECK_EQ(stats_of(pool).cleared_pages, cleared);
    quarry_pool_destroy(pool);
    // The caller's memory: clean or dirty as told.
    char *own = qy_os_map(64 * page, page, NULL);
    memset(own, 9, 32 * page);
    pool = make(&(quarry_pages_options_t){.flags = QUARRY_PAGES_FIXED | QUARRY_PAGES_PARTS});
    CHECK_EQ(quarry_pages_add_region(pool, own, 32 * page, 0), 0);
    CHECK_EQ(quarry_pages_add_region(pool, own, 32 * page, 0), -1);  // twice
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(quarry_pages_add_region(pool, own + 31 * page, 2 * page, 0), -1);
    CHECK_EQ(quarry_pages_add_region(pool, own + 32 * page + 1, page, 0), -1);
    CHECK_EQ(quarry_pages_add_region(pool, own + 32 * page, 32 * page, 1), 0);
    CHECK(!quarry_pool_alloc(pool, 33 * page, 1, 0));  // regions don't merge
    CHECK_EQ(errno, ENOMEM);
    p = quarry_pool_alloc(pool, 32 * page, 1, QUARRY_POOL_ZERO);
    q = quarry_pool_alloc(pool, 32 * page, 1, QUARRY_POOL_ZERO);
    CHECK(only(p, 0, 32 * page) && only(q, 0, 32 * page));
    CHECK_EQ(stats_of(pool).cleared_pages, 32);
    CHECK_EQ(quarry_pages_trim(pool, 0), 0);
    quarry_pool_destroy(pool);
    own[0] = 1;  // it is still ours
    CHECK(qy_os_unmap(own, 64 * page));
}

// ---- giving back ----------------------------------------------------------------------------------------------

TEST(memory_goes_back) {
    quarry_pool_t *pool = make(
        &(quarry_pages_options_t){.flags = QUARRY_PAGES_PARTS, .keep_bytes = 64 * page, .region_bytes = 4096 * page});
    char *p = quarry_pool_alloc(pool, 1000 * page, 1, 0), *stays = quarry_pool_alloc(pool, page, 1, 0);
    memset(p, 1, 1000 * page);
    CHECK_EQ(resident(p, 1000 * page), 1000);
    for (unsigned i = 0; i < 1000; i += 2) quarry_pages_free_part(pool, p + i * page, page);  // single pages
    CHECK_LE(stats_of(pool).dirty_pages, 64);
    CHECK_LE(resident(p, 1000 * page), 564);
    for (unsigned i = 1; i < 1000; i += 2) CHECK(only(p + i * page, 1, page));
    for (unsigned i = 1; i < 1000; i += 2) quarry_pages_free_part(pool, p + i * page, page);
    CHECK_LE(resident(p, 1000 * page), 64);
    CHECK_GT(quarry_pages_trim(pool, 0) + stats_of(pool).purged_pages, 900);
    CHECK_EQ(resident(p, 1000 * page), 0);
    CHECK_EQ(stats_of(pool).regions, 1);
    quarry_pool_free(pool, stays, page);
    quarry_pages_trim(pool, 0);
    CHECK_EQ(stats_of(pool).regions, 0);  // address space, too
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    CHECK_EQ(s.held_bytes, 0);
    quarry_pool_destroy(pool);
}

// A run larger than a region, again and again, fetches a region once.
TEST(no_ping_pong) {
    quarry_pool_t *pool = make(&(quarry_pages_options_t){.region_bytes = 16 * page, .flags = QUARRY_PAGES_PARTS});
    for (unsigned i = 0; i < 100; i++) quarry_pool_free(pool, quarry_pool_alloc(pool, 100 * page, 1, 0), 100 * page);
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    CHECK_LE(s.chunk_gets, 2);
    CHECK_EQ(s.allocs, 100);
    CHECK_EQ(s.frees, 100);
    CHECK_EQ(s.requested_bytes, 10000 * page);
    quarry_pool_destroy(pool);
}

// What was fetched for a request is cut for it, however many shorter free runs there are to be looked at before.
TEST(a_new_region_is_taken_from) {
    quarry_pool_stats_t s;
    page = qy_os_page_size();
    quarry_pool_t *pool = make(&(quarry_pages_options_t){.region_bytes = 64 * page, .pool.limit = 4096 * page});
    void *runs[200];
    for (unsigned i = 0; i < 200; i++) CHECK((runs[i] = quarry_pool_alloc(pool, page, 1, 0)));
    for (unsigned i = 0; i < 200; i += 2) quarry_pool_free(pool, runs[i], page);
    quarry_pool_stats(pool, &s);
    uint64_t before = s.chunk_gets;
    char *p = quarry_pool_alloc(pool, 1, (size_t)1 << 30, 0);
    CHECK(p && (uintptr_t)p % ((size_t)1 << 30) == 0);
    quarry_pool_stats(pool, &s);
    CHECK_LE(s.chunk_gets, before + 1);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
    // A limit that leaves room for no more than the run: it is in one bin with those that are a page too short.
    pool = make(&(quarry_pages_options_t){.region_bytes = 20 * 33 * page});
    for (unsigned i = 0; i < 20; i++)
        CHECK((runs[i] = quarry_pool_alloc(pool, 32 * page, 1, 0)) && quarry_pool_alloc(pool, page, 1, 0));
    for (unsigned i = 0; i < 20; i++) quarry_pool_free(pool, runs[i], 32 * page);
    quarry_pool_stats(pool, &s);
    quarry_pool_set_limit(pool, s.held_bytes + 33 * page);
    CHECK(quarry_pool_alloc(pool, 33 * page, 1, 0));
    CHECK(!quarry_pool_alloc(pool, 33 * page, 1, 0));
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// Longer than any bin's runs, up to the largest size there is: refused, and nothing else is looked at.
TEST(sizes_beyond_all_bins) {
    quarry_pool_t *pool = make(NULL);
    CHECK(quarry_pool_alloc(pool, page, 1, 0));
    for (unsigned log = 40; log < 63; log++)
        for (size_t step = 0; step < 16; step++)
            for (size_t align = page; align <= (size_t)1 << 30; align <<= 9) {
                errno = 0;
                CHECK(!quarry_pool_alloc(pool, ((size_t)1 << log) + (step << (log - 4)) + ((size_t)1 << 47), align, 0));
                CHECK_EQ(errno, ENOMEM);
            }
    CHECK(!quarry_pool_alloc(pool, QUARRY_POOL_MAX, 1, 0));
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// What a parent gave is not always whole pages; all of it goes back.
TEST(chunks_that_are_not_whole_pages) {
    quarry_pool_stats_t s;
    page = qy_os_page_size();
    quarry_pool_t *pool = make(&(quarry_pages_options_t){
        .pool.parent = quarry_libc_pool(), .pool.limit = 60 * page, .region_bytes = 101 * page});
    char *p = quarry_pool_alloc(pool, page, 1, 0);
    CHECK(p);
    quarry_pool_free(pool, p, page);
    quarry_pages_trim(pool, 0);
    quarry_pool_stats(pool, &s);
    CHECK_EQ(s.chunk_puts, 1);
    CHECK_EQ(s.held_bytes, 0);
    quarry_pool_destroy(pool);
}

TEST(huge_pages) {
    quarry_pool_t *pool = make(&(quarry_pages_options_t){.flags = QUARRY_PAGES_HUGE});
    size_t huge = ((qy_pages_t *)pool)->huge_bytes;
    CHECK(quarry_pool_alloc(pool, page, 1, 0));
    qy_pages_region_t *r = ((qy_pages_t *)pool)->ordered[0];
    CHECK_EQ((uintptr_t)r->base % huge, 0);
    CHECK_EQ(r->pages * page % huge, 0);
    char line[300];
    FILE *f = fopen("/proc/self/smaps", "r");
    bool ours = false, hinted = false;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) ours = from <= (uintptr_t)r->base && (uintptr_t)r->base < to;
        if (ours && !strncmp(line, "VmFlags:", 8)) hinted |= strstr(line, " hg") != NULL;
    }
    if (f) fclose(f);
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) CHECK(hinted);
    quarry_pool_destroy(pool);
    quarry_pool_destroy(make(&(quarry_pages_options_t){.flags = QUARRY_PAGES_NO_HUGE}));
    CHECK(!quarry_pages_create(&(quarry_pages_options_t){.flags = QUARRY_PAGES_HUGE | QUARRY_PAGES_NO_HUGE}));
    CHECK_EQ(errno, EINVAL);
}

// ---- in files ---------------------------------------------------------------------------------------------------

TEST(memory_in_a_file) {
    quarry_pool_t *pool = make(
        &(quarry_pages_options_t){.flags = QUARRY_PAGES_MEMFD, .region_bytes = 64 * page, .pool.limit = 200 * page});
    char *p = quarry_pool_alloc(pool, 3 * page, 1, QUARRY_POOL_ZERO), *q = quarry_pool_alloc(pool, 100 * page, 1, 0);
    CHECK(p && q);
    CHECK(!quarry_pool_alloc(pool, 100 * page, 1, 0));  // the limit
    strcpy(q, "seen");
    int fd = quarry_pages_fd(pool);
    char text[8] = "";
    CHECK_EQ(pread(fd, text, 5, (off_t)quarry_pages_file_offset(pool, q)), 5);
    CHECK_STR_EQ(text, "seen");
    CHECK_EQ(quarry_pages_file_offset(pool, text), UINT64_MAX);
    // Another process sees stores, through the descriptor as through the memory; it cannot give it out again.
    pid_t pid = fork();
    if (pid == 0) {
        q[0] = 'b';
        quarry_pool_free(pool, q, 100 * page);
        _exit(quarry_pool_alloc(pool, page, 1, 0) ? 1 : 0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_STR_EQ(q, "been");
    // What was freed and given back is gone from the file as well.
    memset(q, 7, 100 * page);
    quarry_pool_free(pool, q, 100 * page);
    struct stat before, after;
    fstat(fd, &before);
    quarry_pages_trim(pool, 0);
    fstat(fd, &after);
    CHECK_LE(after.st_blocks * 512, before.st_blocks * 512 - (long)(99 * page));
    quarry_pool_destroy(pool);
    // Nor without a lock.
    pool = make(&(quarry_pages_options_t){.flags = QUARRY_PAGES_MEMFD | QUARRY_PAGES_UNLOCKED});
    CHECK(quarry_pool_alloc(pool, page, 1, 0));
    pid = fork();
    if (pid == 0) _exit(quarry_pool_alloc(pool, page, 1, 0) ? 1 : 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK(quarry_pool_alloc(pool, page, 1, 0));
    quarry_pool_destroy(pool);

    char path[] = "/tmp/quarry-pages-XXXXXX";
    CHECK(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof file, "%s/pages", path);
    pool = make(&(quarry_pages_options_t){.file = file});
    p = quarry_pool_alloc(pool, 2 * page, 1, 0);
    strcpy(p, "kept");
    uint64_t offset = quarry_pages_file_offset(pool, p);
    CHECK(!quarry_pages_create(&(quarry_pages_options_t){.file = file}));
    CHECK_EQ(errno, EEXIST);
    quarry_pool_destroy(pool);
    fd = open(file, O_RDONLY);
    CHECK_EQ(pread(fd, text, 5, (off_t)offset), 5);
    CHECK_STR_EQ(text, "kept");
    close(fd);
    unlink(file);
    rmdir(path);
    CHECK(!quarry_pages_create(&(quarry_pages_options_t){.file = "/nowhere/pages"}));
    CHECK_EQ(errno, ENOENT);
    CHECK(!quarry_pages_create(&(quarry_pages_options_t){.file = file, .pool.parent = quarry_libc_pool()}));
    CHECK_EQ(errno, EINVAL);
    CHECK(!quarry_pages_create(&(quarry_pages_options_t){.flags = 1u << 30}));
}

// ---- threads ------------------------------------------------------------------------------------------------------

static quarry_pool_t *shared;
static _Atomic(char *) handed[16];

static void *churn(void *arg) {
    uint64_t seed = test_seed + (uintptr_t)arg;
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t r = test_random(&seed);
        size_t n = 1 + r % 20;
        bool zero = r >> 63;
        char *p = quarry_pool_alloc(shared, n * page, 1, zero ? QUARRY_POOL_ZERO : 0);
        if (!p) TEST_FAIL("out of memory");
        if (zero && !only(p, 0, n * page)) TEST_FAIL("not cleared");
        memset(p, (char)n, n * page);
        p = atomic_exchange(&handed[(r >> 20) % 16], p);  // another's, perhaps
        if (!p) continue;
        if (!only(p, p[0], (size_t)p[0] * page)) TEST_FAIL("somebody wrote into a run");
        if (r >> 40 & 1 && p[0] > 1) {
            quarry_pages_free_part(shared, p + page, (size_t)(p[0] - 1) * page);
            quarry_pool_free(shared, p, page);
        } else {
            quarry_pool_free(shared, p, QUARRY_SIZE_UNKNOWN);
        }
        if (r >> 44 == 0) quarry_pages_trim(shared, 0);
    }
    return NULL;
}

TEST(threads) {
    pthread_t id[4];
    shared = make(
        &(quarry_pages_options_t){.flags = QUARRY_PAGES_PARTS, .region_bytes = 128 * page, .keep_bytes = 40 * page});
    for (uintptr_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&id[i], NULL, churn, (void *)i), 0);
    for (unsigned i = 0; i < 4; i++) pthread_join(id[i], NULL);
    for (unsigned i = 0; i < 16; i++) quarry_pool_free(shared, handed[i], QUARRY_SIZE_UNKNOWN);
    CHECK_EQ(quarry_pool_check(shared), 0);
    CHECK_EQ(stats_of(shared).used_pages, 0);
    quarry_pool_destroy(shared);
}

// ---- a kernel that refuses ------------------------------------------------------------------------------------------

TEST(every_refusal) {
    for (unsigned flags = 0; flags < 2; flags++)
        for (int persist = 0; persist < 2; persist++)
            for (uint64_t n = 1;; n++) {
                quarry_os_fault(n, persist, UINT32_MAX);
                errno = 0;
                quarry_pool_t *pool = quarry_pages_create(
                    &(quarry_pages_options_t){.flags = QUARRY_PAGES_PARTS | (flags ? QUARRY_PAGES_MEMFD : 0),
                        .region_bytes = 8 * page,
                        .keep_bytes = 4 * page});
                CHECK(pool || errno);
                char *p[20] = {0};
                for (unsigned i = 0; i < 20 && pool; i++) {
                    p[i] = quarry_pool_alloc(pool, (1 + i % 5 * 3) * page, page, i % 2 ? QUARRY_POOL_ZERO : 0);
                    if (p[i]) memset(p[i], (char)i, (1 + i % 5 * 3) * page);
                    else CHECK_EQ(errno, ENOMEM);
                    if (i % 3 == 2) quarry_pool_free(pool, p[i - 1], page), p[i - 1] = NULL;
                }
                bool hit = quarry_os_fault_hits() != 0;
                if (pool) quarry_pages_trim(pool, 0);
                quarry_os_fault(0, 0, 0);
                for (unsigned i = 0; i < 20 && pool; i++)
                    if (p[i]) CHECK(only(p[i], (char)i, (1 + i % 5 * 3) * page));
                if (pool) {
                    CHECK_EQ(quarry_pool_check(pool), 0);
                    CHECK(quarry_pool_alloc(pool, 50 * page, page, 0));
                    quarry_pool_destroy(pool);
                }
                if (!hit) break;
                CHECK_LT(n, 300);
            }
}

// The file had grown already when there was no memory for the records of its pages.
TEST(a_file_without_records) {
    page = qy_os_page_size();
    quarry_pool_t *pool = make(&(quarry_pages_options_t){.flags = QUARRY_PAGES_MEMFD, .region_bytes = 1024 * page});
    quarry_pool_stats_t s;
    struct stat file;
    quarry_os_fault(1, 1, 1u << QY_OS_MAP);
    CHECK(!quarry_pool_alloc(pool, page, 1, 0));
    CHECK(quarry_os_fault_hits());
    quarry_os_fault(0, 0, 0);
    quarry_pool_stats(pool, &s);
    CHECK_EQ(s.held_bytes, 0);
    CHECK_EQ(fstat(quarry_pages_fd(pool), &file), 0);
    CHECK_EQ(file.st_size, 0);
    char *p = quarry_pool_alloc(pool, page, 1, 0);
    CHECK(p);
    CHECK_EQ(quarry_pages_file_offset(pool, p), 0);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// ---- misuse
// -----------------------------------------------------------------------------------------------------------

static quarry_pool_t *victim;
static char *run;
static void free_twice(void *arg) {
    (void)arg;
    quarry_pool_free(victim, run, page);
    quarry_pool_free(victim, run, page);
}
static void free_interior(void *arg) { quarry_pool_free(victim, run + (size_t)(uintptr_t)arg, page); }
static void free_foreign(void *arg) { quarry_pool_free(victim, arg, page); }
static void free_beyond(void *arg) {
    (void)arg;
    quarry_pages_free_part(victim, run + page, 5 * page);
}
static void part_without_option(void *arg) {
    (void)arg;
    quarry_pool_t *pool = make(NULL);
    quarry_pages_free_part(pool, quarry_pool_alloc(pool, 4 * page, 1, 0), page);
}
static void beyond_without_option(void *bytes) {
    quarry_pool_t *pool = make(NULL);
    quarry_pages_free_part(pool, quarry_pool_alloc(pool, 2 * page, 1, 0), (size_t)(uintptr_t)bytes);
}
static void no_memory(void *arg) {
    (void)arg;
    quarry_pool_t *pool = make(&(quarry_pages_options_t){.pool.flags = QUARRY_POOL_ABORT, .pool.limit = 100 * page});
    quarry_pool_alloc(pool, 101 * page, 1, 0);
}
static void dies_with(void (*body)(void *), void *arg, const char *word) {
    captured_t c = capture(body, arg);
    if (c.exit_signal != SIGABRT || !strstr(c.text, word))
        TEST_FAIL("\"%s\" expected, got signal %d: %.200s", word, c.exit_signal, c.text);
}

TEST(misuse_ends_the_process) {
    int local;
    victim = parts(0);
    run = quarry_pool_alloc(victim, 4 * page, 1, 0);
    char *behind = quarry_pool_alloc(victim, 4 * page, 1, 0);
    dies_with(free_twice, NULL, "double free");
    dies_with(free_interior, (void *)page, "free of an interior pointer");
    dies_with(free_interior, (void *)8, "free of an interior pointer");
    dies_with(free_foreign, &local, "invalid free");
    dies_with(free_beyond, NULL, "invalid free");
    dies_with(part_without_option, NULL, "free of an interior pointer");
    dies_with(beyond_without_option, (void *)(3 * page), "invalid free");
    dies_with(beyond_without_option, (void *)SIZE_MAX, "beyond the run");
    dies_with(no_memory, NULL, "out of memory");
    quarry_pool_free(victim, behind, page);
    quarry_pool_destroy(victim);
}

static bool is_sound(qy_pages_t *p) {
    qy_pages_enter(p);
    const char *wrong = qy_pages_verify(p);
    qy_pages_leave(p);
    return !wrong;
}

// Damaged records are found by the check: each invariant is broken once.
TEST(the_check_can_fail) {
    quarry_pool_t *pool = parts(0);
    qy_pages_t *p = (qy_pages_t *)pool;
    char *a = quarry_pool_alloc(pool, 5 * page, 1, 0), *b = quarry_pool_alloc(pool, 5 * page, 1, 0);
    quarry_pool_free(pool, a, 5 * page);
    qy_pages_region_t *r = qy_pages_region_of(p, b);
    size_t at = (size_t)(b - r->base) / page, hole = (size_t)(a - r->base) / page;
    CHECK(is_sound(p));
#define BROKEN(change, back) \
    change;                  \
    CHECK(!is_sound(p));     \
    back;                    \
    CHECK(is_sound(p))
    BROKEN(qy_bits_set(r->bits_used, at, 1, false), qy_bits_set(r->bits_used, at, 1, true));
    BROKEN(qy_bits_set(r->bits_start, at, 1, false), qy_bits_set(r->bits_start, at, 1, true));
    BROKEN(qy_bits_set(r->bits_used, hole + 1, 1, true), qy_bits_set(r->bits_used, hole + 1, 1, false));
    BROKEN(r->page[hole].count++, r->page[hole].count--);
    BROKEN(r->page[hole + 4].count = 2, r->page[hole + 4].count = 5);
    BROKEN(r->used++, r->used--);
    BROKEN(p->free_runs++, p->free_runs--);
    BROKEN(p->dirty_pages++, p->dirty_pages--);
    BROKEN(p->bitmap[0] ^= 2, p->bitmap[0] ^= 2);
    BROKEN(p->held_pages++, p->held_pages--);
    quarry_pool_destroy(pool);
}

TEST_MAIN()
