// SPDX-License-Identifier: MIT
// What uprobes.py watches: memory goes back from slabs, runs and huge objects, by two threads, by the clock and by a
// trim. It prints where its blocks were, by pieces of 2 MiB, in hex.
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 4000
#define HUGE ((size_t)100 << 20)
#define PIECE ((uintptr_t)2 << 20)

static _Atomic uintptr_t pieces[4096];

static void note(const char *p, size_t n) {
    for (uintptr_t piece = (uintptr_t)p / PIECE; piece <= ((uintptr_t)p + n - 1) / PIECE; piece++)
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            uintptr_t there = 0;
            if (atomic_compare_exchange_strong(&pieces[i], &there, piece) || there == piece) break;
        }
}

static void *work(void *arg) {
    static _Thread_local char *block[BLOCKS];
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t n = 1000 + i * 10;
            block[i] = malloc(n);
            memset(block[i], 1, n);
            note(block[i], n);
        }
        for (int i = 0; i < BLOCKS; i++) free(block[i]);
    }
    return arg;
}

int main(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, work, NULL)) return 1;
    work(NULL);
    pthread_join(other, NULL);
    for (int i = 0; i < 8; i++) {
        char *p = malloc(HUGE);
        memset(p, 1, HUGE);
        note(p, HUGE);
        p = realloc(p, 2 * HUGE);
        memset(p + HUGE, 1, HUGE);
        note(p, 2 * HUGE);
        free(p);
    }
    sleep(4);
    malloc_trim(0);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces && pieces[i]; i++) printf("%zx\n", (size_t)pieces[i]);
    return 0;
}
