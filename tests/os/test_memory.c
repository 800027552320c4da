// SPDX-License-Identifier: MIT
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/compiler.h"
#include "base/num.h"
#include "captured.h"
#include "os/fake.h"
#include "os/os.h"
#include "os/syscall.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static size_t page;

// Pages of a range that are in memory; -1 if a part of it is not mapped.
static long resident(void *addr, size_t bytes) {
    static unsigned char vec[GIB / 4096];
    if (mincore(addr, bytes, vec) != 0) return -1;
    long n = 0;
    for (size_t i = 0; i < bytes / page; i++) n += vec[i] & 1;
    return n;
}
static bool mapped(void *addr, size_t bytes) { return resident(addr, bytes) >= 0; }

// The line of /proc/self/smaps that begins with `field`, of the mapping that holds addr.
static bool smaps_line(void *addr, const char *field, char *line, size_t bytes) {
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f) return false;
    bool inside = false, found = false;
    while (!found && fgets(line, (int)bytes, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) inside = (uintptr_t)addr >= begin && (uintptr_t)addr < end;
        found = inside && strncmp(line, field, strlen(field)) == 0;
        if (inside && !*field) found = true;
    }
    fclose(f);
    return found;
}

// Does body(addr) die of SIGSEGV?
static void read_byte(void *p) { (void)*(volatile char *)p; }
static void write_byte(void *p) { *(volatile char *)p = 1; }
static bool faults(void (*body)(void *), void *addr) {
    captured_t c = capture(body, addr);
    if (c.exit_code == 0) return false;
    CHECK(c.exit_signal == SIGSEGV || c.exit_code > 0);  // a sanitizer turns the signal into a report
    return true;
}

TEST(page_size) {
    page = qy_os_page_size();
    CHECK_EQ(page, sysconf(_SC_PAGESIZE));
    CHECK(qy_is_pow2(page));
    quarry_os_fake_page_size(65536);
    CHECK_EQ(qy_os_page_size(), 65536);
    quarry_os_fake_page_size(0);
    CHECK_EQ(qy_os_page_size(), page);
}

TEST(reserve_commit_decommit) {
    char *p = qy_os_reserve(16 * page, page, NULL);
    CHECK(p && mapped(p, 16 * page));
    CHECK(faults(read_byte, p));
    CHECK(qy_os_commit(p + page, 2 * page));
    CHECK(faults(write_byte, p));
    CHECK(faults(write_byte, p + 3 * page));
    for (size_t i = page; i < 3 * page; i++) CHECK_EQ(p[i], 0);
    memset(p + page, 1, 2 * page);
    CHECK_EQ(resident(p, 16 * page), 2);
    CHECK(qy_os_decommit(p, 16 * page));
    CHECK_EQ(resident(p, 16 * page), 0);
    CHECK(faults(read_byte, p + page));
    CHECK(qy_os_commit(p, 16 * page));
    for (size_t i = 0; i < 16 * page; i++) CHECK_EQ(p[i], 0);
    CHECK(qy_os_unmap(p, 16 * page));
    CHECK(!mapped(p, page));
}

TEST(reserve_readable) {
    char *p = qy_os_reserve_readable(64 * MIB, page);
    CHECK(p != NULL);
    for (size_t i = 0; i < 64 * MIB; i += page) CHECK_EQ(p[i], 0);
    CHECK(faults(write_byte, p));
    CHECK(qy_os_commit(p + 5 * page, page));
    memset(p + 5 * page, 7, page);
    CHECK_EQ(p[5 * page - 1], 0);
    CHECK_EQ(p[6 * page], 0);
    CHECK(qy_os_unmap(p, 64 * MIB));
}

// Every alignment up to 1 GiB, for a small and a larger size, and nothing is lost: the process's
// address space is the same afterwards.
TEST(alignment) {
    struct {
        void *(*map)(size_t, size_t, void *);
    } kinds[] = {{qy_os_reserve}, {qy_os_map}};
    for (int kind = 0; kind < 2; kind++) {
        for (size_t align = page; align <= GIB; align *= 2) {
            for (size_t bytes = page; bytes <= 4 * MIB; bytes = bytes == page       ? 3 * page
                                                                : bytes == 3 * page ? 4 * MIB
                                                                                    : 2 * bytes) {
                char *p = kinds[kind].map(bytes, align, NULL);
                CHECK(p != NULL);
                CHECK_EQ((uintptr_t)p & (align - 1), 0);
                CHECK(mapped(p, bytes));
                if (kind == 1) p[0] = p[bytes - 1] = 1;
                CHECK(qy_os_unmap(p, bytes));
                CHECK(!mapped(p, page));
            }
        }
    }
    char *p = qy_os_reserve_readable(page, GIB);
    CHECK(p && (uintptr_t)p % GIB == 0 && p[0] == 0);
    CHECK(qy_os_unmap(p, page));
}

