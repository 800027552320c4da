// SPDX-License-Identifier: MIT
// mlockall in a program that is not privileged, with a limit: daemons that must not be paged out (corosync, ntpd, audio
// servers).
#include <grp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "field.h"

static double status_mib(const char *what) {
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *at = strstr(text, what);
    return at ? atof(at + strlen(what)) / 1024 : -1;
}
static void locked(size_t mib, int flags) {
    free(opaque(malloc(1000)));
    struct rlimit r = {(rlim_t)mib << 20, (rlim_t)mib << 20};
    setgroups(0, NULL);
    if (setrlimit(RLIMIT_MEMLOCK, &r) || setgid(65534) || setuid(65534)) {
        printf("SKIP: needs CAP_SYS_RESOURCE and root, to set the limit to %zu MiB and the user\n", mib);
        exit(0);
    }
    if (mlockall(flags)) TEST_FAIL("mlockall: errno %d, VmSize %.0f MiB of %zu", errno, status_mib("VmSize:"), mib);
    size_t want = mib * 6 / 10 * 16;
    for (size_t n = 0; n < want; n++) {
        char *p = malloc(65536 - 200);
        if (!p) TEST_FAIL("NULL after %zu of %zu MiB; %.1f MiB locked", n / 16, mib, status_mib("VmLck:"));
        memset(p, 1, 65000);
    }
    char *p = malloc(1 << 20);
    CHECK(p != NULL);
    free(p);
}
#define WITHIN(mib)                                             \
    TEST(current_##mib) { locked(mib, MCL_CURRENT); }           \
    TEST(future_##mib) { locked(mib, MCL_FUTURE); }             \
    TEST(both_##mib) { locked(mib, MCL_CURRENT | MCL_FUTURE); } \
    TEST(both_on_fault_##mib) { locked(mib, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT); }
TEST(future_4) { locked(4, MCL_FUTURE); }
TEST(future_on_fault_4) { locked(4, MCL_FUTURE | MCL_ONFAULT); }
WITHIN(8)
WITHIN(16)
WITHIN(64)

static void *in_thread(void *unused) {
    (void)unused;
    return opaque(malloc(10000));
}
// With the privilege: all that is mapped is locked, so what is reserved must not become memory.
static void privileged(int flags) {
    if (mlockall(flags)) TEST_SKIP("needs the right to lock without a limit (ulimit -l unlimited)");
    for (int i = 0; i < 30 * 16; i++) CHECK(memset(malloc(65536 - 200), 1, 65000) != NULL);
    pthread_t t;
    void *p;
    CHECK_EQ(pthread_create(&t, NULL, in_thread, NULL), 0);
    pthread_join(t, &p);
    free(p);
    CHECK_LE((int)status_mib("VmRSS:"), 60);
}
TEST(privileged_both) { privileged(MCL_CURRENT | MCL_FUTURE); }
TEST(privileged_on_fault) { privileged(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT); }
// Free memory that is locked goes back when it is asked for.
TEST(privileged_gives_back) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) TEST_SKIP("needs the right to lock without a limit (ulimit -l unlimited)");
    many((size_t)40 << 20, 3);
    many(1000, 100000);
    malloc_trim(0);
    CHECK_LE((int)status_mib("VmRSS:"), 150);
    munlockall();
    work();
}

TEST_MAIN()
