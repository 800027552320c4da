// SPDX-License-Identifier: MIT
// late.c: a call after all destructors, when the process is about to end.
//
// Some mallocs give back what is free in their destructor. What a program holds when it ends is what is left then. A
// function that is registered before libraries' constructors is called after their destructors, unless it belongs to a
// library or program itself: then it is called with the destructors of that. One of on_exit() belongs to none.
#include <stdlib.h>
#include <string.h>

#include "replay.h"

static void (*wanted)(void);
static bool registered;

bool qy_late_call(void (*call)(void)) {
    if (registered) wanted = call;
    return registered;
}

#if defined(__has_feature)
#define QY_HAS(feature) __has_feature(feature)
#else
#define QY_HAS(feature) 0
#endif

// Sanitizers are not ready for it then. musl calls no such functions.
#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && \
    !QY_HAS(thread_sanitizer) && !QY_HAS(address_sanitizer)
static void late(int status, void *arg) {
    (void)status, (void)arg;
    if (wanted) wanted();
}

static void register_late(int argc, char **argv, char **environment) {
    (void)environment;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--looks")) registered = !on_exit(late, NULL);
    }
}

__attribute__((section(".preinit_array"), used)) static void (*const call)(int, char **, char **) = register_late;
#endif
