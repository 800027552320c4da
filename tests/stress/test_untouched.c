// SPDX-License-Identifier: MIT
// test_untouched.c: objects of 50 KB to 16 MB that grow, shrink and go, and that nobody writes to.
//
// A heap that resizes them well moves pages or leaves them alone. One that copies them touches memory that its program
// never did, which shows as page faults and resident memory. Both are counts, which do not depend on the machine's
// speed. The trace is beside this: 6,000 operations of 64 objects, drawn evenly. "7=1000" resizes object 7 to 1,000
// bytes, "7" frees it.
//
//   test_untouched FILE FAULTS MIB     fails with more than FAULTS page faults or MIB more of peak resident memory
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { OBJECTS = 64 };

// The most that was ever resident.
static long peak_kib(void) {
    char text[8192];
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return -1;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *line = strstr(text, "VmHWM:");
    return line ? strtol(line + 6, NULL, 10) : -1;
}

static long faults(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "test_untouched FILE FAULTS MIB\n");
        return 2;
    }
    FILE *f = fopen(argv[1], "r");
    if (!f) {
        perror(argv[1]);
        return 2;
    }
    static char *object[OBJECTS];
    static char word[64];
    long faults_before = faults(), peak_before = peak_kib(), operations = 0;
    while (fscanf(f, "%63s", word) == 1) {
        char *end;
        unsigned long i = strtoul(word, &end, 10);
        if (i >= OBJECTS) return 2;
        if (*end == '=') {
            char *p = realloc(object[i], strtoul(end + 1, NULL, 10));
            if (!p) {
                fprintf(stderr, "no memory in operation %ld\n", operations);
                return 1;
            }
            object[i] = p;
        } else {
            free(object[i]);
            object[i] = NULL;
        }
        operations++;
    }
    fclose(f);
    long n = faults() - faults_before, kib = peak_kib() - peak_before;
    printf("%ld operations: %ld page faults, %.1f MiB of peak resident memory\n", operations, n, (double)kib / 1024);
    if (operations < 1000) return 2;
    return n > atol(argv[2]) || kib > atol(argv[3]) * 1024;
}
