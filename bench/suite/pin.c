// SPDX-License-Identifier: MIT
// pin.c: preloaded by `quarry bench suite --pin`. Each thread that a program starts stays on one of its processors,
// taken in turns, so that where the kernel puts threads is the same under all mallocs.
//
// Thread-safe. The new thread pins itself before its first call, which it finds in a slot: what measures mallocs
// allocates nothing. With no slot free, or a set of processors too large, the thread is started as if this were not
// here.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef void *call_t(void *);
typedef int create_t(pthread_t *, const pthread_attr_t *, call_t *, void *);

#define SLOTS 64

typedef struct start {
    _Atomic int taken;
    call_t *call;
    void *arg;
    int processor;
} start_t;

static create_t *create;
static start_t slots[SLOTS];
static _Atomic unsigned turn;
static int processors[CPU_SETSIZE], nprocessors;

__attribute__((constructor)) static void begin(void) {
    create = (create_t *)dlsym(RTLD_NEXT, "pthread_create");
    if (!create) abort();  // nothing could be started at all
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) processors[nprocessors++] = i;
}

static void *pinned(void *slot) {
    start_t *start = slot;
    call_t *call = start->call;
    void *call_arg = start->arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(start->processor, &one);
    atomic_store_explicit(&start->taken, 0, memory_order_release);
    sched_setaffinity(0, sizeof one, &one);
    return call(call_arg);
}

int pthread_create(pthread_t *ret_thread, const pthread_attr_t *attr, call_t *call, void *arg) {
    for (int i = 0; nprocessors && i < SLOTS; i++) {
        int no = 0;
        if (!atomic_compare_exchange_strong_explicit(
                &slots[i].taken, &no, 1, memory_order_acquire, memory_order_relaxed))
            continue;
        slots[i].call = call;
        slots[i].arg = arg;
        slots[i].processor =
            processors[atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % (unsigned)nprocessors];
        int error = create(ret_thread, attr, pinned, &slots[i]);
        if (error) atomic_store_explicit(&slots[i].taken, 0, memory_order_release);
        return error;
    }
    return create(ret_thread, attr, call, arg);
}
