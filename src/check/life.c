// SPDX-License-Identifier: MIT
// life.c: see life.h.
//
// Locks of check, outermost first: the dynamic linker's, then report, a stripe of the quarantine, records, blocks of
// pools, memory.
// None is held while the heap is called. A fork takes libc's list of streams (os/streams.h), then these in this order,
// then the heap's, of which the guarded blocks' is one.
#include "check/life.h"

#include <errno.h>
#include <pthread.h>

#include "check/evidence.h"
#include "check/fatal.h"
#include "check/guards.h"
#include "check/leak.h"
#include "check/memory.h"
#include "check/options.h"
#include "check/pool_blocks.h"
#include "check/quarantine.h"
#include "check/records.h"
#include "check/report.h"
#include "check/threads.h"
#include "check/zone.h"
#include "os/process.h"
#include "os/streams.h"
#include "stacks/modules.h"

_Atomic int qy_check_state;
static struct {
    int pid;
    bool is_copy;  // made by fork
    _Atomic int status;
    _Atomic bool ended;
} life;

void qy_check_start(void) {
    qy_check_zone_begin();
    int cold = 0;
    if (!qy_os_environment_known() || !atomic_compare_exchange_strong(&qy_check_state, &cold, 1)) return;
    qy_check_options_read();
    life.pid = qy_os_process_id();
    bool stacks = qy_check_frames_begin();
    atomic_store_explicit(&qy_check_state, 2, memory_order_release);
    qy_check_report_begin();
    qy_check_fatal_begin();
    qy_check_guards_begin();
    if (!stacks) qy_check_note("no call stacks: no memory for them, or this C library cannot be asked for code");
}

// ---- fork -----------------------------------------------------------------------------------------------------------

static void each_lock(int phase) {
    qy_lock_fork(qy_check_report_lock(), phase);
    for (unsigned i = 0; i < QY_CHECK_STRIPES; i++) qy_lock_fork(qy_check_quarantine_lock(i), phase);
    qy_lock_fork(qy_check_records_lock(), phase);
    qy_lock_fork(qy_check_pool_lock(), phase);
    qy_lock_fork(qy_check_memory_lock(), phase);
}

static void check_before_fork(void) {
    qy_os_streams_hold();
    qy_modules_freeze();
    each_lock(0);
}

static void check_in_parent(void) {
    each_lock(1);
    qy_modules_thaw();
    qy_os_streams_let_go();
}

static void check_in_child(void) {
    qy_os_streams_in_child();
    each_lock(2);
    qy_modules_in_child();
    qy_check_quarantine_in_child();
    qy_check_threads_in_child();
    int parent = life.pid;
    life.pid = qy_os_process_id();
    life.is_copy = true;
    atomic_store(&life.ended, false);  // its parent may be at its end, by another thread
    qy_check_report_in_child(parent);
    qy_leak_in_child();
}

void qy_check_constructed(void) {
    qy_check_start();
    pthread_atfork(check_before_fork, check_in_parent, check_in_child);
    qy_leak_begin();
}

// ---- the end --------------------------------------------------------------------------------------------------------

void qy_check_note_status(int status) { atomic_store(&life.status, status); }

void qy_check_end(const char *how, int status) {
    if (!qy_check_is_up() || qy_os_process_id() != life.pid || atomic_exchange(&life.ended, true)) return;
    qy_leak_at_exit();  // before others leave addresses of blocks on the stack
    qy_check_blocks_sweep();
    qy_check_guards_sweep();
    qy_check_report_end(how, status < 0 ? atomic_load(&life.status) : status);
}

// What is found is mended, so that nothing is told twice where the process goes on. A copy that was made for this has
// its parent's blocks, which the parent looks at itself.
bool qy_check_exec(void) {
    if (!qy_check_is_up() || qy_os_process_id() != life.pid) return false;
    if (!life.is_copy) {
        int saved = errno;
        qy_check_blocks_sweep();
        qy_check_guards_sweep();
        errno = saved;
    }
    qy_check_report_end("exec", 0);
    return true;
}

void qy_check_exec_failed(void) { qy_check_report_goes_on(); }
