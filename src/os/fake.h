// SPDX-License-Identifier: MIT
// fake.h: make the kernel say no, or yes and do nothing. In test builds (QY_CFG_FAKE=1) every os call that can fail
// asks qy_os_fake_fails() first; in release builds the question is the constant false and vanishes.
//
// The switch is also reachable from outside a test library, so that a preloaded program can be
// tormented: exported function quarry_os_fault() (see below) exists in QY_CFG_FAKE builds only.
#ifndef QY_OS_FAKE_H
#define QY_OS_FAKE_H

#include <stdbool.h>
#include <stdint.h>

// Numbers stay: tests that see public headers only use them. A new one is the last.
typedef enum qy_os_call {
    QY_OS_RESERVE,
    QY_OS_RESERVE_READABLE,
    QY_OS_MAP,
    QY_OS_COMMIT,
    QY_OS_DECOMMIT,
    QY_OS_PURGE,
    QY_OS_UNMAP,
    QY_OS_MOVE,
    QY_OS_RESIZE,
    QY_OS_PROTECT,
    QY_OS_POPULATE,
    QY_OS_SPAWN,
    QY_OS_THREAD_EXIT,
    QY_OS_RANDOM,
    QY_OS_OPEN,
    QY_OS_WRITE,
    QY_OS_FILE_STAT,
    QY_OS_FILE_LOCK,
    QY_OS_FILE_ALLOCATE,
    QY_OS_FILE_TRUNCATE,
    QY_OS_FILE_READ,
    QY_OS_FILE_WRITE,
    QY_OS_FILE_SYNC,
    QY_OS_FILE_MAP,
    QY_OS_FILE_UNNAMED,
    QY_OS_FILE_RENAME,
    QY_OS_FILE_LINK,
    QY_OS_WIPE,
    // The number between was a call that is not made any more.
    QY_OS_NAME = QY_OS_WIPE + 2,
    QY_OS_PURGE_HALF,  // the first half of the pages goes, and the kernel refuses the rest, as where one is locked
    QY_OS_ADVISE,
    QY_OS_CALLS
} qy_os_call_t;

#ifndef QY_CFG_FAKE
#define QY_CFG_FAKE 0
#endif

#if QY_CFG_FAKE
bool qy_os_fake_fails(qy_os_call_t call);

// Let the `first`-th call from now on fail (1 = the next), and if `persist` all after it; only
// calls whose bit (1 << QY_OS_x) is set in `mask` count. first = 0: everything succeeds again.
__attribute__((visibility("default"))) void quarry_os_fault(uint64_t first, int persist, uint32_t mask);
// The same for calls that answer "done" and do nothing. Those of them that know how to lie: PURGE, MOVE, RESIZE
// (growing), POPULATE, NAME, ADVISE (guards).
bool qy_os_fake_lies(qy_os_call_t call);
__attribute__((visibility("default"))) void quarry_os_lie(uint64_t first, int persist, uint32_t mask);
// Calls counted (by the same mask) since quarry_os_fault, and how many of them were made to fail.
__attribute__((visibility("default"))) uint64_t quarry_os_fault_calls(void);
__attribute__((visibility("default"))) uint64_t quarry_os_fault_hits(void);
// Pretend another page size (a power of two multiple of the real one); before first use only.
__attribute__((visibility("default"))) void quarry_os_fake_page_size(uint64_t bytes);
// Pretend that the processor's counter is slower, by a power of two: then its ticks cannot be taken for those of the
// monotonic clock (os/ticks.h). Before qy_os_ticks_init only.
__attribute__((visibility("default"))) void quarry_os_fake_ticks_shift(unsigned more);
// The time that both clocks say, in ns; 0: the true one. A test for which no time may pass, or just so much, does not
// depend on the machine.
extern _Atomic uint64_t qy_os_fake_now;
#else
static inline bool qy_os_fake_fails(qy_os_call_t call) {
    (void)call;
    return false;
}
static inline bool qy_os_fake_lies(qy_os_call_t call) {
    (void)call;
    return false;
}
#endif

#endif
