// SPDX-License-Identifier: MIT
// dropin_early.c: malloc before the loader has made the first thread's TLS image; in shared libraries for glibc only.
//
// An ifunc resolver of the program or of a library runs while things are relocated, and may allocate. There is memory
// for thread-local variables by then, all zero: their first values come when everything is relocated. We are relocated
// before what asks us. So a resolver of ours lets the thread have the cache of threads without a heap
// (qy_thread_early), which the image does again later.
#include "heap/cache.h"

#if defined(__GLIBC__) && defined(__PIC__) && (defined(__x86_64__) || defined(__aarch64__))

static void nothing(void) {}

__attribute__((used)) static void (*resolve(void))(void) {
    qy_thread_early();
    return nothing;
}

// Not static: clang 14 exports such a name, and the loader then takes one library's for another's.
QY_HIDDEN void qy_dropin_early(void) __attribute__((ifunc("resolve")));

// What makes the loader ask. The linker drops what nothing refers to, but for constructors and what they need.
static void (*const volatile asked)(void) = qy_dropin_early;
__attribute__((constructor)) static void refer(void) { (void)asked; }

#else
typedef int qy_dropin_early_is_empty;
#endif
