// SPDX-License-Identifier: MIT
// record.h: what the interposed functions of libquarry-record share: the functions that the program would have
// called, and calls within calls.
//
// A call of the program may be made of others: operator new calls malloc, calloc of some allocators does. The program
// has made one. So the outer one says what it hides, and who is called within asks whether it is hidden.
#ifndef QY_API_RECORD_H
#define QY_API_RECORD_H

#include "trace/record.h"
#include "trace/sample.h"

#define QY_EXPORT __attribute__((visibility("default")))

typedef struct qy_real {
    void *(*malloc)(size_t n);
    void (*free)(void *p);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *p, size_t n);
    void *(*memalign)(size_t align, size_t n);
    void *(*aligned_alloc)(size_t align, size_t n);
    int (*posix_memalign)(void **ret, size_t align, size_t n);
    void *(*valloc)(size_t n);
    void *(*pvalloc)(size_t n);
    size_t (*malloc_usable_size)(void *p);
    // Not in every C library: NULL.
    void (*free_sized)(void *p, size_t n);
    void (*free_aligned_sized)(void *p, size_t align, size_t n);
} qy_real_t;

// The next definitions behind this library, or NULLs as long as they are being looked for.
extern qy_real_t qy_real;
// Find them. False: that is going on, further out; memory comes from qy_early then.
bool qy_real_find(void);
// The next definition of a name, or NULL. Allocates nothing that stays. Takes the dynamic linker's lock, which others
// hold while they run constructors and wait for threads in them: so what may be needed in any thread is looked up by
// constructors of ours.
void *qy_real_symbol(const char *name);

// What the dynamic linker allocates while it looks for malloc. Never freed; 16 KiB.
void *qy_early_alloc(size_t n, size_t align);
extern char qy_early[16384];
QY_INLINE bool qy_is_early(const void *p) { return QY_UNLIKELY((uintptr_t)p - (uintptr_t)qy_early < sizeof qy_early); }

// ---- calls within calls -----------------------------------------------------------------------------------

// As qy_writer_t.hides and hides_size, for threads without a writer.
extern __thread uintptr_t qy_mark_hides;
extern __thread size_t qy_mark_hides_size;

QY_INLINE bool qy_is_mark(const qy_writer_t *w) {
    return atomic_load_explicit(&w->attention, memory_order_relaxed) & QY_ATTENTION_NOBODY;
}

// From here on what the thread calls is hidden: QY_HIDES_*, or the free of this block. Returns what was hidden before,
// for qy_show. In the middle of a record (a signal handler) nothing changes: all calls are lost anyway. `size`: what
// operator new was asked for.
#define QY_HIDES_RECORD (~(uintptr_t)0)
uintptr_t qy_hide(uintptr_t what, size_t size);
// The outer call has returned. True: nothing was hidden of what is hidden only once.
bool qy_show(uintptr_t outer);

// For a call that found no ready writer: is it part of another one? `what`: QY_HIDES_NEW for an allocation of `size`,
// the block for a free, 0 for others. *ret_by: whose part (an allocation's).
bool qy_hidden(uintptr_t what, size_t size, unsigned *ret_by);
#define QY_BY_NOBODY 99u

// ---- events -------------------------------------------------------------------------------------------------

// Whatever the thread's state; errno is kept, and what the thread hides.
// After an allocation, before anybody else knows the block. p NULL: it failed.
void qy_allocated(unsigned by, size_t n, const void *p, size_t align, const qy_stack_regs_t *caller);
// Before a free.
void qy_freed(unsigned by, const void *p);

#endif
