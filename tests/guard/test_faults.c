// SPDX-License-Identifier: MIT
// Faults: the library is asked first, and what is none of its business goes to the program's own action.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "harness.h"
#include "os/faults.h"
#include "os/os.h"

static volatile char *ours, *theirs;  // pages without access
static qy_os_fault_t seen;
static volatile int asked, called, number_seen;
static void *volatile address_seen;
static char *volatile stack_seen;
static sigjmp_buf back;

static bool on_fault(const qy_os_fault_t *f) {
    stack_seen = __builtin_frame_address(0);
    asked++;
    if (f->address - (uintptr_t)ours >= qy_os_page_size()) return false;
    seen = *f;
    return qy_os_protect_rw((void *)ours, qy_os_page_size());
}

static char *no_access(void) { return qy_os_reserve(qy_os_page_size(), qy_os_page_size(), NULL); }

static void begin(void) {
    ours = no_access();
    theirs = no_access();
    CHECK(ours && theirs);
    CHECK(qy_os_faults_begin(on_fault));
}

static void with_info(int number, siginfo_t *info, void *context) {
    (void)context;
    called++;
    number_seen = number;
    address_seen = info->si_addr;
    mprotect((void *)theirs, qy_os_page_size(), PROT_READ | PROT_WRITE);
}
static void jumps(int number) {
    called++;
    number_seen = number;
    siglongjmp(back, 1);
}

static void handle_by_info(int flags) {
    struct sigaction a = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&a.sa_mask);
    sigaddset(&a.sa_mask, SIGUSR1);
    sigaction(SIGSEGV, &a, NULL);
}

// The signal that it ends by, or minus its status.
static int end_of(void (*run)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}
#define CHILD(name, end)                                                                                \
    static void run_##name(void);                                                                       \
    TEST(name) {                                                                                        \
        if ((end) && (QY_ASAN || QY_TSAN))                                                              \
            TEST_SKIP("needs a build without sanitizers: they have a handler where there is no other"); \
        CHECK_EQ(end_of(run_##name), end);                                                              \
    }                                                                                                   \
    static void run_##name(void)

CHILD(the_library_is_asked_first, 0) {
    begin();
    ours[12] = 1;
    CHECK_EQ(asked, 1);
    CHECK_EQ(seen.address, (uintptr_t)ours + 12);
    CHECK(!seen.is_known || seen.is_write);
    CHECK(seen.sp && seen.pc);
    CHECK(qy_os_protect_none((void *)ours, qy_os_page_size()));
    CHECK_EQ(ours[12], 1);
    CHECK(!seen.is_write);
}

CHILD(a_foreign_fault_ends_by_the_default, SIGSEGV) {
    begin();
    theirs[0] = 1;
}

CHILD(a_signal_that_was_sent_ends_by_the_default, SIGSEGV) {
    begin();
    raise(SIGSEGV);
}

CHILD(what_is_ignored_ends_when_it_is_a_fault, SIGSEGV) {
    signal(SIGSEGV, SIG_IGN);
    begin();
    raise(SIGSEGV);
    called = 1;
    theirs[0] = 1;
}

CHILD(the_programs_handler_gets_its_own, 0) {
    handle_by_info(0);
    begin();
    theirs[5] = 1;  // the handler gives access
    CHECK_EQ(called, 1);
    CHECK_EQ(number_seen, SIGSEGV);
    CHECK(address_seen == (void *)(theirs + 5));
    ours[3] = 1;
    CHECK_EQ(called, 1);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGSEGV));
}

CHILD(a_handler_may_jump_out, 0) {
    signal(SIGSEGV, jumps);
    begin();
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) theirs[0] = 1;
        CHECK_EQ(called, i + 1);
    }
}

CHILD(a_handler_for_once_is_called_once, SIGSEGV) {
    handle_by_info(SA_RESETHAND);
    begin();
    theirs[5] = 1;
    CHECK_EQ(called, 1);
    mprotect((void *)theirs, qy_os_page_size(), PROT_NONE);
    theirs[5] = 1;
}

CHILD(the_programs_action_may_change, 0) {
    begin();
    qy_os_action_t next = {.handler = with_info, .flags = SA_SIGINFO}, before;
    CHECK(qy_os_faults_program(&next, &before));
    CHECK(QY_ASAN || QY_TSAN || (void *)before.handler == (void *)SIG_DFL);
    theirs[5] = 1;
    CHECK_EQ(called, 1);
    CHECK(qy_os_faults_program(NULL, &before) && before.handler == with_info);
}

// A jump to a page that becomes readable fails again: it has to end, not to be tried for ever.
CHILD(a_jump_is_not_tried_again, SIGSEGV) {
    begin();
    alarm(60);  // it only ends a hang
    ((void (*)(void))(uintptr_t)ours)();
}

static void run_on_the_alternate_stack(void);
TEST(it_runs_on_the_alternate_stack) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they give a thread its alternate stack");
    CHECK_EQ(end_of(run_on_the_alternate_stack), 0);
}
static void run_on_the_alternate_stack(void) {
    static char stack[65536];
    begin();
    CHECK_EQ(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL), 0);
    ours[0] = 1;
    CHECK(stack_seen > stack && stack_seen < stack + sizeof stack);
}

TEST_MAIN()
