// SPDX-License-Identifier: MIT
// All kinds of frames, in random order, compiled in seven ways: every walk must be the compiler's.
#include "unwind_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "shapes.h"

#define DEEPEST 40

static const shape_t *const sets[] = SHAPE_SETS;
#define SETS (sizeof sets / sizeof sets[0])

static _Thread_local struct {
    uint64_t rng;
    int left;
    uint64_t looked, frames, foreign;
    walker_t walker;
    reference_t reference;
} t;

static __attribute__((noinline)) void look(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    reference_take(&t.reference, here.pc);
    qy_walk_t *w = walk(&t.walker, &here, true);
    CHECK_SAME_STACK(w, &t.reference);
    CHECK_NE(w->end, QY_WALK_CUT);
    t.looked++;
    t.frames += w->frames;
    t.foreign += w->foreign;
    w = walk(&t.walker, &here, false);  // by frame pointers: whatever comes, it must end
    CHECK_EQ(w->frame[0].pc, here.pc);
}

void shape_next(void) {
    if (t.left-- > 0) {
        uint64_t r = test_random(&t.rng);
        sets[r % SETS][(r >> 8) % SHAPES]((int)(r >> 20 & 0xfff));
    } else {
        look();
    }
    __asm__ volatile("" ::
                         : "memory");  // not a tail call
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)info;
#if defined(__x86_64__)
    if (number == SIGILL) ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
#endif
    (void)number;
    (void)context;
    shape_next();
}

static void handle(int flags) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | flags};
    CHECK_EQ(sigaction(SHAPE_SIGNAL, &action, NULL), 0);
    CHECK_EQ(sigaction(SIGILL, &action, NULL), 0);
}

static void *use_other_stack(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK_EQ(sigaltstack(&(stack_t){.ss_sp = p, .ss_size = bytes}, NULL), 0);
    return p;
}

static void some_plans(int plans) {
    for (int i = 0; i < plans; i++) {
        t.left = (int)(test_random(&t.rng) % DEEPEST);
        shape_next();
    }
}

TEST(each_alone) {
    CHECK(qy_rules_start(false));
    handle(0);
    for (size_t i = 0; i < SETS; i++)
        for (int j = 0; j < SHAPES; j++) {
            t.left = 0;
            sets[i][j](j);
        }
}

TEST(mixed) {
    t.rng = test_seed;
    some_plans(20000);
    CHECK_EQ(t.foreign, 0);  // the own stack is known as such
    printf("%llu walks, %llu frames, %llu addresses\n", (unsigned long long)t.looked, (unsigned long long)t.frames,
        (unsigned long long)qy_rules.made);
}

TEST(with_signal_stack) {
#if QY_TSAN
    TEST_SKIP("needs a build without ThreadSanitizer, which delays signals");
#endif
    size_t bytes = (size_t)4 << 20;
    void *p = use_other_stack(bytes);
    handle(SA_ONSTACK);
    some_plans(5000);
    CHECK_GT(t.foreign, 0);
    handle(0);
    CHECK_EQ(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL), 0);
    munmap(p, bytes);
}

static void *thread(void *seed) {
    t.rng = (uint64_t)(uintptr_t)seed;
    some_plans(2000);
    CHECK_EQ(t.foreign, 0);
    return NULL;
}

TEST(in_threads) {
    pthread_t threads[4];
    qy_rules_flush();
    for (uintptr_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, thread, (void *)(test_seed + i)), 0);
    for (int i = 0; i < 20; i++) {
        qy_rules_flush();  // while they walk
        usleep(1000);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

TEST_MAIN()
