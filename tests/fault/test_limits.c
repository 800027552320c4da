// SPDX-License-Identifier: MIT
// Little address space, from the start or later, and a table of mappings that is full: requests fail
// with ENOMEM, nothing breaks, and all is as before when there is room again.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "fault/rss.h"
#include "stress/shadow.h"
#include "threads/rerun.h"

#define MIB ((size_t)1 << 20)

// ---- fill what there is, then give it back -----------------------------------------------------------

enum { BLOCKS = 400000 };
static shadow_t block[BLOCKS];

// Until ENOMEM; returns how many bytes were had. Memory is touched at the ends of blocks only.
static size_t fill_from(size_t count, size_t size, size_t most) {
    size_t bytes = 0;
    for (; count < BLOCKS && bytes < most; count++) {
        errno = 77;
        void *p = m.malloc(size);
        if (!p) {
            CHECK_EQ(errno, ENOMEM);
            break;
        }
        CHECK_EQ(errno, 77);
        block[count] = (shadow_t){p, size, count};
        for (size_t i = 0; i < size; i += i < 32 || i + 33 > size ? 1 : size - 32 - i > 0 ? size - 32 - i
                                                                                          : 1)
            block[count].p[i] = pattern_at(count, i);
        bytes += size;
    }
    return bytes;
}
static size_t fill(size_t size, size_t most) { return fill_from(0, size, most); }
static void give_back(void) {
    for (size_t k = 0; k < BLOCKS && block[k].p; k++) {
        size_t n = block[k].n;
        for (size_t i = 0; i < n && i < 32; i++)
            CHECK(block[k].p[i] == pattern_at(k, i) && block[k].p[n - 1 - i] == pattern_at(k, n - 1 - i));
        errno = 77;
        m.free(block[k].p);
        CHECK_EQ(errno, 77);
        block[k].p = NULL;
    }
}

static const size_t sizes[] = {200, 5000, 60000, 200000, 2000000, 30000000};

// With `room` bytes of address space: most of it can be had, by blocks of each size in turn.
static void in_little_space(size_t room) {
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t had = fill(sizes[i], (size_t)BLOCKS * sizes[i]);
            CHECK(!m.malloc(2 * room) && errno == ENOMEM);
            CHECK(!m.calloc(2, room) && errno == ENOMEM);
            CHECK(!m.aligned_alloc(64 * MIB, 2 * room) && errno == ENOMEM);
            void *p = &had;
            CHECK_EQ(m.posix_memalign(&p, 4096, 2 * room), ENOMEM);
            CHECK_PTR_EQ(p, &had);
            if (block[0].p) CHECK(!m.realloc(block[0].p, 2 * room) && errno == ENOMEM);
            give_back();
            if (had < room / 2 && had < (size_t)BLOCKS * sizes[i])
                TEST_FAIL("round %d, %zu bytes: only %zu of %zu MiB", round, sizes[i], had / MIB, room / MIB);
        }
    }
}

static void expect_good(const char *body, const char *argument) {
    char *argv[] = {NULL, (char *)(uintptr_t)body, (char *)(uintptr_t)argument, NULL};
    rerun_t r = rerun(argv, 0);
    if (!WIFEXITED(r.status) || WEXITSTATUS(r.status) != 0)
        TEST_FAIL("%s %s: %s %.300s", body, argument, rerun_end(&r), r.text);
}

// The limit is there before the program starts: this one sets it for itself and execs.
static void started(size_t limit) { in_little_space(limit - (size_t)(statm_mib(0) * 1048576)); }
#ifndef __GLIBC__
typedef int __rlimit_resource_t;
#endif
static void start_with(int resource, size_t limit) {
    char text[40];
    struct rlimit old, r;
    CHECK_EQ(getrlimit((__rlimit_resource_t)resource, &old), 0);
    r = old;
    r.rlim_cur = limit;
    snprintf(text, sizeof text, "%zu", limit);
    CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &r), 0);
    expect_good("started", text);
    CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &old), 0);
}
TEST(address_space_256_mib) { start_with(RLIMIT_AS, 256 * MIB); }
TEST(address_space_1_gib) { start_with(RLIMIT_AS, 1024 * MIB); }

