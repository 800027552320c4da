// SPDX-License-Identifier: MIT
// memory.c: address space and pages.
//
// What takes pages away from addresses that a program may have seen is done where others can see it (giveback.h).
//
// Everything is private anonymous memory. A reservation (PROT_NONE) is charged to nobody, even where overcommit is off.
// What is made writable is charged as any program's memory is, without MAP_NORESERVE: so the kernel refuses what is
// larger than the machine (vm.overcommit_memory 0), or more than it has promised (2), and the program hears of it now,
// not from the OOM killer later.
//
// Alignment beyond the page is found in up to three tries, cheapest first:
//   1. an ordinary mapping, which may be aligned by luck or thanks to the hint;
//   2. mappings at the aligned addresses just below the first one: the kernel fills the address space
//      downwards, so those places are nearly always free, and nothing has to be cut off;
//   3. bytes + align of reservation, of which both ends are cut off.
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/compiler.h"
#include "base/num.h"
#include "os/fake.h"
#include "os/file.h"
#include "os/giveback.h"
#include "os/os.h"
#include "os/syscall.h"

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_DEFINED(addr, bytes) (void)(addr)
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define TRIES_BELOW 3
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#if QY_CFG_FAKE
extern _Atomic uint64_t qy_os_faked_page_size;
#endif

size_t qy_os_page_size(void) {
    static _Atomic size_t cached;
#if QY_CFG_FAKE
    if (qy_os_faked_page_size) return qy_os_faked_page_size;
#endif
    size_t bytes = atomic_load_explicit(&cached, memory_order_relaxed);
    if (QY_UNLIKELY(!bytes)) {
        bytes = qy_os_auxv(AT_PAGESZ);  // reads the vector the kernel put on the stack; no call
        atomic_store_explicit(&cached, bytes, memory_order_relaxed);
    }
    return bytes;
}

// Whoever passes a part of a page may harm what lies beside it, where pages are larger than on the machine that tests
// it: the kernel refuses such addresses, but rounds lengths up.
static void must_be_pages(const void *addr, size_t bytes) {
    static const char words[] = "os: not a multiple of the page size\n";
    if (!QY_CFG_FAKE || !(((uintptr_t)addr | bytes) & (qy_os_page_size() - 1))) return;
    qy_os_write(2, words, sizeof words - 1);
    qy_os_abort();
}

// ---- system calls -----------------------------------------------------------------------------

// NULL on failure. (Nothing is ever mapped at 0: we never ask for it.)
static void *map_pages(void *addr, size_t bytes, int prot, int flags) {
#if QY_TSAN
    // ThreadSanitizer must see mappings come and go, or it takes reuse of addresses for a race.
    int saved = errno;
    void *p = mmap(addr, bytes, prot, flags, -1, 0);
    errno = saved;
    return p == MAP_FAILED ? NULL : p;
#else
    long p = qy_syscall(SYS_mmap, addr, bytes, prot, flags, -1, 0);
    return qy_syscall_failed(p) ? NULL : (void *)p;
#endif
}

// Of a mapping of our own that nobody was given.
static bool unmap_fresh(void *addr, size_t bytes) {
#if QY_TSAN
    int saved = errno;
    int r = munmap(addr, bytes);
    errno = saved;
    return r == 0;
#else
    return qy_syscall(SYS_munmap, addr, bytes) == 0;
#endif
}

static bool protect(void *addr, size_t bytes, int prot) {
    must_be_pages(addr, bytes);
    return qy_syscall(SYS_mprotect, addr, bytes, prot) == 0;
}
static long advise(void *addr, size_t bytes, int advice) {
    must_be_pages(addr, bytes);
    return qy_syscall(SYS_madvise, addr, bytes, advice);
}
// Where no page goes away.
static long memory_resize(void *addr, size_t old_bytes, size_t new_bytes) {
    must_be_pages(addr, old_bytes | new_bytes);
    return qy_syscall(SYS_mremap, addr, old_bytes, new_bytes, 0, NULL);
}
static long memory_give_back(void *addr, size_t bytes) {
    must_be_pages(addr, bytes);
    return qy_os_fake_lies(QY_OS_PURGE) ? 0 : qy_os_seen_madvise(addr, bytes, MADV_DONTNEED);
}

