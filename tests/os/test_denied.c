// SPDX-License-Identifier: MIT
// The kernel says no: made-up failures (fake.h), a full table of mappings, a limited address space,
// a sandbox.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/compiler.h"
#include "captured.h"
#include "os/fake.h"
#include "os/os.h"

#define MIB ((size_t)1 << 20)
#define BIT(call) (1u << (call))

static void nothing(void *unused) { (void)unused; }

// ---- the fake -------------------------------------------------------------------------------------

static void *area;

static bool try_reserve(void) { return qy_os_reserve(MIB, MIB, NULL); }
static bool try_readable(void) { return qy_os_reserve_readable(MIB, MIB); }
static bool try_map(void) { return qy_os_map(MIB, MIB, NULL); }
static bool try_commit(void) { return qy_os_commit(area, MIB); }
static bool try_decommit(void) { return qy_os_decommit(area, MIB); }
static bool try_purge(void) { return qy_os_purge(area, MIB); }
static bool try_unmap(void) { return qy_os_unmap(area, MIB); }
static bool try_move(void) { return qy_os_move(area, MIB, qy_os_reserve(MIB, MIB, NULL), MIB); }
static bool try_resize(void) { return qy_os_resize_in_place(area, MIB, MIB / 2); }
static bool try_protect(void) { return qy_os_protect_none(area, MIB) && qy_os_protect_rw(area, MIB); }
static bool try_populate(void) { return qy_os_populate(area, MIB); }
static bool try_open(void) {
    int fd = qy_os_open_append("/dev/null");
    if (fd >= 0) qy_os_close(fd);
    return fd >= 0;
}
static bool try_write(void) { return qy_os_write(1, "", 0); }
static bool try_spawn(void) {
    static char stack[16384] __attribute__((aligned(16)));
    static _Atomic uint32_t alive;
    bool started = qy_os_spawn(nothing, NULL, stack, sizeof stack, &alive);
    CHECK(qy_os_join(&alive, 0));
    return started;
}
static bool try_thread_exit(void) { return qy_os_at_thread_exit(nothing, &area); }

// One call of a function is one call counted; it fails when told to and works afterwards.
TEST(each_can_fail) {
    static const struct {
        qy_os_call_t call;
        bool (*attempt)(void);
    } cases[] = {
        {QY_OS_RESERVE, try_reserve},
        {QY_OS_RESERVE_READABLE, try_readable},
        {QY_OS_MAP, try_map},
        {QY_OS_COMMIT, try_commit},
        {QY_OS_DECOMMIT, try_decommit},
        {QY_OS_PURGE, try_purge},
        {QY_OS_UNMAP, try_unmap},
        {QY_OS_MOVE, try_move},
        {QY_OS_RESIZE, try_resize},
        {QY_OS_PROTECT, try_protect},
        {QY_OS_POPULATE, try_populate},
        {QY_OS_OPEN, try_open},
        {QY_OS_WRITE, try_write},
        {QY_OS_SPAWN, try_spawn},
        {QY_OS_THREAD_EXIT, try_thread_exit},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        area = qy_os_map(2 * MIB, MIB, NULL);
        CHECK(area != NULL);
        quarry_os_fault(1, 0, BIT(cases[i].call));
        errno = 77;
        CHECK(!cases[i].attempt());
        CHECK_EQ(errno, 77);
        CHECK_EQ(quarry_os_fault_calls(), 1);
        CHECK_EQ(quarry_os_fault_hits(), 1);
        bool works = cases[i].attempt();
        if (!works && cases[i].call != QY_OS_SPAWN && cases[i].call != QY_OS_POPULATE)
            TEST_FAIL("call %d never works", cases[i].call);
        CHECK_GE(quarry_os_fault_calls(), 2);
        CHECK_EQ(quarry_os_fault_hits(), 1);
        quarry_os_fault(0, 0, 0);
    }
}

