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

static void uses_malloc(int unused) {
    (void)unused;
    free(opaque(malloc(size)));
    free(opaque(realloc(malloc(100), size)));
}
static void jumps(int unused) {
    (void)unused;
    siglongjmp(back, 1);
}
static void jumps_seldom(int unused) {
    (void)unused;
    static int n;
    if (++n % 20 == 0) siglongjmp(back, 1);
}
static void storm(void (*handler)(int), double ms) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 100}, {0, 100}};
    double end = now_ms() + ms;
    static char *p[200];
    static int k;
    sigsetjmp(back, 1);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (; now_ms() < end; k++) {
        int i = k % 200;
        char *old = p[i];
        p[i] = NULL;
        free(old);
        p[i] = malloc(k % 5 ? (size_t)(k % 3000) : size);
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
}
static void (*the_handler)(int);
static void child(void *unused) {
    (void)unused;
    storm(the_handler, 700);
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
static void *watch(void *unused) {
    usleep(6000000);
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
