// SPDX-License-Identifier: MIT
// env.c: chance, the environment, and the end.
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/compiler.h"
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
    const void *start = (const void *)qy_os_auxv(AT_RANDOM);
    if (start) memcpy(seed, start, sizeof seed);
    uint64_t x = mix(seed[0] ^ (uintptr_t)&counter) + mix(seed[1] ^ (uintptr_t)&x);
    return mix(x ^ qy_os_now_ns()) + mix(++counter ^ (uint64_t)qy_os_process_id() << 32);
}

uint64_t qy_os_random(void) {
    uint64_t x;
    if (!qy_os_fake_fails(QY_OS_RANDOM) && qy_syscall(SYS_getrandom, &x, sizeof x, GRND_NONBLOCK) == sizeof x) return x;
    return random_fallback();
}

// ---- what the kernel gave the program ---------------------------------------------------------------

// Pairs of a type and a value, up to AT_NULL. Known once glibc has told a constructor where the arguments are.
static _Atomic(const unsigned long *) auxv;
#define AUXV_TYPES 64u  // the kernel's are less than that
#define AUXV_MOST 64u   // entries

static unsigned long auxv_value(const unsigned long *entry, unsigned long type) {
    while (*entry != type && *entry != AT_NULL) entry += 2;
    return *entry == type ? entry[1] : 0;
}

// Who takes variables out of the environment leaves what is no such table behind the new end of it. Addresses, which
// each table has among its values, are larger than any type: so it is seen if types are taken for values.
static bool is_auxv(const unsigned long *entry) {
    unsigned n = 0;
    for (const unsigned long *e = entry; *e != AT_NULL; e += 2)
        if (*e >= AUXV_TYPES || ++n > AUXV_MOST) return false;
    return auxv_value(entry, AT_PAGESZ) && auxv_value(entry, AT_PHDR) >= AUXV_TYPES;
}

static char **arguments;  // written once, by the constructor

const char *qy_os_started_as(void) {
    char **argv = __atomic_load_n(&arguments, __ATOMIC_RELAXED);
    const char *name = argv ? *argv : NULL, *slash = name ? strrchr(name, '/') : NULL;
    return slash ? slash + 1 : name;
}

// The environment follows the arguments, and this table the environment.
void qy_os_started(int argc, char **argv, char **environment) {
    __atomic_store_n(&arguments, argv, __ATOMIC_RELAXED);
    if (!argv || environment != argv + argc + 1) return;
    while (*environment) environment++;
    const unsigned long *entry = (const unsigned long *)(environment + 1);
    if (is_auxv(entry)) atomic_store_explicit(&auxv, entry, memory_order_relaxed);
}

unsigned long qy_os_auxv(unsigned long type) {
    const unsigned long *entry = atomic_load_explicit(&auxv, memory_order_relaxed);
    if (QY_LIKELY(entry != NULL)) return auxv_value(entry, type);
    int saved = errno;  // set if there is no such entry
    unsigned long value = getauxval(type);
    errno = saved;
    return value;
}

// ---- the environment ------------------------------------------------------------------------------

const char *qy_os_getenv(const char *name) {
    if (qy_os_auxv(AT_SECURE) || !environ) return NULL;
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
