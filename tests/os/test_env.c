// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "base/compiler.h"
#include "captured.h"
#include "os/os.h"

TEST(clocks) {
    struct timespec t;
    errno = 77;
    uint64_t last = qy_os_now_ns();
    CHECK_EQ(errno, 77);
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t theirs = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    CHECK(last <= theirs && theirs <= qy_os_now_ns());
    for (int i = 0; i < 10000; i++) {
        uint64_t now = qy_os_now_ns();
        CHECK_GE(now, last);
        last = now;
    }
    uint64_t before = qy_os_now_ns(), coarse = qy_os_now_coarse_ns(), fine = qy_os_now_ns();
    CHECK(coarse <= fine && before < coarse + 1000000000u);
    usleep(30000);
    CHECK_GE(qy_os_now_ns() - fine, 30000000u);
    CHECK_GE(qy_os_now_coarse_ns() - coarse, 15000000u);
}

// All bits take both values; no two answers are alike.
TEST(chance) {
    uint64_t ones = 0, zeros = 0, x[200];
    for (int i = 0; i < 200; i++) {
        x[i] = qy_os_random();
        ones |= x[i];
        zeros |= ~x[i];
        for (int j = 0; j < i; j++) CHECK_NE(x[i], x[j]);
    }
    CHECK(ones == UINT64_MAX && zeros == UINT64_MAX);
}

TEST(environment) {
    setenv("QUARRY_TEST", "value", 1);
    setenv("QUARRY_TES", "", 1);
    setenv("QUARRY_TEST_2", "x=y", 1);
    CHECK_STR_EQ(qy_os_getenv("QUARRY_TEST"), "value");
    CHECK_STR_EQ(qy_os_getenv("QUARRY_TES"), "");
    CHECK_STR_EQ(qy_os_getenv("QUARRY_TEST_2"), "x=y");
    CHECK_PTR_EQ(qy_os_getenv("QUARRY_TE"), NULL);
    CHECK_PTR_EQ(qy_os_getenv("QUARRY_TEST_"), NULL);
    char **kept = environ;
    environ = NULL;
    CHECK_PTR_EQ(qy_os_getenv("QUARRY_TEST"), NULL);
    environ = kept;
}

static unsigned long pairs[] = {AT_PHDR, 0x10040, AT_PAGESZ, 12288, AT_SECURE, 1, AT_NULL, 0};

// Arguments, environment, and what follows it, as a process begins with them; `gone` variables were taken out since.
static void start_with(const char *program, unsigned gone, const unsigned long *table, size_t words) {
    static char *stack[64];
    const unsigned variables = 4;
    unsigned n = 0;
    stack[n++] = (char *)(uintptr_t)program;
    stack[n++] = NULL;
    for (unsigned i = 0; i < variables + 1; i++) stack[n++] = i < variables - gone ? (char *)(uintptr_t) "A=b" : NULL;
    for (size_t i = 0; i < words; i++) stack[n++] = (char *)table[i];
    qy_os_started(1, stack, stack + 2);
}
#define WORDS (sizeof pairs / sizeof pairs[0])

// What follows the environment is taken for the kernel's vector only if it is one; else libc is asked.
static void vector_apart(void *arg) {
    (void)arg;
    char name[16];
    const unsigned long real = getauxval(AT_PAGESZ);
    unsigned long other[WORDS];
    errno = 77;
    for (unsigned gone = 1; gone <= 4; gone++) {
        start_with("/bin/gone", gone, pairs, WORDS);
        CHECK_EQ(qy_os_auxv(AT_PAGESZ), real);
    }
    start_with("/bin/shifted", 0, pairs + 1, WORDS - 1);
    CHECK_EQ(qy_os_auxv(AT_PAGESZ), real);
    memcpy(other, pairs, sizeof other);
    other[1] = 1;  // no address
    start_with("/bin/strange", 0, other, WORDS);
    CHECK_EQ(qy_os_auxv(AT_PAGESZ), real);
    CHECK_EQ(qy_os_auxv(1000), 0);
    start_with("/bin/whole", 0, pairs, WORDS);
    CHECK_EQ(qy_os_auxv(AT_PAGESZ), 12288);
    CHECK_EQ(qy_os_auxv(AT_SECURE), 1);
    CHECK_EQ(qy_os_auxv(AT_RANDOM), 0);
    CHECK_PTR_EQ(qy_os_getenv("PATH"), NULL);
    CHECK_EQ(errno, 77);
    qy_os_program_name(name, sizeof name);
    CHECK_STR_EQ(name, "whole");
    start_with("short", 0, pairs, WORDS);
    qy_os_program_name(name, 4);
    CHECK_STR_EQ(name, "sho");
}
TEST(vector) { run_apart(vector_apart, NULL); }

