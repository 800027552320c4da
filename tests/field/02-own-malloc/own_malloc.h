// SPDX-License-Identifier: MIT
// own_malloc.h: a small allocator of the program's own, as bash and perl can have. It takes blocks from one area,
// checks what is freed, and reuses nothing.
#ifndef QUARRY_TESTS_OWN_MALLOC_H
#define QUARRY_TESTS_OWN_MALLOC_H

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __cplusplus
#define OWN extern "C" __attribute__((visibility("default"), used))
#define OWN_NOTHROW noexcept
#else
#define OWN __attribute__((visibility("default"), used))
#define OWN_NOTHROW
#endif

enum { OWN_AREA = 256 << 20 };
#define OWN_MAGIC UINT64_C(0x0123456789abcdef)
typedef struct own_head {
    size_t n;
    uint64_t magic;
} own_head_t;
static char *own_area;
static size_t own_at, own_blocks;

static void *own_get(size_t align, size_t n) {
    if (!own_area)
        own_area =
            (char *)mmap(NULL, OWN_AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (align < 16) align = 16;
    size_t first = __atomic_fetch_add(&own_at, n + sizeof(own_head_t) + align, __ATOMIC_RELAXED);
    size_t p = (first + sizeof(own_head_t) + align - 1) & ~(align - 1);
    if (n > OWN_AREA || p + n > OWN_AREA) {
        errno = ENOMEM;
        return NULL;
    }
    own_head_t *h = (own_head_t *)(own_area + p) - 1;
    h->n = n;
    h->magic = OWN_MAGIC;
    __atomic_fetch_add(&own_blocks, 1, __ATOMIC_RELAXED);
    return own_area + p;
}
static own_head_t *own_check(void *p) {
    __asm__ volatile(""
                     : "+r"(p));  // the compiler must not think it knows the block
    own_head_t *h = (own_head_t *)p - 1;
    if ((char *)p < own_area || (char *)p >= own_area + OWN_AREA || h->magic != OWN_MAGIC) {
        static const char text[] = "FAILED own malloc: a pointer that is not mine\n";
        if (write(2, text, sizeof text - 1) < 0) {}
        _exit(66);
    }
    return h;
}
OWN void *malloc(size_t n) OWN_NOTHROW { return own_get(16, n); }
OWN void free(void *p) OWN_NOTHROW {
    if (p) own_check(p)->magic = 0;
}
OWN void *calloc(size_t a, size_t b) OWN_NOTHROW {
    size_t n;
    if (__builtin_mul_overflow(a, b, &n)) return NULL;
    return own_get(16, n);
}
OWN void *realloc(void *p, size_t n) OWN_NOTHROW {
    void *q = own_get(16, n);
    if (p && q) {
        own_head_t *h = own_check(p);
        memcpy(q, p, h->n < n ? h->n : n);
        free(p);
    }
    return q;
}
#ifdef OWN_MORE
OWN void *memalign(size_t align, size_t n) OWN_NOTHROW { return own_get(align, n); }
OWN void *aligned_alloc(size_t align, size_t n) OWN_NOTHROW { return own_get(align, n); }
OWN int posix_memalign(void **p, size_t align, size_t n) OWN_NOTHROW {
    *p = own_get(align, n);
    return *p ? 0 : ENOMEM;
}
OWN void *valloc(size_t n) OWN_NOTHROW { return own_get(4096, n); }
OWN void *pvalloc(size_t n) OWN_NOTHROW { return own_get(4096, (n + 4095) & ~(size_t)4095); }
OWN size_t malloc_usable_size(void *p) OWN_NOTHROW { return p ? own_check(p)->n : 0; }
#endif

#endif