static void lowered(int resource, size_t room) {
    struct rlimit r;
    for (int i = 0; i < 100; i++) m.free(m.malloc((size_t)1 << i % 22));
    CHECK_EQ(getrlimit((__rlimit_resource_t)resource, &r), 0);
    struct rlimit old = r;
    r.rlim_cur = (rlim_t)(statm_mib(0) * 1048576) + room;
    CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &r), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(sizes[i], 16 * room);
        give_back();
    }
    CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &old), 0);
    // The limit is gone: all works.
    CHECK_GE(fill(300000, 2000 * MIB), 2000 * MIB);
    give_back();
}
TEST(address_space_lowered_later) { expect_good("lowered", "as"); }
TEST(data_lowered_later) { expect_good("lowered", "data"); }

// Exactly as much data as is there already, plus a little: RLIMIT_DATA counts private writable memory.
static void data_limited(void) {
    struct rlimit r = {128 * MIB, 128 * MIB};
    CHECK_EQ(setrlimit(RLIMIT_DATA, &r), 0);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t had = fill(sizes[i], 1024 * MIB);
            give_back();
            if (had > 128 * MIB || had < 30 * MIB) TEST_FAIL("%zu bytes: %zu MiB", sizes[i], had / MIB);
        }
    }
}
TEST(data_limited_to_128_mib) { expect_good("data", "x"); }

// ---- no mapping left --------------------------------------------------------------------------------------

static char *filler[200];
static size_t fillers;

// Mappings of two pages with different rights, until the kernel has no room for another.
static int fill_table(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (fillers = 0; fillers < 200; fillers++) {
        char *p = mmap(NULL, 4096 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return 1;
        filler[fillers] = p;
        for (size_t i = 0; i < 4096; i += 2) {
            if (mprotect(p + i * page, page, PROT_READ | PROT_WRITE)) {
                fillers++;
                while (mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}
                return 1;
            }
        }
    }
    return 0;
}

static void mappings_exhausted(void) {
    static shadow_t live[600];
    uint64_t random = test_seed;
    // Blocks of all kinds from before; large ones are freed when the table is full.
    for (int i = 0; i < 600; i++) {
        size_t n = i % 3 ? 1 + test_random(&random) % 3000 : i % 2 ? 100000 + test_random(&random) % 800000
                                                                   : 1 * MIB + test_random(&random) % (4 * MIB);
        shadow_set(&live[i], m.malloc(n), n, shadow_least(n));
    }
    if (!fill_table()) _exit(77);
    for (int round = 0; round < 3; round++) {
        for (size_t n = 16; n < 40 * MIB; n = n * 3 + 5) {
            errno = 77;
            char *p = m.malloc(n);
            if (p) memset(p, 1, n < 5000 ? n : 5000);
            else CHECK_EQ(errno, ENOMEM);
            errno = 77;
            char *q = m.aligned_alloc(1 << 16, n);
            if (!q) CHECK_EQ(errno, ENOMEM);
            m.free(q);
            char *r = m.realloc(p, n * 2);
            if (!r) CHECK_EQ(errno, ENOMEM);
            m.free(r ? r : p);
        }
        for (int i = round; i < 600; i += 4) {
            shadow_check(&live[i], live[i].n);
            errno = 77;
            m.free(live[i].p);
            CHECK_EQ(errno, 77);
            live[i].p = NULL;
        }
        m.trim(0);
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < fillers; i++) CHECK_EQ(munmap(filler[i], 4096 * page), 0);
    // Room again.
    for (int i = 0; i < 600; i++) {
        if (live[i].p) {
            shadow_check(&live[i], live[i].n);
        } else {
            size_t n = i % 3 ? 100 : 3 * MIB;
            shadow_set(&live[i], m.malloc(n), n, shadow_least(n));
        }
    }
    for (int i = 0; i < 600; i++) m.free(live[i].p);
    m.trim(0);
    CHECK_LT(statm_mib(1), 100);  // nothing was lost that was given back
}
TEST(no_mapping_left) {
    char *argv[] = {NULL, (char *)"mappings", (char *)"x", NULL};
    rerun_t r = rerun(argv, 0);
    if (WIFEXITED(r.status) && WEXITSTATUS(r.status) == 77)
        TEST_SKIP("needs a lower vm.max_map_count: the table of mappings is too large to fill");
    if (!WIFEXITED(r.status) || WEXITSTATUS(r.status)) TEST_FAIL("%s %.300s", rerun_end(&r), r.text);
}

// ---- odd starts -----------------------------------------------------------------------------------------

static void work(void) {
    static shadow_t s[200];
    uint64_t random = test_seed;
    for (int i = 0; i < 20000; i++) {
        shadow_free(&s[i % 200], &random);
        shadow_make(&s[i % 200], &random);
    }
    m.trim(0);
    for (int i = 0; i < 200; i++) shadow_free(&s[i], &random);
}

// All memory locked, now and in future: what is mapped is there at once, and cannot be given back.
static void locked(void) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) _exit(77);
    // Memory is there as it is needed, not ahead: give or take a chunk and the tables.
    size_t before = statm_mib(1);
    for (size_t had = 4, count = 0; had <= 32; had += 4, count += 4 * MIB / 16384) {
        fill_from(count, 16384, 4 * MIB);
        CHECK_LE(statm_mib(1), before + had + 5);
    }
    give_back();
    work();
}
TEST(memory_locked) {
    char *argv[] = {NULL, (char *)"locked", (char *)"x", NULL};
    rerun_t r = rerun(argv, 0);
    if (WIFEXITED(r.status) && WEXITSTATUS(r.status) == 77) TEST_SKIP("needs the right to lock all memory (ulimit -l)");
    if (!WIFEXITED(r.status) || WEXITSTATUS(r.status)) TEST_FAIL("%s %.300s", rerun_end(&r), r.text);
}

