// SPDX-License-Identifier: MIT
// The processor stops after each instruction, and at each stop our walk is compared with the compiler's unwinder:
// prologues, epilogues, stubs of lazy binding, the dynamic linker, hand-written assembler of the C library.
#include "unwind_test.h"

#if defined(__x86_64__)
#include <dlfcn.h>
#include <locale.h>
#include <math.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <ucontext.h>
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#include "os/module.h"
#include "shapes.h"

static const shape_t *const sets[] = SHAPE_SETS;
#define SETS (sizeof sets / sizeof sets[0])
#define TRAP_FLAG 0x100

static struct {
    volatile bool stop;
    uint64_t steps, same, cut, beyond, fp_steps;
    uintptr_t cut_at[4];
    unsigned cut_places;
    uint64_t limit;
    qy_os_module_t linker;
    walker_t walker;
    reference_t reference;
} s;

static void note_strange_cut(uintptr_t pc) {
    Dl_info info = {0};
    dladdr((void *)pc, &info);
    TEST_FAIL("cut in %s at %#lx, %s", info.dli_fname ? info.dli_fname : "?",
        (unsigned long)(pc - (uintptr_t)info.dli_fbase), info.dli_sname ? info.dli_sname : "?");
}

// Where it is right to know less than libgcc: the frame is found by a register we don't follow. In compiled code
// that is so for a few instructions of prologues, which call nobody; and in the linker's resolver, and where
// ThreadSanitizer changes from one buffer to the next.
static void note_cut(uintptr_t pc, bool innermost) {
    if (!innermost && !QY_TSAN && pc - s.linker.begin >= s.linker.end - s.linker.begin) note_strange_cut(pc);
    for (unsigned i = 0; i < s.cut_places; i++)
        if (s.cut_at[i] == pc) return;
    if (s.cut_places < 4) s.cut_at[s.cut_places++] = pc;
}

