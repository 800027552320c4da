// SPDX-License-Identifier: MIT
// program_early.c: a library whose constructor comes before the recorder's. The first allocation of the process is made
// within what QUARRY_TEST_EARLY says, by the C library, which has a lock meanwhile; then that lock is needed again.
#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The recorder has it; nothing behind it does in a program without C++.
__attribute__((weak)) void *operator_new(size_t n) __asm__("_Znwm");
// The one with a kernel that can be told to fail has it.
__attribute__((weak)) void quarry_os_fake_ticks_shift(unsigned more);

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "program_early: %s failed\n", what);
    abort();
}
#define MUST(expr) must(!!(expr), #expr)

static void at_end(void) { free(malloc(3434)); }
static void at_end_with(int status, void *arg) {
    (void)status, (void)arg;
    at_end();
}

// There is room for some handlers before any are allocated.
static void register_many(const char *early) {
    for (int i = 0; i < 100; i++) {
        if (!strcmp(early, "atexit")) MUST(atexit(at_end) == 0);
        if (!strcmp(early, "on_exit")) MUST(on_exit(at_end_with, NULL) == 0);
        if (!strcmp(early, "at_quick_exit")) MUST(at_quick_exit(at_end) == 0);
        if (!strcmp(early, "pthread_atfork")) MUST(pthread_atfork(at_end, NULL, NULL) == 0);
    }
}

__attribute__((constructor)) static void begin(void) {
    const char *early = getenv("QUARRY_TEST_EARLY");
    if (!early) return;
    if (quarry_os_fake_ticks_shift) quarry_os_fake_ticks_shift(16);
    register_many(early);
    if (!strcmp(early, "newlocale")) {
        locale_t locale = newlocale(LC_ALL_MASK, "POSIX", NULL);  // "C" would be there without malloc
        MUST(locale);
        freelocale(locale);
    }
    if (!strcmp(early, "dlopen")) {
        MUST(!dlopen("/nonexistent/a.so", RTLD_NOW));
        const char *said = dlerror();
        MUST(said && strstr(said, "/nonexistent/a.so"));
    }
    free(malloc(2323));
    if (operator_new) free(operator_new(2424));
    MUST(!dlerror());  // what the recorder looked for is not the program's mistake
    MUST(setlocale(LC_ALL, ""));
}