static long virtual_pages(void) {
    long n = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld", &n) != 1) n = -1;
    if (f) fclose(f);
    return n;
}

// The last resort of the aligned search, made necessary: the aligned place below is taken.
TEST(alignment_among_others) {
    long before = virtual_pages();
    char *p[64], *blocker[64];
    for (int i = 0; i < 64; i++) {
        size_t align = (size_t)1 << (16 + i % 12), bytes = (size_t)(1 + i % 3) * page;
        p[i] = qy_os_map(bytes, align, NULL);
        blocker[i] = qy_os_map((size_t)(1 + i * 7 % 50) * page, page, NULL);
        CHECK(p[i] && blocker[i]);
        CHECK_EQ((uintptr_t)p[i] % align, 0);
        p[i][bytes - 1] = 1;
    }
    for (int i = 0; i < 64; i++) {
        CHECK(qy_os_unmap(p[i], (size_t)(1 + i % 3) * page));
        CHECK(qy_os_unmap(blocker[i], (size_t)(1 + i * 7 % 50) * page));
    }
    if (before > 0 && !QY_ASAN && !QY_TSAN) CHECK_EQ(virtual_pages(), before);
}

TEST(hint) {
    char *p = qy_os_reserve(64 * MIB, 4 * MIB, NULL);
    CHECK(p && qy_os_unmap(p, 64 * MIB));
    CHECK_PTR_EQ(qy_os_reserve(8 * MIB, 4 * MIB, p + 16 * MIB), p + 16 * MIB);
    CHECK_PTR_EQ(qy_os_map(4 * MIB, 4 * MIB, p), p);
    char *elsewhere = qy_os_map(4 * MIB, 4 * MIB, p);  // taken: only a wish
    CHECK(elsewhere && elsewhere != p && (uintptr_t)elsewhere % (4 * MIB) == 0);
    CHECK(qy_os_unmap(p + 16 * MIB, 8 * MIB) && qy_os_unmap(p, 4 * MIB) && qy_os_unmap(elsewhere, 4 * MIB));
}

TEST(impossible_sizes) {
    errno = 77;
    CHECK_PTR_EQ(qy_os_reserve(SIZE_MAX & ~(page - 1), page, NULL), NULL);
    CHECK_PTR_EQ(qy_os_reserve((size_t)1 << 62, GIB, NULL), NULL);
    CHECK_PTR_EQ(qy_os_map((size_t)1 << 62, page, NULL), NULL);
    CHECK_PTR_EQ(qy_os_reserve_readable((size_t)1 << 62, page), NULL);
    CHECK_PTR_EQ(qy_os_reserve(SIZE_MAX & ~(page - 1), (size_t)1 << 63, NULL), NULL);
    CHECK_EQ(errno, 77);
}

TEST(purge) {
    const size_t bytes = 8 * MIB;
    char *p = qy_os_map(bytes, page, NULL), line[256];
    CHECK(p != NULL);
    memset(p, 0x5a, bytes);
    CHECK_EQ(resident(p, bytes), (long)(bytes / page));
    CHECK(qy_os_purge(p + page, bytes - 2 * page));
    CHECK_EQ(resident(p, bytes), 2);
    long kib = -1;
    if (smaps_line(p, "Rss:", line, sizeof line) && sscanf(line, "Rss: %ld", &kib) == 1) CHECK_LT(kib, 4096);
    CHECK_EQ(p[page - 1], 0x5a);
    CHECK_EQ(p[bytes - page], 0x5a);
    for (size_t i = page; i < bytes - page; i++) CHECK_EQ(p[i], 0);
    p[page] = 1;  // still writable
    CHECK(qy_os_unmap(p, bytes));
}