static void compare(const qy_stack_regs_t *at) {
    reference_t *r = &s.reference;
    qy_walk_t *w = walk(&s.walker, at, true);
    unsigned same = same_frames(w, r);
    if (same == r->n && same == w->frames) {
        s.same++;
    } else if (same == w->frames && w->end == QY_WALK_CUT) {
        s.cut++;
        note_cut(w->frame[same - 1].pc & ~QY_PC_EXACT, same == 1);
    } else if (same == r->n && same > 0) {  // libgcc had no table there, and we went by the frame pointer
        uintptr_t pc = w->frame[same - 1].pc;
        CHECK_EQ(qy_code_kind(qy_rules_find((pc - 1 + (pc >> 63)) & ~QY_PC_EXACT)), QY_CODE_NOTHING);
        s.beyond++;
    } else {
        print_stacks(w, r);
        TEST_FAIL("frame %u after %llu steps", same, (unsigned long long)s.steps);
    }
    if (s.steps % 16 == 0) {
        w = walk(&s.walker, at, false);
        CHECK_GE(w->frames, 1);
        s.fp_steps++;
    }
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (s.stop || (s.limit && s.steps >= s.limit)) {
        g[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        return;
    }
    s.steps++;
    qy_stack_regs_t at = {
        .pc = (uintptr_t)g[REG_RIP], .sp = (uintptr_t)g[REG_RSP], .fp = (uintptr_t)g[REG_RBP], .exact = true};
    reference_take(&s.reference, at.pc);
    compare(&at);
}

// In a function of its own with a frame pointer: the stack pointer moves unseen by the tables.
__attribute__((noinline)) static void trap(void) {
    __asm__ volatile("sub $128, %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tadd $128, %%rsp"
                     :
                     : "i"(TRAP_FLAG), "r"(__builtin_frame_address(0))
                     : "cc", "memory");
}

static bool prepare(void) {
    if (RUNNING_ON_VALGRIND) return false;
    CHECK(qy_rules_start(false));
    CHECK(qy_os_module_at(getauxval(AT_BASE), &s.linker));
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
    return true;
}

static void step_through(void (*f)(void)) {
    s.stop = false;
    trap();
    f();
    s.stop = true;
    __asm__ volatile("nop\n\tnop" ::
                         : "memory");
}

static void report(const char *what) {
    printf("%s: %llu steps, %llu equal, %llu cut, %llu beyond\n", what, (unsigned long long)s.steps,
        (unsigned long long)s.same, (unsigned long long)s.cut, (unsigned long long)s.beyond);
    for (unsigned i = 0; i < s.cut_places; i++) {
        Dl_info info;
        if (dladdr((void *)s.cut_at[i], &info))
            printf("  cut in %s at %#lx\n", info.dli_fname, (unsigned long)(s.cut_at[i] - (uintptr_t)info.dli_fbase));
    }
    CHECK_GT(s.steps, 100);
    s.steps = s.same = s.cut = s.beyond = s.cut_places = 0;
    s.limit = 0;
}

void shape_next(void) { __asm__ volatile("" ::
                                             : "memory"); }

static void all_shapes(void) {
    for (size_t i = 0; i < SETS; i++)
        for (int j = 0; j < SHAPES; j++) {
            if (j == 13 || j == 14) continue;  // they make signals
            bool dear = j == 4 || j == 10 || QY_ASAN || QY_TSAN;
            if (dear && i != test_seed % SETS) continue;
            sets[i][j](j + 1);
        }
}

TEST(shapes) {
    if (!prepare()) TEST_SKIP("needs a run without valgrind, which has no trap flag");
    step_through(all_shapes);
    CHECK_EQ(s.beyond, 0);
    report("shapes");
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
// No numbers with a point: in the C library's multiplication the tables miss a push, and libgcc dies of it.
static void in_libc(void) {
    int v[40];
    char text[200];
    for (int i = 0; i < 40; i++) v[i] = i * 7919 % 101;
    qsort(v, 40, sizeof v[0], by_number);
    snprintf(text, sizeof text, "%s %d %p", "some text", v[3], (void *)text);
    size_t n = strlen(text) + strspn(text, "some");
    text[n % 100] = (char)memcmp(text, text + 1, 30);
    memmove(text + 3, text, 150);
    jmp_buf place;
    if (setjmp(place) == 0) longjmp(place, 1);
    double d = strtod("1.234567e-9", NULL);
    __asm__ volatile(""
                     :
                     : "r"(&d)
                     : "memory");
}

TEST(libc) {
    if (!prepare()) TEST_SKIP("needs a run without valgrind, which has no trap flag");
    step_through(in_libc);
    report("libc");
}

// The first call of a function of another library goes through its stub, the linker's resolver, and a
// search for the name. (The test is linked with lazy binding.)
static void first_calls(void) {
    char text[] = "quarry";
    strfry(text);
    volatile double d = cbrt(3.0) + lgamma(4.5);
    (void)d;
    int key = 1;
    size_t count = 1;
    lfind(&key, &key, &count, sizeof key, by_number);
}

TEST(lazy_binding) {
    if (!prepare()) TEST_SKIP("needs a run without valgrind, which has no trap flag");
    step_through(first_calls);
    uint64_t first = s.steps, cut = s.cut;
    report("first calls");
    step_through(first_calls);
    printf("%llu steps the first time, %llu cut\n", (unsigned long long)first, (unsigned long long)cut);
    CHECK_EQ(s.cut, 0);  // nothing is resolved now: the stubs alone
    report("later calls");
}

static void load(void) {
    void *p = dlopen("libm.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (p) {
        dlsym(p, "erfc");
        dlclose(p);
    }
}

TEST(linker) {
    if (!prepare()) TEST_SKIP("needs a run without valgrind, which has no trap flag");
    s.limit = 100000;
    step_through(load);
    report("dlopen, dlsym");
}
#else
TEST(nothing) { TEST_SKIP("needs x86-64: single steps by the trap flag"); }
#endif

TEST_MAIN()
