// SPDX-License-Identifier: MIT
// unwind_module.c: a module to be loaded; compiled with different sizes of frame, but the same addresses otherwise.
#include <string.h>

__attribute__((noinline)) static void inner(void (*f)(void)) {
    char bytes[BYTES];
    memset(bytes, 1, 8);
    __asm__ volatile(""
                     :
                     : "r"(bytes)
                     : "memory");
    f();
    __asm__ volatile(""
                     :
                     : "r"(bytes)
                     : "memory");
}

void module_run(void (*f)(void));
void module_run(void (*f)(void)) {
    inner(f);
    __asm__ volatile("" ::
                         : "memory");
}
