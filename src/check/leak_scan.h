// SPDX-License-Identifier: MIT
// leak_scan.h: one search for leaks, from the live blocks and the roots to the sums by stack.
//
// Threads: one, in a copy of the process, or where all others stand still. Takes no lock that somebody may hold, and
// all its memory from the kernel.
#ifndef QY_CHECK_LEAK_SCAN_H
#define QY_CHECK_LEAK_SCAN_H

#include "check/leak_sites.h"
#include "os/stop.h"

typedef struct qy_leak_scan {
    // From the caller:
    bool copy;                      // this is a copy of the process
    bool shared;                    // memory shared with other processes is a root
    uint64_t deadline;              // qy_os_now_ns
    const qy_os_standing_t *here;   // the thread that asked for the scan
    const qy_os_stopped_t *others;  // what became of the other threads
    uintptr_t linker[2];            // begin and end of the dynamic linker, whose blocks are nobody's leaks
    // The answer:
    uint64_t roots_bytes, heap_bytes;
    uint64_t bytes[QY_LEAK_KINDS], blocks[QY_LEAK_KINDS];
    const char *incomplete;  // why not all could be looked at; NULL: it was
    bool failed;             // nothing is known
    qy_leak_sites_t sites;
} qy_leak_scan_t;

void qy_leak_scan_run(qy_leak_scan_t *scan);
void qy_leak_scan_end(qy_leak_scan_t *scan);

#endif
