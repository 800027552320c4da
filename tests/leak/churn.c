// SPDX-License-Identifier: MIT
// churn.c: a program that loses nothing, whatever it does when a search for leaks comes: threads allocate, load and
// unload files, make threads and processes, and the process ends in the middle of it. A byte of output for each round.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 2,
    SLOTS = 500 };

static _Atomic int over;
void **tables[THREADS];

static void *allocate(void *arg) {
    void **table = arg;
    uint64_t x = (uintptr_t)arg | 1;
    while (!atomic_load(&over)) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        size_t i = x >> 33 & (SLOTS - 1), bytes = x >> 50 & 2047;
        if (i >= SLOTS) continue;
        if (x >> 20 & 1) {
            free(table[i]);
            table[i] = NULL;  // as long as this is not done the block is freed, and no leak
        } else {
            table[i] = realloc(table[i], bytes + 16);
            memset(table[i], (int)x, bytes + 16);
        }
    }
    for (size_t i = 0; i < SLOTS; i++) free(table[i]);
    return NULL;
}

static void *load(void *arg) {
    while (!atomic_load(&over)) {
        void *module = dlopen(getenv("LEAK_MODULE"), RTLD_NOW);
        if (!module) abort();
        dlclose(module);
    }
    return arg;
}

static void *nothing(void *arg) {
    free(malloc(100));
    return arg;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS], loader;
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 0; i < THREADS; i++) {
        tables[i] = calloc(SLOTS, sizeof(void *));
        if (pthread_create(&threads[i], NULL, allocate, tables[i]) != 0) return 2;
    }
    if (pthread_create(&loader, NULL, load, NULL) != 0) return 2;
    for (int i = 0; i < rounds; i++) {
        pthread_t brief;
        int status = 0;
        if (pthread_create(&brief, NULL, nothing, NULL) == 0) pthread_join(brief, NULL);
        pid_t child = fork();
        if (child == 0) _exit(0);
        while (child > 0 && waitpid(child, &status, 0) < 0) {}
        if (status != 0) return 3;
        if (write(1, ".", 1) != 1) return 4;
    }
    return 0;  // with the threads running
}
