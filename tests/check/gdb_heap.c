// SPDX-License-Identifier: MIT
// gdb_heap.c: blocks of each kind, live and freed, for test_gdb.py, which stops in finished().
#include <stdlib.h>
#include <string.h>

char *small, *middle, *large, *huge, *empty, *dead, *dead_large, *dead_huge, *begun;

static __attribute__((noinline)) char *made(size_t n) { return memset(malloc(n), 1, n); }
static __attribute__((noinline)) void ended(char *p) { free(p); }

__attribute__((noinline)) void finished(void) { __asm__ volatile(""); }

int main(void) {
    small = made(40);
    dead = made(200);
    middle = made(5000);
    large = made(100000);
    huge = made(3000000);
    empty = malloc(0);
    dead_large = made(100000);
    dead_huge = made(5000000);
    begun = made(24);
    ended(dead);
    ended(dead_large);
    ended(dead_huge);
    finished();
    return 0;
}
