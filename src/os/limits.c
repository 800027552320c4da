// SPDX-License-Identifier: MIT
// limits.c: what the process may use, and what it is called.
#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "os/os.h"
#include "os/syscall.h"

size_t qy_os_address_limit(void) {
    static _Atomic size_t cached;  // 0: not asked yet
    size_t limit = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!limit) {
        struct {
            uint64_t current, maximum;
        } r;  // as the kernel has it on every processor
        limit = qy_syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &r) == 0 ? r.current : SIZE_MAX;
        if (!limit) limit = 1;
        atomic_store_explicit(&cached, limit, memory_order_relaxed);
    }
    return limit;
}

void qy_os_program_name(char *buf, size_t bytes) {
    const char *name = program_invocation_short_name ? program_invocation_short_name : "";
    size_t n = 0;
    while (name[n] && n + 1 < bytes) {
        buf[n] = name[n];
        n++;
    }
    if (bytes) buf[n] = 0;
}
