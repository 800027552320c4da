// SPDX-License-Identifier: MIT
// Captures: the id is that of the compiler's stack, also where only a part of it was walked.
#include "unwind_test.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "base/num.h"
#include "os/fake.h"
#include "shapes.h"
#include "stacks/modules.h"
#include "stacks/own.h"
#include "stacks/stacks_thread.h"

static const shape_t *const sets[] = SHAPE_SETS;
#define SETS (sizeof sets / sizeof sets[0])
#define NODES 300000u

// ---- what was told ---------------------------------------------------------------------------------------------

static struct {
    _Atomic uint32_t parent;
    _Atomic uintptr_t pc;
    _Atomic bool told;
} nodes[NODES + 1];
static _Atomic uint64_t tellings;

static bool tell(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)arg;
    CHECK(id > 0 && id <= NODES);
    CHECK(!nodes[id].told);
    CHECK(parent == 0 || nodes[parent].told);
    nodes[id].parent = parent;
    nodes[id].pc = pc | (is_return ? 0 : QY_PC_EXACT);
    nodes[id].told = true;
    tellings++;
    return true;
}

static void forget_told(void) {
    memset(nodes, 0, sizeof nodes);
    tellings = 0;
}

// Is `id` this stack?
static void check_id(uint32_t id, const reference_t *r) {
    unsigned want = r->n < QY_STACK_DEPTH ? r->n : QY_STACK_DEPTH;
    for (unsigned i = 0; i < want; i++) {
        if (!id || !nodes[id].told || nodes[id].pc != (r->pc[i] | (r->exact[i] ? QY_PC_EXACT : 0)))
            TEST_FAIL("frame %u of %u: node %u of %lu, %#lx against %#lx", i, r->n, id, (unsigned long)tellings,
                (unsigned long)nodes[id].pc, (unsigned long)r->pc[i]);
        id = nodes[id].parent;
    }
    CHECK_EQ(id, 0);
}

static void start(void) {
    CHECK(qy_stacks_start(QY_STACKS_CFI, NODES));
    CHECK_EQ(qy_stacks_mode(), QY_STACKS_CFI);
    qy_stacks_restart();
    forget_told();
}

// ---- the plan of shapes: random, and alike each time
// ------------------------------------------------------------------

static _Thread_local struct {
    uint64_t rng;
    int depth;
    uint64_t looks;
    reference_t reference;
} t;

__attribute__((noinline)) static void look(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    uint32_t id = qy_stack_capture_from(&here, tell, NULL);  // joins the one before
    reference_take(&t.reference, here.pc);
    check_id(id, &t.reference);
    CHECK_EQ(qy_stack_capture_from(&here, tell, NULL), id);
    t.looks++;
}

// A tree of calls: after each call another may come from the same frame, at the same place of the stack.
void shape_next(void) {
    uint64_t r = test_random(&t.rng);
    t.depth++;
    for (int calls = 1 + (r >> 40) % 3; calls > 0; calls--) {
        r = test_random(&t.rng);
        if (r % 4 == 0) look();
        if ((int)(r >> 50 & 31) > t.depth) sets[(r >> 4) % SETS][(r >> 8) % SHAPES]((int)(r >> 20 & 0x3f));
    }
    t.depth--;
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)info;
    (void)context;
#if defined(__x86_64__)
    if (number == SIGILL) ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
#endif
    (void)number;
    shape_next();
}

static void handle_shapes(int flags) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | flags};
    CHECK_EQ(sigaction(SHAPE_SIGNAL, &action, NULL), 0);
    CHECK_EQ(sigaction(SIGILL, &action, NULL), 0);
}

TEST(not_started) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    CHECK_EQ(qy_stack_capture_from(&here, tell, NULL), 0);
    CHECK(qy_stacks_start(QY_STACKS_NONE, 0));
    CHECK_EQ(qy_stack_capture_from(&here, tell, NULL), 0);
    quarry_os_fault(1, true, 1u << QY_OS_MAP);
    CHECK(!qy_stacks_start(QY_STACKS_CFI, 0));
    CHECK_EQ(qy_stack_capture_from(&here, tell, NULL), 0);
    quarry_os_fault(0, false, 0);
}