// ---- aligned mappings -------------------------------------------------------------------------

// A mapping that is aligned, or none. *ret_near: where the kernel would have put it.
static void *map_if_aligned(size_t bytes, size_t align, void *hint, int prot, uintptr_t *ret_near) {
    char *p = map_pages(hint, bytes, prot, ANON);
    *ret_near = (uintptr_t)p;
    if (!p || ((uintptr_t)p & (align - 1)) == 0) return p;
    unmap_fresh(p, bytes);  // a fresh mapping of our own, nothing in it: if it stays, it costs nothing
    return NULL;
}

// More than needed, without memory, and cut to size. An end that cannot be cut off (the table of
// mappings is full) stays behind as address space without access: lost, but harmless and bounded.
static void *map_and_trim(size_t bytes, size_t align, int prot) {
    // the kernel knows nothing of a page size that is pretended
    size_t page = QY_CFG_FAKE ? 4096 : qy_os_page_size(), total;
    if (__builtin_add_overflow(bytes, align - page, &total)) return NULL;
    char *p = map_pages(NULL, total, PROT_NONE, ANON);
    if (!p) return NULL;
    char *begin = qy_ptr_up(p, align), *end = begin + bytes;
    if (begin > p) unmap_fresh(p, (size_t)(begin - p));
    if (end < p + total) unmap_fresh(end, (size_t)(p + total - end));
    if (prot != PROT_NONE && !protect(begin, bytes, prot)) {
        unmap_fresh(begin, bytes);
        return NULL;
    }
    return begin;
}

static void *map_aligned(size_t bytes, size_t align, void *hint, int prot) {
    uintptr_t near;
    void *p = map_if_aligned(bytes, align, hint, prot, &near);
    if (p || !near) return p;  // near == 0: no room even without alignment
    uintptr_t below = qy_round_down(near, align);
    for (int i = 0; i < TRIES_BELOW && !p && below; i++, below -= align)
        p = map_if_aligned(bytes, align, (void *)below, prot, &near);
    return p ? p : map_and_trim(bytes, align, prot);
}

void *qy_os_reserve(size_t bytes, size_t align, void *hint) {
    return qy_os_fake_fails(QY_OS_RESERVE) ? NULL : map_aligned(bytes, align, hint, PROT_NONE);
}

// By a try: limits are of several kinds (RLIMIT_AS, locked memory), they come and go, and a sandbox need not allow to
// ask. Where the table of mappings is full, what was joined with a neighbour cannot be unmapped; then no more can be
// mapped either.
bool qy_os_has_space(size_t bytes) {
    void *p = qy_os_fake_fails(QY_OS_RESERVE) ? NULL : map_pages(NULL, bytes, PROT_NONE, ANON);
    return p && unmap_fresh(p, bytes);
}

void *qy_os_reserve_readable(size_t bytes, size_t align) {
    return qy_os_fake_fails(QY_OS_RESERVE_READABLE) ? NULL : map_aligned(bytes, align, NULL, PROT_READ);
}

void *qy_os_map(size_t bytes, size_t align, void *hint) {
    return qy_os_fake_fails(QY_OS_MAP) ? NULL : map_aligned(bytes, align, hint, PROT_READ | PROT_WRITE);
}

// ---- pages ------------------------------------------------------------------------------------

bool qy_os_commit(void *addr, size_t bytes) {
    return !qy_os_fake_fails(QY_OS_COMMIT) && protect(addr, bytes, PROT_READ | PROT_WRITE);
}

static bool memory_replace(void *addr, size_t bytes, int prot) {
    return !qy_syscall_failed(qy_os_seen_mmap(addr, bytes, prot, ANON | MAP_FIXED, -1, 0));
}

// A fresh mapping in place of the old one gives back memory, access and (where overcommit is off)
// the charge in one step. Where that is denied, memory and access at least.
bool qy_os_decommit(void *addr, size_t bytes) {
    must_be_pages(addr, bytes);
    if (qy_os_fake_fails(QY_OS_DECOMMIT)) return false;
    if (memory_replace(addr, bytes, PROT_NONE)) return true;
    return memory_give_back(addr, bytes) == 0 && protect(addr, bytes, PROT_NONE);
}

