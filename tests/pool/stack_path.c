// SPDX-License-Identifier: MIT
// stack_path.c: what test_stack_path.py counts the instructions of.
//
//   stack_path CASE COUNT
//
// Each case is a function of its own with the work inlined in it as in a user's program, called COUNT times; "base"
// does the same without the stack. COUNT blocks are taken in scopes of 256, in all cases.
#include <quarry/scope.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    void *a, *b;
} pair_t;

static void *volatile kept;
static quarry_pool_t *stack;

#define WORK(name, ...)                                \
    static __attribute__((noinline)) void name(void) { \
        __VA_ARGS__                                    \
    }
// The compiler may not look across; what is before it is done before.
#define BARRIER __asm__ volatile("" :: \
                                     : "memory")

WORK(base, BARRIER;)
WORK(scope, t_scope; BARRIER;)
WORK(frame_base, quarry_pool_t *pool = stack; __asm__ volatile("" ::"r"(pool)
                                                               : "memory");)
WORK(frame, quarry_pool_t *pool = stack; quarry_stack_frame_t f; quarry_stack_push(pool, &f); BARRIER;
     quarry_stack_pop(pool, &f);)
WORK(keep_base, kept = (void *)1;)
WORK(new_8, kept = t_new(long, 1);)
WORK(new_48, kept = t_new(pair_t, 3);)
WORK(raw_8, kept = t_new_raw(long, 1);)
WORK(pool_8, kept = quarry_stack_alloc(stack, 8, 8, 0);)

static const struct {
    const char *name;
    void (*work)(void);
} cases[] = {{"base", base}, {"scope", scope}, {"frame", frame}, {"frame_base", frame_base}, {"keep_base", keep_base},
    {"new_8", new_8}, {"new_48", new_48}, {"raw_8", raw_8}, {"pool_8", pool_8}};

int main(int argc, char **argv) {
    stack = quarry_stack_create(NULL);
    for (size_t i = 0; argc == 3 && stack && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) != 0) continue;
        long left = strtol(argv[2], NULL, 10);
        t_scope;
        kept = t_new(char, 1);
        while (left > 0) {
            quarry_stack_frame_t f, g;
            quarry_stack_push(stack, &f);
            quarry_stack_push(t_pool(), &g);
            for (int k = 0; k < 256; k++) cases[i].work();
            quarry_stack_pop(t_pool(), &g);
            quarry_stack_pop(stack, &f);
            left -= 256;
        }
        return 0;
    }
    fputs("usage: stack_path CASE COUNT\n", stderr);
    return 2;
}