TEST(no_memory_for_the_thread) {
    start();
    qy_stack_regs_t here = QY_STACK_CALLER();
    qy_stacks_stats_t stats;
    quarry_os_fault(1, true, 1u << QY_OS_MAP);
    CHECK_EQ(qy_stack_capture_from(&here, tell, NULL), 0);
    quarry_os_fault(0, false, 0);
    qy_stacks_get_stats(&stats);
    CHECK_EQ(stats.failed, 1);
    CHECK_NE(qy_stack_capture_from(&here, tell, NULL), 0);
}

// Threads meet the same frames for the first time, at once; in children, since what is known of frames stays known.
// (Later tests make it known here.)
static pthread_barrier_t barrier;
static void *first_look(void *arg) {
    t.rng = *(const uint64_t *)arg;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 8 && t.looks < 300; i++) shape_next();
    return NULL;
}
TEST(threads_meet) {
    uint64_t random = test_seed;
    for (int i = 0; i < 40; i++) {
        uint64_t seed = test_random(&random);
        pid_t child = fork();
        if (child == 0) {
            start();
            handle_shapes(0);
            pthread_t threads[3];
            CHECK_EQ(pthread_barrier_init(&barrier, NULL, 3), 0);
            for (int j = 0; j < 3; j++) CHECK_EQ(pthread_create(&threads[j], NULL, first_look, &seed), 0);
            for (int j = 0; j < 3; j++) pthread_join(threads[j], NULL);
            _exit(0);
        }
        int status = 0;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
}

TEST(random_calls) {
    start();
    handle_shapes(0);
    qy_stacks_stats_t stats;
    for (uint64_t i = 0; t.looks < (QY_TSAN || QY_ASAN ? 5000 : 20000) && tellings < NODES / 2; i++) {
        t.rng = test_seed + i;
        t.depth = 0;
        shape_next();
        if (i % 64 == 63) qy_stacks_modules_changed();
    }
    qy_stacks_get_stats(&stats);
    printf("%llu captures, %llu joined, %llu frames walked, %llu nodes, %llu cut\n", (unsigned long long)stats.captures,
        (unsigned long long)stats.joined, (unsigned long long)stats.frames, (unsigned long long)stats.nodes,
        (unsigned long long)stats.cut);
    CHECK_EQ(stats.cut, 0);
    CHECK_EQ(stats.nodes, tellings);
    CHECK_GT(stats.joined, stats.captures / 2);
}

// ---- outer frames that only look the same
// --------------------------------------------------------------------------------

// Two callers with frames of the same size: below them everything has the same place.
__attribute__((noinline)) static void leaf(void) {
    look();
    __asm__ volatile("" ::
                         : "memory");
}
__attribute__((noinline)) static void caller_a(void) {
    leaf();
    __asm__ volatile("nop" ::
                         : "memory");
}
__attribute__((noinline)) static void caller_b(void) {
    leaf();
    __asm__ volatile("nop\n\tnop" ::
                         : "memory");
}
__attribute__((noinline)) static void outer(void (*f)(void)) {
    f();
    __asm__ volatile("" ::
                         : "memory");
}

TEST(same_size_other_caller) {
    start();
    for (int i = 0; i < 100; i++) {
        outer(i % 3 ? caller_a : caller_b);
        if (i % 7) outer(i % 2 ? caller_a : caller_b);
    }
}

// The frame between may be larger by what another one takes: the innermost has the same place, and where the
// old return addresses were there is memory that nobody has written since.
__attribute__((noinline)) static void variable(int words, void (*f)(void)) {
    volatile uintptr_t *p = __builtin_alloca((size_t)words * 8);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
    f();
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
}
__attribute__((noinline)) static void between(int words, void (*f)(void)) {
    variable(words, f);
    __asm__ volatile("" ::
                         : "memory");
}

TEST(stale_words) {
    start();
    uint64_t rng = test_seed;
    for (int i = 0; i < 3000; i++) {
        uint64_t r = test_random(&rng);
        int words = (int)(r >> 8 & 62);
        switch (r & 3) {
        case 0: variable(words, leaf); break;
        case 1: between(words, leaf); break;
        case 2: outer(caller_a); break;
        default: outer(leaf);
        }
    }
}

// The same with a second frame of variable size: the frame that saved rbp has the same place and the same
// caller, and all return addresses are at their old places with their old values; only what it saved is another.
__attribute__((noinline)) static void keeps_fp(void (*f)(void)) {
    volatile uintptr_t *p = __builtin_alloca(64);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
    f();
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
}
__attribute__((noinline)) static void first(int words) {
    volatile uintptr_t *p = __builtin_alloca((size_t)words * 8);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
    keeps_fp(leaf);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
}
__attribute__((noinline)) static void second(int words) {
    volatile uintptr_t *p = __builtin_alloca(32);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
    first(words);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     : "memory");
}

