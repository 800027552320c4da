// SPDX-License-Identifier: MIT
// misused.c: misuses of one kind of pool, for the checkers to find: misused KIND CASE... Each case has a pool of its
// own and is named on stderr before it happens, so that the reports between two names are those of the first.
// test_checkers.py has it with and without AddressSanitizer, which ends it at the first report, and reads them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kinds.h"

pool_kind_t *pool_kinds;

static pool_kind_t *kind;
static quarry_pool_t *pool;

__attribute__((noinline)) static char *make_message(size_t n) {
    char *p = quarry_pool_alloc(pool, n, 8, 0);
    if (!p) exit(3);
    memset(p, 'm', n);
    return p;
}
__attribute__((noinline)) static void end_message(char *p, size_t n) {
    if (kind->end) kind->end(pool);
    else quarry_pool_free(pool, p, n);
}
__attribute__((noinline)) static int use_message(const char *p, size_t i) { return *(const volatile char *)(p + i); }

__attribute__((noinline)) static void lose(void) {
    char *p = make_message(56);
    use_message(p, 0);
    make_message(1);  // what a pool remembers of its newest block is not the lost one
}
__attribute__((noinline)) static void forget(void) {
    volatile char stack[4096];
    for (unsigned i = 0; i < sizeof stack; i++) stack[i] = 0;
}

static int run(const char *name) {
    char *p = make_message(40), *q = make_message(72);
    int result = use_message(q, 71);
    if (!strcmp(name, "overflow")) *(volatile char *)(p + 40) = 'x';
    else if (!strcmp(name, "underflow")) *(volatile char *)(q - 1) = 'x';
    else if (!strcmp(name, "after_end")) {
        end_message(p, 40);
        result += use_message(p, 8);
        return result == 1;
    } else if (!strcmp(name, "uninitialised")) {
        char *raw = quarry_pool_alloc(pool, 16, 8, 0);
        if (use_message(raw, 3) == 'z') puts("z");
    } else if (!strcmp(name, "zeroed")) {
        char *clean = quarry_pool_alloc(pool, 16, 8, QUARRY_POOL_ZERO);
        if (use_message(clean, 3) == 'z') puts("z");
    } else if (!strcmp(name, "leak")) {
        lose();
        forget();
        exit(0);  // without destroying the pool
    } else if (strcmp(name, "none")) return 2;
    end_message(p, 40);
    if (!kind->end) quarry_pool_free(pool, q, 72);
    if (kind->begin) kind->begin(pool);
    return result == 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (kind = pool_kinds; kind; kind = kind->next) {
            pool = kind->create(NULL);
            if (pool->ops->raw_alloc)
                printf("%s %s\n", kind->name, quarry_pool_capabilities(pool) & QUARRY_POOL_FRAMES ? "frames" : "frees");
        }
        return 0;
    }
    if (argc < 3) return 2;
    for (kind = pool_kinds; kind && strcmp(kind->name, argv[1]);) kind = kind->next;
    if (!kind) return 2;
    int status = 0;
    for (int i = 2; i < argc && !status; i++) {
        fprintf(stderr, "case %s\n", argv[i]);
        pool = kind->create(NULL);
        if (!pool) return 3;
        if (kind->begin) kind->begin(pool);
        status = run(argv[i]);
    }
    return status;
}
