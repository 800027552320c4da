// SPDX-License-Identifier: MIT
// leak.c: see leak.h.
//
// A request may come at any moment: within malloc, in the dynamic linker, in a handler. So the handler allocates
// nothing, and takes only the lock of reports, which no thread has where a signal comes to it. It has that before the
// others stand, so that none of them stands with it. The copy has no other threads, and resets the other locks that it
// needs.
#include "check/leak.h"

#include <stdatomic.h>
#include <string.h>

#include "check/check.h"
#include "check/leak_report.h"
#include "check/options.h"
#include "check/report.h"
#include "os/loaded.h"
#include "os/module.h"
#include "os/os.h"
#include "os/process.h"
#include "os/stop.h"
#include "os/tasks.h"
#include "rt/opts.h"

#define PATIENCE_NS UINT64_C(2000000000)  // for threads that do not stop
#define FIRST_NAP_NS UINT64_C(50000)      // between two looks at whether the copy has ended
#define LAST_NAP_NS UINT64_C(5000000)

static struct {
    bool on, at_exit, over;  // over: the last search is done
    uintptr_t linker[2];
    qy_leak_history_t *history;
    _Atomic uint64_t scans;
    _Atomic int copy;           // the one that scans, 0: none
    _Atomic uint32_t scanning;  // a thread is at it
    int process;                // whose memory this is: not that of a vfork's child
} leaks;

static void tell_growing(const qy_leak_site_t *site, uint64_t before, void *arg) {
    qy_leak_report_growing(site, before, arg);
}

// The scan itself, by a copy or in place.
static void scan_and_tell(qy_leak_scan_t *scan, qy_leak_told_t *told, uint64_t began) {
    scan->deadline = qy_os_now_ns() + qy_check_options.leak_seconds * UINT64_C(1000000000);
    qy_leak_scan_run(scan);
    told->total_ns = qy_os_now_ns() - began;
    if (!scan->failed && leaks.history) qy_leak_history_scan(leaks.history, &scan->sites, tell_growing, told);
    qy_leak_sites_sort(&scan->sites);
    if (!scan->copy) told->pause_ns = told->total_ns;
    if (leaks.history) qy_leak_history_ready(leaks.history, told->number);
    qy_leak_report(scan, told);
    qy_leak_scan_end(scan);
}

// The time that its own limit leaves it, and as much again.
static void await_copy(bool wait) {
    int copy = atomic_load(&leaks.copy);
    uint64_t patience = 2 * qy_check_options.leak_seconds * UINT64_C(1000000000) + PATIENCE_NS;
    uint64_t deadline = qy_os_now_ns() + patience, nap = FIRST_NAP_NS;
    _Atomic uint32_t nobody = 0;
    for (bool ok = true; copy && !qy_os_copy_ended(copy, false, &ok); nap = nap < LAST_NAP_NS ? 2 * nap : nap) {
        if (!wait) return;
        if (qy_os_now_ns() >= deadline) qy_os_copy_kill(copy);
        qy_os_wait(&nobody, 0, nap);
    }
    atomic_store(&leaks.copy, 0);
}

static void scan_at(const char *at, const qy_os_standing_t *here) {
    qy_os_stopped_t others;
    qy_leak_told_t told = {.number = atomic_load(&leaks.scans) + 1, .at = at};
    told.show_reachable = qy_check_options.show_reachable;
    qy_leak_scan_t scan = {.here = here, .others = &others, .shared = qy_check_options.leak_shared};
    memcpy(scan.linker, leaks.linker, sizeof scan.linker);
    uint64_t mask = qy_check_report_hold();  // and else the copy would make the file, and this process not know of it
    uint64_t began = qy_os_now_ns();
    if (qy_os_stop_all(PATIENCE_NS, &others)) {
        atomic_store(&leaks.scans, told.number);
        long copy = qy_os_copy();
        scan.copy = copy == 0;
        told.pause_ns = qy_os_now_ns() - began;
        if (scan.copy) qy_os_copy_keep_only(qy_check_report_descriptor());
        if (copy > 0) atomic_store(&leaks.copy, (int)copy);
        else scan_and_tell(&scan, &told, began);
        if (scan.copy) qy_os_copy_end(0);
        qy_os_stop_end();
    }
    qy_check_report_let_go(mask);
}