TEST(stale_frame_pointers) {
    start();
    uint64_t rng = test_seed;
    static void (*const both[2])(int) = {first, second};
    for (int i = 0; i < 3000; i++) {
        uint64_t r = test_random(&rng);
        both[r & 1]((int)(r >> 8 & 62));  // one call, from one place
    }
}

// What stands in rbp, and where it is saved, is not compared where no frame further out goes by it.
void with_fp(void (*f)(void), uintptr_t fp);
__asm__(
    ".text\n"
    ".type with_fp, @function\n"
    "with_fp:\n"
    ".cfi_startproc\n"
    "endbr64\n"
    "push %rbp\n"
    ".cfi_adjust_cfa_offset 8\n"
    ".cfi_rel_offset rbp, 0\n"
    "mov %rsi, %rbp\n"
    "call *%rdi\n"
    "pop %rbp\n"
    ".cfi_adjust_cfa_offset -8\n"
    ".cfi_restore rbp\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size with_fp, . - with_fp\n");

TEST(frame_pointer_of_no_use) {
    start();
    qy_stacks_stats_t before, after;
    for (uintptr_t i = 0; i < 4; i++) {
        qy_stacks_get_stats(&before);
        with_fp(caller_a, 1000 + i);
        qy_stacks_get_stats(&after);
        if (i) CHECK_EQ(after.frames, before.frames);
    }
}

// ---- modes and limits
// --------------------------------------------------------------------------------------------------------

__attribute__((noinline)) static void recurse(int n) {
    if (n) recurse(n - 1);
    else look();
    __asm__ volatile("" ::
                         : "memory");
}

TEST(deep) {
    start();
    qy_stacks_stats_t before, after;
    qy_stacks_get_stats(&before);
    static const int depths[] = {
        10, 240, 250, 252, 253, 254, 255, 256, 257, 300, 254, 5000, 256, 100, 260, 250, 5, 300, 1};
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) recurse(depths[i]);
    for (int n = 0; n < 600; n++) recurse(n);
    for (int n = 600; n > 0; n--) recurse(n);
    qy_stacks_get_stats(&after);
    CHECK_GT(after.deep, before.deep);
    CHECK_GT(after.joined, before.joined);
}

// Looks on the way down: what is joined and what is new are together too deep.
__attribute__((noinline)) static void look_often(int n) {
    if (n % 40 == 0) look();
    if (n) look_often(n - 1);
    __asm__ volatile("" ::
                         : "memory");
}

TEST(deep_by_steps) {
    start();
    for (int n = 200; n < 420; n += 3) look_often(n);
}

static int reentries;
static bool tell_and_capture(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    reentries++;
    CHECK_EQ(qy_stack_capture(tell, NULL), 0);
    return tell(arg, id, parent, pc, is_return);
}
static bool refuse(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)arg;
    (void)id;
    (void)parent;
    (void)pc;
    (void)is_return;
    return false;
}