// A setuid program must not be led by its caller's environment.
TEST(environment_of_setuid) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers");
    if (geteuid() != 0) TEST_SKIP("needs root, to make a setuid program of another user");
    char dir[] = "/var/tmp/quarry-test-XXXXXX", command[256];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(command, sizeof command,
        "chmod 755 %s && cp /proc/%d/exe %s/prog && chown 65534 %s/prog && chmod 4755 %s/prog", dir, getpid(), dir, dir,
        dir);
    CHECK_EQ(system(command), 0);
    snprintf(command, sizeof command, "QUARRY_TEST=seen %s/prog +getenv; r=$?; rm -rf %s; exit $r", dir, dir);
    int status = system(command);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 12) TEST_SKIP("needs a file system that is not mounted nosuid");
    CHECK_EQ(WEXITSTATUS(status), 10);
}
static int report_getenv(void) {
    if (geteuid() == getuid()) return 12;
    return qy_os_getenv("QUARRY_TEST") ? 11 : 10;
}

// ---- output -------------------------------------------------------------------------------------------

TEST(write_to_file) {
    char path[] = "/tmp/quarry-test-XXXXXX", text[64] = "";
    int fd = mkstemp(path);
    close(fd);
    unlink(path);
    umask(0);
    for (int i = 0; i < 2; i++) {
        fd = qy_os_open_append(path);
        CHECK_GE(fd, 0);
        CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
        CHECK(qy_os_write(fd, i ? "second\n" : "first\n", i ? 7 : 6));
        qy_os_close(fd);
        CHECK_EQ(fcntl(fd, F_GETFD), -1);
    }
    struct stat s;
    CHECK_EQ(stat(path, &s), 0);
    CHECK_EQ(s.st_mode & 0777, 0600);
    fd = open(path, O_RDONLY);
    CHECK_EQ(read(fd, text, sizeof text), 13);
    CHECK_STR_EQ(text, "first\nsecond\n");
    close(fd);
    unlink(path);
}

TEST(write_fails) {
    errno = 77;
    CHECK(!qy_os_write(-1, "x", 1));
    CHECK(qy_os_write(-1, "x", 0));
    CHECK_EQ(qy_os_open_append("/nonexistent/file"), -1);
    CHECK_EQ(qy_os_open_append("/"), -1);
    qy_os_close(-1);
    int full = qy_os_open_append("/dev/full");
    if (full >= 0) CHECK(!qy_os_write(full, "x", 1));
    qy_os_close(full);
    CHECK_EQ(errno, 77);
    int fds[2];
    CHECK_EQ(pipe2(fds, O_NONBLOCK), 0);
    static char block[1 << 20];
    CHECK(!qy_os_write(fds[1], block, sizeof block));  // a full pipe: given up, not waited for
    close(fds[0]);
    close(fds[1]);
}

// A slow reader and a signal every 100 us: many short and interrupted writes, every byte arrives.
static _Atomic int alarms;
static void count_alarm(int signal) { (void)signal, alarms++; }
static void *read_slowly(void *fd) {
    static char block[5000];
    size_t total = 0;
    for (ssize_t n; (n = read((int)(long)fd, block, sizeof block)) != 0;) {
        if (n < 0) continue;  // interrupted
        for (ssize_t i = 0; i < n; i++) CHECK_EQ((unsigned char)block[i], (total + (size_t)i) % 251);
        total += (size_t)n;
        usleep(50);
    }
    return (void *)total;
}
TEST(write_is_interrupted) {
    static unsigned char data[1 << 20];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i % 251);
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    pthread_t t;
    sigset_t alarm_only, old;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, &old);  // the reader inherits: only the writer is interrupted
    CHECK_EQ(pthread_create(&t, NULL, read_slowly, (void *)(long)fds[0]), 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    struct sigaction action = {.sa_handler = count_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK(qy_os_write(fds[1], data, sizeof data));
    setitimer(ITIMER_REAL, &never, NULL);
    close(fds[1]);
    void *total;
    pthread_join(t, &total);
    close(fds[0]);
    CHECK_EQ((size_t)total, sizeof data);
    CHECK_GT(alarms, 0);
}

// ---- the end --------------------------------------------------------------------------------------------

static void survive(int signal) { (void)signal; }
static void abort_handled(void *unused) {
    (void)unused;
    sigset_t all;
    sigfillset(&all);
    signal(SIGABRT, survive);
    sigprocmask(SIG_BLOCK, &all, NULL);
    qy_os_abort();
}
static void *abort_in_thread(void *unused) {
    abort_handled(unused);
    return NULL;
}
static void abort_threaded(void *unused) {
    pthread_t t;
    pthread_create(&t, NULL, abort_in_thread, unused);
    for (;;) pause();
}
TEST(abort_is_final) {
    CHECK_EQ(capture(abort_handled, NULL).exit_signal, SIGABRT);
    CHECK_EQ(capture(abort_threaded, NULL).exit_signal, SIGABRT);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "+getenv")) return report_getenv();
    return test_main(argc, argv);
}
