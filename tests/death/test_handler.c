// SPDX-License-Identifier: MIT
// test_handler.c: malloc called by a signal handler that interrupted malloc, or after a handler left malloc by a jump.
// No malloc can serve that. It ends in one line, and not in a wait for a lock that nobody else holds.
#include <setjmp.h>
#include <stdbool.h>
#include <sys/time.h>

#include "api/family.h"
#include "captured.h"

// Objects that need the heap's locks each time.
static void work(void) {
    for (size_t n = 70000; n < 3000000; n *= 2) {
        void *p = m.malloc(n);
        CHECK(p != NULL);
        m.free(p);
    }
}

// One signal at a time: by an interval that is shorter than a handler nothing else would run, and the handler would
// interrupt the same place for ever.
static void next_signal(void) {
    static uint64_t random = 1;
    struct itimerval once = {{0, 0}, {0, 20 + (long)(test_random(&random) % 60)}};
    CHECK_EQ(setitimer(ITIMER_REAL, &once, NULL), 0);
}
static void on_timer(int sig, void (*handler)(int), void (*loop)(void)) {
    CHECK(signal(sig, handler) != SIG_ERR);
    next_signal();
    loop();
}
static void work_on_and_on(void) {
    for (;;) work();
}

static void allocate_in_handler(int sig) {
    (void)sig;
    work();
    next_signal();
}
static void handler_allocates(void *unused) {
    (void)unused;
    on_timer(SIGALRM, allocate_in_handler, work_on_and_on);
}

static sigjmp_buf out;
static int jumps;
static void jump_out(int sig) {
    // Many leave nothing behind; and who has come to a lock that one did leave must be let alone for a while, to find
    // out.
    if (++jumps < 4000) {
        next_signal();
    } else {
        signal(sig, SIG_DFL);
        alarm(TEST_PATIENCE);
    }
    siglongjmp(out, 1);
}
static void jump_again_and_again(void) {
    (void)sigsetjmp(out, 1);
    for (;;) work();
}
static void handler_jumps(void *unused) {
    (void)unused;
    on_timer(SIGALRM, jump_out, jump_again_and_again);
}

// A jump may leave the heap between two changes that belong together, and then it ends in another way, if seldom.
static void must_say_so(void (*body)(void *), int tries) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they delay signals, and allocate themselves");
    captured_t c;
    do {
        c = capture(body, NULL);
        CHECK(c.exit_signal != 0 && c.exit_signal != SIGALRM);
    } while (c.exit_signal != SIGABRT && --tries);
    bool told = strstr(c.text, "quarry: call within a call: 0x") &&
                strstr(c.text, "malloc called by a signal handler that interrupted it");
    // A build that checks itself may see locks out of order, or a structure between two changes, before it waits for
    // itself. The handler may even jump out of that.
    bool checked = strstr(c.text, "quarry: assertion failed: ") != NULL;
    if (c.exit_signal != SIGABRT || (!told && !checked))
        TEST_FAIL("signal %d, exit %d: %.300s", c.exit_signal, c.exit_code, c.text);
    if (!checked && strchr(c.text, '\n') != c.text + c.length - 1) TEST_FAIL("more than a line: %.600s", c.text);
}
TEST(handler_that_allocates) { must_say_so(handler_allocates, 1); }
TEST(handler_that_jumps) { must_say_so(handler_jumps, 5); }

TEST_MAIN()