TEST(reentered_and_refused) {
    start();
    qy_stacks_stats_t before, after;
    qy_stacks_get_stats(&before);
    CHECK_EQ(qy_stack_capture(refuse, NULL), 0);
    uint32_t id = qy_stack_capture(tell_and_capture, NULL);
    CHECK_NE(id, 0);
    CHECK_GT(reentries, 0);
    qy_stacks_get_stats(&after);
    CHECK_EQ(after.reentered - before.reentered, reentries);
    CHECK_EQ(after.failed - before.failed, 1);
    CHECK_EQ(after.nodes, tellings);
}

// A fault behind a call has the return address of that call: the same numbers, but of an instruction.
__attribute__((noinline)) static void call_and_instruction(void) {
    qy_stack_regs_t from = QY_STACK_CALLER();
    uint32_t call = 0;
    for (unsigned i = 0; i < 16; i++) call = qy_stack_capture_outside(&from, tell, NULL);
    from.exact = true;
    uint32_t instruction = qy_stack_capture_outside(&from, tell, NULL);
    CHECK_EQ(nodes[call].pc, from.pc);
    CHECK_EQ(nodes[instruction].pc, from.pc | QY_PC_EXACT);
    CHECK_EQ(nodes[instruction].parent, nodes[call].parent);
    from.exact = false;
    CHECK_EQ(qy_stack_capture_outside(&from, tell, NULL), call);
}

TEST(an_instruction_is_no_call) {
    start();
    call_and_instruction();
}

static unsigned settled;
static bool settle_first(void *arg) {
    (void)arg;
    return ++settled > 1;
}

// While captures are held each asks first, and one that is told to wait gives nothing.
TEST(held) {
    qy_stacks_stats_t before, after;
    uint32_t ids[4];
    start();
    qy_stacks_get_stats(&before);
    for (unsigned i = 0; i < 4; i++) {
        if (i == 1) qy_stacks_hold(settle_first), qy_stacks_hold(settle_first);
        if (i == 3) qy_stacks_open(), qy_stacks_open();
        CHECK_EQ(qy_stacks_mode(), QY_STACKS_CFI);
        ids[i] = qy_stack_capture(tell, NULL);
    }
    CHECK_EQ(settled, 2);
    CHECK_EQ(ids[1], 0);
    CHECK(ids[0] && ids[2] && ids[3]);
    qy_stacks_get_stats(&after);
    CHECK_EQ(after.failed - before.failed, 1);
    // One that is held once is asked still; a child begins without, and opens what it did not hold.
    qy_stacks_hold(settle_first), qy_stacks_hold(settle_first), qy_stacks_open();
    CHECK_NE(qy_stack_capture(tell, NULL), 0);
    CHECK_EQ(settled, 3);
    start();
    qy_stacks_open();
    CHECK_NE(qy_stack_capture(tell, NULL), 0);
    CHECK_EQ(settled, 3);
    CHECK_EQ(qy_stacks_mode(), QY_STACKS_CFI);
}

static bool *is_looking(void *arg) {
    static bool looking;
    (void)arg;
    return &looking;
}
static void is_loaded(void *arg, const qy_os_loaded_t *l) { (void)arg, (void)l; }
static void is_gone(void *arg, uintptr_t base) { (void)arg, (void)base; }
static void is_done(void *arg) { (void)arg; }

