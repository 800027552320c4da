// SPDX-License-Identifier: MIT
// module.c: a module that allocates, and is unloaded while its block lives; and one that frees for others.
#include <stdlib.h>

void *module_allocate(size_t n);
void module_free(void *p);
// It may have operators of its own, made of malloc and free.
void module_free(void *p) {
    free(p);
    __asm__ volatile("");  // it is called from here, not jumped to
}
__attribute__((noinline)) void *module_allocate(size_t n) {
    void *p = malloc(n);
    __asm__ volatile(""
                     : "+r"(p));
    return p;
}
