// SPDX-License-Identifier: MIT
// odds.c: a program that uses a block after it freed it, again and again. It reads, at a place that the heap uses for
// nothing: without a guard nothing is seen.
//
//   odds BYTES FAULTS
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static char fault(size_t n) {
    volatile char *p = malloc(n);
    free((void *)p);
    return p[n - 1];
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t n = strtoul(argv[1], NULL, 10);
    for (unsigned long faults = strtoul(argv[2], NULL, 10); faults; faults--) fault(n);
    return 0;
}
