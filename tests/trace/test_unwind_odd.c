// SPDX-License-Identifier: MIT
// Stacks that are not as they should be: no walk faults, none goes on for ever, and what is right is found.
#include "unwind_test.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "os/fake.h"
#include "os/os.h"

static walker_t walker;
static reference_t reference;

static void *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

TEST(peek) {
    size_t page = qy_os_page_size();
    char *p = map(3 * page), buf[64];
    CHECK_EQ(mprotect(p + page, page, PROT_NONE), 0);
    memset(p, 7, page);
    errno = 12345;
    CHECK(qy_os_peek(p, buf, sizeof buf));
    CHECK_EQ(buf[0] + buf[63], 14);
    CHECK(qy_os_peek(p + page - 64, buf, sizeof buf));
    CHECK(!qy_os_peek(p + page - 63, buf, sizeof buf));
    CHECK(!qy_os_peek(p + page, buf, 1));
    CHECK(!qy_os_peek(p + 2 * page - 1, buf, 2));
    CHECK(qy_os_peek(p + 2 * page, buf, 1));
    CHECK(!qy_os_peek(NULL, buf, 1));
    CHECK(!qy_os_peek((void *)~(uintptr_t)7, buf, 16));
    CHECK(!qy_os_peek((void *)0x8000000000000000u, buf, 16));
    CHECK_EQ(errno, 12345);
    CHECK(qy_os_readable(p));
    CHECK(qy_os_readable(p + page - 1));
    CHECK(!qy_os_readable(p + page));
    CHECK(qy_os_readable(p + 2 * page));
    CHECK(!qy_os_readable(NULL));
    CHECK(!qy_os_readable((void *)0x8000000000000000u));
    munmap(p, 3 * page);
}

TEST(own_stack) {
    char here;
    uintptr_t sp = (uintptr_t)&here & ~(uintptr_t)15;
    qy_bounds_t b = {0};
    CHECK(qy_bounds_cover(&b, sp));
    CHECK(b.lo <= sp && sp < b.hi);
    CHECK_EQ(b.hi, qy_os_main_stack_top());
    CHECK_GT((uintptr_t)environ, sp);
    CHECK(!qy_bounds_cover(&b, b.hi + 64));
    CHECK(!qy_bounds_cover(&b, 4096));
    uintptr_t lo = b.lo;
    char *heap = malloc(100000);
    CHECK(!qy_bounds_cover(&b, (uintptr_t)heap + 50000));
    CHECK(!qy_bounds_cover(&b, (uintptr_t)heap + 50000));
    CHECK_EQ(b.lo, lo);
    free(heap);
}

// ---- random registers and random stacks -------------------------------------------------------------------

static void **code;  // addresses that have tables
static size_t codes;

static void find_code(void) {
    static void *some[64];
    static const char *const names[] = {"qsort", "printf", "malloc", "pthread_create", "raise", "abort", "strtod",
        "memcpy", "fork", "dlopen", "makecontext"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *p = dlsym(RTLD_DEFAULT, names[i]);
        if (p) some[codes++] = p;
    }
    some[codes++] = (void *)&find_code;
    some[codes++] = (void *)&map;
    code = some;
}

static uintptr_t random_word(uint64_t *rng, uintptr_t stack, size_t bytes) {
    uint64_t r = test_random(rng);
    switch (r >> 60) {
    case 0: return 0;
    case 1: return r;
    case 2: return r & 0xffff;
    case 3: return ~(uintptr_t)0 - (r & 0xff);
    case 4:
    case 5:
    case 6: return stack + r % bytes;
    case 7:
    case 8:
    case 9:
    case 10: return stack + (r % bytes & ~(size_t)7);
    case 11: return stack - (r & 0xffff);
    default: return (uintptr_t)code[(r & 0xffff) % codes] + (r >> 20 & 0xff);
    }
}

