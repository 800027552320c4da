// SPDX-License-Identifier: MIT
// cpus.c: how many processors may this process use? The affinity mask says where it may run, the
// quota of its control group (cgroup.c) how much of that it gets.
#include <stdatomic.h>

#include "base/num.h"
#include "os/cgroup.h"
#include "os/os.h"
#include "os/syscall.h"

#define CPUS_MAX 8192  // of the largest kernels; to offer less than the kernel has is an error

unsigned qy_os_cpu_affinity(void) {
    unsigned long mask[CPUS_MAX / 8 / sizeof(unsigned long)];
    long bytes = qy_syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    unsigned count = 0;
    for (long i = 0; i < bytes / (long)sizeof *mask; i++) count += (unsigned)__builtin_popcountl(mask[i]);
    return count ? count : 1;
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
