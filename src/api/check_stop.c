// SPDX-License-Identifier: MIT
// check_stop.c: the program blocks no signal that the library needs; in libquarry-check only.
//
// Programs block or await all signals there are. They mean theirs, so the one that stops threads (os/stop.h) is
// taken out of their sets. A thread that blocks it by a system call of its own is not stopped, and the scan for leaks
// says so. SIGSEGV says that a guarded block is accessed. A thread that blocks it would be ended by the kernel there.
// So it stays open, and the thread is told that it blocks it.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>

#include "base/compiler.h"
#include "check/guards.h"
#include "check/threads.h"
#include "os/loaded.h"
#include "os/stop.h"

#define EXPORT __attribute__((visibility("default")))

int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes);
// NOLINTNEXTLINE(readability-redundant-declaration): since glibc 2.32
int pthread_attr_setsigmask_np(pthread_attr_t *attributes, const sigset_t *mask);

static struct {
    bool found;
#define REAL(name) __typeof__(name) *name
    REAL(sigprocmask);
    REAL(pthread_sigmask);
    REAL(pthread_attr_setsigmask_np);
    REAL(sigsuspend);
    REAL(sigwait);
    REAL(sigwaitinfo);
    REAL(sigtimedwait);
    REAL(signalfd);
    REAL(ppoll);
    REAL(__ppoll_chk);
    REAL(pselect);
    REAL(epoll_pwait);
#undef REAL
} masks_real;

// In the constructor, since a handler of signals may call them, and cannot look them up.
__attribute__((constructor(102))) static void masks_find(void) {
    if (masks_real.found) return;
#define FIND(name) *(void **)&masks_real.name = qy_os_symbol_next(#name)
    FIND(sigprocmask);
    FIND(pthread_sigmask);
    FIND(pthread_attr_setsigmask_np);
    FIND(sigsuspend);
    FIND(sigwait);
    FIND(sigwaitinfo);
    FIND(sigtimedwait);
    FIND(signalfd);
    FIND(ppoll);
    FIND(__ppoll_chk);
    FIND(pselect);
    FIND(epoll_pwait);
#undef FIND
    masks_real.found = true;
}

// The set without our signal: the program's own where that is not in it.
static const sigset_t *without_ours(const sigset_t *set, sigset_t *copy) {
    if (QY_UNLIKELY(!masks_real.found)) masks_find();
    if (!set || !qy_os_stop_keeps(QY_STOP_SIGNAL) || !sigismember(set, QY_STOP_SIGNAL)) return set;
    *copy = *set;
    sigdelset(copy, QY_STOP_SIGNAL);
    return copy;
}

// A mask without what the library needs.
static const sigset_t *open_mask(const sigset_t *set, sigset_t *copy) {
    set = without_ours(set, copy);
    if (!set || !qy_check_guards_on || !sigismember(set, SIGSEGV)) return set;
    if (set != copy) *copy = *set;
    sigdelset(copy, SIGSEGV);
    return copy;
}

typedef int mask_change_t(int how, const sigset_t *restrict set, sigset_t *restrict old);

static int mask_change(mask_change_t *real, int how, const sigset_t *set, sigset_t *old) {
    sigset_t copy;
    bool was = qy_check_thread.blocks_faults, named = set && sigismember(set, SIGSEGV) == 1;
    int r = real(how, how == SIG_UNBLOCK ? set : open_mask(set, &copy), old);
    if (r != 0 || !qy_check_guards_on) return r;
    if (old && was) sigaddset(old, SIGSEGV);
    if (set)
        qy_check_thread.blocks_faults = how == SIG_BLOCK ? was || named : how == SIG_UNBLOCK ? was && !named
                                                                                             : named;
    return r;
}

EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old) {
    if (QY_UNLIKELY(!masks_real.found)) masks_find();
    return mask_change(masks_real.sigprocmask, how, set, old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old) {
    if (QY_UNLIKELY(!masks_real.found)) masks_find();
    return mask_change(masks_real.pthread_sigmask, how, set, old);
}

// Of a thread that is born with it.
EXPORT int pthread_attr_setsigmask_np(pthread_attr_t *attributes, const sigset_t *mask) {
    sigset_t copy;
    mask = open_mask(mask, &copy);
    return masks_real.pthread_attr_setsigmask_np ? masks_real.pthread_attr_setsigmask_np(attributes, mask) : ENOSYS;
}

// Those of BSD have a bit for each of the first signals.
static int bits_change(int how, int bits) {
    sigset_t set, old;
    unsigned was = 0;
    sigemptyset(&set);
    for (int n = 1; n < 32; n++)
        if ((unsigned)bits >> (n - 1) & 1) sigaddset(&set, n);
    if (sigprocmask(how, &set, &old)) return -1;
    for (int n = 1; n < 32; n++) was |= (unsigned)(sigismember(&old, n) == 1) << (n - 1);
    return (int)was;
}
EXPORT int sigblock(int bits) { return bits_change(SIG_BLOCK, bits); }
EXPORT int sigsetmask(int bits) { return bits_change(SIG_SETMASK, bits); }
EXPORT int siggetmask(void) { return bits_change(SIG_BLOCK, 0); }

// And those of System V are of one signal.
static int signal_change(int how, int number) {
    sigset_t set;
    sigemptyset(&set);
    return sigaddset(&set, number) ? -1 : sigprocmask(how, &set, NULL);
}
EXPORT int sighold(int number) { return signal_change(SIG_BLOCK, number); }
EXPORT int sigrelse(int number) { return signal_change(SIG_UNBLOCK, number); }

EXPORT int sigsuspend(const sigset_t *set) {
    sigset_t copy;
    set = open_mask(set, &copy);
    return masks_real.sigsuspend(set);
}

EXPORT int sigwait(const sigset_t *restrict set, int *restrict signal) {
    sigset_t copy;
    set = without_ours(set, &copy);
    return masks_real.sigwait(set, signal);
}

EXPORT int sigwaitinfo(const sigset_t *restrict set, siginfo_t *restrict info) {
    sigset_t copy;
    set = without_ours(set, &copy);
    return masks_real.sigwaitinfo(set, info);
}

EXPORT int sigtimedwait(
    const sigset_t *restrict set, siginfo_t *restrict info, const struct timespec *restrict timeout) {
    sigset_t copy;
    set = without_ours(set, &copy);
    return masks_real.sigtimedwait(set, info, timeout);
}

EXPORT int signalfd(int fd, const sigset_t *set, int flags) {
    sigset_t copy;
    set = without_ours(set, &copy);
    return masks_real.signalfd(fd, set, flags);
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    sigset_t copy;
    mask = open_mask(mask, &copy);
    return masks_real.ppoll(fds, count, timeout, mask);
}

// What ppoll is in programs that were built with checks of libc's own.
EXPORT int __ppoll_chk(
    struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes) {
    sigset_t copy;
    mask = open_mask(mask, &copy);
    return masks_real.__ppoll_chk(fds, count, timeout, mask, bytes);
}

EXPORT int pselect(int count, fd_set *restrict read, fd_set *restrict write, fd_set *restrict other,
    const struct timespec *restrict timeout, const sigset_t *restrict mask) {
    sigset_t copy;
    mask = open_mask(mask, &copy);
    return masks_real.pselect(count, read, write, other, timeout, mask);
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    sigset_t copy;
    mask = open_mask(mask, &copy);
    return masks_real.epoll_pwait(fd, events, most, timeout, mask);
}
