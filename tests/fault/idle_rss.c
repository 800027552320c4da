// SPDX-License-Identifier: MIT
// idle_rss.c: does memory go back to the system while a program idles? Allocates and touches small
// blocks of random sizes, frees all of them or 90 %, then only sleeps and watches its own resident
// memory. Needs no help of the allocator and calls none but malloc and free: run it under any preload.
//
//   idle_rss [--mode all|most] [--total MIB] [--seconds S] [--max MIB] [--seed N]
//
// Exit status 1 if after S seconds (10) more than MIB stay resident. The program's own table lies
// outside of the heap; its size is printed and included.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "fault/rss.h"

typedef struct settings {
    int most;
    double total, seconds, max;
    uint64_t random;
} settings_t;

static int usage(void) {
    fprintf(stderr, "idle_rss [--mode all|most] [--total MIB] [--seconds S] [--max MIB] [--seed N]\n");
    return 2;
}

static int parse(int argc, char **argv, settings_t *s) {
    for (int i = 1; i < argc; i++) {
        if (i + 1 == argc) return 0;
        char *value = argv[++i];
        if (!strcmp(argv[i - 1], "--mode") && !strcmp(value, "all")) s->most = 0;
        else if (!strcmp(argv[i - 1], "--mode") && !strcmp(value, "most")) s->most = 1;
        else if (!strcmp(argv[i - 1], "--total")) s->total = atof(value);
        else if (!strcmp(argv[i - 1], "--seconds")) s->seconds = atof(value);
        else if (!strcmp(argv[i - 1], "--max")) s->max = atof(value);
        else if (!strcmp(argv[i - 1], "--seed")) s->random = strtoull(value, NULL, 0);
        else return 0;
    }
    return s->total >= 1 && s->random;
}

static uint64_t next(settings_t *s) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random * 0x2545F4914F6CDD1Du >> 20;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    settings_t s = {0, 1024, 10, -1, 88172645463325252u};
    if (!parse(argc, argv, &s)) return usage();
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);

    size_t total = (size_t)(s.total * 1048576), room = total / 16 * sizeof(char *), used = 0, count = 0, live = 0;
    char **block = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return 2;
    double start = statm_mib(1), began = now();
    while (used < total) {
        size_t n = 16 + next(&s) % 4081;
        char *p = malloc(n);
        if (!p) {
            fprintf(stderr, "idle_rss: no memory after %zu MiB\n", used >> 20);
            return 1;
        }
        memset(p, 1, n);
        *(uint32_t *)(void *)p = (uint32_t)n;
        block[count++] = p;
        used += n;
    }
    double table = (double)(count * sizeof *block) / 1048576;
    printf("%zu blocks, %zu MiB; table %.1f MiB; resident: %.1f MiB at start, %.1f full (%.2f s)\n", count, used >> 20,
        table, start, statm_mib(1), now() - began);

    began = now();
    for (size_t i = 0; i < count; i++) {
        if (s.most && next(&s) % 10 == 0) {
            live += *(uint32_t *)(void *)block[i];
            continue;
        }
        free(block[i]);
    }
    printf("live %.1f MiB; resident: %.1f MiB after the frees (%.2f s)\n", (double)live / 1048576, statm_mib(1),
        now() - began);
    double resident = statm_mib(1);
    for (double end = now() + s.seconds; now() < end;) {
        nanosleep(&(struct timespec){0, 500000000}, NULL);
        resident = statm_mib(1);
        printf("  %4.1f s: %.1f MiB\n", s.seconds - (end - now()), resident);
        if (s.max >= 0 && !s.most && resident <= s.max) break;  // what is asked for is there
    }
    printf(
        "resident: %.1f MiB, of which the table %.1f and live blocks %.1f\n", resident, table, (double)live / 1048576);
    if (s.max >= 0 && resident > s.max) {
        printf("FAILED: more than %.1f MiB\n", s.max);
        return 1;
    }
    return 0;
}