QY_COLD bool qy_os_renew(void *addr, size_t bytes) {
    must_be_pages(addr, bytes);
    return !qy_os_fake_fails(QY_OS_MAP) && memory_replace(addr, bytes, PROT_READ | PROT_WRITE);
}

// Emulators answer 0 to this advice and do nothing (qemu-user before 7.1). Who believes that hands out old bytes for
// zeros. So it is tried once, on a page of its own. Where it cannot be tried the answer is not believed either.
QY_COLD static bool try_advice(void) {
    size_t page = qy_os_page_size();
    _Atomic uint64_t *word = map_pages(NULL, page, PROT_READ | PROT_WRITE, ANON);
    if (!word) return false;
    atomic_store_explicit(word, 1, memory_order_relaxed);
    bool works = qy_os_fake_lies(QY_OS_PURGE) || qy_syscall(SYS_madvise, word, page, MADV_DONTNEED) == 0;
    works = works && atomic_load_explicit(word, memory_order_relaxed) == 0;
    unmap_fresh(word, page);
    return works;
}
// What is found out by a try is found out once.
typedef enum found { UNKNOWN,
    WORKS,
    LIES } found_t;
static bool works(_Atomic found_t *found, bool (*try)(void)) {
    found_t f = atomic_load_explicit(found, memory_order_relaxed);
    if (QY_UNLIKELY(f == UNKNOWN)) atomic_store_explicit(found, f = try() ? WORKS : LIES, memory_order_relaxed);
    return f == WORKS;
}
static bool advice_works(void) {
    static _Atomic found_t found;
    return works(&found, try_advice);
}

// EPERM and ENOSYS are a sandbox that forbids madvise; a new mapping does the same there, and where the advice does
// nothing. EINVAL is not: it says that the pages are locked, which is the program's wish.
bool qy_os_purge(void *addr, size_t bytes) {
    if (qy_os_fake_fails(QY_OS_PURGE)) return false;
    if (qy_os_fake_fails(QY_OS_PURGE_HALF)) {
        memory_give_back(addr, qy_round_down(bytes / 2, qy_os_page_size()));
        return false;
    }
    long r = memory_give_back(addr, bytes);
    if (r == 0 && !advice_works()) r = -ENOSYS;
    if (r == -EPERM || r == -ENOSYS) return memory_replace(addr, bytes, PROT_READ | PROT_WRITE);
    return r == 0;
}

bool qy_os_empty(void *addr, size_t bytes) { return advise(addr, bytes, MADV_DONTNEED) == 0; }

bool qy_os_unmap(void *addr, size_t bytes) {
    must_be_pages(addr, bytes);
    return !qy_os_fake_fails(QY_OS_UNMAP) && qy_os_seen_munmap(addr, bytes) == 0;
}

// Whether a kernel that refuses has unmapped `to` by then depends on its version and on why it refuses; and if it has,
// the place may be somebody else's a moment later. Nothing that a kernel says of a range tells our reservation from
// another's, so `to` is given a word that nobody else has: a new one each time, and not to be guessed, lest data of the
// program look like it.
static uint64_t next_mark(void) {
    static _Atomic uint64_t count;
    uint64_t seed = 0;
    const void *start = (const void *)qy_os_auxv(AT_RANDOM);
    if (start) memcpy(&seed, start, sizeof seed);
    return seed + 0x9E3779B97F4A7C15u * (atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1);
}

// False: no mapping or no memory is left for it, of which moving needs more.
static bool mark(void *to, uint64_t word) {
    if (!protect(to, qy_os_page_size(), PROT_READ | PROT_WRITE)) return false;
    VALGRIND_MAKE_MEM_DEFINED(to, sizeof word);
    __atomic_store_n((uint64_t *)to, word, __ATOMIC_RELAXED);
    return true;
}

// Is a page mapped? This advice changes nothing, and memcheck lets it pass. Where a sandbox denies it, the kernel looks
// at a word before it compares: EFAULT says that nothing is there.
static bool is_there(char *page) {
    const struct timespec at_once = {0, 0};
    long r = advise(page, qy_os_page_size(), MADV_NORMAL);
    if (r != -EPERM && r != -ENOSYS) return r == 0;
    return qy_syscall(SYS_futex, page, FUTEX_WAIT_PRIVATE, 0, &at_once) != -EFAULT;
}

