// SPDX-License-Identifier: MIT
// clock.c: time, straight from the kernel's vDSO: a small shared library that the kernel maps into
// every process, whose clock_gettime reads the clock without entering the kernel.
//
// We look its function up ourselves because libc's clock_gettime is a name that others replace (to
// test programs at another date, for one). Such a replacement may allocate, which would call us in
// the middle of an allocation, and may need thread-local storage, which our bare threads lack.
#include <elf.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "os/fake.h"
#include "os/os.h"
#include "os/syscall.h"

#if defined(__x86_64__)
#define NAME "__vdso_clock_gettime"
#else
#define NAME "__kernel_clock_gettime"
#endif

typedef int clock_fn_t(clockid_t clock, struct timespec *ret_time);

static int enter_kernel(clockid_t clock, struct timespec *ret_time) {
    return (int)qy_syscall(SYS_clock_gettime, clock, ret_time);
}

// The function called NAME in the ELF image at `base`. Addresses in its tables are relative to where
// its first segment wanted to lie. The symbol table has no length; the string table follows it.
static clock_fn_t *vdso_find(uintptr_t base) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)base;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(base + header->e_phoff);
    const Elf64_Dyn *dynamic = NULL;
    uintptr_t bias = 0, symbols = 0, strings = 0;
    for (int i = header->e_phnum; i-- > 0;) {  // backwards: the first PT_LOAD is what remains
        if (segment[i].p_type == PT_LOAD) bias = base + segment[i].p_offset - segment[i].p_vaddr;
        if (segment[i].p_type == PT_DYNAMIC) dynamic = (const Elf64_Dyn *)(base + segment[i].p_offset);
    }
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB) symbols = bias + dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_STRTAB) strings = bias + dynamic->d_un.d_ptr;
    }
    if (!symbols) return NULL;
    for (const Elf64_Sym *s = (const Elf64_Sym *)symbols; (uintptr_t)(s + 1) <= strings; s++) {
        if (s->st_shndx != SHN_UNDEF && strcmp((const char *)strings + s->st_name, NAME) == 0)
            return (clock_fn_t *)(bias + s->st_value);
    }
    return NULL;
}

#if QY_CFG_FAKE
_Atomic uint64_t qy_os_fake_now;
static uint64_t fake_now(void) { return atomic_load_explicit(&qy_os_fake_now, memory_order_relaxed); }
#else
static uint64_t fake_now(void) { return 0; }
#endif

static uint64_t clock_ns(clockid_t clock) {
    if (fake_now()) return fake_now();
    static _Atomic uintptr_t found;  // 0: not looked for yet
    clock_fn_t *fn = (clock_fn_t *)atomic_load_explicit(&found, memory_order_relaxed);
    if (!fn) {
        uintptr_t base = qy_os_auxv(AT_SYSINFO_EHDR);  // none in valgrind and some emulators
        if (base) fn = vdso_find(base);
        if (!fn) fn = enter_kernel;
        atomic_store_explicit(&found, (uintptr_t)fn, memory_order_relaxed);
    }
    struct timespec t;
    if (fn(clock, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t qy_os_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t qy_os_now_coarse_ns(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }
