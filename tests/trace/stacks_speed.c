// SPDX-License-Identifier: MIT
// stacks_speed.c: what a capture costs, beside other unwinders. Not a test: nothing is checked, times are printed.
//
//   stacks_speed [rounds]      ns per capture, the tenth percentile of the rounds (other programs disturb); all ways
//   take turns
//
// The stack has a hundred different functions at most; of these the inner three change from one capture to the next, as
// they do in programs. "same" is the case that they don't.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unwind.h>

#include "stacks/stacks.h"
#include "stacks/stacks_thread.h"

#define DEEPEST 112
#define PER_ROUND 2000
#define MOST_ROUNDS 1001

typedef struct way {
    const char *name;
    void (*capture)(const qy_stack_regs_t *);
    qy_stacks_mode_t mode;
    double ns[MOST_ROUNDS];
} way_t;

static uint64_t sink;

static bool tell(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)arg;
    (void)is_return;
    sink += id + parent + pc;
    return true;
}

static void incremental(const qy_stack_regs_t *from) { sink += qy_stack_capture_from(from, tell, NULL); }

static void whole(const qy_stack_regs_t *from) {
    qy_stack_thread()->trail.frames = 0;
    sink += qy_stack_capture_from(from, tell, NULL);
}

static void *addresses[4096];
static _Unwind_Reason_Code add(struct _Unwind_Context *context, void *n) {
    addresses[(*(int *)n)++] = (void *)_Unwind_GetIP(context);
    return _URC_NO_REASON;
}
static void libgcc(const qy_stack_regs_t *from) {
    (void)from;
    int n = 0;
    _Unwind_Backtrace(add, &n);
    sink += (uint64_t)n;
}

static int (*unw_backtrace)(void **, int);
static void libunwind(const qy_stack_regs_t *from) {
    (void)from;
    sink += (uint64_t)unw_backtrace(addresses, 4096);
}

static way_t ways[] = {
    {.name = "fp, whole", .capture = whole, .mode = QY_STACKS_FP},
    {.name = "fp, incremental", .capture = incremental, .mode = QY_STACKS_FP},
    {.name = "cfi, whole", .capture = whole, .mode = QY_STACKS_CFI},
    {.name = "cfi, incremental", .capture = incremental, .mode = QY_STACKS_CFI},
    {.name = "libgcc _Unwind_Backtrace", .capture = libgcc, .mode = QY_STACKS_CFI},
    {.name = "libunwind unw_backtrace", .capture = libunwind, .mode = QY_STACKS_CFI},
};
#define WAYS (sizeof ways / sizeof ways[0])

static unsigned rounds, now_round;
static bool changing;
static int stop_at;

// ---- the innermost frames ------------------------------------------------------------------------------------

static way_t *way;
__attribute__((noinline)) static void allocate(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    way->capture(&here);
    __asm__ volatile("" ::
                         : "memory");
}
// clang-format off
#define INNER(n)                                             \
    __attribute__((noinline)) static void inner_c##n(void) { \
        allocate();                                          \
        __asm__ volatile("" : : "i"(n) : "memory");          \
    }                                                        \
    __attribute__((noinline)) static void inner_b##n(void) { \
        inner_c##n();                                        \
        __asm__ volatile("" : : "i"(n) : "memory");          \
    }                                                        \
    __attribute__((noinline)) static void inner_a##n(void) { \
        inner_b##n();                                        \
        __asm__ volatile("" : : "i"(n) : "memory");          \
    }
INNER(0) INNER(1) INNER(2) INNER(3) INNER(4) INNER(5) INNER(6) INNER(7)
    // clang-format on
    static void (*const inner[8])(void) = {
        inner_a0, inner_a1, inner_a2, inner_a3, inner_a4, inner_a5, inner_a6, inner_a7};

static double seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void measure(void) {
    for (size_t i = 0; i < WAYS; i++) {
        way = &ways[i];
        if (way->capture == libunwind && !unw_backtrace) continue;
        qy_stacks_start(way->mode, 0);
        qy_stack_thread()->trail.frames = 0;
        for (int j = 0; j < 16; j++) inner[j & 7]();
        double begin = seconds();
        for (int j = 0; j < PER_ROUND; j++) inner[changing ? (j * 5) & 7 : 0]();
        way->ns[now_round] = (seconds() - begin) * 1e9 / PER_ROUND;
    }
}

// ---- the outer frames ------------------------------------------------------------------------------------------

typedef void (*level_t)(int);
extern const level_t levels[DEEPEST];
// clang-format off
#define LEVEL(n)                                              \
    __attribute__((noinline)) static void level_##n(int at) { \
        volatile char pad[(n) % 7 * 16 + 1];                  \
        pad[0] = 1;                                           \
        if (at == stop_at) measure();                         \
        else levels[at + 1](at + 1);                          \
        pad[0] = 2;                                           \
        __asm__ volatile("" : : : "memory");                  \
    }
#define LEVELS(n) LEVEL(n##0) LEVEL(n##1) LEVEL(n##2) LEVEL(n##3) LEVEL(n##4) LEVEL(n##5) LEVEL(n##6) LEVEL(n##7)
#define NAMES(n) level_##n##0, level_##n##1, level_##n##2, level_##n##3, \
                 level_##n##4, level_##n##5, level_##n##6, level_##n##7
LEVELS(1) LEVELS(2) LEVELS(3) LEVELS(4) LEVELS(5) LEVELS(6) LEVELS(7)
LEVELS(8) LEVELS(9) LEVELS(10) LEVELS(11) LEVELS(12) LEVELS(13) LEVELS(14)
    // clang-format on
    const level_t levels[DEEPEST] = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6), NAMES(7), NAMES(8),
        NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14)};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void table(int depth) {
    // Around the levels: _start, two of the C library, main, this; inside: measure and the inner three.
    stop_at = depth - 5 - 4 - 1;
    if (stop_at < 0) stop_at = 0;
    for (now_round = 0; now_round < rounds; now_round++) levels[0](0);
    printf("depth %3d, %s:", depth, changing ? "inner frames change" : "same               ");
    for (size_t i = 0; i < WAYS; i++) {
        if (!ways[i].ns[0]) continue;
        qsort(ways[i].ns, rounds, sizeof ways[i].ns[0], by_size);
        printf("  %s %.0f", ways[i].name, ways[i].ns[rounds / 10]);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 21;
    if (rounds == 0 || rounds > MOST_ROUNDS) return 2;
    void *library = dlopen("libunwind.so.8", RTLD_NOW);
    if (library) *(void **)&unw_backtrace = dlsym(library, "unw_backtrace");
    if (!qy_stacks_start(QY_STACKS_CFI, 0)) return 1;
    static const int depths[] = {10, 20, 50, 100};
    for (int c = 0; c < 2; c++)
        for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
            changing = c == 0;
            table(depths[i]);
        }
    return sink == 42;
}
