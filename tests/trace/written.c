// SPDX-License-Identifier: MIT
// written.c: blocks of 4 to 128 KiB in memory that was used before, of which a part is written, and one that is fresh.
// Each has a size of its own, by which test_written.py knows it. Contents that a program may count on are compared.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1024)
#define PAGE ((size_t)4096)

static char *volatile used[3];  // so that no call is left out

static int is(const char *p, size_t n, char c) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != c) return 0;
    return 1;
}

int main(void) {
    mallopt(M_MMAP_THRESHOLD, (int)(64 * 1024 * KIB));
    mallopt(M_TRIM_THRESHOLD, (int)(1024 * 1024 * KIB));
    char *fresh = used[0] = malloc(40 * KIB);
    if (!fresh) return 1;
    fresh[0] = 1;
    free(fresh);
    char *before = used[0] = malloc(2048 * KIB), *behind = used[1] = malloc(100);
    if (!before || !behind) return 1;
    memset(before, 1, 2048 * KIB);
    free(before);
    char *part = malloc(64 * KIB);
    if (part < before || part >= before + 2048 * KIB) return 2;
    memset(part, 2, 10000);
    free(part);
    char *none = used[0] = malloc(60 * KIB);
    free(none);
    char *whole = used[0] = malloc(56 * KIB);
    memset(whole, 1, 56 * KIB);  // what was there before
    free(whole);
    char *cleared = used[0] = calloc(52, KIB);
    if (!is(cleared, 52 * KIB, 0)) return 3;
    cleared[2 * PAGE + 100] = 1;
    free(cleared);
    char *grown = used[0] = malloc(20 * KIB);
    memset(grown, 4, 20 * KIB);
    grown = used[0] = realloc(grown, 48 * KIB);
    if (!is(grown, 20 * KIB, 4)) return 3;
    free(grown);
    char *small = used[0] = malloc(1000);
    memset(small, 5, 1000);
    small = used[0] = realloc(small, 44 * KIB);
    if (!is(small, 1000, 5)) return 3;
    memset(small + 1000, 5, 20000);
    free(small);
    char *zeros = used[0] = malloc(36 * KIB);
    memset(zeros, 0, 36 * KIB);
    free(zeros);
    char *live = used[2] = malloc(32 * KIB);
    for (size_t i = 1; i < 6; i += 2) memset(live + i * PAGE, 3, PAGE);
    free(behind);
    return 0;
}
