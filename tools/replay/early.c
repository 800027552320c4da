// SPDX-License-Identifier: MIT
// early.c: an allocation before the constructors of all libraries, as the C++ library's make one in many programs.
//
// A malloc that is preloaded is not ready then, and some take their first memory in another way: for all of the run,
// mimalloc has its first segment outside of its arena, with its pages by and by and not as huge ones.
#include <stdlib.h>
#include <string.h>

// glibc calls this before libraries' constructors, musl does not. The block stays: so does what it lies in.
static void early(int argc, char **argv, char **environment) {
    static void *volatile block;
    (void)environment;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--early")) block = malloc(1);
    }
    (void)block;
}

__attribute__((section(".preinit_array"), used)) static void (*const call)(int, char **, char **) = early;
