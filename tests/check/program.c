// SPDX-License-Identifier: MIT
// program.c: errors on purpose, one function each; test_check.py runs them by name and knows what each must report.
// Sizes come from the command line, so that nothing can be keyed to them.
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Not in every C library; under the checker they are.
__attribute__((weak)) void free_sized(void *p, size_t n);
__attribute__((weak)) void free_aligned_sized(void *p, size_t align, size_t n);

static size_t size;
static volatile char *v;  // the compiler keeps what is stored through it

__attribute__((noinline)) static void *made(size_t n) { return malloc(n); }
__attribute__((noinline)) static void freed(void *p) { free(p); }

static void clean(void) {
    for (size_t n = 0; n < 3000; n += 7) {
        char *p = made(n);
        memset(p, 1, n);
        p = realloc(p, n / 2 + 1);
        char *q = calloc(n / 8 + 1, 8), *r = memalign(64, n + 1);
        if (malloc_usable_size(p) != n / 2 + 1 || (uintptr_t)r % 64) _exit(9);
        for (size_t i = 0; i < n; i++)
            if (i < n / 2 + 1 ? p[i] != 1 : q[i] != 0) _exit(8);
        freed(p);
        freed(q);
        freed(r);
    }
    char *large = made((size_t)3 << 20);
    memset(large, 2, (size_t)3 << 20);
    freed(realloc(large, (size_t)5 << 20));
}

static void double_free(void) {
    void *p = made(size);
    freed(p);
    free(p);
}
static void double_free_by_realloc(void) {
    void *p = made(size);
    freed(p);
    if (realloc(p, 2 * size)) _exit(9);
}
static void invalid_stack(void) {
    char here[64];
    free(here + 16);
}
static void invalid_null_page(void) { free((void *)(uintptr_t)0x1230); }
static void interior(void) {
    char *p = made(size);
    free(p + size / 2);
    freed(p);
}
static void usable_freed(void) {
    void *p = made(size);
    freed(p);
    if (malloc_usable_size(p)) _exit(9);
}

static void sized_wrong(void) { free_sized(made(size), size + 1); }
static void sized_right(void) {
    free_sized(made(size), size);
    free_aligned_sized(aligned_alloc(128, size), 128, size);
}
static void aligned_wrong(void) { free_aligned_sized(aligned_alloc(128, size), 64, size); }
static void malloc_negative(void) {
    if (malloc((size_t) - (ptrdiff_t)size)) _exit(9);
}
static void calloc_overflow(void) {
    if (calloc(SIZE_MAX / 2, size)) _exit(9);
}
static void align_odd(void) {
    volatile size_t odd = 48;  // the compiler knows better
    if (aligned_alloc(odd, size)) _exit(9);
}

static void over_by_one(void) {
    v = made(size);
    v[size] = 'x';
    freed((char *)v);
}
static void over_by_a_zero(void) {
    v = made(size);
    v[size] = 0;
    freed((char *)v);
}
static void over_found_at_exit(void) {
    v = made(size);
    v[size + 3] = 'x';
}
static void over_found_by_realloc(void) {
    v = made(size);
    v[size] = 'x';
    freed(realloc((char *)v, size + 1));
}
static void under_by_one(void) {
    void *before[64];
    for (unsigned i = 0; i < 64; i++) before[i] = made(size);
    v = before[60];
    v[-1] = 'x';
    freed((char *)v);
}
static void write_after_free(void) {
    v = made(size);
    freed((char *)v);
    v[size / 2] = 'x';
}
// So many frees later that the block has left the quarantine of 64 KiB.
static void write_after_free_evicted(void) {
    v = made(size);
    freed((char *)v);
    v[size / 2] = 'x';
    for (unsigned i = 0; i < 3000; i++) freed(made(100));
    puts("still here");
}
// Beyond the zone, into a block that nobody has: the heap meets it.
static void over_into_free(void) {
    v = made(8);
    v[8 + 31] ^= 'A';
    for (int i = 0; i < 100; i++) made(8);
}
static void over_large(void) {
    v = made((size_t)700 << 10);
    v[(size_t)700 << 10] = 'x';
    freed((char *)v);
}

static const struct {
    const char *name;
    void (*run)(void);
} faults[] = {{"clean", clean}, {"double-free", double_free}, {"double-free-realloc", double_free_by_realloc},
    {"invalid-stack", invalid_stack}, {"invalid-null-page", invalid_null_page}, {"interior", interior},
    {"usable-freed", usable_freed}, {"sized-wrong", sized_wrong}, {"sized-right", sized_right},
    {"aligned-wrong", aligned_wrong}, {"malloc-negative", malloc_negative}, {"calloc-overflow", calloc_overflow},
    {"align-odd", align_odd}, {"over-by-one", over_by_one}, {"over-by-a-zero", over_by_a_zero},
    {"over-found-at-exit", over_found_at_exit}, {"over-found-by-realloc", over_found_by_realloc},
    {"under-by-one", under_by_one}, {"write-after-free", write_after_free},
    {"write-after-free-evicted", write_after_free_evicted}, {"over-large", over_large},
    {"over-into-free", over_into_free}};

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size = strtoul(argv[2], NULL, 10);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (strcmp(faults[i].name, argv[1]) != 0) continue;
        faults[i].run();
        return 7;
    }
    return 2;
}
