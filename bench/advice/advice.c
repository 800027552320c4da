// SPDX-License-Identifier: MIT
// advice.c: ways to get memory for one piece of work, for bench/advice/measure.py to count.
//
//   advice turns CASE COUNT    COUNT turns of the case; the function turns_CASE is what callgrind counts
//   advice faults CASE         a block of 16 MiB; prints the page faults that it took
//
// Each turn takes memory, writes its first byte, and gives it back. The function of a case calls nothing else.
#include <quarry/fifo.h>
#include <quarry/scope.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SMALL = 48,
    LARGE = 4096,
    LIVE = 20000,
    BLOCK = 16 << 20,
    PAGE = 4096 };

// The compiler must believe that the memory is used, and may not know where it comes from.
static inline void *used(void *p) {
    *(volatile char *)p = 1;
    __asm__ volatile(""
                     : "+r"(p)::"memory");
    return p;
}

static quarry_pool_t *fifo;

#define CASE(name) __attribute__((noinline)) static void turns_##name(long count)
#define PAIRS(name, size, take, give)      \
    CASE(name##_##size) {                  \
        for (long i = 0; i < count; i++) { \
            char *p = used(take);          \
            give;                          \
        }                                  \
    }
#define LOCAL(name, size, clear)           \
    CASE(name##_##size) {                  \
        for (long i = 0; i < count; i++) { \
            char memory[size];             \
            clear;                         \
            used(memory);                  \
        }                                  \
    }
#define SCOPED(name, size, take)           \
    CASE(name##_##size) {                  \
        for (long i = 0; i < count; i++) { \
            t_scope;                       \
            used(take);                    \
        }                                  \
    }
#define SIZES(X) X(SMALL) X(LARGE)
#define ALL(size)                                                                           \
    LOCAL(local, size, (void)0)                                                             \
    LOCAL(local_zero, size, memset(memory, 0, size))                                        \
    SCOPED(scope, size, t_new_raw(char, size))  /* scope: ok */                             \
    SCOPED(scope_zero, size, t_new(char, size)) /* scope: ok */                             \
    PAIRS(fifo, size, quarry_fifo_alloc(fifo, size, 8, 0), quarry_fifo_free(fifo, p, size)) \
    PAIRS(malloc, size, malloc(size), free(p))                                              \
    PAIRS(memset, size, memset(malloc(size), 0, size), free(p))                             \
    PAIRS(calloc, size, calloc(1, size), free(p))
SIZES(ALL)

// A benchmark that one writes first: the compiler sees that nothing is done with the block.
CASE(toy) {
    for (long i = 0; i < count; i++) free(malloc(SMALL));
}

// The same work as programs have it: many blocks live, sizes differ, and a block that is freed is seldom the newest.
CASE(mixed) {
    static char *live[LIVE];
    unsigned seed = 1;
    for (long i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        char **at = &live[(seed >> 8) % LIVE];
        free(*at);
        *at = used(malloc(16 + (seed >> 16) % 500));
    }
}

#define NAMED(name) \
    { #name, turns_##name }
static const struct {
    const char *name;
    void (*turns)(long);
} cases[] = {
    NAMED(local_SMALL),
    NAMED(local_LARGE),
    NAMED(local_zero_SMALL),
    NAMED(local_zero_LARGE),
    NAMED(scope_SMALL),
    NAMED(scope_LARGE),
    NAMED(scope_zero_SMALL),
    NAMED(scope_zero_LARGE),
    NAMED(fifo_SMALL),
    NAMED(fifo_LARGE),
    NAMED(malloc_SMALL),
    NAMED(malloc_LARGE),
    NAMED(memset_SMALL),
    NAMED(memset_LARGE),
    NAMED(calloc_SMALL),
    NAMED(calloc_LARGE),
    NAMED(toy),
    NAMED(mixed),
};

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void touch(char *p, size_t step) {
    for (size_t i = 0; i < BLOCK; i += step) used(p + i);
}

static int of_block(const char *name) {
    long before = faults();
    char *p = strncmp(name, "calloc", 6) == 0 ? calloc(1, BLOCK) : malloc(BLOCK);
    if (!p) return perror("advice"), 1;
    if (strstr(name, "_memset") != NULL) memset(p, 0, BLOCK);
    if (strstr(name, "_sixteenth")) touch(p, 16 * PAGE);
    if (strstr(name, "_all")) touch(p, PAGE);
    printf("%ld\n", faults() - before);
    free(p);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "faults") == 0) return of_block(argv[2]);
    for (size_t i = 0; argc == 4 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[2]) != 0) continue;
        fifo = quarry_fifo_create(NULL);
        t_scope;  // a thread's outermost scope finds no chunk open, and most scopes lie in another
        used(t_new_raw(char, 1));
        cases[i].turns(strtol(argv[3], NULL, 10));
        return 0;
    }
    fprintf(stderr, "usage: advice turns CASE COUNT | advice faults CASE\n");
    return 2;
}
