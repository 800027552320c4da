// SPDX-License-Identifier: MIT
// A program that limits its own address space, or locks its memory, after its start: what the heap has reserved by then
// is little, and what it reserves later leaves room for the rest of the program. Each case is a fresh process.
#include <dlfcn.h>
#include <grp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "fault/rss.h"
#include "stress/shadow.h"
#include "threads/rerun.h"

#define MIB ((size_t)1 << 20)

#ifndef __GLIBC__
typedef int __rlimit_resource_t;
#endif

static void expect_good(const char *body, size_t mib) {
    char text[40];
    snprintf(text, sizeof text, "%zu", mib);
    char *argv[] = {NULL, (char *)(uintptr_t)body, text, NULL};
    rerun_t r = rerun(argv, 0);
    if (WIFEXITED(r.status) && WEXITSTATUS(r.status) == 77)
        TEST_SKIP("needs CAP_SYS_RESOURCE and root, to set limits of locked memory and the user");
    if (!WIFEXITED(r.status) || WEXITSTATUS(r.status))
        TEST_FAIL("%s %zu MiB: %s %.300s", body, mib, rerun_end(&r), r.text);
}

static void set_limit(int resource, size_t bytes) {
    struct rlimit r;
    CHECK_EQ(getrlimit((__rlimit_resource_t)resource, &r), 0);
    r.rlim_cur = bytes;
    CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &r), 0);
}

// ---- address space ------------------------------------------------------------------------------------

static void *in_thread(void *unused) {
    (void)unused;
    char *p = m.malloc(100000);
    if (p) p[0] = 1;
    m.free(p);
    return p;
}

// The heap has about half of what there is, in many blocks or few; and all the rest of the program still works.
static void rest_works(void) {
    void *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK_EQ(munmap(p, MIB), 0);
    for (int i = 0; i < 5; i++) {
        char *q = m.malloc(4 * MIB);
        CHECK(q);
        memset(q, 1, 4 * MIB);
        m.free(q);
    }
    pthread_t t;
    pthread_attr_t a;
    CHECK_EQ(pthread_attr_init(&a), 0);
    CHECK_EQ(pthread_attr_setstacksize(&a, MIB), 0);
    CHECK_EQ(pthread_create(&t, &a, in_thread, NULL), 0);
    void *had;
    CHECK_EQ(pthread_join(t, &had), 0);
    CHECK(had);
    void *library = dlopen("libm.so.6", RTLD_NOW);
    CHECK(library);
    dlclose(library);
    // The shell is a program of the system's C library, which is another one than a library by musl-gcc is for.
#ifndef __GLIBC__
    unsetenv("LD_PRELOAD");
#endif
    CHECK_EQ(system("true"), 0);
}

static void limited(size_t mib, size_t size) {
    enum { BLOCKS = 200000 };
    char **block = mmap(NULL, BLOCKS * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    m.free(m.malloc(100000));
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_AS, &before), 0);
    set_limit(RLIMIT_AS, mib * MIB);
    rest_works();
    size_t n = 0;
    for (; n * size < mib * MIB / 2; n++) {
        if (!(block[n] = m.malloc(size))) TEST_FAIL("%zu of %zu MiB", n * size / MIB, mib);
        block[n][0] = 1;
    }
    rest_works();
    // What is freed is the program's.
    while (n) m.free(block[--n]);
    m.trim(0);
    void *own = mmap(NULL, mib * MIB / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    CHECK_EQ(munmap(own, mib * MIB / 2), 0);
    // Raised again: there is as much as ever.
    CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
    for (size_t k = 0; k < 1500; k++) CHECK(block[n + k] = m.malloc(MIB));
    for (n += 1500; n;) m.free(block[--n]);
    m.trim(0);
}
TEST(limits_of_its_own) {
    static const size_t mib[] = {64, 100, 200, 300};
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        expect_good("limited_1000", mib[i]);
        expect_good("limited_60000", mib[i]);
        expect_good("limited_300000", mib[i]);
        expect_good("limited_3000000", mib[i]);
    }
}

TEST(little_at_the_start) {
    char *argv[] = {NULL, (char *)"size", (char *)"16", NULL};
    rerun_t r = rerun(argv, 0);
    if (r.status) TEST_FAIL("%s %.300s", rerun_end(&r), r.text);
}
// All of it: of glibc, the program and us. It is 6 MiB here.
static void size(size_t mib) {
    m.free(m.malloc(1));
    CHECK_LE(statm_mib(0), mib);
}

// ---- memory that is locked ----------------------------------------------------------------------------

static void lock(size_t mib, int flags, size_t blocks) {
    m.free(m.malloc(1000));
    struct rlimit r = {mib * MIB, mib * MIB};
    if (setrlimit(RLIMIT_MEMLOCK, &r) || setgroups(0, NULL) || setgid(65534) || setuid(65534)) _exit(77);
    CHECK_EQ(mlockall(flags), 0);
    for (size_t i = 0; i < blocks; i++) {
        char *p = m.malloc(65000);
        if (!p) TEST_FAIL("%zu of %zu MiB", i / 16, mib);
        memset(p, 1, 65000);
    }
    CHECK(m.malloc(MIB));
}
TEST(locked_within_8_mib) { expect_good("lock_now", 8); }  // what a process may without rights
TEST(locked_within_64_mib) {
    expect_good("lock_now", 64);
    expect_good("lock_all", 64);
}

int main(int argc, char **argv) {
    if (argc != 3) return test_main(argc, argv);
    size_t mib = strtoull(argv[2], NULL, 10);
    if (!strncmp(argv[1], "limited_", 8)) limited(mib, strtoull(argv[1] + 8, NULL, 10));
    else if (!strcmp(argv[1], "size")) size(mib);
    else if (!strcmp(argv[1], "lock_now")) lock(mib, MCL_CURRENT, 16 * mib * 6 / 10);
    else if (!strcmp(argv[1], "lock_all")) lock(mib, MCL_CURRENT | MCL_FUTURE, 16 * mib * 6 / 10);
    else return 2;
    return 0;
}
