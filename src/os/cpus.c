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

// Those on which a thread may run (0: the calling one), none if that is not told. How many words of the set are used.
static long cpus_of(int thread, cpus_t *ret) {
    long bytes = qy_syscall(SYS_sched_getaffinity, thread, sizeof *ret, ret);
    return bytes > 0 ? bytes / (long)sizeof ret->word[0] : 0;
}

unsigned qy_os_cpu_affinity(void) {
    cpus_t own;
    unsigned count = 0;
    for (long i = cpus_of(0, &own) - 1; i >= 0; i--) count += (unsigned)__builtin_popcountl(own.word[i]);
    return count ? count : 1;
}

unsigned qy_os_cpus_together(void) {
    cpus_t own, first;
    long words = cpus_of(0, &own), words_of_first = cpus_of(qy_os_process_id(), &first);
    unsigned count = 0;
    for (long i = 0; i < qy_max(words, words_of_first); i++)
        count += (unsigned)__builtin_popcountl((i < words ? own.word[i] : 0) | (i < words_of_first ? first.word[i] : 0));
    return count;
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