// The kernel compares, so nothing happens if there is no memory; and it is a call that a sandbox has to allow anyway.
static bool is_marked(void *to, uint64_t word) {
    const struct timespec at_once = {0, 0};
    uint32_t half[2];
    memcpy(half, &word, sizeof word);
    for (int i = 0; i < 2; i++) {
        long r = qy_syscall(SYS_futex, (uint32_t *)to + i, FUTEX_WAIT_PRIVATE, half[i], &at_once);
        if (r != 0 && r != -ETIMEDOUT && r != -EINTR) return false;
    }
    return true;
}

// The kernel reads the word before it looks whether that is to be waited for. No answer that says so: denied.
QY_COLD bool qy_os_can_be_read(const void *word) {
    const struct timespec at_once = {0, 0};
    const uint32_t hardly = UINT32_C(0x9E3779B1);
    long r = qy_syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, hardly, &at_once);
    return r == -EAGAIN || r == -ETIMEDOUT || r == -EINTR || r == 0;
}

// Refused, the caller copies: a limit on address space counts `to` in the meantime, and some kernels (6.17 and later)
// want room for what the mapping grows by on top of it. A copy needs no more than both.
static bool memory_move(void *from, size_t old_bytes, void *to, size_t new_bytes, int flags) {
    uint64_t word = next_mark();
    bool marked = mark(to, word);
    must_be_pages(from, old_bytes | new_bytes);
    long r = -ENOMEM;
    if (marked && qy_os_fake_lies(QY_OS_MOVE)) r = (long)(uintptr_t)to;
    else if (marked && !qy_os_fake_fails(QY_OS_MOVE))
        r = qy_os_seen_mremap(from, old_bytes, new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to);
    // Success is believed when the word has gone with what lay there: else the caller would forget the only copy of its
    // bytes.
    bool moved = !qy_syscall_failed(r);
    if (!marked || ((!moved || r == (long)(uintptr_t)to) && is_marked(to, word))) {
        unmap_fresh(to, new_bytes);
        return false;
    }
    if (!moved) return false;
    // memcheck forgets that what a mapping grows by can be used.
    if (new_bytes > old_bytes) VALGRIND_MAKE_MEM_DEFINED((char *)to + old_bytes, new_bytes - old_bytes);
    return true;
}

// To grow by more than there is can only fail, and first of all where the range is not one mapping.
QY_COLD bool qy_os_is_one_mapping(void *from, size_t bytes) {
    const size_t too_much = sizeof(void *) == 8 ? (size_t)1 << 46 : SIZE_MAX / 2 + 1;
    long r = memory_resize(from, bytes, too_much);
    if (!qy_syscall_failed(r)) memory_resize(from, too_much, bytes);
    return r != -EFAULT;
}

