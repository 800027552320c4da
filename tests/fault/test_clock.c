// SPDX-License-Identifier: MIT
// The clock jumps: a child goes on with its parent's heap in a namespace whose clock is days ahead, or near zero again.
// What it frees goes back to the system all the same, soon, and without a storm of calls.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "fault/rss.h"
#include "harness.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { MIB = 1 << 20,
    SMALL = 20000,
    LARGE = 100 };
static char *small[SMALL], *large[LARGE];

static void fill(void) {
    for (int i = 0; i < SMALL; i++) CHECK((small[i] = malloc(1000)) && memset(small[i], 1, 1000));
    for (int i = 0; i < LARGE; i++) CHECK((large[i] = malloc(300000)) && memset(large[i], 1, 300000));
}
static void empty(void) {
    for (int i = 0; i < SMALL; i++) free(small[i]);
    for (int i = 0; i < LARGE; i++) free(large[i]);
}

static long cpu_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

static void *beside(void *end) {
    char byte;
    free(malloc(100));
    return read(*(int *)end, &byte, 1) < 0 ? end : NULL;
}

// 0: as it should be. Beside another thread: in a process of one, some memory waits until more is freed.
static int goes_back(void) {
    pthread_t thread;
    int fds[2];
    if (pipe(fds) || pthread_create(&thread, NULL, beside, &fds[0])) return 3;
    for (int round = 0; round < 2; round++) {
        empty();
        long cpu = cpu_ms();
        double least = statm_mib(1);
        int looks = 0;
        for (; looks < TEST_PATIENCE * 10 && least > 8; looks++) {
            usleep(100000);
            free(malloc(100 + (size_t)looks));  // not idle altogether
            double now = statm_mib(1);
            if (now < least) least = now;
        }
        printf("  round %d: %.0f MiB, %ld ms\n", round, least, cpu_ms() - cpu);
        if (least > 8) return 1;
        if (cpu_ms() - cpu > 1000 + 10 * looks) return 2;
        fill();
    }
    return 0;
}

static int offset(const char *line) {
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = write(fd, line, strlen(line));
    close(fd);
    return n == (ssize_t)strlen(line);
}

static void jump(long long seconds) {
    char line[80];
    struct timespec before, after;
    int status;
    fill();
    empty();  // so the heap has noted times of this clock
    fill();
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &before), 0);
    if (seconds < 0) seconds = -(long long)before.tv_sec + 1;
    snprintf(line, sizeof line, "monotonic %lld 0\n", seconds);
    fflush(stdout);
    pid_t between = fork();
    if (!between) {
        if (unshare((getuid() ? CLONE_NEWUSER : 0) | CLONE_NEWTIME) || !offset(line)) _exit(77);
        pid_t child = fork();
        if (!child) {
            alarm(TEST_PATIENCE);
            if (clock_gettime(CLOCK_MONOTONIC, &after)) _exit(78);
            if (llabs((long long)after.tv_sec - before.tv_sec - seconds) > TEST_PATIENCE) _exit(78);
            int code = goes_back();
            fflush(stdout);
            _exit(code);
        }
        _exit(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 76);
    }
    CHECK_EQ(waitpid(between, &status, 0), between);
    empty();
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) TEST_SKIP("needs namespaces of time: Linux 5.6, and root or user namespaces");
    CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(ahead) { jump(86400 * 400); }
TEST(back) { jump(-1); }

int main(int argc, char **argv) { return test_main(argc, argv); }
