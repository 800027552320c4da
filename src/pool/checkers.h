// SPDX-License-Identifier: MIT
// checkers.h: AddressSanitizer and valgrind, whichever runs, spoken to from one library built once.
//
// The sanitizer's functions are weak references: present in a program built with -fsanitize=address,
// absent (NULL) elsewhere. Valgrind's client requests are a few instructions that do nothing outside
// it; without its headers at build time they are left out.
#ifndef QY_POOL_CHECKERS_H
#define QY_POOL_CHECKERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

void __asan_poison_memory_region(const volatile void *addr, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *addr, size_t bytes) __attribute__((weak));

static inline bool qy_asan_runs(void) { return __asan_poison_memory_region != NULL; }
static inline void qy_asan_poison(const void *addr, size_t bytes) {
    if (qy_asan_runs()) __asan_poison_memory_region(addr, bytes);
}
static inline void qy_asan_unpoison(const void *addr, size_t bytes) {
    if (qy_asan_runs()) __asan_unpoison_memory_region(addr, bytes);
}

#if __has_include(<valgrind/memcheck.h>) && !QY_TSAN
#include <valgrind/memcheck.h>
static inline bool qy_valgrind_runs(void) { return RUNNING_ON_VALGRIND != 0; }
#else
static inline bool qy_valgrind_runs(void) { return false; }
#define VALGRIND_CREATE_MEMPOOL(pool, redzone, zeroed) (void)(pool)
#define VALGRIND_DESTROY_MEMPOOL(pool) (void)(pool)
#define VALGRIND_MEMPOOL_ALLOC(pool, addr, size) (void)(addr)
#define VALGRIND_MEMPOOL_FREE(pool, addr) (void)(addr)
#define VALGRIND_MALLOCLIKE_BLOCK(addr, size, redzone, zeroed) (void)(addr)
#define VALGRIND_FREELIKE_BLOCK(addr, redzone) (void)(addr)
#define VALGRIND_MAKE_MEM_NOACCESS(addr, size) (void)(addr)
#define VALGRIND_MAKE_MEM_UNDEFINED(addr, size) (void)(addr)
#define VALGRIND_MAKE_MEM_DEFINED(addr, size) (void)(addr)
#endif

#endif
