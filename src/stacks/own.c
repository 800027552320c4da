// SPDX-License-Identifier: MIT
// own.c: see own.h.
#include "stacks/own.h"

#include <stdatomic.h>

#include "os/module.h"
#include "os/process.h"

#define RANGES 64

static struct {
    _Atomic uintptr_t begin;
    _Atomic size_t bytes;  // 0: not yet
} ranges[RANGES];

void qy_own_add(const void *memory, size_t bytes) {
    for (unsigned i = 0; i < RANGES; i++) {
        uintptr_t empty = 0;
        if (!atomic_compare_exchange_strong(&ranges[i].begin, &empty, (uintptr_t)memory)) continue;
        atomic_store(&ranges[i].bytes, bytes);
        return;
    }
}

void qy_own_remove(const void *memory) {
    for (unsigned i = 0; i < RANGES; i++) {
        if (atomic_load(&ranges[i].begin) != (uintptr_t)memory) continue;
        atomic_store(&ranges[i].bytes, 0);
        atomic_store(&ranges[i].begin, 0);
        return;
    }
}

void qy_own_each(void (*fn)(const void *memory, size_t bytes, void *arg), void *arg) {
    for (unsigned i = 0; i < RANGES; i++) {
        size_t bytes = atomic_load(&ranges[i].bytes);
        if (bytes) fn((const void *)atomic_load(&ranges[i].begin), bytes, arg);
    }
}

void qy_own_resident(uint64_t *sum_anonymous, uint64_t *sum_file) {
    qy_os_module_t library;
    if (qy_os_module_at((uintptr_t)&qy_own_resident, &library))
        qy_os_mapped(library.begin, library.end - library.begin, sum_anonymous, sum_file);
    for (unsigned i = 0; i < RANGES; i++) {
        size_t bytes = atomic_load(&ranges[i].bytes);
        if (bytes) qy_os_mapped(atomic_load(&ranges[i].begin), bytes, sum_anonymous, sum_file);
    }
}
