// SPDX-License-Identifier: MIT
// env.c: chance, the environment, and the end.
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <unistd.h>

#include "os/fake.h"
#include "os/os.h"
#include "os/syscall.h"

// ---- chance ---------------------------------------------------------------------------------------

// The finalizer of splitmix64: every input bit changes every output bit.
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// Without getrandom (before Linux 3.17, in a sandbox, in the first instants of a boot): the 16 bytes
// the kernel gave the program at its start, the layout of its memory, the time, and a counter so that
// two answers are never the same.
static uint64_t random_fallback(void) {
    static _Atomic uint64_t counter;
    uint64_t seed[2] = {0, 0};
    const void *start = (const void *)getauxval(AT_RANDOM);
    if (start) memcpy(seed, start, sizeof seed);
    uint64_t x = mix(seed[0] ^ (uintptr_t)&counter) + mix(seed[1] ^ (uintptr_t)&x);
    return mix(x ^ qy_os_now_ns()) + mix(++counter ^ (uint64_t)qy_os_process_id() << 32);
}

uint64_t qy_os_random(void) {
    uint64_t x;
    if (!qy_os_fake_fails(QY_OS_RANDOM) && qy_syscall(SYS_getrandom, &x, sizeof x, GRND_NONBLOCK) == sizeof x) return x;
    return random_fallback();
}

// ---- the environment ------------------------------------------------------------------------------

const char *qy_os_getenv(const char *name) {
    if (getauxval(AT_SECURE) || !environ) return NULL;
    for (char **e = environ; *e; e++) {
        size_t i = 0;
        while (name[i] && (*e)[i] == name[i]) i++;
        if (!name[i] && (*e)[i] == '=') return *e + i + 1;
    }
    return NULL;
}

// ---- the end --------------------------------------------------------------------------------------

// A handler for SIGABRT could return into the damage, so it is taken away. abort() would also flush
// and lock; this does not. Should the signal be survived (process 1 of a container is immune), an
// illegal instruction is not.
void qy_os_abort(void) {
    const unsigned long default_action[8] = {0};  // at least a kernel's struct sigaction: SIG_DFL, nothing else
    const uint64_t abort_only = 1ull << (SIGABRT - 1);
    qy_syscall(SYS_rt_sigaction, SIGABRT, default_action, NULL, sizeof abort_only);
    qy_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &abort_only, NULL, sizeof abort_only);
    qy_syscall(SYS_tgkill, qy_os_process_id(), qy_os_thread_id(), SIGABRT);
    __builtin_trap();
}
