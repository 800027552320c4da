// SPDX-License-Identifier: MIT
// A handler of a signal calls malloc although malloc was interrupted, or jumps out of it. Nobody promises that this
// works. What can be asked is that it does not hang for ever: it goes well, or the process ends with a line that says
// why.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "field.h"

static size_t size;
static sigjmp_buf back;

enum { SIGNALS = 4000 };
static volatile sig_atomic_t signals;

// Each is asked for when the handler of the last is done: by an interval that is shorter than a handler nothing else
// would run.
static void next_signal(void) {
    struct itimerval once = {{0, 0}, {0, signals++ < SIGNALS ? 100 : 0}};
    setitimer(ITIMER_REAL, &once, NULL);
}
static void uses_malloc(int unused) {
    (void)unused;
    free(opaque(malloc(size)));
    free(opaque(realloc(malloc(100), size)));
    next_signal();
}
static void jumps(int unused) {
    (void)unused;
    next_signal();
    siglongjmp(back, 1);
}
static void jumps_seldom(int unused) {
    (void)unused;
    static int n;
    next_signal();
    if (++n % 20 == 0) siglongjmp(back, 1);
}
static void storm(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    static char *p[200];
    static int k;
    next_signal();
    sigsetjmp(back, 1);
    for (; signals < SIGNALS; k++) {
        int i = k % 200;
        char *old = p[i];
        p[i] = NULL;
        free(old);
        p[i] = malloc(k % 5 ? (size_t)(k % 3000) : size);
    }
}
static void (*the_handler)(int);
static void child(void *unused) {
    (void)unused;
    storm(the_handler);
    _exit(0);
}
static void *churn(void *unused) {
    for (;;) free(opaque(malloc(50000)));
    return unused;
}
static void child_with_threads(void *unused) {
    pthread_t t;
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (int i = 0; i < 2; i++) pthread_create(&t, NULL, churn, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    child(unused);
}
static pid_t watched;
// Its first thread's state, and how much of a processor it has used, in ticks.
static char state_of(pid_t pid, unsigned long *ret_ticks) {
    char path[64], text[600] = "", state = 0;
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
    int fd = open(path, O_RDONLY);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0) text[0] = '\0';
    if (fd >= 0) close(fd);
    char *at = strrchr(text, ')');
    if (at) sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &system);
    *ret_ticks = user + system;
    return state;
}
// A thread that sleeps for six seconds waits for itself; one that uses thirty seconds of a processor spins. A machine
// that is busy makes neither of one.
static void *watch(void *unused) {
    unsigned long ticks, last = 0, most = 30 * (unsigned long)sysconf(_SC_CLK_TCK);
    for (int asleep = 0;; last = ticks) {
        usleep(100000);
        char state = state_of(watched, &ticks);
        if (!state || state == 'Z') return unused;
        asleep = state == 'S' && ticks == last ? asleep + 1 : 0;
        if (asleep == 60 || ticks > most) break;
    }
    kill(watched, SIGKILL);
    return unused;
}
// Ends well, or with a line; a child that has to be killed hung.
static void ends(void (*body)(void *), void (*handler)(int), size_t n) {
    size = n;
    the_handler = handler;
    int fds[2], status;
    CHECK_EQ(pipe(fds), 0);
    watched = fork();
    if (!watched) {
        dup2(fds[1], 2);
        body(NULL);
        _exit(0);
    }
    close(fds[1]);
    pthread_t t;
    pthread_create(&t, NULL, watch, NULL);
    char text[400] = "";
    ssize_t length = 0, got;
    while ((got = read(fds[0], text + length, sizeof text - 1 - (size_t)length)) > 0) length += got;
    pthread_join(t, NULL);
    CHECK_EQ(waitpid(watched, &status, 0), watched);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) TEST_FAIL("hangs");
    if (status && !length) TEST_FAIL("ends by signal %d without a word", WTERMSIG(status));
}
TEST(malloc_small) { ends(child, uses_malloc, 100); }
TEST(malloc_medium) { ends(child, uses_malloc, 20000); }
TEST(malloc_large) { ends(child, uses_malloc, 300000); }
TEST(malloc_huge) { ends(child, uses_malloc, (size_t)40 << 20); }
TEST(malloc_beside_threads) { ends(child_with_threads, uses_malloc, 50000); }
TEST(jump_small) { ends(child, jumps, 100); }
TEST(jump_large) { ends(child, jumps, 300000); }
TEST(jump_seldom_large) { ends(child, jumps_seldom, 300000); }
TEST(jump_beside_threads) { ends(child_with_threads, jumps_seldom, 50000); }

TEST_MAIN()