// No standard descriptors, and none can be opened: descriptors are not ours to need.
static void no_files(void) {
    for (int fd = 0; fd < 100; fd++) close(fd);
    work();
    if (open("/dev/null", O_RDONLY) >= 0) _exit(3);  // the limit holds, and nothing of ours is open
}
TEST(no_descriptors) {
    static const unsigned closed[] = {7, 1, 2, 6};
    for (int i = 0; i < 4; i++) {
        char *argv[] = {NULL, (char *)"work", (char *)"x", NULL};
        rerun_t e = rerun(argv, closed[i]);
        if (!WIFEXITED(e.status) || WEXITSTATUS(e.status))
            TEST_FAIL("without descriptors 0x%x: %s %.300s", closed[i], rerun_end(&e), e.text);
    }
    expect_good("limited_files", "x");
}
static void limited_files(void) {
    struct rlimit r = {0, 0};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &r), 0);
    no_files();
}

static void one_cpu(void) {
    cpu_set_t set, old;
    CHECK_EQ(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&set); i++) {
        if (CPU_ISSET(i, &old)) CPU_SET(i, &set);
    }
    CHECK_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    expect_good("work", "x");
    CHECK_EQ(sched_setaffinity(0, sizeof old, &old), 0);
}
TEST(one_processor) { one_cpu(); }

int main(int argc, char **argv) {
    if (argc != 3) return test_main(argc, argv);
    test_seed = 12345;
    if (!strcmp(argv[1], "started")) started(strtoull(argv[2], NULL, 10));
    else if (!strcmp(argv[1], "lowered")) lowered(strcmp(argv[2], "as") ? RLIMIT_DATA : RLIMIT_AS, 64 * MIB);
    else if (!strcmp(argv[1], "data")) data_limited();
    else if (!strcmp(argv[1], "mappings")) mappings_exhausted();
    else if (!strcmp(argv[1], "locked")) locked();
    else if (!strcmp(argv[1], "limited_files")) limited_files();
    else if (!strcmp(argv[1], "work")) work();
    else return 2;
    return 0;
}
