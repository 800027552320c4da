// SPDX-License-Identifier: MIT
// foreign.c: see foreign.h.
#include "heap/foreign.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "os/os.h"

// glibc's malloc keeps the size of a block in the word before it, with three flags, and the next block's words follow.
#define PREVIOUS_IN_USE 1u
#define IS_MAPPED 2u
#define FLAGS 7u

// Not by qy_os_peek: a sandbox may kill for its call, and then nobody reads the line. (No sanitizer looks at this load:
// it may be of its own.)
QY_NOINLINE __attribute__((no_sanitize("address", "thread"))) static bool size_before(const char *p, uint64_t *ret) {
    const volatile uint64_t *word = (const volatile uint64_t *)(p - sizeof *ret);
    if (!qy_os_readable(p - sizeof *ret)) return false;
    *ret = *word;
    return true;
}
static bool could_be_size(uint64_t word) {
    uint64_t size = word & ~(uint64_t)FLAGS;
    return size >= 32 && size % 16 == 0 && size < (uint64_t)1 << 40;
}

static bool looks_like_glibc(const char *p) {
    uint64_t word, next;
    if ((uintptr_t)p % 16 || (uintptr_t)p >> 56 || !size_before(p, &word) || !could_be_size(word)) return false;
    uint64_t size = word & ~(uint64_t)FLAGS;
    if (word & IS_MAPPED) return ((uintptr_t)p - 16) % qy_os_page_size() == 0 && size % qy_os_page_size() == 0;
    // The next block says that this one is in use.
    return size_before(p + size, &next) && could_be_size(next) && (next & PREVIOUS_IN_USE) && !(next & IS_MAPPED);
}

const char *qy_foreign_detail(const void *p) {
    return looks_like_glibc(p) ? "not memory of this heap, but it looks like a block of the C library's own malloc"
                               : "not memory of this heap";
}