// A search makes calls of many kinds: a process is copied, its map is read.
static bool may_scan(void) {
    if (!leaks.on || !qy_check_report_is_filtered()) return leaks.on;
    leaks.on = false;
    qy_check_note("no search for leaks: the program has put itself under a filter of system calls, which could end it");
    return false;
}

static bool begin_scan(void) {
    uint32_t nobody = 0;
    return may_scan() && leaks.process == qy_os_process_id() &&
           atomic_compare_exchange_strong(&leaks.scanning, &nobody, 1);
}

// In the signal's handler. A scan that goes on is as good as the one that was asked for. But who has just read the
// answer of the one before gets another one.
static void on_request(bool timer, const qy_os_standing_t *here) {
    if (!begin_scan()) return;
    await_copy(leaks.history && qy_leak_history_is_ready(leaks.history, atomic_load(&leaks.scans)));
    if (!atomic_load(&leaks.copy)) scan_at(timer ? "interval" : "demand", here);
    atomic_store(&leaks.scanning, 0);
}

// Another thread may be at a request. That takes a moment, but for its copy, which is awaited later.
static bool begin_last_scan(void) {
    while (!begin_scan()) {
        if (!leaks.on || leaks.process != qy_os_process_id()) return false;
        qy_os_wait(&leaks.scanning, 1, LAST_NAP_NS);
    }
    return true;
}

void qy_leak_at_exit(void) {
    uintptr_t saved[QY_HERE_REGISTERS];
    qy_os_standing_t here;
    if (!begin_last_scan()) return;
    qy_os_stop_timer(0);
    await_copy(true);
    if (leaks.at_exit) {
        qy_os_stand_here(saved, &here);
        scan_at("exit", &here);
        await_copy(true);
    }
    leaks.over = true;
    leaks.on = false;
}

static void find_linker(void) {
    qy_os_module_t linker;
    uintptr_t code = (uintptr_t)qy_os_symbol_of("ld-linux", "__tls_get_addr");
    if (!code || !qy_os_module_at(code, &linker)) return;
    leaks.linker[0] = linker.begin;
    leaks.linker[1] = linker.end;
}

static void start_timer(void) {
    unsigned seconds = (unsigned)qy_check_options.every;
    if (!seconds || qy_os_stop_timer(seconds)) return;
    qy_check_note("no searches for leaks in between: the kernel gives no timer");
}

void qy_leak_begin(void) {
    char when[8];
    if (!qy_opts_str(qy_check_options.leaks, when, sizeof when)) return;
    leaks.at_exit = strcmp(when, "exit") == 0;
    leaks.on = leaks.at_exit || strcmp(when, "on") == 0;
    if (!leaks.on) return;
    leaks.process = qy_os_process_id();
    find_linker();
    leaks.history = qy_leak_history_new();
    if (!qy_os_stop_install(on_request)) {
        qy_check_note("no search for leaks: the kernel refuses a handler for the signal that stops threads");
        leaks.on = false;
        return;
    }
    start_timer();
}

void qy_leak_in_child(void) {
    if (leaks.over) leaks.on = true;  // its parent is at its end, by another thread
    leaks.over = false;
    if (!leaks.on) return;
    qy_os_stop_in_child();
    leaks.process = qy_os_process_id();
    leaks.history = qy_leak_history_new();
    atomic_store(&leaks.scans, 0);
    atomic_store(&leaks.copy, 0);
    atomic_store(&leaks.scanning, 0);
    start_timer();
}
