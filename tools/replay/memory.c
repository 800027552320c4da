// SPDX-License-Identifier: MIT
// memory.c: memory of our own, none of it from malloc
#include "replay.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t rounded(size_t count, size_t size) {
    size_t bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
        qy_fail(QY_SYSTEM, "the plan needs more memory than there is");
    return bytes ? (bytes + page - 1) / page * page : page;
}

void *qy_own(size_t count, size_t size) {
    size_t bytes = rounded(count, size);
    void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        qy_fail(QY_SYSTEM, "no memory for %zu bytes of the replayer's own: %s", bytes, strerror(errno));
    return p;
}

void qy_disown(void *p, size_t count, size_t size) { munmap(p, rounded(count, size)); }

// What allocators need of a stack in their slowest moments, with room; the upper end is made present.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 1 << 20 };
#else
enum { STACK = 256 << 10 };
#endif
enum { PRESENT = 64 << 10 };

size_t qy_stack_size(void) {
    long least = sysconf(_SC_THREAD_STACK_MIN);  // with the static TLS of preloaded libraries in newer C libraries
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = STACK;
    if (least > 0 && (size_t)least * 2 > size) size = (size_t)least * 2;
    return (size + page - 1) / page * page;
}

// Below the stack lies a page that ends the process when it is run into.
char *qy_own_stack(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(0, size + page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, page, PROT_NONE))
        qy_fail(QY_SYSTEM, "no memory for the stacks of so many threads: %s", strerror(errno));
    char *top = p + page + size;
    for (size_t below = page; below <= PRESENT && below <= size; below += page) *(volatile char *)(top - below) = 0;
    return p + page;
}
