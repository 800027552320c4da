// SPDX-License-Identifier: MIT
// leak_memory.c: see leak_memory.h.
#include "check/leak_memory.h"

#include "base/num.h"
#include "os/os.h"

#define PIECES 32u  // a scan has ten at a time

static struct {
    char *base;  // NULL: none
    size_t bytes;
} pieces[PIECES];

static size_t piece_bytes(size_t bytes) { return qy_round_up(qy_max(bytes, (size_t)1), qy_os_page_size()); }

void *qy_leak_memory(size_t bytes) {
    for (unsigned i = 0; i < PIECES; i++) {
        if (pieces[i].base) continue;
        pieces[i].bytes = piece_bytes(bytes);
        return pieces[i].base = qy_os_map(pieces[i].bytes, qy_os_page_size(), NULL);
    }
    return NULL;
}

void qy_leak_memory_end(void *memory, size_t bytes) {
    if (!memory) return;
    for (unsigned i = 0; i < PIECES; i++)
        if (pieces[i].base == memory) pieces[i].base = NULL;
    qy_os_unmap(memory, piece_bytes(bytes));
}

void qy_leak_memory_each(void (*fn)(const void *base, size_t bytes, void *arg), void *arg) {
    for (unsigned i = 0; i < PIECES; i++)
        if (pieces[i].base) fn(pieces[i].base, pieces[i].bytes, arg);
}
