// SPDX-License-Identifier: MIT
// libc_random.c: calls functions of memory and strings with random arguments, and prints what came of it. test_libc.py
// runs it with the library and without, from the same seed. Argument: the seed.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static uint64_t state;
static size_t below(size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

#define BYTES 512
static char *d, *s;

// Both blocks hold strings of a few different letters, so that matches and differences come early and late.
static void shuffle(void) {
    for (size_t i = 0; i < BYTES; i++) {
        d[i] = (char)("aaaAAb1 "[below(8)]);
        s[i] = below(4) ? d[i] : (char)("abcAB-2."[below(8)]);
    }
    d[below(BYTES / 4)] = s[below(BYTES / 4)] = 0;
    d[BYTES - 1] = s[BYTES - 1] = 0;
}
static long place(const void *p) { return p ? (const char *)p - d : -1; }
static int sign(int n) { return (n > 0) - (n < 0); }

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    d = malloc(BYTES);
    s = malloc(BYTES);
    for (int round = 0; round < 4000; round++) {
        shuffle();
        size_t n = below(128), at = below(64);
        int c = "ab1\0"[below(4)];
        long r = 0;
        switch (below(30)) {
        case 0: memcpy(d + at, s, n); break;
        case 1: memmove(d + at, d, n); break;
        case 2: memmove(d, d + at, n); break;
        case 3: memset(d + at, c, n); break;
        case 4: r = sign(memcmp(d, s + at, n)); break;
        case 5: r = place(memchr(d + at, c, n)); break;
        case 6: r = place(memrchr(d, c, n)); break;
        case 7: r = place(memmem(d, n, s + at, below(4))); break;
        case 8: r = (char *)mempcpy(d, s + at, n) - d; break;
        case 9: r = place(memccpy(d, s + at, c, n)); break;
        case 10: r = (long)strlen(d + at); break;
        case 11: r = (long)strnlen(d, n); break;
        case 12: strcpy(d, s + at); break;
        case 13: r = stpcpy(d, s + at) - d; break;
        case 14: strncpy(d, s + at, n); break;
        case 15: r = stpncpy(d, s + at, n) - d; break;
        case 16:
            d[at] = 0;
            strcat(d, s + BYTES / 2);
            break;
        case 17:
            d[at] = 0;
            strncat(d, s, n);
            break;
        case 18: r = sign(strcmp(d, s)); break;
        case 19: r = sign(strncmp(d + at, s + at, n)); break;
        case 20: r = sign(strcasecmp(d, s)); break;
        case 21: r = place(strchr(d + at, c)); break;
        case 22: r = place(strrchr(d, c)); break;
        case 23:
            s[below(4)] = 0;
            r = place(strstr(d + at, s));
            break;
        case 24: r = (long)strspn(d, "aA"); break;
        case 25: r = (long)strcspn(d + at, "b1"); break;
        case 26: r = place(strpbrk(d, "1b")); break;
        case 27: r = place(strtok(d, "b 1")); break;
        case 28: r = strtol(d + at, NULL, (int)below(2) * 16); break;
        case 29: r = snprintf(d, n, "%.*s|%d|%s", (int)at, s + at, round, s); break;
        }
        uint64_t sum = 14695981039346656037u;
        for (size_t i = 0; i < BYTES; i++) sum = (sum ^ (unsigned char)d[i]) * 1099511628211u;
        printf("%d %ld %016llx\n", round, r, (unsigned long long)sum);
    }
    free(d);
    free(s);
    return 0;
}