static void random_walks(uintptr_t *stack, size_t words, unsigned rounds, uint64_t *rng) {
    size_t bytes = words * sizeof *stack;
    uint64_t frames = 0, deepest = 0;
    for (unsigned i = 0; i < rounds; i++) {
        for (size_t j = 0; j < words; j += i % 64 ? 1 + test_random(rng) % 8 : 1)
            stack[j] = random_word(rng, (uintptr_t)stack, bytes);
        for (int j = 0; j < 10; j++) {
            qy_stack_regs_t from = {.pc = random_word(rng, (uintptr_t)stack, bytes),
                .sp = (uintptr_t)(stack + test_random(rng) % words),
                .fp = random_word(rng, (uintptr_t)stack, bytes),
                .exact = test_random(rng) & 1};
            if (j < 7) from.pc = (uintptr_t)code[test_random(rng) % codes] + (test_random(rng) & 0xff);
            if (j == 5) from.sp = random_word(rng, (uintptr_t)stack, bytes);
            qy_walk_t *w = walk(&walker, &from, i % 4 != 0);
            CHECK_LE(w->frames, QY_STACK_DEPTH);
            CHECK_LE(w->words, QY_WALK_WORDS);
            frames += w->frames;
            if (w->frames > deepest) deepest = w->frames;
        }
    }
    printf("%llu frames, %llu in the deepest\n", (unsigned long long)frames, (unsigned long long)deepest);
    CHECK_GT(frames, rounds);
    CHECK_GT(deepest, 2);
}

__attribute__((noinline)) static void walks_on_own_stack(uint64_t *rng) {
    uintptr_t words[2000];
    random_walks(words, 2000, 3000, rng);
    CHECK(qy_bounds_cover(&walker.bounds, (uintptr_t)words));
}

TEST(random_stack_of_ours) {
    uint64_t rng = test_seed;
    CHECK(qy_rules_start(false));
    find_code();
    walks_on_own_stack(&rng);
}

// With pages around it that cannot be read.
TEST(random_foreign_stack) {
    uint64_t rng = test_seed;
    size_t page = qy_os_page_size();
    char *p = map(4 * page);
    CHECK_EQ(mprotect(p, page, PROT_NONE), 0);
    CHECK_EQ(mprotect(p + 3 * page, page, PROT_NONE), 0);
    random_walks((uintptr_t *)(p + page), 2 * page / sizeof(uintptr_t), 2000, &rng);
    munmap(p, 4 * page);
}

// ---- frame pointers that are anything -----------------------------------------------------------------------

#if defined(__x86_64__)
static uintptr_t wanted_fp;
static qy_stack_regs_t seen;

__attribute__((noinline)) static void look_here(void) {
    seen = QY_STACK_CALLER();
    reference_take(&reference, seen.pc);
    qy_walk_t *w = walk(&walker, &seen, true);
    CHECK_SAME_STACK(w, &reference);
    walk(&walker, &seen, false);
    CHECK_EQ(walker.walk.frame[0].pc, seen.pc);
}

// A call with a frame pointer of our choice; by hand, so that its table is right.
void call_with_fp(uintptr_t fp, void (*f)(void));
__asm__(
    ".text\n.globl call_with_fp\n.type call_with_fp, @function\ncall_with_fp:\n"
    ".cfi_startproc\n"
    "pushq %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\n"
    "movq %rdi, %rbp\n"
    "callq *%rsi\n"
    "popq %rbp\n.cfi_def_cfa_offset 8\n.cfi_restore 6\n"
    "ret\n.cfi_endproc\n.size call_with_fp, .-call_with_fp\n");

TEST(any_frame_pointer) {
    uint64_t rng = test_seed;
    char here;
    for (int i = 0; i < 20000; i++) {
        wanted_fp = random_word(&rng, (uintptr_t)&here & ~(uintptr_t)0xffff, 0x20000);
        call_with_fp(wanted_fp, look_here);
    }
}

// ---- code made at run time: no tables ------------------------------------------------------------------------

static bool framed_code;

__attribute__((noinline)) static void look_beyond_made_code(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    qy_walk_t *w = walk(&walker, &here, true);
    CHECK_EQ(w->frame[0].pc, here.pc);
    if (!framed_code) return;  // whatever the frame pointer happens to lead to
    // The made code, its caller, and then what the reference says.
    CHECK_EQ(w->frames, reference.n + 2);
    for (unsigned i = 0; i < reference.n; i++) CHECK_EQ(w->frame[i + 2].pc, reference.pc[i]);
    CHECK_EQ(w->end, QY_WALK_OUTER);
}

