// SPDX-License-Identifier: MIT
// zeroed.c: two large blocks of calloc: one is fresh from the kernel, and a quarter of it is touched; the other one has
// been used before. test_zeroed.py reads what was recorded.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

int main(void) {
    mallopt(M_MMAP_THRESHOLD, (int)(16 * MIB));
    mallopt(M_TRIM_THRESHOLD, (int)(1024 * MIB));
    char *fresh = calloc(1, 64 * MIB);
    if (!fresh) return 1;
    memset(fresh, 1, 16 * MIB);
    free(fresh);
    char *used = malloc(4 * MIB), *behind = malloc(100);
    if (!used || !behind) return 1;
    memset(used, 1, 4 * MIB);
    free(used);
    char *cleared = calloc(4, MIB);
    if (!cleared || cleared[MIB]) return 1;
    int same = cleared == used;
    cleared[0] = 1;
    free(cleared);
    calloc(1, 1000);  // too small to be looked at
    free(behind);
    return same ? 0 : 2;
}