// A thread that unloads while another one forks is not in the child, where captures are not held for good.
TEST(held_by_a_thread_that_is_gone) {
    static const qy_modules_teller_t teller = {is_looking, is_loaded, is_gone, is_done};
    start();
    qy_modules_begin(&teller);
    qy_modules_closing();
    pid_t child = fork();
    if (child == 0) {
        qy_modules_in_child();
        CHECK_NE(qy_stack_capture(tell, NULL), 0);
        CHECK_EQ(qy_stacks_holds(), 0);
        _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(qy_stacks_holds(), 1);
    qy_modules_closed(&status);
    CHECK_EQ(qy_stacks_holds(), 0);
}

// The plain call begins with its caller.
TEST(from_here) {
    start();
    uint32_t id = qy_stack_capture(tell, NULL);
    CHECK_NE(id, 0);
    Dl_info info = {0};
    CHECK(dladdr((void *)nodes[id].pc, &info));
    reference_take(&t.reference, (uintptr_t)__builtin_return_address(0));
    check_id(nodes[id].parent, &t.reference);
}

// ---- signals, threads, fork
// ------------------------------------------------------------------------------------------------------

enum { ALARMS = 8000 };
static volatile sig_atomic_t alarms, alarm_ids, alarm_none;
static uintptr_t alarm_errors;

// The next one, 100 us after this handler: by an interval that is shorter than a handler nothing else would run.
static void next_alarm(void) {
    struct itimerval once = {{0, 0}, {0, alarms < ALARMS ? 100 : 0}};
    setitimer(ITIMER_REAL, &once, NULL);
}
static void on_alarm(int number) {
    (void)number;
    alarms++;
    uint32_t id = qy_stack_capture(tell, NULL);
    if (id) alarm_ids++;
    else alarm_none++;
    if (id && !nodes[id].told) alarm_errors++;
    next_alarm();
}

TEST(signals_at_any_moment) {
#if QY_TSAN
    TEST_SKIP("needs a build without ThreadSanitizer, which delays signals");
#endif
    start();
    handle_shapes(0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
    sigset_t alarm_set;
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    next_alarm();
    for (uint64_t i = 0; alarms < ALARMS; i++) {
        for (int j = 0; j < 200; j++) {
            uint32_t id = qy_stack_capture(tell, NULL);
            CHECK(id != 0 && nodes[id].told);
            recurse(j % 50);
        }
        if (i % 16) continue;
        sigprocmask(SIG_BLOCK, &alarm_set, NULL);
        qy_stacks_restart();
        forget_told();
        sigprocmask(SIG_UNBLOCK, &alarm_set, NULL);
    }
    printf("%d signals, %d with an id, %d within a capture\n", (int)alarms, (int)alarm_ids, (int)alarm_none);
    CHECK_EQ(alarm_errors, 0);
    CHECK_GT(alarm_ids, 0);
}

static void *looker(void *number) {
    // A tree may have 50,000 nodes, and similar seeds make similar trees.
    for (uint64_t i = 0; i < 30 && t.looks < 5000; i++) {
        t.rng = test_seed + i * 8 + (uintptr_t)number % 2;  // in pairs the same
        t.depth = 0;
        shape_next();
    }
    if ((uintptr_t)number % 4) qy_stacks_thread_end();
    return NULL;
}

TEST(threads) {
    start();
    handle_shapes(0);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, looker, (void *)i), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void *one_capture(void *unused) {
    CHECK_NE(qy_stack_capture(tell, NULL), 0);
    qy_stacks_thread_end();
    CHECK_NE(qy_stack_capture(tell, NULL), 0);
    qy_stacks_thread_end();
    qy_stacks_thread_end();
    return unused;
}

TEST(threads_come_and_go) {
    start();
    qy_stacks_stats_t before, after;
    qy_stacks_get_stats(&before);
    for (int i = 0; i < 300; i++) {
        pthread_t threads[3];
        for (int j = 0; j < 3; j++) CHECK_EQ(pthread_create(&threads[j], NULL, one_capture, NULL), 0);
        for (int j = 0; j < 3; j++) pthread_join(threads[j], NULL);
    }
    qy_stacks_get_stats(&after);
    CHECK_LE(after.memory - before.memory, 4 * (uint64_t)qy_round_up(sizeof(qy_stack_thread_t), 4096));
    CHECK_EQ(after.captures - before.captures, 1800);
}

// A thread's memory is known as the library's own, also if there are many threads at a time.
enum { MANY = 300 };
static pthread_barrier_t all_there;
static void find_mine(const void *memory, size_t bytes, void *arg) {
    uintptr_t mine = (uintptr_t)atomic_load(&qy_stack_thread_self), last = mine + sizeof(qy_stack_thread_t) - 1;
    *(bool *)arg |= mine - (uintptr_t)memory < bytes && last - (uintptr_t)memory < bytes;
}
static void *capture_and_wait(void *unused) {
    bool found = false;
    CHECK_NE(qy_stack_capture(tell, NULL), 0);
    pthread_barrier_wait(&all_there);
    qy_own_each(find_mine, &found);
    CHECK(found);
    qy_stacks_thread_end();
    return unused;
}
TEST(many_threads) {
    pthread_t threads[MANY];
    pthread_attr_t small;
    start();
    CHECK_EQ(pthread_attr_init(&small), 0);
    CHECK_EQ(pthread_attr_setstacksize(&small, 1 << 18), 0);
    CHECK_EQ(pthread_barrier_init(&all_there, NULL, MANY), 0);
    for (int i = 0; i < MANY; i++) CHECK_EQ(pthread_create(&threads[i], &small, capture_and_wait, NULL), 0);
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all_there);
    pthread_attr_destroy(&small);
}

static void in_child(void) {
    qy_stacks_stats_t stats;
    pthread_t thread;
    recurse(20);  // checks that all nodes are told again
    recurse(3);
    qy_stacks_get_stats(&stats);
    CHECK_EQ(stats.nodes, tellings);
    CHECK_EQ(pthread_create(&thread, NULL, one_capture, NULL), 0);
    pthread_join(thread, NULL);
    _exit(0);
}

TEST(child_begins_anew) {
    start();
    recurse(20);
    qy_stack_regs_t here = QY_STACK_CALLER();
    uint32_t id = qy_stack_capture_from(&here, tell, NULL);
    uint64_t before = tellings;
    pid_t child = fork();
    if (child == 0) {
        qy_stacks_restart();
        forget_told();
        in_child();
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(qy_stack_capture_from(&here, tell, NULL), id);
    CHECK_EQ(tellings, before);  // here nothing has changed
}

// A handler that forks in the middle of a capture: the child comes back into a capture whose tree is gone.
static bool forked;
static bool tell_and_fork(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    if (forked) return tell(arg, id, parent, pc, is_return);
    forked = true;
    pid_t child = fork();
    if (child == 0) {
        qy_stacks_restart();
        forget_told();
        *(bool *)arg = true;
        return true;
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    return tell(arg, id, parent, pc, is_return);
}

TEST(fork_within_a_capture) {
    start();
    bool in_child = false;
    uint32_t id = qy_stack_capture(tell_and_fork, &in_child);
    if (in_child) {
        CHECK_EQ(id, 0);
        CHECK_EQ(tellings, 0);
        recurse(5);
        _exit(0);
    }
    CHECK_NE(id, 0);
}

TEST(table_full) {
    start();
    qy_stacks_stats_t stats;
    CHECK(!qy_stacks_full());
    for (uint32_t i = 0; i < NODES; i++) {  // made stacks of one frame
        uint32_t id, spare = 0;
        CHECK_EQ(qy_tree_add(0, 0x1000 + i * 16, &spare, tell, NULL, &id), QY_ADD_NEW);
    }
    qy_stacks_get_stats(&stats);
    CHECK_EQ(stats.nodes, stats.limit);
    CHECK(qy_stacks_full());
    for (int i = 0; i < 10; i++) CHECK_EQ(qy_stack_capture(tell, NULL), 0);
    uint64_t full = stats.full;
    qy_stacks_get_stats(&stats);
    CHECK_EQ(stats.full - full, 10);
    start();
    CHECK_NE(qy_stack_capture(tell, NULL), 0);
}

TEST_MAIN()
