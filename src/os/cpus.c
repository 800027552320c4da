// SPDX-License-Identifier: MIT
// cpus.c: how many processors may this process use? The affinity mask says where it may run, the
// quota of its control group (cgroup.c) how much of that it gets.
#include <stdatomic.h>

#include "base/num.h"
#include "os/cgroup.h"
#include "os/os.h"
#include "os/syscall.h"

#define CPUS_MAX 8192  // of the largest kernels; to offer less than the kernel has is an error

typedef struct cpus {
    unsigned long word[CPUS_MAX / 8 / sizeof(unsigned long)];
} cpus_t;

// Adds those on which a thread may run (0: the calling one); none if the kernel does not say.
static void add_cpus_of(int thread, cpus_t *all) {
    cpus_t its;
    long bytes = qy_syscall(SYS_sched_getaffinity, thread, sizeof its, &its);
    for (long i = 0; i < bytes / (long)sizeof its.word[0]; i++) all->word[i] |= its.word[i];
}

static unsigned cpus_in(const cpus_t *cpus) {
    unsigned n = 0;
    for (size_t i = 0; i < sizeof cpus->word / sizeof cpus->word[0]; i++)
        n += (unsigned)__builtin_popcountl(cpus->word[i]);
    return n;
}

unsigned qy_os_cpu_affinity(void) {
    cpus_t all = {{0}};
    add_cpus_of(0, &all);
    return (unsigned)qy_max(1, cpus_in(&all));
}

// Written once, by whoever comes first.
static cpus_t at_first;
enum { UNKNOWN,
    ASKING,
    KNOWN };
static _Atomic int at_first_is;

unsigned qy_os_cpus_together(void) {
    cpus_t all = {{0}};
    add_cpus_of(0, &all);
    add_cpus_of(qy_os_process_id(), &all);
    int unknown = UNKNOWN;
    if (cpus_in(&all) && atomic_compare_exchange_strong(&at_first_is, &unknown, ASKING)) {
        at_first = all;
        atomic_store_explicit(&at_first_is, KNOWN, memory_order_release);
    }
    return cpus_in(&all);
}

void qy_os_use_all_cpus(int thread) {
    if (atomic_load_explicit(&at_first_is, memory_order_acquire) == KNOWN)
        qy_syscall(SYS_sched_setaffinity, thread, sizeof at_first, &at_first);
}

unsigned qy_os_cpu_count(void) {
    static _Atomic unsigned cached;  // 0: not asked yet
    unsigned count = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!count) {
        count = (unsigned)qy_min(qy_os_cpu_affinity(), qy_os_cgroup_cpus(""));
        atomic_store_explicit(&cached, count, memory_order_relaxed);
    }
    return count;
}