TEST(nth_and_all_after) {
    area = qy_os_map(MIB, MIB, NULL);
    quarry_os_fault(3, 0, BIT(QY_OS_PURGE));
    for (int i = 1; i <= 6; i++) CHECK_EQ(try_purge(), i != 3);
    CHECK_EQ(quarry_os_fault_calls(), 6);
    CHECK_EQ(quarry_os_fault_hits(), 1);
    quarry_os_fault(3, 1, BIT(QY_OS_PURGE) | BIT(QY_OS_COMMIT));
    for (int i = 1; i <= 6; i++) CHECK_EQ(i % 2 ? try_purge() : try_commit(), i < 3);
    CHECK(try_decommit());  // not in the mask
    CHECK_EQ(quarry_os_fault_calls(), 6);
    CHECK_EQ(quarry_os_fault_hits(), 4);
    quarry_os_fault(0, 1, BIT(QY_OS_COMMIT));  // counts only
    CHECK(try_commit() && try_commit());
    CHECK_EQ(quarry_os_fault_calls(), 2);
    CHECK_EQ(quarry_os_fault_hits(), 0);
    quarry_os_fault(0, 0, 0);
}

TEST(random_without_kernel) {
    uint64_t x[100];
    quarry_os_fault(1, 1, BIT(QY_OS_RANDOM));
    for (int i = 0; i < 100; i++) {
        x[i] = qy_os_random();
        for (int j = 0; j < i; j++) CHECK_NE(x[i], x[j]);
    }
    CHECK_EQ(quarry_os_fault_hits(), 100);
    quarry_os_fault(0, 0, 0);
}

// ---- the table of mappings is full ------------------------------------------------------------------

static size_t page;

// Alternating protections in a large area, until the kernel refuses. Returns how many pages of it
// are mappings of their own; each given back makes room for two.
static char *fill_mappings(size_t *ret_count) {
    const size_t pages = 400000;
    char *p = mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    for (size_t i = 1; i < pages; i += 2) {
        if (mprotect(p + i * page, page, PROT_READ | PROT_WRITE) != 0) {
            *ret_count = i;
            return p;
        }
    }
    return NULL;
}

static void full_table(void *unused) {
    (void)unused;
    char *block = qy_os_map(16 * page, page, NULL);
    memset(block, 5, 16 * page);
    size_t count;
    char *filler = fill_mappings(&count);
    if (!filler) _exit(77);
    while (mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}
    errno = 77;
    // What would need another mapping fails, and changes nothing.
    CHECK_PTR_EQ(qy_os_map(page, page, NULL), NULL);
    CHECK_PTR_EQ(qy_os_reserve(page, 64 * MIB, NULL), NULL);
    CHECK(!qy_os_unmap(block + 4 * page, page));
    CHECK(!qy_os_protect_none(block + 4 * page, page));
    for (size_t i = 0; i < 16 * page; i++) CHECK_EQ(block[i], 5);
    // Giving memory back needs none.
    CHECK(qy_os_purge(block + 4 * page, page));
    CHECK_EQ(block[4 * page], 0);
    CHECK_EQ(errno, 77);
    // A little room: aligned mappings succeed or fail, but never end up unaligned or without access.
    size_t aligned = 0;
    for (int round = 0; round < 40; round++) {
        char *p = qy_os_map(3 * page, 64 * MIB, NULL);
        if (p) {
            CHECK_EQ((uintptr_t)p % (64 * MIB), 0);
            memset(p, 1, 3 * page);
            aligned++;
        } else {
            CHECK_EQ(mprotect(filler + (count - 2) * page, page, PROT_NONE), 0);
            count -= 2;
        }
    }
    CHECK_GT(aligned, 5);
    for (int i = 0; i < 4; i++, count -= 2) CHECK_EQ(mprotect(filler + (count - 2) * page, page, PROT_NONE), 0);
    CHECK(qy_os_unmap(block + 4 * page, page));  // there is room for the split now
}

TEST(full_table_of_mappings) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they need mappings, too");
    page = qy_os_page_size();
    captured_t c = capture(full_table, NULL);
    if (c.exit_code == 77) TEST_SKIP("needs a lower vm.max_map_count: the table is too large to fill");
    if (c.exit_code) TEST_FAIL("%d %d %.300s", c.exit_code, c.exit_signal, c.text);
}