__attribute__((noinline)) static void run_made_code(void) {
    // push rbp; mov; push rbx, rax; call rdi; ...
    static const uint8_t framed[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0x50, 0xff, 0xd7, 0x58, 0x5b, 0x5d, 0xc3};
    // push rbx; call rdi; pop rbx; ret
    static const uint8_t bare[] = {0x53, 0xff, 0xd7, 0x5b, 0xc3};
    uint8_t *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at = p + 64;
    CHECK(p != MAP_FAILED);
    memcpy(at, framed_code ? framed : bare, framed_code ? sizeof framed : sizeof bare);
    void (*made)(void (*)(void));
    memcpy(&made, &at, sizeof made);
    reference_take(&reference, (uintptr_t)__builtin_return_address(0));
    made(look_beyond_made_code);
    munmap(p, 4096);
    qy_rules_flush();
}

TEST(made_code) {
    framed_code = true;
    run_made_code();
    framed_code = false;
    for (int i = 0; i < 100; i++) run_made_code();
}

// ---- stacks that are switched ----------------------------------------------------------------------------------

static ucontext_t back, coroutine;
static unsigned inner_depth, looks;

__attribute__((noinline)) static void down(int n) {
    char pad[40];
    __asm__ volatile(""
                     :
                     : "r"(pad)
                     : "memory");
    if (n) down(n - 1);
    else look_here();
    __asm__ volatile(""
                     :
                     : "r"(pad)
                     : "memory");
}

static void in_coroutine(void) {
    for (;;) {
        down((int)inner_depth);
        looks++;
        swapcontext(&coroutine, &back);
    }
}

TEST(coroutines) {
#if QY_TSAN
    TEST_SKIP("needs a build without ThreadSanitizer, which must be told of them");
#endif
    size_t page = qy_os_page_size();
    uint64_t rng = test_seed;
    looks = 0;
    for (unsigned i = 0; i < 200; i++) {
        // Stacks of different sizes come and go at the same place, each with a page above that cannot be read.
        size_t bytes = (8 + test_random(&rng) % 16) * page;
        char *p = map(bytes + page);
        CHECK_EQ(mprotect(p + bytes, page, PROT_NONE), 0);
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = p;
        coroutine.uc_stack.ss_size = bytes;
        coroutine.uc_link = NULL;
        makecontext(&coroutine, in_coroutine, 0);
        for (int j = 0; j < 5; j++) {
            inner_depth = (unsigned)(test_random(&rng) % 60);
            swapcontext(&back, &coroutine);
            CHECK(walker.walk.foreign);
            look_here();
            CHECK(!walker.walk.foreign);
        }
        munmap(p, bytes + page);
    }
    CHECK_EQ(looks, 1000);
}
#endif

// ---- deep, and small ---------------------------------------------------------------------------------------------

__attribute__((noinline)) static void recurse(int n, void (*f)(void)) {
    char pad[16];
    __asm__ volatile(""
                     :
                     : "r"(pad)
                     : "memory");
    if (n) recurse(n - 1, f);
    else f();
    __asm__ volatile(""
                     :
                     : "r"(pad)
                     : "memory");
}

__attribute__((noinline)) static void look_deep(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    reference_take(&reference, here.pc);
    for (int i = 0; i < 2; i++) {
        qy_walk_t *w = walk(&walker, &here, true);
        CHECK_EQ(w->end, QY_WALK_DEEP);
        CHECK_SAME_STACK(w, &reference);
        CHECK(!w->foreign);
    }
}

static void *deep_thread(void *unused) {
    walker.bounds = (qy_bounds_t){0};
    recurse(100000, look_deep);  // the first that is seen of this stack is its lower end
    walker.bounds = (qy_bounds_t){0};
    return unused;
}

// This file is compiled with frame pointers, the C library below it is not.
__attribute__((noinline)) static void look_by_fp(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    reference_take(&reference, here.pc);
    qy_walk_t *w = walk(&walker, &here, false);
    CHECK_GE(same_frames(w, &reference), 33);
    CHECK(!w->foreign);
}

