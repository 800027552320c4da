// SPDX-License-Identifier: MIT
// way.c: one malloc that opens a chunk, or one free that gives its pages back, in a function of its own.
// scripts/way.py counts the modules that it goes through.
//
//   way malloc|free         says which call of this run is the one
//   way malloc|free CALL    makes that call by one_malloc or one_free, and ends
#include <quarry/malloc.h>
#include <quarry/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 48
#define LARGE 1000000
#define CALLS 100000

__attribute__((noinline)) void *one_malloc(size_t n) { return quarry_malloc(n); }
__attribute__((noinline)) void one_free(void *p) { quarry_free(p); }

static size_t mapped(void) {
    quarry_stats_t s;
    quarry_stats_read(&s);
    return s.mapped_bytes;
}
static size_t purged(void) {
    quarry_stats_t s;
    quarry_stats_read(&s);
    return s.purged_bytes;
}

// 1: this was the call, and it was said.
static int is_found(int call, int asked, size_t before, size_t now) {
    if (asked >= 0) return call == asked;
    if (call > 0 && now > before) printf("%d\n", call);
    return call > 0 && now > before;
}

static int by_malloc(int asked) {
    for (int call = 0; call < CALLS; call++) {
        size_t before = asked < 0 ? mapped() : 0;
        void *p = call == asked ? one_malloc(SMALL) : quarry_malloc(SMALL);
        if (!p) return 1;
        memset(p, 1, SMALL);
        if (is_found(call, asked, before, asked < 0 ? mapped() : 0)) return 0;
    }
    return 1;
}

// What lives for a moment and has a new size goes back at once. The first call starts the heap.
static int by_free(int asked) {
    for (int call = 0; call < CALLS; call++) {
        size_t n = call ? LARGE : SMALL, before = asked < 0 ? purged() : 0;
        void *p = quarry_malloc(n);
        if (!p) return 1;
        memset(p, 1, n);
        if (call == asked) one_free(p);
        else quarry_free(p);
        if (is_found(call, asked, before, asked < 0 ? purged() : 0)) return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int asked = argc > 2 ? atoi(argv[2]) : -1;
    return strcmp(argv[1], "malloc") == 0 ? by_malloc(asked) : by_free(asked);
}
