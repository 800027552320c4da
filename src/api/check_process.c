// SPDX-License-Identifier: MIT
// check_process.c: how a checked process begins, loses modules, runs another program, and ends; in
// libquarry-check only.
#include <stdlib.h>

#include "check/life.h"
#include "check/threads.h"
#include "os/loaded.h"
#include "os/os.h"
#include "stacks/modules.h"

#define EXEC_BEGINS(program) qy_check_exec()
#define EXEC_FAILED() qy_check_exec_failed()
#define EXEC_SYMBOL(name) qy_os_symbol_next(name)
#include "api/exec.h"

#define EXPORT __attribute__((visibility("default")))

int dlclose(void *handle);
_Noreturn void end_now(int status) __asm__("_exit");
_Noreturn void end_now_c99(int status) __asm__("_Exit");
_Noreturn void quick_exit(int status);  // NOLINT(readability-redundant-declaration): not in all headers

static struct {
    __typeof__(dlclose) *dlclose;
    __typeof__(end_now) *end_now;
    __typeof__(quick_exit) *quick_exit;
} ends_real;

static void ends_find_real(void) {
    *(void **)&ends_real.dlclose = qy_os_symbol_next("dlclose");
    *(void **)&ends_real.end_now = qy_os_symbol_next("_exit");
    *(void **)&ends_real.quick_exit = qy_os_symbol_next("quick_exit");
}

// Registered by our constructor, before the dynamic linker registers its own end: so it comes after all handlers and
// all destructors, and what these do is seen.
static void at_exit_end(int status, void *arg) {
    (void)arg;
    qy_check_end("exit", status & 0xff);
}

static void at_quick_exit_end(void) { qy_check_end("exit", -1); }

__attribute__((constructor(102))) static void check_begins(void) {
    ends_find_real();
    qy_check_constructed();
    on_exit(at_exit_end, NULL);
    at_quick_exit(at_quick_exit_end);
}

EXPORT int dlclose(void *handle) {
    if (QY_UNLIKELY(!ends_real.dlclose)) ends_find_real();
    qy_modules_closing();
    int r = ends_real.dlclose ? ends_real.dlclose(handle) : -1;
    qy_modules_closed(&qy_check_thread);
    return r;
}

EXPORT void end_now(int status) {
    if (QY_UNLIKELY(!ends_real.end_now)) ends_find_real();
    qy_check_end("exit", status & 0xff);
    if (ends_real.end_now) ends_real.end_now(status);
    qy_os_abort();
}

EXPORT void end_now_c99(int status) { end_now(status); }

EXPORT void quick_exit(int status) {
    if (QY_UNLIKELY(!ends_real.quick_exit)) ends_find_real();
    qy_check_note_status(status & 0xff);
    if (ends_real.quick_exit) ends_real.quick_exit(status);
    qy_os_abort();
}
