// SPDX-License-Identifier: MIT
// written.h: how much of a block its program writes, seen at some of the blocks of 4 to 128 KiB.
//
// A program asks for more than it writes. What it does not write takes no memory if it is fresh from the kernel, and
// takes what it took before if an earlier block wrote it: mallocs differ in it, and a replay has to know. Which pages
// are there at the end does not tell, as most were there at the beginning. So in pages that are there, and there alone,
// words of a pattern are put before the program gets the block. Where they still stand at its end, nobody wrote. What
// malloc hands out has no contents that a program may count on. Blocks of calloc get no pattern: they are zero.
//
// Blocks are drawn by their bytes, as many as take a hundredth of the time.
// Threads: a block is watched and judged by who owns it at that moment.
#ifndef QY_TRACE_WRITTEN_H
#define QY_TRACE_WRITTEN_H

#include "trace/sample.h"
#include "trace/writer.h"

#define QY_WRITTEN_BYTES ((size_t)4096)  // the smallest that are looked at; from QY_LARGE_BYTES on all are, otherwise

void qy_written_start(void);
void qy_written_restart(void);  // in the child of a fork, whose sets are empty

// Is the block of so many bytes, which begins now, to be watched? Of a thread's blocks each is asked about once.
QY_INLINE bool qy_written_draws(qy_writer_t *w, size_t n) {
    if (n >= QY_LARGE_BYTES || n < QY_WRITTEN_BYTES || w->samples) return false;
    if (n >= w->unwatched) return true;
    w->unwatched -= n;
    return false;
}

// What is known of a watched block; also the values in qy_large.
typedef struct qy_written {
    size_t size, from;  // what lies before `from` is judged already:
    size_t written;     // so much of it was written
    bool zeroed;        // it was zero from `from` on
} qy_written_t;

// Before the program has the block. *w says when the next one is drawn.
void qy_written_watch(qy_writer_t *w, void *p, qy_written_t block);
// Bytes that were written of a watched block, taken out of qy_large with this value, or still in it.
size_t qy_written_bytes(const void *p, uint64_t value);
// Take a block out of qy_large, with its value, and put it back.
bool qy_written_take(const void *p, uint64_t *ret_value);
void qy_written_put(const void *p, uint64_t value);

// The values of watched blocks in qy_large; those of the others are their sizes.
#define QY_WRITTEN_FLAG (UINT64_C(1) << 63)
QY_INLINE bool qy_written_is(uint64_t value) { return (value & QY_WRITTEN_FLAG) != 0; }
uint64_t qy_written_size(uint64_t value);  // of either

#endif
