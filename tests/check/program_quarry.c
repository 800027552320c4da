// SPDX-License-Identifier: MIT
// program_quarry.c: a program that is linked with the drop-in, and uses the C library's names and Quarry's in turn. The
// first argument is what it does wrong.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <quarry/heap.h>
#include <quarry/malloc.h>

#define MOST 500

static void mixed(void) {
    char *p = malloc(40), *q = quarry_malloc(50);
    if (!p || !q || quarry_usable_size(p) < 40 || quarry_usable_size(q) < 50 || quarry_usable_size(NULL)) abort();
    memset(q, 1, 50);
    p = quarry_realloc(p, 300);
    q = realloc(q, 20);
    if (!p || !q || q[19] != 1) abort();
    free(quarry_reallocarray(p, 7, 9));
    quarry_free_sized(q, 20);
    char *zero = quarry_calloc(30, 3), *wide = quarry_aligned_alloc(256, 100);
    void *page = NULL;
    if (quarry_posix_memalign(&page, 4096, 10) || (uintptr_t)page % 4096 || (uintptr_t)wide % 256 || zero[89]) abort();
    volatile size_t odd = 48;  // a compiler that knows it refuses it
    void *rounded = quarry_memalign(odd, 0);
    if ((uintptr_t)rounded % 64) abort();
    free(rounded);
    quarry_free_aligned_sized(wide, 256, 100);
    quarry_free(page);
    free(zero);
    quarry_free(NULL);
    quarry_trim(0);
}

// They are the other library's, and any of its functions may have them.
static void heaps(void) {
    quarry_heap_t *heap = quarry_heap_create(NULL);
    char *blocks[MOST];
    for (size_t i = 0; i < MOST; i++) blocks[i] = quarry_heap_alloc(heap, i + 1);
    for (size_t i = 0; i < MOST; i++) {
        if (i % 3 == 0) blocks[i] = quarry_realloc(blocks[i], 2 * i + 1);
        if (!blocks[i] || quarry_usable_size(blocks[i]) < i + 1) abort();
        memset(blocks[i], 1, i + 1);
        if (i % 2) quarry_free(blocks[i]);
    }
    quarry_heap_destroy(heap);
}

int main(int argc, char **argv) {
    mixed();
    heaps();
    volatile char *p = quarry_malloc(argc > 2 ? (size_t)atoi(argv[2]) : 40);
    size_t n = quarry_usable_size((void *)p);
    if (argc > 1 && !strcmp(argv[1], "over")) memset((char *)p, 1, n + 1);
    quarry_free((void *)p);
    if (argc > 1 && !strcmp(argv[1], "twice")) quarry_free((void *)p);
    return 7;
}