static void *fp_thread(void *unused) {
    walker.bounds = (qy_bounds_t){0};
    recurse(32, look_by_fp);
    walker.bounds = (qy_bounds_t){0};
    return unused;
}

static bool tell(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    CHECK_EQ(id, *(uint32_t *)arg + 1);
    CHECK_EQ(parent, *(uint32_t *)arg);
    CHECK(pc != 0 && is_return);
    *(uint32_t *)arg = id;
    return true;
}

TEST(capture_by_frame_pointers) {
    CHECK(qy_stacks_start(QY_STACKS_FP, 5000));
    CHECK_EQ(qy_stacks_mode(), QY_STACKS_FP);
    uint32_t last = 0, first[2];
    for (int i = 0; i < 2; i++) {
        qy_stack_regs_t here = QY_STACK_CALLER();
        first[i] = qy_stack_capture_from(&here, tell, &last);
    }
    CHECK_EQ(first[0], last);
    CHECK_EQ(first[1], last);
    CHECK_GT(qy_stack_capture(tell, &(uint32_t){last}), last);
    CHECK(qy_stacks_start(QY_STACKS_CFI, 0));
#if defined(__x86_64__)
    CHECK_EQ(qy_stacks_mode(), QY_STACKS_CFI);
#else
    CHECK_EQ(qy_stacks_mode(), QY_STACKS_FP);
#endif
}

TEST(by_frame_pointers) {
    pthread_t thread;
    recurse(32, look_by_fp);
    CHECK_EQ(pthread_create(&thread, NULL, fp_thread, NULL), 0);
    pthread_join(thread, NULL);
}

TEST(hundred_thousand_frames) {
#if QY_TSAN || !defined(__x86_64__)
    TEST_SKIP("needs a build without ThreadSanitizer, which cannot follow tables");
#endif
    pthread_attr_t attr;
    pthread_t thread;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attr, (size_t)64 << 20), 0);
    CHECK_EQ(pthread_create(&thread, &attr, deep_thread, NULL), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(pthread_attr_setstacksize(&attr, (size_t)600 << 20), 0);  // more than is proved
    if (pthread_create(&thread, &attr, deep_thread, NULL) == 0) pthread_join(thread, NULL);
}

// One after the other, so that they may share the walker. No reference: libgcc's needs more room than there is.
__attribute__((noinline)) static void look_in_small(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    qy_walk_t *w = walk(&walker, &here, true);
    CHECK_EQ(w->end, QY_WALK_OUTER);
    CHECK(!w->foreign);
    CHECK_GE(w->frames, 12);
}

static void *small_thread(void *unused) {
    walker.bounds = (qy_bounds_t){0};
    qy_rules_flush();
    recurse(8, look_in_small);  // every address for the first time
    recurse(8, look_in_small);
    return unused;
}

TEST(small_stacks) {
#if QY_ASAN || QY_TSAN
    TEST_SKIP("needs a build without sanitizers: they need more stack");
#elif !defined(__x86_64__)
    TEST_SKIP("needs x86-64: by tables");
#else
    pthread_attr_t attr;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    size_t bytes = 16384;
    while (pthread_attr_setstacksize(&attr, bytes) != 0) bytes += 4096;
    printf("%zu bytes\n", bytes);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, &attr, small_thread, NULL), 0);
        pthread_join(thread, NULL);
    }
    walker.bounds = (qy_bounds_t){0};
#endif
}

// A stack that the program provides, in the middle of other memory.
TEST(stack_of_the_programs_own) {
#if !defined(__x86_64__)
    TEST_SKIP("needs x86-64: by tables");
#endif
    pthread_attr_t attr;
    pthread_t thread;
    size_t bytes = (size_t)1 << 20;
    char *p = map(3 * bytes);
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstack(&attr, p + bytes, bytes), 0);
    CHECK_EQ(pthread_create(&thread, &attr, small_thread, NULL), 0);
    pthread_join(thread, NULL);
    walker.bounds = (qy_bounds_t){0};
    munmap(p, 3 * bytes);
}

TEST_MAIN()
