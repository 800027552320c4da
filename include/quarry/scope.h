// SPDX-License-Identifier: MIT
// scope.h: t_scope: temporary data that ends with the scope it was made in. And t_new and its kin, which make it.
// These are short names of QUARRY_SCOPE, QUARRY_SCOPE_NEW and so on, which stack.h defines without them.
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
// A function that allocates for its caller has a name that begins with t_ and no t_scope of its own (or makes its
// result before it). Allocation outside of any scope ends the process: "no open frame".
//
// Threads: each has a stack of its own (quarry_stack_of_thread), made by its first allocation, destroyed when it ends.
// Fork: in the child the scopes of other threads have ended, and their blocks are unmapped. That is so also of a block
// that the forking thread was handed. Give it a copy, or a block of another pool.
// Cost: as stack.h. Alignment: that of the type. Errors: NULL and ENOMEM.
// Ways out: a scope ends on return, break, continue and goto. It ends by C++ exceptions and by pthread_exit where the
// unwinder sees it: in C++, and in C compiled with -fexceptions. longjmp skips scopes. A scope that was skipped in a
// function that longjmp left ends with the innermost scope that is left in the ordinary way. A scope that was skipped
// within the function that called setjmp is reported ("unbalanced frames") when the scope around it ends.
// Jumping over a t_scope into its block (goto, case) is an error, which clang refuses and the checker of scopes finds.
// Loading by dlopen: the stack's head is 32 bytes of static thread-local storage, of which glibc sets 512 and more
// aside. Not for signal handlers.
//
// Short names of other pools are in short.h: p_ for any pool, r_ for the thread's ring, fifo_ for a FIFO.
#ifndef QUARRY_SCOPE_H
#define QUARRY_SCOPE_H

#include <quarry/stack.h>

#define t_scope QUARRY_SCOPE
#define t_pool() QUARRY_SCOPE_POOL()
#define t_seal() QUARRY_SCOPE_SEAL()
#define t_unseal() QUARRY_SCOPE_UNSEAL()
#define t_new(T, n) QUARRY_SCOPE_NEW(T, n)
#define t_new_raw(T, n) QUARRY_SCOPE_NEW_RAW(T, n)
#define t_new_extra(T, extra) QUARRY_SCOPE_NEW_EXTRA(T, extra)
#define t_new_extra_raw(T, extra) QUARRY_SCOPE_NEW_EXTRA_RAW(T, extra)
#define t_new_extra_field(T, field, n) QUARRY_SCOPE_NEW_EXTRA_FIELD(T, field, n)
#define t_new_extra_field_raw(T, field, n) QUARRY_SCOPE_NEW_EXTRA_FIELD_RAW(T, field, n)
#define t_renew(pp, old_n, n) QUARRY_SCOPE_RENEW(pp, old_n, n)
#define t_renew_raw(pp, old_n, n) QUARRY_SCOPE_RENEW_RAW(pp, old_n, n)
#define t_dup(p, n) QUARRY_SCOPE_DUP(p, n)
#define t_dupz(s, n) QUARRY_SCOPE_DUPZ(s, n)
#define t_strdup(s) QUARRY_SCOPE_STRDUP(s)
#define t_printf(...) QUARRY_SCOPE_PRINTF(__VA_ARGS__)
#define t_fmt(...) QUARRY_SCOPE_PRINTF(__VA_ARGS__)

#endif