// ---- little address space -----------------------------------------------------------------------------

static void little_space(void *unused) {
    (void)unused;
    struct rlimit r = {256 * MIB, 256 * MIB};
    CHECK_EQ(setrlimit(RLIMIT_AS, &r), 0);
    CHECK(!qy_os_has_space(256 * MIB));
    CHECK(qy_os_has_space(100 * MIB));
    CHECK(qy_os_has_space(200 * MIB));  // what was tried is given back
    errno = 77;
    CHECK_PTR_EQ(qy_os_reserve(1024 * MIB, MIB, NULL), NULL);
    // An alignment larger than the space: found without reserving the double.
    char *p = qy_os_map(MIB, 1024 * MIB, NULL);
    CHECK(p && (uintptr_t)p % (1024 * MIB) == 0);
    // All that is left, in pieces, and back; the same is there again.
    int first = 0, second = 0;
    static void *piece[256];
    while ((piece[first] = qy_os_reserve(MIB, MIB, NULL))) first++;
    for (int i = 0; i < first; i++) CHECK(qy_os_unmap(piece[i], MIB));
    while (second < first && qy_os_reserve(MIB, MIB, NULL)) second++;
    CHECK_GT(first, 100);
    CHECK_EQ(first, second);
    CHECK_EQ(errno, 77);
}

TEST(little_address_space) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they need the space");
    run_apart(little_space, NULL);
}

// ---- a sandbox ----------------------------------------------------------------------------------------

// From now on this process gets `error` from one system call.
static void forbid(int number, int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(77);
}

static void without_madvise(void *error) {
    forbid(SYS_madvise, *(int *)error);
    char *p = qy_os_map(8 * page, page, NULL);
    memset(p, 1, 8 * page);
    CHECK(qy_os_purge(p + page, 6 * page));
    CHECK_EQ(p[0], 1);
    CHECK_EQ(p[7 * page], 1);
    for (size_t i = page; i < 7 * page; i++) CHECK_EQ(p[i], 0);
    p[page] = 1;
    CHECK(!qy_os_populate(p, page));
    CHECK(qy_os_decommit(p, 8 * page));
}
static void without_getrandom(void *error) {
    forbid(SYS_getrandom, *(int *)error);
    uint64_t a = qy_os_random(), b = qy_os_random();
    CHECK_NE(a, b);
}
static void without_prctl(void *error) {
    char *p = qy_os_map(page, page, NULL);
    forbid(SYS_prctl, *(int *)error);
    qy_os_name(p, page, "quarry test");
    p[0] = 1;
}
static void without_threads(void *error) {
    forbid(SYS_clone, *(int *)error);
    errno = 77;
    CHECK(!try_spawn());
    CHECK_EQ(errno, 77);
}
static void without_affinity(void *error) {
    forbid(SYS_sched_getaffinity, *(int *)error);
    CHECK_EQ(qy_os_cpu_affinity(), 1);
    CHECK_EQ(qy_os_cpus_together(), 0);
}
static void without_files(void *error) {
    forbid(SYS_openat, *(int *)error);
    CHECK_EQ(qy_os_open_append("/dev/null"), -1);
    CHECK(!qy_os_thp_always());
    CHECK_GE(qy_os_cpu_count(), 1);
}

TEST(sandbox) {
    page = qy_os_page_size();
    static void (*const bodies[])(void *) = {
        without_madvise, without_getrandom, without_prctl, without_threads, without_affinity, without_files};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        for (int error = 0; error < 2; error++) {
            captured_t c = capture(bodies[i], &(int){error ? EPERM : ENOSYS});
            if (c.exit_code == 77) TEST_SKIP("needs seccomp");
            if (c.exit_code) TEST_FAIL("body %zu: %d %d %.300s", i, c.exit_code, c.exit_signal, c.text);
        }
    }
}

TEST_MAIN()
