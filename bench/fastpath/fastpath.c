// SPDX-License-Identifier: MIT
// fastpath.c: the calls that scripts/fastpath.py counts the instructions of.
//
//   fastpath CASE COUNT
//
// Each case makes COUNT calls that all hit the calling thread's cache: a block is freed before the
// next one of its size is asked for, so no call but the first few has to refill or to flush.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile kept;  // keeps the compiler from seeing that nothing is done with the blocks

static void pairs(size_t size, long count) {
    for (long i = 0; i < count; i++) {
        kept = malloc(size);
        free(kept);
    }
}

static void calloc_pairs(size_t size, long count) {
    for (long i = 0; i < count; i++) {
        kept = calloc(1, size);
        free(kept);
    }
}

// The C++ operators, as compilers call them.
void *operator_new(size_t n) __asm__("_Znwm");
void operator_delete(void *p) __asm__("_ZdlPv");

void operator_delete_sized(void *p, size_t n) __asm__("_ZdlPvm");

static void new_pairs(size_t size, long count) {
    for (long i = 0; i < count; i++) {
        kept = operator_new(size);
        operator_delete(kept);
    }
}

static void sized_pairs(size_t size, long count) {
    for (long i = 0; i < count; i++) {
        kept = operator_new(size);
        operator_delete_sized(kept, size);
    }
}

// Between two sizes of the same size class.
static void realloc_in_place(size_t size, long count) {
    kept = malloc(size);
    for (long i = 0; i < count; i++) {
        kept = realloc(kept, size - (size_t)(i & 1));
    }
    free(kept);
}

// To four times the size and back: a copy each time.
static void realloc_moves(size_t size, long count) {
    kept = malloc(size);
    for (long i = 0; i < count; i++) {
        kept = realloc(kept, i & 1 ? size : 4 * size);
    }
    free(kept);
}

static void usable_sizes(size_t size, long count) {
    void *volatile p = kept = malloc(size);
    size_t sum = 0;
    for (long i = 0; i < count; i++) sum += malloc_usable_size(p);
    if (sum < size * (size_t)count) abort();
    free(kept);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(size_t size, long count);
        size_t size;
    } cases[] = {
        {"32", pairs, 32},
        {"1000", pairs, 1000},
        {"4000", pairs, 4000},
        {"40000", pairs, 40000},
        {"calloc", calloc_pairs, 64},
        {"new", new_pairs, 32},
        {"new_sized", sized_pairs, 32},
        {"realloc", realloc_in_place, 96},
        {"realloc_moves", realloc_moves, 96},
        {"usable_size", usable_sizes, 96},
    };
    for (size_t i = 0; argc == 3 && i < sizeof cases / sizeof cases[0]; i++) {
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run(cases[i].size, strtol(argv[2], NULL, 10));
            return 0;
        }
    }
    fputs("usage: fastpath 32|1000|4000|40000|calloc|new|new_sized|realloc|realloc_moves|usable_size COUNT\n", stderr);
    return 2;
}
