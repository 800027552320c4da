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
// In `before`: the kernel may write so much, and `after` knows how much it was.
#define MAKE_ROOM(p, n) qy_libc_make_room(p, n)
// A string of so many bytes with its end. CHECK_: looked for only if it is of the heap.
#define ENDED(p, n) qy_libc_string(p, n, fn)
#define STRING(s) qy_libc_length(s, fn)
#define STRING_MAX(s, n) qy_libc_length_max(s, n, fn)
#define CHECK_STRING(s) \
    if (HEAP(s)) (void)STRING(s)
#define CHECK_STRING_MAX(s, n) \
    if (HEAP(s)) (void)STRING_MAX(s, n)

// Guarded memory is looked at first, where all else is looked at after the call: the C library would read on, and meet
// the page behind the block. FIRST and THEN are the two for functions of strings a and b.
#define NEAR(s) QY_UNLIKELY(qy_guard_is_near(s))
#define FIRST(look)                  \
    bool near_ = NEAR(a) || NEAR(b); \
    if (near_) {                     \
        look                         \
    }
#define THEN(look) \
    if (!near_) {  \
        look       \
    }

// In `after`: the kernel could not write to a page that is closed, since its block is freed or ends there. The access
// is told, the page is open then, and the call is made once more: nothing has happened yet.
#define ONCE_MORE(failed, p, n)                   \
    if ((failed) && errno == EFAULT && !tried_) { \
        tried_ = true;                            \
        OUT(p, n);                                \
        goto again_;                              \
    }
// What a call that goes well writes, or wrote in its first try.
#define WRITTEN(done, p, n)  \
    ONCE_MORE(!(done), p, n) \
    if ((done) && !tried_) OUT(p, n)

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
        __attribute__((unused)) bool tried_ = false;                           \
        result r;                                                              \
    again_:                                                                    \
        __attribute__((unused));                                               \
        r = REAL(name) arguments;                                              \
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
