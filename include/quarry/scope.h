// SPDX-License-Identifier: MIT
// scope.h: t_scope: temporary data that ends with the scope it was made in. And t_new and its kin, which make it.
//
//   size_t count_words(const char *line) {
//       t_scope;                                    // what is allocated from here on ends with this block,
//       char *copy = t_strdup(line);                // on every way out of it
//       ...
//   }
//   char *t_join(const char *a, const char *b) { return t_printf("%s/%s", a, b); }   // for the caller's scope
//
//   Owner           of the blocks: the innermost t_scope at the moment they are made
//   Lifetime        until the end of that block of C: its closing brace, return, break, goto, an exception
//   Initialization  t_new: zero. t_new_raw: undefined
//
// A function that allocates for its caller has a name that begins with t_ and no t_scope of its own (or makes its result
// before it). Allocation outside of any scope ends the process: "no open frame".
//
// Threads: each has a stack of its own (quarry_stack_of_thread), made by its first allocation, destroyed when it ends.
// Cost: as stack.h. Alignment: that of the type. Errors: NULL and ENOMEM.
// Ways out: cleanups run on return, break, continue and goto; for C++ exceptions and pthread_exit where the unwinder sees
// them: in C++, and in C compiled with -fexceptions. longjmp skips them: what the skipped scopes hold ends with the
// innermost scope that is left in the ordinary way, provided the skipped ones were in functions that longjmp left; a
// scope skipped within the function that called setjmp is reported ("unbalanced frames") when the scope around it ends.
// Jumping over a t_scope into its block (goto, case) is an error, which clang refuses and the checker of scopes finds.
// Loading by dlopen: the stack's head is 32 bytes of static thread-local storage, of which glibc sets 512 and more aside.
// Not for signal handlers.
//
// Beside t_ there is r_, for messages that another thread ends: ring.h.
#ifndef QUARRY_SCOPE_H
#define QUARRY_SCOPE_H

#include <quarry/ring.h>
#include <quarry/stack.h>

QUARRY_BEGIN

// The address of a thread-local variable is never NULL. A sanitizer tests it all the same, gcc takes the flags of the addition
// that made it, and the linker turns that into one that sets none: so it must not see where the address is from.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_UNDEFINED__)
static inline __attribute__((always_inline)) quarry_stack_hot_t *quarry_thread_stack_hidden(void) {
    quarry_stack_hot_t *h = &quarry_thread_stack;
    __asm__(""
            : "+r"(h));
    return h;
}
#define QUARRY_THREAD_STACK quarry_thread_stack_hidden()
#else
#define QUARRY_THREAD_STACK (&quarry_thread_stack)
#endif

// Inlined always, also without optimisation: its caller's variables are then all above what it calls (pop_slow relies
// on it to tell scopes that longjmp skipped).
static inline __attribute__((always_inline)) void quarry_scope_end(quarry_stack_frame_t *frame) { quarry_stack_leave(QUARRY_THREAD_STACK, frame); }

QUARRY_END

#define QUARRY_SCOPE_PASTE_(a, b) a##b
#define QUARRY_SCOPE_PASTE(a, b) QUARRY_SCOPE_PASTE_(a, b)
#define QUARRY_SCOPE_NAMED(name) quarry_stack_frame_t name __attribute__((cleanup(quarry_scope_end), unused)) = quarry_stack_enter(QUARRY_THREAD_STACK, &name)

/// A frame of the thread's stack that ends with the enclosing block. A declaration; there may be several in a block.
#define t_scope QUARRY_SCOPE_NAMED(QUARRY_SCOPE_PASTE(quarry_scope_, __COUNTER__))

/// The calling thread's stack as a pool, for code that takes one. NULL and ENOMEM if there is no memory for it.
#define t_pool() quarry_stack_of_thread()

/// Seal the innermost scope: a t_new that is not in a scope inside of it ends the process. And undo that.
#define t_seal() quarry_stack_seal_slow(QUARRY_THREAD_STACK, 1)
#define t_unseal() quarry_stack_seal_slow(QUARRY_THREAD_STACK, 0)

