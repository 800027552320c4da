// SPDX-License-Identifier: MIT
// module.c: a module that allocates, and is unloaded while its block lives.
#include <stdlib.h>

void *module_allocate(size_t n);
__attribute__((noinline)) void *module_allocate(size_t n) {
    void *p = malloc(n);
    __asm__ volatile(""
                     : "+r"(p));
    return p;
}
