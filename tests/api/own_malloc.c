// SPDX-License-Identifier: MIT
// A malloc of a program's own, or a part of one, beside Quarry: linked into a program, or a library that is loaded
// before or after it.
//   OWN_FUNCTIONS  2: malloc and free; 4: calloc and realloc, too; 9: what aligns, and malloc_usable_size
//   OWN_FORWARDS   its blocks are those of the next malloc, and only counted: as tools do that watch a program
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef OWN_FORWARDS
#define OWN_FORWARDS 0
#endif
#define VISIBLE __attribute__((visibility("default")))

VISIBLE size_t own_blocks, own_frees;

// Its words before a block, so that what is not its own is found out.
typedef struct own_head {
    size_t n;
    uint64_t magic;
} own_head_t;
#define MAGIC UINT64_C(0xFEDCBA9876543213)  // as the size of a block of glibc: one with a mapping of its own
#define AREA ((size_t)4 << 30)              // never used twice
static char *area;

VISIBLE int own_is(const void *p) { return area && (const char *)p >= area && (const char *)p < area + AREA; }

static void count(size_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

#if OWN_FORWARDS
#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))
VISIBLE void *malloc(size_t n) {
    static __typeof__(&malloc) next;
    if (!next) next = NEXT(malloc);
    count(&own_blocks);
    return next(n);
}
VISIBLE void free(void *p) {
    static __typeof__(&free) next;
    if (!next) next = NEXT(free);
    if (p) count(&own_frees);
    next(p);
}
#else
static size_t used;
static void *take(size_t align, size_t n) {
    if (!area) {
        char *none = NULL,
             *fresh = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (fresh == MAP_FAILED) _exit(67);
        if (!__atomic_compare_exchange_n(&area, &none, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            munmap(fresh, AREA);
    }
    if (n > AREA / 2 || align > AREA / 2) {
        errno = ENOMEM;
        return NULL;
    }
    size_t begin = __atomic_fetch_add(&used, n + align + 2 * sizeof(own_head_t), __ATOMIC_RELAXED);
    if (begin > AREA - 2 * n - 2 * align - 64) _exit(68);
    char *p = (char *)(((uintptr_t)area + begin + sizeof(own_head_t) + align - 1) & ~(uintptr_t)(align - 1));
    ((own_head_t *)p)[-1] = (own_head_t){n, MAGIC};
    count(&own_blocks);
    return p;
}
static own_head_t *head_of(void *p) {
    static const char message[] = "own malloc: this block is not mine\n";
    own_head_t *h = (own_head_t *)p - 1;
    if (own_is(p) && h->magic == MAGIC) return h;
    if (write(2, message, sizeof message - 1) < 0) {}
    _exit(66);
}
VISIBLE void *malloc(size_t n) { return take(16, n); }
VISIBLE void free(void *p) {
    if (!p) return;
    head_of(p)->magic = 0;
    count(&own_frees);
}
#if OWN_FUNCTIONS >= 4
VISIBLE void *calloc(size_t count, size_t size) {
    size_t n;
    return __builtin_mul_overflow(count, size, &n) ? NULL : take(16, n);
}
VISIBLE void *realloc(void *p, size_t n) {
    void *q = take(16, n);
    if (p && q) {
        size_t old = head_of(p)->n;
        memcpy(q, p, old < n ? old : n);
        free(p);
    }
    return q;
}
#endif
#if OWN_FUNCTIONS >= 9
VISIBLE void *memalign(size_t align, size_t n) { return take(align < 16 ? 16 : align, n); }
// strictly as C11 had it
VISIBLE void *aligned_alloc(size_t align, size_t n) { return n % align ? NULL : memalign(align, n); }
VISIBLE int posix_memalign(void **ret, size_t align, size_t n) { return (*ret = memalign(align, n)) ? 0 : ENOMEM; }
VISIBLE void *valloc(size_t n) { return memalign(4096, n); }
VISIBLE size_t malloc_usable_size(void *p) { return p ? head_of(p)->n : 0; }
#endif
#endif
