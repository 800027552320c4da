// SPDX-License-Identifier: MIT
// Three locks in a circle: a stream's (getline holds it and allocates), libc's list of streams (fflush(NULL) holds it
// and waits for a stream), and the heap's (fork holds them and waits for the list). glibc takes its list before its
// heap for this reason.
#include <pthread.h>

#include "field.h"

static _Atomic int stop;
static void *reads_lines(void *unused) {
    while (!stop) {
        FILE *f = fopen("/etc/passwd", "r");
        char *line = NULL;
        size_t n = 0;
        while (getline(&line, &n, f) > 0) {
            free(line);
            line = NULL;
            n = 0;
        }
        free(line);
        fclose(f);
    }
    return unused;
}
static void *reads_long_lines(void *unused) {
    while (!stop) {
        FILE *f = fopen("/dev/zero", "r"), *g = fmemopen(NULL, 300000, "w+");
        for (int i = 0; i < 299000; i++) putc('x', g);
        rewind(g);
        char *line = NULL;
        size_t n = 0;
        if (getline(&line, &n, g) < 0) {}
        free(line);
        fclose(g);
        fclose(f);
    }
    return unused;
}
static void *flushes(void *unused) {
    while (!stop) fflush(NULL);
    return unused;
}
// A stream whose write function allocates.
static ssize_t allocating_write(void *cookie, const char *text, size_t n) {
    (void)cookie, (void)text;
    static unsigned k;
    for (int i = 0; i < 3; i++) free(opaque(malloc(70000 + k++ % 9 * 100000)));
    return (ssize_t)n;
}
static FILE *cookie_stream(void) {
    cookie_io_functions_t functions = {.write = allocating_write};
    return fopencookie(NULL, "w", functions);
}
static void *writes(void *stream) {
    while (!stop) {
        fputs("some text", stream);
        fflush(stream);
    }
    return NULL;
}
static void *opens_and_closes(void *unused) {
    while (!stop) {
        char *text;
        size_t n;
        FILE *f = open_memstream(&text, &n);
        for (int i = 0; i < 2000; i++) fputs("0123456789", f);
        fclose(f);
        free(text);
    }
    return unused;
}
// Forks for a while beside these threads; alarm ends a process that hangs.
static void forks_beside(void *(*const *body)(void *), int count, void *argument) {
    pthread_t t[8];
    alarm(TEST_PATIENCE);
    for (int i = 0; i < count; i++) CHECK_EQ(pthread_create(&t[i], NULL, body[i], argument), 0);
    double end = now_ms() + 2000;
    int times = 0;
    while (now_ms() < end || times < 4) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (!pid) {
            // The child uses streams and the heap at once.
            FILE *f = fopen("/dev/null", "w");
            fprintf(f, "%d %p", times, opaque(malloc(1000)));
            fclose(f);
            fflush(NULL);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (status) TEST_FAIL("child %d: status %#x", times, (unsigned)status);
        times++;
    }
    stop = 1;
    for (int i = 0; i < count; i++) pthread_join(t[i], NULL);
}
TEST(lines_and_flush) {
    void *(*const body[])(void *) = {reads_lines, reads_lines, flushes};
    forks_beside(body, 3, NULL);
}
TEST(long_lines_and_flush) {
    void *(*const body[])(void *) = {reads_long_lines, reads_long_lines, flushes};
    forks_beside(body, 3, NULL);
}
TEST(writes_that_allocate) {
    void *(*const body[])(void *) = {writes};
    forks_beside(body, 1, cookie_stream());
}
TEST(writes_that_allocate_and_flush) {
    void *(*const body[])(void *) = {writes, flushes};
    forks_beside(body, 2, cookie_stream());
}
TEST(streams_come_and_go) {
    void *(*const body[])(void *) = {opens_and_closes, opens_and_closes, flushes};
    forks_beside(body, 3, NULL);
}
TEST(everything) {
    void *(*const body[])(void *) = {writes, flushes, reads_lines, opens_and_closes};
    forks_beside(body, 4, cookie_stream());
}
static void *pipes(void *unused) {
    while (!stop) {
        FILE *f = popen("true", "r");
        if (f) pclose(f);
    }
    return unused;
}
TEST(popen_beside) {
    void *(*const body[])(void *) = {pipes, reads_lines, flushes};
    forks_beside(body, 3, NULL);
}

TEST_MAIN()
