// SPDX-License-Identifier: MIT
// server.c: a server in small whose memory raises five questions. docs/profile.md asks quarry profile each of them.
//
// Without an argument it ends after its requests. With one it serves until its parent ends.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
#define SESSIONS 40000
#define LINES 20000

static char *volatile session[SESSIONS], *volatile entry[SESSIONS], *volatile line[LINES];
static char *volatile buffer;

// Sessions end, and the entries of a cache that lie between them stay: each keeps a page.
KEEP static void session_open(int i) {
    session[i] = malloc(1000);
    memset(session[i], 1, 1000);
}
KEEP static void cache_put(int i) {
    entry[i] = malloc(72);
    memset(entry[i], 1, 72);
}
KEEP static void session_close(int i) {
    free(session[i]);
    session[i] = NULL;
}

// A request needs memory while it is served. The log keeps a line of one in 16.
KEEP static void parse_request(char **ret) {
    *ret = malloc(480);
    memset(*ret, 1, 480);
}
KEEP static void log_line(int i) {
    free(line[i]);
    line[i] = malloc(60);
    memset(line[i], 1, 60);
}
KEEP static void serve(int i) {
    char *request;
    parse_request(&request);
    if (i % 16 == 0) log_line(i / 16 % LINES);
    free(request);
}

// More than is ever written.
KEEP static void reserve_buffer(void) {
    buffer = malloc(8 << 20);
    memset(buffer, 1, 1 << 20);
}

int main(int argc, char **argv) {
    (void)argv;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // who may not trace it otherwise may profile it, too
    reserve_buffer();
    for (int i = 0; i < SESSIONS; i++) {
        session_open(i);
        if (i % 16 == 0) cache_put(i);
    }
    for (int i = 0; i < SESSIONS; i++) session_close(i);
    for (int i = 0; i < 16 * LINES; i++) serve(i);
    for (int i = 0; argc > 1 && getppid() != 1; i = (i + 1) % (16 * LINES)) {
        serve(i);
        if (i % 1000 == 0) usleep(1000);
    }
    return 0;
}
