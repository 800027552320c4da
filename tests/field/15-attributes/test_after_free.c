// SPDX-License-Identifier: MIT
// What a program did to the pages of a block must not meet the next owner of that memory: locked, not for children,
// wiped in children, read only, a file in its place. Programs do so with page-aligned blocks, for secrets and for
// devices.
#include <sys/mman.h>

#include "field.h"

enum { PAGE = 4096 };
typedef void change_t(void *p, size_t n);
typedef void restore_t(void *p, size_t n);

static void lock(void *p, size_t n) {
    if (mlock(p, n)) {
        printf("SKIP: needs locked memory (ulimit -l): %s\n", strerror(errno));
        exit(0);
    }
}
static void unlock(void *p, size_t n) { munlock(p, n); }
static void not_for_children(void *p, size_t n) { CHECK_EQ(madvise(p, n, MADV_DONTFORK), 0); }
static void wiped_in_children(void *p, size_t n) { CHECK_EQ(madvise(p, n, MADV_WIPEONFORK), 0); }
static void not_in_core(void *p, size_t n) { CHECK_EQ(madvise(p, n, MADV_DONTDUMP), 0); }
static void no_huge_pages(void *p, size_t n) {
    if (madvise(p, n, MADV_NOHUGEPAGE)) errno = 0;  // a kernel without huge pages
}
static void mergeable(void *p, size_t n) {
    if (madvise(p, n, MADV_MERGEABLE)) errno = 0;
}
static void read_only(void *p, size_t n) { CHECK_EQ(mprotect(p, n, PROT_READ), 0); }
static void writable(void *p, size_t n) { CHECK_EQ(mprotect(p, n, PROT_READ | PROT_WRITE), 0); }
static void given_back(void *p, size_t n) { CHECK_EQ(madvise(p, n, MADV_DONTNEED), 0); }
static void nothing(void *p, size_t n) { (void)p, (void)n; }

static long status_kib(const char *what) {
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *at = strstr(text, what);
    return at ? atol(at + strlen(what)) : -1;
}

// Blocks of this size are changed, restored where a program must do so, freed; new ones are then written, and a child
// reads and writes them.
static void after(size_t n, change_t *change, restore_t *restore) {
    enum { MOST = 12 };
    char *p[MOST];
    int count = n > (size_t)4 << 20 ? 2 : MOST;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++) {
            p[i] = aligned_alloc(PAGE, n);
            CHECK(p[i] != NULL);
            memset(p[i], 1, n);
            change(p[i], n);
        }
        for (int i = 0; i < count; i++) {
            restore(p[i], n);
            free(p[i]);
        }
        if (round == 1) malloc_trim(0);
    }
    for (int i = 0; i < count; i++) {
        p[i] = malloc(n);
        CHECK(p[i] != NULL);
        memset(p[i], 7, n);
    }
    pid_t pid = fork();
    if (!pid) {
        for (int i = 0; i < count; i++) {
            if (p[i][0] != 7 || p[i][n / 2] != 7 || p[i][n - 1] != 7) _exit(2);
            memset(p[i], 8, n);
            free(p[i]);
        }
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status) TEST_FAIL("a child does not find what was written: %#x", (unsigned)status);
    for (int i = 0; i < count; i++) free(p[i]);
}
// The attributes that a program cannot leave to malloc it takes back itself, as glibc's documents ask; the rest goes
// with the memory.
#define SIZE(name, n)                                                \
    TEST(locked_##name) {                                            \
        after(n, lock, unlock);                                      \
        CHECK_LE(status_kib("VmLck:"), 1024);                        \
    }                                                                \
    TEST(given_back_##name) { after(n, given_back, nothing); }       \
    TEST(not_in_core_##name) { after(n, not_in_core, nothing); }     \
    TEST(no_huge_pages_##name) { after(n, no_huge_pages, nothing); } \
    TEST(mergeable_##name) { after(n, mergeable, nothing); }         \
    TEST(read_only_##name) { after(n, read_only, writable); }
SIZE(64k, (size_t)64 << 10)
SIZE(1m, (size_t)1 << 20)
SIZE(40m, (size_t)40 << 20)

// A block with a mapping of its own takes all with it, since glibc unmaps it.
TEST(left_locked_40m) {
    after((size_t)40 << 20, lock, nothing);
    CHECK_LE(status_kib("VmLck:"), 1024);
}
TEST(left_not_for_children_40m) { after((size_t)40 << 20, not_for_children, nothing); }
TEST(left_wiped_in_children_40m) { after((size_t)40 << 20, wiped_in_children, nothing); }
TEST(left_read_only_40m) { after((size_t)40 << 20, read_only, nothing); }
static void a_file(void *p, size_t n) {
    int fd = memfd_create("field", 0);
    CHECK_EQ(ftruncate(fd, PAGE), 0);
    CHECK(mmap(p, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p);
    close(fd);
}
TEST(left_a_file_40m) { after((size_t)40 << 20, a_file, nothing); }
static void shared(void *p, size_t n) {
    CHECK(mmap(p, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
}
TEST(left_shared_40m) { after((size_t)40 << 20, shared, nothing); }
static void no_access(void *p, size_t n) { CHECK_EQ(mprotect(p, n, PROT_NONE), 0); }
TEST(left_without_access_40m) { after((size_t)40 << 20, no_access, nothing); }
// One page in the middle only.
static void one_page(void *p, size_t n) {
    CHECK_EQ(mprotect((char *)p + (n / 2 & ~(size_t)(PAGE - 1)), PAGE, PROT_READ), 0);
}
TEST(left_one_page_40m) { after((size_t)40 << 20, one_page, nothing); }

TEST_MAIN()
