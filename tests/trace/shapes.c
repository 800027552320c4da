// SPDX-License-Identifier: MIT
// shapes.c: see shapes.h. Compiled once per set; SHAPE_SET is its name.
#include "shapes.h"

#include "base/compiler.h"

#include <alloca.h>
#include <pthread.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

// The compiler must believe that this memory is looked at.
static void use(void *p) { __asm__ volatile(""
                                            :
                                            : "r"(p)
                                            : "memory"); }

static NOINLINE void plain(int n) {
    int x = n;
    use(&x);
    shape_next();
    use(&x);
}

static NOINLINE void tail(int n) {
    use(&n);
    shape_next();  // a jump, if the compiler likes
}

static NOINLINE void with_alloca(int n) {
    char *p = alloca((size_t)(16 + n % 500));
    p[0] = (char)n;
    use(p);
    shape_next();
    use(p);
}

static NOINLINE void with_vla(int n) {
    long v[1 + n % 60];
    v[0] = n;
    use(v);
    shape_next();
    use(v);
}

static NOINLINE void big(int n) {
    char bytes[20000];
    memset(bytes, n, sizeof bytes);
    use(bytes);
    shape_next();
    use(bytes);
}

static NOINLINE void aligned(int n) {
    char bytes[100] __attribute__((aligned(64)));
    memset(bytes, n, sizeof bytes);
    use(bytes);
    shape_next();
    use(bytes);
}

// Aligned anew, and with a frame of variable size: found through a word on the stack.
static NOINLINE void aligned_alloca(int n) {
    char bytes[40] __attribute__((aligned(128)));
    char *p = alloca((size_t)(1 + n % 300));
    p[0] = bytes[0] = (char)n;
    use(p);
    use(bytes);
    shape_next();
    use(p);
    use(bytes);
}

static NOINLINE long many(long a, long b, long c, long d, long e, long f, long g, long h, double x, double y) {
    shape_next();
    return a + b + c + d + e + f + g * h + (long)(x * y);
}
static NOINLINE void arguments(int n) {
    long r = many(n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n, n);
    use(&r);
}

static NOINLINE int variable(int n, ...) {
    va_list list;
    va_start(list, n);
    shape_next();
    int x = va_arg(list, int);
    va_end(list);
    return x;
}
static NOINLINE void variadic(int n) {
    n = variable(n, n, 1.0, n);
    use(&n);
}

// Many values live over the call: all saved registers are needed, rbp among them.
static NOINLINE void registers(int n) {
    long a = n, b = n * 3, c = n * 5, d = n * 7, e = n * 11, f = n * 13, g = n * 17;
    __asm__ volatile(""
                     : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    shape_next();
    __asm__ volatile(""
                     : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    g += a ^ b ^ c ^ d ^ e ^ f;
    use(&g);
}

static _Thread_local int calls;
static int compare(const void *a, const void *b) {
    if (calls++ == 0) shape_next();
    return *(const int *)a - *(const int *)b;
}
static NOINLINE void sorting(int n) {
    int v[5] = {n, 3, 2, n, 1};
    int saved = calls;
    calls = 0;
    qsort(v, 5, sizeof v[0], compare);
    calls = saved;
    use(v);
}

static NOINLINE void searching(int n) {
    int v[3] = {1, 2, n};
    size_t count = 3;
    int saved = calls;
    calls = 0;
    use(lfind(&n, v, &count, sizeof v[0], compare));
    calls = saved;
}

static NOINLINE void once(int n) {
    pthread_once_t control = PTHREAD_ONCE_INIT;
    use(&n);
    pthread_once(&control, shape_next);
}

static NOINLINE void raising(int n) {
    use(&n);
#if QY_TSAN
    shape_next();  // ThreadSanitizer delays signals
#else
    raise(SHAPE_SIGNAL);  // the handler calls shape_next
#endif
    use(&n);
}

// A signal between any two instructions.
static NOINLINE void trapping(int n) {
    int x = n;
    use(&x);
#if defined(__x86_64__) && !QY_TSAN
    __asm__ volatile("ud2" ::
                         : "memory");  // the handler steps over it
#else
    shape_next();
#endif
    use(&x);
}

static NOINLINE void jumping(int n) {
    jmp_buf place;
    if (setjmp(place) == 0) {
        use(&n);
        shape_next();
        longjmp(place, 1);
    }
    use(&n);
}

typedef struct large {
    long v[30];
} large_t;
static NOINLINE large_t make_large(int n, large_t in) {
    in.v[n % 30] = n;
    shape_next();
    in.v[1] = n;
    return in;
}
static NOINLINE void structures(int n) {
    large_t l = {{n}};
    l = make_large(n, l);
    use(&l);
}

static NOINLINE void recursive(int n) {
    char pad[24];
    use(pad);
    if (n % 8) recursive(n - 1);
    else shape_next();
    use(pad);
}

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
const shape_t JOIN(shapes_, SHAPE_SET)[SHAPES] = {plain, tail, with_alloca, with_vla, big, aligned, aligned_alloca,
    arguments, variadic, registers, sorting, searching, once, raising, trapping, jumping, structures, recursive};