// ---- as the p_ macros of pool.h, in the innermost scope ------------------------------------------------

#define QUARRY_SCOPE_NEW(T, bytes, flags) ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, (bytes), QUARRY_ALIGNOF(T), (flags)))

/// n objects of type T, zeroed; t_new_raw: with undefined contents.
#define t_new(T, n) QUARRY_SCOPE_NEW(T, quarry_array_bytes((n), sizeof(T), 0), QUARRY_POOL_ZERO)
#define t_new_raw(T, n) QUARRY_SCOPE_NEW(T, quarry_array_bytes((n), sizeof(T), 0), 0)

/// One T and `extra` bytes behind it.
#define t_new_extra(T, extra) QUARRY_SCOPE_NEW(T, quarry_array_bytes((extra), 1, sizeof(T)), QUARRY_POOL_ZERO)
#define t_new_extra_raw(T, extra) QUARRY_SCOPE_NEW(T, quarry_array_bytes((extra), 1, sizeof(T)), 0)

/// One T whose last member is the array `field`, with room for n elements of it.
#define t_new_extra_field(T, field, n) QUARRY_SCOPE_NEW(T, QUARRY_FIELD_BYTES(T, field, n), QUARRY_POOL_ZERO)
#define t_new_extra_field_raw(T, field, n) QUARRY_SCOPE_NEW(T, QUARRY_FIELD_BYTES(T, field, n), 0)

/// *pp, which has old_n elements and was made in the innermost scope, gets n: new ones are zeroed (t_renew_raw:
/// undefined). True value: the new place, also in *pp. NULL: refused, all is as it was.
#define QUARRY_SCOPE_RENEW(pp, old_n, n, flags)                                                                      \
    __extension__({                                                                                                  \
        __typeof__(pp) quarry_pp_ = (pp);                                                                            \
        __typeof__(*quarry_pp_) quarry_new_ = (__typeof__(*quarry_pp_))quarry_stack_resize_slow(QUARRY_THREAD_STACK, \
            *quarry_pp_, quarry_array_bytes((old_n), sizeof(**quarry_pp_), 0),                                       \
            quarry_array_bytes((n), sizeof(**quarry_pp_), 0), __alignof__(**quarry_pp_), (flags));                   \
        if (quarry_new_) *quarry_pp_ = quarry_new_;                                                                  \
        quarry_new_;                                                                                                 \
    })
#define t_renew(pp, old_n, n) QUARRY_SCOPE_RENEW(pp, old_n, n, QUARRY_POOL_ZERO)
#define t_renew_raw(pp, old_n, n) QUARRY_SCOPE_RENEW(pp, old_n, n, 0)

/// A copy of n elements at p; t_dupz: of n characters, with a NUL behind them; t_strdup: of a string.
#define t_dup(p, n) ((__typeof__(&*(p)))quarry_stack_dup(QUARRY_THREAD_STACK, (p), quarry_array_bytes((n), sizeof(*(p)), 0), 0, __alignof__(*(p))))
#define t_dupz(s, n) ((char *)quarry_stack_dup(QUARRY_THREAD_STACK, (s), (n), 1, 1))
#define t_strdup(s)                                                                                  \
    __extension__({                                                                                  \
        const char *quarry_s_ = (s);                                                                 \
        (char *)quarry_stack_dup(QUARRY_THREAD_STACK, quarry_s_, __builtin_strlen(quarry_s_), 1, 1); \
    })

/// printf into a new block of exactly the right size. t_fmt is another name of it.
#define t_printf(...)                                                        \
    __extension__({                                                          \
        quarry_pool_t *quarry_pool_ = t_pool();                              \
        quarry_pool_ ? quarry_pool_printf(quarry_pool_, __VA_ARGS__) : NULL; \
    })
#define t_fmt(...) t_printf(__VA_ARGS__)

#endif