TEST(purge_of_locked_pages) {
    char *p = qy_os_map(page, page, NULL);
    CHECK(p != NULL);
    p[0] = 9;
    if (syscall(SYS_mlock, p, page) != 0) TEST_SKIP("needs locked memory (ulimit -l): %s", strerror(errno));
    errno = 77;
    CHECK(!qy_os_purge(p, page));
    CHECK_EQ(errno, 77);
    CHECK_EQ(p[0], 9);
    CHECK_EQ(resident(p, page), 1);
    CHECK(qy_os_unmap(p, page));
}

static void fill(char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) *(uint64_t *)(void *)(p + i) = i * 0x9E3779B97F4A7C15u;
}
static void check_fill(char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) CHECK_EQ(*(uint64_t *)(void *)(p + i), i * 0x9E3779B97F4A7C15u);
}

TEST(move) {
    char *from = qy_os_map(4 * MIB, page, NULL), *to = qy_os_reserve(16 * MIB, 4 * MIB, NULL);
    fill(from, 4 * MIB);
    CHECK(qy_os_move(from, 4 * MIB, to + 4 * MIB, 8 * MIB));
    CHECK(!mapped(from, page));
    check_fill(to + 4 * MIB, 4 * MIB);
    for (size_t i = 8 * MIB; i < 12 * MIB; i += 8) CHECK_EQ(*(uint64_t *)(void *)(to + i), 0);
    to[12 * MIB - 1] = 1;
    CHECK(faults(read_byte, to + 4 * MIB - 1));
    CHECK(faults(read_byte, to + 12 * MIB));
    // Back, and smaller.
    char *small = qy_os_reserve(MIB, page, NULL);
    CHECK(qy_os_move(to + 4 * MIB, 8 * MIB, small, MIB));
    check_fill(small, MIB);
    CHECK(!mapped(to + 4 * MIB, page));
    CHECK(qy_os_unmap(small, MIB) && qy_os_unmap(to, 4 * MIB) && qy_os_unmap(to + 12 * MIB, 4 * MIB));
}

static bool is_locked(void *p) {
    char line[256];
    CHECK(smaps_line(p, "VmFlags:", line, sizeof line));
    return strstr(line, " lo") != NULL;
}

TEST(move_out) {
    char *from = qy_os_map(8 * page, page, NULL), *to = qy_os_reserve(4 * page, page, NULL);
    fill(from, 8 * page);
    if (!qy_os_move_out(from + 2 * page, 4 * page, to))
        TEST_SKIP("needs a kernel that moves pages and leaves the mapping (MREMAP_DONTUNMAP)");
    for (size_t i = 0; i < 4 * page; i++) CHECK_EQ(from[2 * page + i], 0);
    check_fill(from, 2 * page);
    for (size_t i = 0; i < 4 * page; i += 8)
        CHECK_EQ(*(uint64_t *)(void *)(to + i), (2 * page + i) * 0x9E3779B97F4A7C15u);
    CHECK(qy_os_unmap(from, 8 * page) && qy_os_unmap(to, 4 * page));
}

// An emulator that takes the place for unmapped answers EFAULT there, and gives nothing back.
TEST(what_was_moved_out_of_is_memory) {
    page = qy_os_page_size();
    char *from = qy_os_map(8 * page, page, NULL), *to = qy_os_reserve(4 * page, page, NULL);
    fill(from, 8 * page);
    if (!qy_os_move_out(from + 2 * page, 4 * page, to))
        TEST_SKIP("needs a kernel that moves pages and leaves the mapping (MREMAP_DONTUNMAP)");
    for (size_t i = 0; i < 8; i++) CHECK(qy_os_readable(from + i * page));
    fill(from, 8 * page);
    CHECK(qy_os_purge(from, 8 * page));
    for (size_t i = 0; i < 8 * page; i++) CHECK_EQ(from[i], 0);
    CHECK(qy_os_unmap(from, 8 * page) && qy_os_unmap(to, 4 * page));
}

// What lies beside it in the same mapping stays locked. (mlock itself is taken over by sanitizers.)
TEST(move_out_of_locked_memory) {
    for (int first = 0; first <= 4; first += 2) {
        char *from = qy_os_map(8 * page, page, NULL), *to = qy_os_reserve(4 * page, page, NULL);
        fill(from, 8 * page);
        if (syscall(SYS_mlock, from + (size_t)first * page, 4 * page) != 0)
            TEST_SKIP("needs locked memory (ulimit -l): %s", strerror(errno));
        errno = 77;
        CHECK(!qy_os_move_out(from + 2 * page, 4 * page, to));
        CHECK_EQ(errno, 77);
        check_fill(from, 8 * page);
        CHECK(!mapped(to, 4 * page));
        for (int i = 0; i < 8; i++) CHECK_EQ(is_locked(from + (size_t)i * page), i >= first && i < first + 4);
        CHECK(qy_os_unmap(from, 8 * page));
    }
}

