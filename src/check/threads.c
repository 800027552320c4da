// SPDX-License-Identifier: MIT
// threads.c: see threads.h.
#include "check/threads.h"

#include <stdatomic.h>

#include "os/os.h"

#define NUMBERS 65536u

__thread qy_check_thread_t qy_check_thread;
static _Atomic uint32_t thread_ids[NUMBERS];  // by number
static _Atomic uint32_t numbered;

uint16_t qy_check_thread_begin(void) {
    uint32_t n = atomic_fetch_add_explicit(&numbered, 1, memory_order_relaxed) + 1;
    if (n >= NUMBERS - 1) {
        atomic_store_explicit(&numbered, NUMBERS, memory_order_relaxed);
        return qy_check_thread.number = NUMBERS - 1;
    }
    atomic_store_explicit(&thread_ids[n], (uint32_t)qy_os_thread_id_quietly(), memory_order_relaxed);
    return qy_check_thread.number = (uint16_t)n;
}

uint32_t qy_check_threads_numbered(void) { return atomic_load_explicit(&numbered, memory_order_relaxed); }

uint32_t qy_check_thread_id(uint16_t number) {
    return atomic_load_explicit(&thread_ids[number], memory_order_relaxed);
}

void qy_check_threads_in_child(void) { qy_check_thread.number = 0; }
