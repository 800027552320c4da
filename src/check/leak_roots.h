// SPDX-License-Identifier: MIT
// leak_roots.h: where a program's pointers begin.
//
// All private memory that it can write to, or could before it made that read-only, but for the heap's own and the
// library's; of stacks the part that is in use; the registers of all threads. What the kernel alone knows (an address
// given to epoll or io_uring) is no root, and memory that is shared with other processes is one if that is asked for.
//
// Where /proc is not there, nothing says what is mapped: the scan is incomplete, and tells no leaks.
//
// Threads: one, in the copy or while all others stand still.
#ifndef QY_CHECK_LEAK_ROOTS_H
#define QY_CHECK_LEAK_ROOTS_H

#include "check/leak_flood.h"
#include "os/maps.h"
#include "os/stop.h"

typedef struct qy_leak_range {
    uintptr_t begin, end;
} qy_leak_range_t;

typedef struct qy_leak_roots {
    qy_os_region_t *regions;  // of the process, ascending
    size_t count, region_bytes;
    qy_leak_range_t *none;  // what is no root, ascending
    size_t none_count, none_room;
    bool shared;     // so are shared mappings
    uint64_t bytes;  // in roots so far
} qy_leak_roots_t;

// What is mapped. False: no /proc, or no memory.
bool qy_leak_roots_begin(qy_leak_roots_t *r);
void qy_leak_roots_end(qy_leak_roots_t *r);
// The memory in the range is no root.
void qy_leak_roots_without(qy_leak_roots_t *r, uintptr_t begin, uintptr_t end);
// Memory of the library's own is none, and that of the scan, which has all it needs by now. `copy`: in a copy of the
// process, where nobody holds locks that can be waited for. False: somebody holds such a lock.
bool qy_leak_roots_without_own(qy_leak_roots_t *r, bool copy);
// The part of this thread's stack that is not in use is none. Its registers and its own block, if the stack is one, are
// roots at once.
void qy_leak_roots_thread(qy_leak_roots_t *r, qy_leak_flood_t *f, const qy_os_standing_t *standing);
// After these: all roots.
void qy_leak_roots_flood(qy_leak_roots_t *r, qy_leak_flood_t *f);
// For qy_leak_flood_t.is_vtable, with the roots as its argument.
bool qy_leak_roots_is_vtable(uintptr_t address, void *arg);

#endif
