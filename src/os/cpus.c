// SPDX-License-Identifier: MIT
// cpus.c: how many processors may this process use? The affinity mask says where it may run, the
// quota of its control group (cgroup.c) how much of that it gets.
#include <stdatomic.h>
#include <string.h>

#include "base/num.h"
#include "os/cgroup.h"
#include "os/os.h"
#include "os/syscall.h"

#define CPUS_MAX 8192  // of the largest kernels; to offer less than the kernel has is an error

// Each process asks when it begins. Only the words that the kernel writes are touched: a few of these 128.
typedef struct cpus {
    size_t words;  // so many are valid
    unsigned long word[CPUS_MAX / 8 / sizeof(unsigned long)];
} cpus_t;

// Adds those on which a thread may run (0: the calling one); none if the kernel does not say.
static void add_cpus_of(int thread, cpus_t *all) {
    unsigned long its[sizeof all->word / sizeof all->word[0]];
    long bytes = qy_syscall(SYS_sched_getaffinity, thread, sizeof its, its);
    size_t words = bytes > 0 ? (size_t)bytes / sizeof its[0] : 0;
    for (; all->words < words; all->words++) all->word[all->words] = 0;
    for (size_t i = 0; i < words; i++) all->word[i] |= its[i];
}

static unsigned cpus_in(const cpus_t *cpus) {
    unsigned n = 0;
    for (size_t i = 0; i < cpus->words; i++)
        if (cpus->word[i]) n += (unsigned)__builtin_popcountl(cpus->word[i]);
    return n;
}

unsigned qy_os_cpu_affinity(void) {
    cpus_t all;
    all.words = 0;
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
    cpus_t all;
    all.words = 0;
    add_cpus_of(0, &all);
    add_cpus_of(qy_os_process_id(), &all);
    int unknown = UNKNOWN;
    if (cpus_in(&all) && atomic_compare_exchange_strong(&at_first_is, &unknown, ASKING)) {
        at_first.words = all.words;
        memcpy(at_first.word, all.word, all.words * sizeof all.word[0]);
        atomic_store_explicit(&at_first_is, KNOWN, memory_order_release);
    }
    return cpus_in(&all);
}

void qy_os_use_all_cpus(int thread) {
    if (atomic_load_explicit(&at_first_is, memory_order_acquire) == KNOWN)
        qy_syscall(SYS_sched_setaffinity, thread, at_first.words * sizeof at_first.word[0], at_first.word);
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
