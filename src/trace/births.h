// SPDX-License-Identifier: MIT
// births.h: which thread was created by which.
//
// Only the creator knows, and only the new thread can say. What the program gave to pthread_create goes to the new
// thread in a record of ours, together with the creator's number; the new thread gives the record back before it does
// anything else, so there are as many as threads were on their way at once. They lie in memory of their own, not in the
// program's heap. Threads: all functions; they take the lock of record.h for moments.
#ifndef QY_TRACE_BIRTHS_H
#define QY_TRACE_BIRTHS_H

#include <stdint.h>

typedef struct qy_birth {
    union {
        void *(*posix)(void *arg);
        int (*c11)(void *arg);
    } start;
    void *arg;
    uint32_t creator;
    struct qy_birth *next, *next_idle;  // all of them; those that are not in use
} qy_birth_t;

// The creator of the calling thread; 0: unknown, or there is none.
extern __thread uint32_t qy_birth_creator;

// For a thread that the calling thread, with this number, is about to create. NULL: the number is 0, or there is no
// memory.
qy_birth_t *qy_birth_take(uint32_t creator);
// It was not created.
void qy_birth_give(qy_birth_t *birth);
// This is the new thread: note its creator. The record is not to be looked at any more.
void qy_birth_begin(qy_birth_t *birth);

// In the child of a fork: nobody is on the way, and who forked was created in another process.
void qy_births_forget(void);

#endif