// Several mappings: newer kernels move one after the other, and may stop in the middle.
TEST(move_out_of_several_mappings) {
    char *from = qy_os_map(8 * page, page, NULL), *to = qy_os_reserve(4 * page, page, NULL);
    fill(from, 8 * page);
    CHECK(qy_os_may_move_out(from + 2 * page, 4 * page));
    CHECK_EQ(madvise(from + 4 * page, page, MADV_DONTDUMP), 0);
    errno = 77;
    CHECK(!qy_os_may_move_out(from + 2 * page, 4 * page));
    CHECK(!qy_os_move_out(from + 2 * page, 4 * page, to));
    CHECK_EQ(errno, 77);
    CHECK(!mapped(to, 4 * page));
    to = qy_os_reserve(4 * page, page, NULL);
    CHECK(!qy_os_move(from + 2 * page, 4 * page, to, 4 * page));
    CHECK(!mapped(to, 4 * page));
    check_fill(from, 8 * page);
    CHECK(qy_os_may_move_out(from, 4 * page));
    CHECK(qy_os_unmap(from, 8 * page));
}

// A program may have protected a part of its block: two mappings, which cannot be moved as one. Some
// kernels have unmapped the target by then, others leave it; it is not kept.
TEST(move_refused) {
    for (int gone = 0; gone < 2; gone++) {
        char *from = qy_os_map(4 * page, page, NULL), *to = qy_os_reserve(8 * page, page, NULL);
        fill(from, 4 * page);
        CHECK_EQ(mprotect(from, page, PROT_READ), 0);
        if (gone) CHECK(qy_os_unmap(to, 8 * page));
        errno = 77;
        if (qy_os_move(from, 4 * page, to, 8 * page))
            TEST_SKIP("needs a kernel that refuses to move two mappings as one");
        CHECK_EQ(errno, 77);
        check_fill(from, 4 * page);
        CHECK(!mapped(to, 8 * page));
        CHECK(qy_os_unmap(from, 4 * page));
    }
}

// Little address space: the kernel unmaps the target, and then finds out. Somebody waits for that place: a process that
// shares our memory, but not our limits. (It calls nothing of libc, whose thread-local storage it shares.)
static _Atomic(char *) wanted;
static int take_it(void *unused) {
    (void)unused;
    qy_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);  // a failed test leaves nothing behind
    for (char *at; (at = atomic_load(&wanted)) != (char *)1;) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        if (!at || qy_syscall_failed(qy_syscall(SYS_mmap, at, page, PROT_READ | PROT_WRITE, flags, -1, 0))) continue;
        at[page - 1] = 1;
        atomic_store(&wanted, NULL);
    }
    return 0;
}
static void refused_and_taken(void *unused) {
    (void)unused;
    static char stack[16384] __attribute__((aligned(16)));
    page = qy_os_page_size();
    pid_t other = clone(take_it, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK_GT(other, 0);
    char *from = qy_os_map(2 * MIB, page, NULL);
    struct rlimit old, little;
    CHECK_EQ(getrlimit(RLIMIT_AS, &old), 0);
    little = (struct rlimit){MIB, old.rlim_max};
    for (int i = 0; i < 200; i++) {
        char *to = qy_os_reserve(2 * MIB, 2 * MIB, NULL);
        CHECK(to);
        from[0] = 1;
        CHECK_EQ(setrlimit(RLIMIT_AS, &little), 0);
        atomic_store(&wanted, to);
        bool moved = qy_os_move_out(from, 2 * MIB, to);
        CHECK_EQ(setrlimit(RLIMIT_AS, &old), 0);
        CHECK_EQ(from[0], 1);
        for (int k = 0; !moved && k < TEST_PATIENCE * 10000 && atomic_load(&wanted); k++) usleep(100);
        if (moved || atomic_load(&wanted)) {
            atomic_store(&wanted, (char *)1);
            TEST_FAIL("%s", moved ? "it was moved" : "the place is not free");
        }
        CHECK(mapped(to, page) && to[page - 1] == 1);  // what was put there stays
        CHECK(qy_os_unmap(to, page));
    }
    atomic_store(&wanted, (char *)1);
    CHECK_EQ(waitpid(other, NULL, 0), other);
}
TEST(move_refused_and_place_taken) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they have more address space than any limit");
    run_apart(refused_and_taken, NULL);
}

