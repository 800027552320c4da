// SPDX-License-Identifier: MIT
// heap.c: include/quarry/heap.h. In both libraries.
#include <errno.h>

#include "base/num.h"
#include "heap/alloc.h"
#include "heap/first_class.h"
#include "heap/walk.h"
#include "os/os.h"
#include "rt/diag.h"

// The public type is opaque; behind it is the internal one.
static qy_heap_t *in(quarry_heap_t *heap) { return (qy_heap_t *)(void *)heap; }

quarry_heap_t *quarry_heap_create(const quarry_heap_options_t *options) {
    static const quarry_heap_options_t none;
    if (!options) options = &none;
    return (quarry_heap_t *)(void *)qy_first_class_create(options->name, options->limit);
}

void quarry_heap_destroy(quarry_heap_t *heap) {
    if (heap) qy_first_class_destroy(in(heap));
}

void *quarry_heap_alloc(quarry_heap_t *heap, size_t n) {
    return qy_first_class_alloc(in(heap), QY_ALIGN_MIN, n, false);
}

void *quarry_heap_calloc(quarry_heap_t *heap, size_t count, size_t size) {
    size_t n;
    if (qy_mul_overflows(count, size, &n)) return qy_out_of_memory();
    return qy_first_class_alloc(in(heap), QY_ALIGN_MIN, n, true);
}

void *quarry_heap_aligned_alloc(quarry_heap_t *heap, size_t align, size_t n) {
    if (!qy_is_pow2(align)) {
        errno = EINVAL;
        return NULL;
    }
    return qy_first_class_alloc(in(heap), align, n, false);
}

void *quarry_heap_realloc(quarry_heap_t *heap, void *p, size_t n) { return qy_first_class_realloc(in(heap), p, n); }
void quarry_heap_free(quarry_heap_t *heap, void *p) { qy_first_class_free(in(heap), p); }
void quarry_heap_set_limit(quarry_heap_t *heap, size_t limit) { qy_first_class_set_limit(in(heap), limit); }
void quarry_heap_stats(quarry_heap_t *heap, quarry_heap_stats_t *ret_stats) {
    qy_first_class_stats(in(heap), ret_stats);
}

int quarry_heap_walk(quarry_heap_t *heap, int (*visit)(void *block, size_t usable_size, void *arg), void *arg) {
    return qy_heap_walk(in(heap), visit, arg);
}

int quarry_heap_check(quarry_heap_t *heap) {
    const char *wrong = qy_heap_verify(in(heap));
    if (wrong) qy_warn("heap \"%s\" at %p: %s", in(heap)->name, (void *)heap, wrong);
    return wrong ? -1 : 0;
}
