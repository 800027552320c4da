// SPDX-License-Identifier: MIT
// check_libc_define.h: makes the functions of a table; included once by each check_libc_*.c, which defines
//   TABLE        the file with the lines
//   TABLE_FIND   the name of the function that finds them in the C library
//
// A line is  FUNCTION(result, name, shown, (parameters), (arguments), before, after)  or, for a function without a
// result,    PROCEDURE(name, shown, (parameters), (arguments), before, after)
// or, for one whose arguments vary and that is made of another one, which takes them as `ap`,
//             VARIADIC(result, name, shown, other, (parameters), last, (arguments of other), before, after)
// `shown` is the name in reports. `before` and `after` are statements, in which `r` is the result and the macros below
// say what is touched. STRING gives the length that it has found.
#include "api/check_libc.h"

#define HEAP(p) QY_UNLIKELY(qy_check_may_be_heap(p))
#define IN(p, n) qy_libc_in(p, n, fn)
#define OUT(p, n) qy_libc_out(p, n, fn)
#define APART(to, n, from, m) qy_libc_apart(to, n, from, m, fn)
#define NEGATIVE(p, n) qy_libc_is_negative(p, n, fn)
// A string of so many bytes with its end. CHECK_: looked for only if it is of the heap.
#define ENDED(p, n) qy_libc_string(p, n, fn)
#define STRING(s) qy_libc_length(s, fn)
#define STRING_MAX(s, n) qy_libc_length_max(s, n, fn)
#define CHECK_STRING(s) \
    if (HEAP(s)) (void)STRING(s)
#define CHECK_STRING_MAX(s, n) \
    if (HEAP(s)) (void)STRING_MAX(s, n)

// ---- pointers to the C library's functions; 0 until the constructor has run -----------------------------------

#define FUNCTION(result, name, shown, parameters, arguments, before, after) result(*name) parameters;
#define PROCEDURE(name, shown, parameters, arguments, before, after) void(*name) parameters;
#define VARIADIC(result, name, shown, other, parameters, last, arguments, before, after)
static struct {
#include TABLE
} real;
#undef FUNCTION
#undef PROCEDURE

#define FUNCTION(result, name, shown, parameters, arguments, before, after) {#name, (uintptr_t *)&real.name},
#define PROCEDURE(name, shown, parameters, arguments, before, after) {#name, (uintptr_t *)&real.name},
void TABLE_FIND(void);
void TABLE_FIND(void) {
    static const qy_libc_name_t names[] = {
#include TABLE
    };
    qy_libc_find(names, sizeof names / sizeof *names);
}
#undef FUNCTION
#undef PROCEDURE

// What is called for a line.
#define REAL(name)                                                                    \
    __extension__({                                                                   \
        uintptr_t real_ = __atomic_load_n((uintptr_t *)&real.name, __ATOMIC_RELAXED); \
        (__typeof__(real.name))(QY_LIKELY(real_) ? real_ : qy_libc_early(#name));     \
    })

// ---- the functions --------------------------------------------------------------------------------------------

#define FUNCTION(result, name, shown, parameters, arguments, before, after)    \
    QY_HIDDEN result __wrap_##name parameters;                                 \
    QY_HIDDEN result __wrap_##name parameters { return REAL(name) arguments; } \
    result name parameters;                                                    \
    __attribute__((visibility("default"))) result name parameters {            \
        __attribute__((unused)) static const char fn[] = shown;                \
        before;                                                                \
        result r = REAL(name) arguments;                                       \
        after;                                                                 \
        return r;                                                              \
    }
#define PROCEDURE(name, shown, parameters, arguments, before, after) \
    QY_HIDDEN void __wrap_##name parameters;                         \
    QY_HIDDEN void __wrap_##name parameters {                        \
        REAL(name)                                                   \
        arguments;                                                   \
    }                                                                \
    void name parameters;                                            \
    __attribute__((visibility("default"))) void name parameters {    \
        __attribute__((unused)) static const char fn[] = shown;      \
        before;                                                      \
        REAL(name)                                                   \
        arguments;                                                   \
        after;                                                       \
    }
#undef VARIADIC
#define VARIADIC(result, name, shown, other, parameters, last, arguments, before, after) \
    result name parameters;                                                              \
    __attribute__((visibility("default"))) result name parameters {                      \
        static const char fn[] = shown;                                                  \
        va_list ap;                                                                      \
        va_start(ap, last);                                                              \
        before;                                                                          \
        result r = REAL(other) arguments;                                                \
        va_end(ap);                                                                      \
        after;                                                                           \
        return r;                                                                        \
    }
#include TABLE
#undef FUNCTION
#undef PROCEDURE
#undef VARIADIC
