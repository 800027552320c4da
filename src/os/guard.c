// SPDX-License-Identifier: MIT
// guard.c: see guard.h.
#include "os/guard.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "os/fake.h"
#include "os/file.h"
#include "os/giveback.h"
#include "os/os.h"
#include "os/syscall.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

#define MAPPINGS_USUAL 65530u

bool qy_os_guard(void *addr, size_t bytes) {
    if (qy_os_fake_fails(QY_OS_ADVISE)) return false;
    return qy_os_fake_lies(QY_OS_ADVISE) || qy_os_seen_madvise(addr, bytes, MADV_GUARD_INSTALL) == 0;
}

// Of a range so many pages, which are about to be written to, have memory from the beginning.
#define PAGES_WITH_MEMORY 4u

// Each page is looked at: who is given one that still has no access ends by it.
bool qy_os_unguard(void *addr, size_t bytes) {
    if (qy_os_fake_fails(QY_OS_ADVISE)) return false;
    if (!qy_os_fake_lies(QY_OS_ADVISE) && qy_syscall(SYS_madvise, addr, bytes, MADV_GUARD_REMOVE) != 0) return false;
    char *pages = addr;
    size_t page = qy_os_page_size();
    for (size_t at = 0; at < bytes; at += page) {
        char *one = pages + at;
        if (!(at < PAGES_WITH_MEMORY * page ? qy_os_writable_new(one) : qy_os_readable(one))) return false;
    }
    return true;
}

QY_COLD static bool try_guards(void) {
    size_t page = qy_os_page_size();
    _Atomic uint64_t *word = qy_os_map(page, page, NULL);
    if (!word) return false;
    atomic_store_explicit(word, 1, memory_order_relaxed);
    bool works = qy_os_guard(word, page) && !qy_os_readable(word) && qy_os_unguard(word, page) &&
                 atomic_load_explicit(word, memory_order_relaxed) == 0;
    qy_os_unmap(word, page);
    return works;
}

bool qy_os_guards_work(void) {
    static _Atomic int found;  // 0: not tried yet, 1: no, 2: yes
    int state = atomic_load_explicit(&found, memory_order_relaxed);
    if (!state) atomic_store_explicit(&found, state = try_guards() ? 2 : 1, memory_order_relaxed);
    return state == 2;
}

void *qy_os_reserve_uncharged(size_t bytes) {
    if (qy_os_fake_fails(QY_OS_RESERVE)) return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long p = qy_syscall(SYS_mmap, NULL, bytes, PROT_NONE, flags, -1, 0);
    return qy_syscall_failed(p) ? NULL : (void *)p;
}

size_t qy_os_mappings_most(void) {
    char text[24];
    size_t n = qy_os_read_small("/proc/sys/vm/max_map_count", text, sizeof text), most = 0;
    for (size_t i = 0; i < n && text[i] >= '0' && text[i] <= '9' && most < SIZE_MAX / 16; i++)
        most = most * 10 + (size_t)(text[i] - '0');
    return most ? most : MAPPINGS_USUAL;
}
