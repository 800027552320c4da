// SPDX-License-Identifier: MIT
// helper.h: the thread that gives memory back while the program idles: when it begins, and when it ends. What it does
// is in purge.c.
//
// It is a bare kernel thread (qy_os_spawn): it uses no libc and no thread-local storage, takes locks by try or for one
// small step, has normal scheduling, low priority and all processors the process began with, and no signal. So it
// cannot deadlock with the program, and exec and exit need not know of it.
//
// But a program can count its threads, and some calls are refused to a process that has two. So the helper is there
// only while it is needed, which is longer than for a moment:
//  - beside other threads it begins at once;
//  - in a process of one thread it begins when there was waste for an epoch already, or so much that nothing else would
//    do: until then that thread gives back itself what is far too much (purge.c);
//  - it ends when an epoch or two brought nothing, and before fork, unshare and setns in a process of one thread
//    (qy_helper_end).
#ifndef QY_HEAP_HELPER_H
#define QY_HEAP_HELPER_H

#include "heap/types.h"

// What it does once in an epoch. *ret_rest: there is something left to give back later. Returns bytes given back, or
// SIZE_MAX if nothing could be done this time.
typedef size_t qy_helper_round_t(bool *ret_rest);

// Is it there? Then whatever the caller saw is seen to.
bool qy_helper_runs(void);
// Can it not be had, at present? (It is tried again later.)
bool qy_helper_impossible(void);
// Start it, unless somebody else is just doing so, or ends it. It sleeps until *last_ns, when the last epoch began, is
// an epoch ago.
void qy_helper_start(qy_helper_round_t *round, const _Atomic uint64_t *last_ns);
// End it, and wait for its end: some 50 us, or the rest of a small step. The caller holds no lock of the heap. The next
// one begins no sooner than in a moment, so that who forks finds out after the fork, too, that it is alone.
void qy_helper_end(void);
// None from here on: a filter comes that may end a process which starts a thread. Costs what qy_helper_end does.
void qy_helper_never(void);
// For a round: should it stop where it is? Somebody waits for the end.
bool qy_helper_is_to_end(void);

// For a walk over slabs that lets go of their heap's lock now and then: until qy_helper_let_go no purging goes on, and
// each heap's purge_at is the caller's. By try.
typedef enum qy_helper_hold {
    QY_HELPER_BUSY,
    QY_HELPER_HELD,
    QY_HELPER_INLINE,  // nothing is held: without a thread purge_at is in use from one round to the next
} qy_helper_hold_t;
qy_helper_hold_t qy_helper_hold(void);
void qy_helper_let_go(void);

void qy_helper_after_fork(void);

extern bool qy_helper_at_once;  // for tests: begin at once also in a process of one thread

#endif