bool qy_os_move(void *from, size_t old_bytes, void *to, size_t new_bytes) {
    if (old_bytes != new_bytes || qy_os_is_one_mapping(from, old_bytes))
        return memory_move(from, old_bytes, to, new_bytes, 0);
    unmap_fresh(to, new_bytes);
    return false;
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
// Is the memory locked? This advice is refused there; elsewhere it costs a page its age, and a huge page its unity. It
// is older than moving out; a kernel that knows neither has all memory locked. (msync tells the same, but a sandbox
// need not allow it.)
static bool memory_is_locked(void *addr) { return advise(addr, qy_os_page_size(), MADV_COLD) != 0; }

// The kernel takes the lock off the whole mapping that something was moved out of, also off what stays there. Mappings
// that do not reach beyond the range do not matter. (A huge page would lose its unity by the move of its parts too.)
static bool locked_around(void *from, size_t bytes) {
    return memory_is_locked(from) || memory_is_locked((char *)from + bytes - qy_os_page_size());
}

// Emulators move the pages and take the place they leave for unmapped (qemu-user, all versions). Plain loads and stores
// work there; but some instructions fault, calls answer EFAULT, and pages that are given back keep their bytes. So it
// is tried once, on two pages.
QY_COLD static bool try_move_out(void) {
    size_t page = qy_os_page_size();
    _Atomic uint64_t *from = map_pages(NULL, 2 * page, PROT_READ | PROT_WRITE, ANON), *to = from + page / sizeof *from;
    if (!from) return false;
    atomic_store_explicit(from, 1, memory_order_relaxed);
    unsigned flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    bool ok = qy_syscall(SYS_mremap, from, page, page, flags, to) == (long)(uintptr_t)to;
    ok = ok && atomic_load_explicit(to, memory_order_relaxed) == 1;
    ok = ok && is_there((char *)from) && atomic_load_explicit(from, memory_order_relaxed) == 0;
    if (ok) {
        atomic_store_explicit(from, 1, memory_order_relaxed);
        ok = qy_os_fake_lies(QY_OS_PURGE) || advise(from, page, MADV_DONTNEED) == 0;
        ok = ok && atomic_load_explicit(from, memory_order_relaxed) == 0;
    }
    unmap_fresh(from, 2 * page);
    return ok;
}

bool qy_os_may_move_out(void *from, size_t bytes) {
    static _Atomic found_t found;
    return !locked_around(from, bytes) && qy_os_is_one_mapping(from, bytes) && works(&found, try_move_out);
}

bool qy_os_move_out(void *from, size_t bytes, void *to) {
    if (qy_os_may_move_out(from, bytes)) return memory_move(from, bytes, to, bytes, MREMAP_DONTUNMAP);
    unmap_fresh(to, bytes);
    return false;
}

bool qy_os_resize_in_place(void *addr, size_t old_bytes, size_t new_bytes) {
    if (qy_os_fake_fails(QY_OS_RESIZE)) return false;
    if (new_bytes >= old_bytes) {
        // Believed when there is something where nothing was: else the range would reach into somebody else's.
        char *last = (char *)addr + new_bytes - qy_os_page_size();
        if (new_bytes > old_bytes && is_there(last)) return false;
        long r = qy_os_fake_lies(QY_OS_RESIZE) ? (long)(uintptr_t)addr : memory_resize(addr, old_bytes, new_bytes);
        return !qy_syscall_failed(r) && is_there(last);
    }
    must_be_pages(addr, old_bytes | new_bytes);
    return !qy_syscall_failed(qy_os_seen_mremap(addr, old_bytes, new_bytes, 0, NULL));
}

bool qy_os_protect_none(void *addr, size_t bytes) {
    return !qy_os_fake_fails(QY_OS_PROTECT) && protect(addr, bytes, PROT_NONE);
}
bool qy_os_protect_rw(void *addr, size_t bytes) {
    return !qy_os_fake_fails(QY_OS_PROTECT) && protect(addr, bytes, PROT_READ | PROT_WRITE);
}

// ---- advice -----------------------------------------------------------------------------------

void qy_os_advise_huge(void *addr, size_t bytes, bool want) {
    advise(addr, bytes, want ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}
void qy_os_advise_nodump(void *addr, size_t bytes) { advise(addr, bytes, MADV_DONTDUMP); }
bool qy_os_populate(void *addr, size_t bytes) {
    return !qy_os_fake_fails(QY_OS_POPULATE) &&
           (qy_os_fake_lies(QY_OS_POPULATE) || advise(addr, bytes, MADV_POPULATE_WRITE) == 0);
}

static _Atomic bool unnamed;  // or the kernel does not know names: don't ask again
void qy_os_names(bool on) { atomic_store_explicit(&unnamed, !on, memory_order_relaxed); }

void qy_os_name(void *addr, size_t bytes, const char *name) {
    if (atomic_load_explicit(&unnamed, memory_order_relaxed) || qy_os_fake_fails(QY_OS_NAME) ||
        qy_os_fake_lies(QY_OS_NAME)) return;
    if (qy_syscall(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, addr, bytes, name) != 0) qy_os_names(false);
}

// ---- huge pages -----------------------------------------------------------------------------------------

// The file reads "always [madvise] never": the one in brackets holds.
bool qy_os_thp_always(void) {
    static _Atomic int cached;  // 0: not asked yet, 1: no, 2: yes
    int state = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!state) {
        char text[48];
        size_t n = qy_os_read_small("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
        state = 1;
        for (size_t i = 0; i + 1 < n; i++) {
            if (text[i] == '[') {
                state = text[i + 1] == 'a' ? 2 : 1;
                break;
            }
        }
        atomic_store_explicit(&cached, state, memory_order_relaxed);
    }
    return state == 2;
}