TEST(resize_in_place) {
    char *room = qy_os_reserve(16 * page, page, NULL);
    CHECK(room && qy_os_unmap(room, 16 * page));
    char *p = qy_os_map(4 * page, page, room);
    CHECK_PTR_EQ(p, room);
    fill(p, 4 * page);
    CHECK(qy_os_resize_in_place(p, 4 * page, 8 * page));
    check_fill(p, 4 * page);
    for (size_t i = 4 * page; i < 8 * page; i++) CHECK_EQ(p[i], 0);
    fill(p, 8 * page);
    CHECK(qy_os_resize_in_place(p, 8 * page, 2 * page));
    check_fill(p, 2 * page);
    CHECK(!mapped(p + 2 * page, page));
    char *wall = qy_os_map(page, page, p + 4 * page);
    CHECK_PTR_EQ(wall, p + 4 * page);
    errno = 77;
    CHECK(!qy_os_resize_in_place(p, 2 * page, 8 * page));
    CHECK_EQ(errno, 77);
    check_fill(p, 2 * page);
    CHECK(qy_os_unmap(p, 2 * page) && qy_os_unmap(wall, page));
}

TEST(protect) {
    char *p = qy_os_map(3 * page, page, NULL);
    memset(p, 3, 3 * page);
    CHECK(qy_os_protect_none(p + page, page));
    CHECK(faults(read_byte, p + page));
    CHECK(!faults(read_byte, p + page - 1) && !faults(write_byte, p + 2 * page));
    CHECK(qy_os_protect_rw(p + page, page));
    CHECK_EQ(p[page], 3);  // contents stay
    CHECK(qy_os_unmap(p, 3 * page));
    errno = 77;
    CHECK(!qy_os_commit(p, page) && !qy_os_protect_none(p, page) && !qy_os_protect_rw(p, page));  // not mapped
    CHECK(!qy_os_purge(p, page) && !qy_os_populate(p, page));
    CHECK_EQ(errno, 77);
}

TEST(advice) {
    char *p = qy_os_map(4 * MIB, 2 * MIB, NULL), line[256];
    errno = 77;
    qy_os_advise_huge(p, 4 * MIB, true);
    qy_os_advise_nodump(p, 4 * MIB);
    if (smaps_line(p, "VmFlags:", line, sizeof line)) {
        CHECK(strstr(line, " dd") != NULL);
        if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) CHECK(strstr(line, " hg") != NULL);
    }
    qy_os_advise_huge(p, 4 * MIB, false);
    if (smaps_line(p, "VmFlags:", line, sizeof line)) CHECK(strstr(line, " hg") == NULL);
    qy_os_name(p, 4 * MIB, "quarry test");
    if (smaps_line(p, "", line, sizeof line) && strchr(line, '[')) CHECK(strstr(line, "[anon:quarry test]") != NULL);
    else printf("(the kernel knows no names of mappings)\n");
    CHECK_EQ(resident(p, 4 * MIB), 0);
    if (qy_os_populate(p, MIB)) CHECK_EQ(resident(p, MIB), (long)(MIB / page));
    else printf("(the kernel knows no MADV_POPULATE_WRITE)\n");
    CHECK(qy_os_unmap(p, 4 * MIB));
}

TEST(thp) {
    char text[64] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (f && !fgets(text, sizeof text, f)) text[0] = '\0';
    if (f) fclose(f);
    CHECK_EQ(qy_os_thp_always(), strstr(text, "[always]") != NULL);
    CHECK_EQ(qy_os_thp_always(), strstr(text, "[always]") != NULL);
}

TEST(space) {
    CHECK(qy_os_has_space(MIB));
    CHECK(!qy_os_has_space((size_t)1 << 60));
    quarry_os_fault(1, 0, 1u << QY_OS_RESERVE);
    CHECK(!qy_os_has_space(MIB));
    quarry_os_fault(0, 0, 0);
}

TEST_MAIN()
