// SPDX-License-Identifier: MIT
// threads.c: see threads.h.
//
// Writers lie in memory of their own, not in their threads', and live as long as the process: so they can be sealed and
// given to the next thread even if theirs ended without a word (a system call can do that).
#include "trace/births.h"

#include <string.h>

#include "base/num.h"
#include "os/mapfile.h"
#include "os/os.h"
#include "os/process.h"
#include "stacks/own.h"
#include "trace/sample.h"
#include "stacks/stacks.h"
#include "trace/threads.h"

#define WRITERS_LEAST 32u   // taken from the kernel at a time, or as many as there are: few ranges (own.h)
#define SEARCH_FIRST 1024u  // so many living threads before it is asked which of them live
#define ROUNDS 3            // of a thread's destructors in which ours says "later"
#define WAIT_NS 1000000
#define WAITS 1000

static __thread unsigned rounds;

// ---- the end of a thread -------------------------------------------------------------------------------------

// Is this name to be told?
static bool is_news(const qy_writer_t *w, const char *name) {
    char program[sizeof w->name];
    qy_os_program_name(program, sizeof program);
    return *name && strcmp(name, *w->name ? w->name : program) != 0;
}

void qy_thread_tell_name(qy_writer_t *w) {
    char name[sizeof w->name];
    size_t n = qy_os_thread_name(name, sizeof name);
    if (!is_news(w, name)) return;
    memcpy(w->name, name, sizeof name);  // before it is written: that may take a block, and come here again
    qy_write_text(w, QY_OP_THREAD, QY_THREAD_NAME, w->time, NULL, name, n);
}

// With the lock.
static void put_idle(qy_writer_t *w) {
    w->thread_id = 0;
    w->next_idle = qy_record.idle;
    qy_record.idle = w;
    qy_record.living--;
}

static void writers_give_back(qy_writer_t *w) {
    qy_lock_take(&qy_record.lock);
    put_idle(w);
    qy_lock_drop(&qy_record.lock);
}

static void end_stream(qy_writer_t *w) {
    qy_writer_write_lost(w);
    qy_write_numbers(w, QY_OP_THREAD, QY_THREAD_ENDS, qy_os_ticks(), 0, 0, 0);
    qy_writer_seal(w);
}

// Called in the rounds of thread-specific destructors. Those of the program's that allocate and free should come
// before: in each of the first rounds it asks to be called in the next one. A thread that gets its writer in the last
// round is never heard of again, see reap.
static void writers_thread_exit(void *arg) {
    qy_writer_t *w = arg;
    if (qy_record_mine != w) return;  // the child of a fork
    if (++rounds < ROUNDS && qy_os_at_thread_exit(writers_thread_exit, w)) return;
    qy_record_mine = &qy_writer_late;
    bool recorded = qy_writer_begin(w);
    if (recorded) {
        qy_thread_tell_name(w);
        end_stream(w);
    }
    qy_writer_end(w);  // not later: an idle writer may be another thread's at any moment
    if (recorded) writers_give_back(w);
    qy_stacks_thread_end();
}

// What can be said of a thread that writes no more, and has not ended in order: that it is gone, or its name. There is
// room for that in every block. With the lock.
static void tell_last(const qy_writer_t *w) {
    qy_trace_block_t *b = w->block;
    uint32_t used = atomic_load_explicit(&b->used, memory_order_acquire);
    uint8_t *begin = (uint8_t *)(b + 1), *at = begin + used;
    char name[sizeof w->name];
    if (used + QY_LAST_MOST > b->span - sizeof *b) return;
    if (!qy_os_thread_lives(w->thread_id)) {
        at = qy_put_tag(at, QY_OP_EXTENSION, 0);
        at = qy_put(at, QY_EXTENSION_GONE);
        at = qy_put(at, 0);
    } else {
        size_t n = qy_os_name_of_thread(w->thread_id, name, sizeof name);
        if (!is_news(w, name)) return;
        at = qy_put_tag(at, QY_OP_THREAD, QY_THREAD_NAME);
        at = qy_put(at, 0);
        at = qy_put(at, n);
        memcpy(at, name, n);
        at += n;
    }
    atomic_fetch_add_explicit(&b->events, 1, memory_order_relaxed);
    atomic_store_explicit(&b->used, (uint32_t)(at - begin), memory_order_release);
}

// The records of a block count when it is sealed. `tell`: all that the thread did was recorded. With the lock.
static void seal_other(qy_writer_t *w, bool tell) {
    qy_trace_block_t *b = w->block;
    if (!b) return;
    if (tell && w->thread_id) tell_last(w);
    w->block = NULL;
    qy_trace_block_seal(b);
    atomic_fetch_add_explicit(&qy_record.events, b->events, memory_order_relaxed);
    qy_trace_block_unmap(b);
}

// Threads that ended without a word: their numbers are no threads' any more. With the lock.
static void reap(void) {
    for (qy_writer_t *w = qy_record.writers; w; w = w->next) {
        if (!w->thread_id || qy_os_thread_lives(w->thread_id)) continue;
        seal_other(w, true);
        put_idle(w);
    }
}

// ---- its beginning --------------------------------------------------------------------------------------------

static bool more_writers(void) {
    size_t page = qy_os_page_size(), n = qy_max(qy_record.living, WRITERS_LEAST),
           bytes = qy_round_up(n * sizeof(qy_writer_t), page);
    qy_writer_t *w = qy_os_map(bytes, page, NULL);
    if (!w) return false;
    qy_own_add(w, bytes);
    for (size_t i = 0; i < bytes / sizeof *w; i++) {
        w[i].next = qy_record.writers;
        w[i].next_idle = qy_record.idle;
        qy_record.writers = qy_record.idle = &w[i];
    }
    return true;
}

static qy_writer_t *take_writer(void) {
    qy_lock_take(&qy_record.lock);
    if (qy_record.living >= qy_max(qy_record.search, SEARCH_FIRST)) {
        reap();
        qy_record.search = 2 * qy_record.living;
    }
    qy_writer_t *w = qy_record.idle || more_writers() ? qy_record.idle : NULL;
    if (w) {
        qy_writer_t *next = w->next;
        qy_record.idle = w->next_idle;
        memset(w, 0, sizeof *w);
        w->next = next;
        w->thread = ++qy_record.threads;
        // Before its first event, and so before another thread can have a block of it (qy_record_now).
        if (w->thread > 1) atomic_store_explicit(&qy_record.shared, true, memory_order_release);
        w->thread_id = qy_os_thread_id();
        qy_record.living++;
    }
    qy_lock_drop(&qy_record.lock);
    return w;
}

qy_writer_t *qy_thread_enter(void) {
    qy_writer_t *w = take_writer();
    if (!w) return NULL;
    qy_writer_init(w);
    rounds = 0;
    if (qy_writer_begin(w))
        qy_write_numbers(w, QY_OP_THREAD, QY_THREAD_BEGINS, qy_os_ticks(), 2, (uint64_t)w->thread_id, qy_birth_creator);
    // What libc allocates for its own table of the thread's keys is not the program's.
    w->hides = QY_HIDES_ALL;
    atomic_store_explicit(&w->attention, QY_ATTENTION_HIDING, memory_order_relaxed);
    qy_record_mine = w;
    qy_os_at_thread_exit(writers_thread_exit, w);
    qy_writer_end(w);
    return w;
}

// ---- all of them ------------------------------------------------------------------------------------------------

uint64_t qy_threads_open_events(void) {
    uint64_t events = qy_record.late.block ? qy_record.late.block->events : 0;
    for (qy_writer_t *w = qy_record.writers; w; w = w->next)
        if (w->block) events += w->block->events;
    return events;
}

static bool busy(const qy_writer_t *w) {
    return atomic_load_explicit(&w->attention, memory_order_acquire) & QY_ATTENTION_WRITING;
}

// Was it ever seen outside of a record since `live` is 0? It writes no more then: what it begins, it gives up at once.
static bool is_quiet(qy_writer_t *w) {
    if (!w->quiet) w->quiet = !busy(w);
    return w->quiet;
}

bool qy_threads_settle(const qy_writer_t *self) {
    if (!qy_os_barrier()) return false;
    for (unsigned i = 0; i < WAITS; i++) {
        qy_lock_take(&qy_record.lock);
        bool wait = self != &qy_record.late && !is_quiet(&qy_record.late);
        for (qy_writer_t *w = qy_record.writers; w; w = w->next) wait |= w != self && !is_quiet(w);
        qy_lock_drop(&qy_record.lock);
        if (!wait) return true;
        _Atomic uint32_t never = 0;
        qy_os_wait(&never, 0, WAIT_NS);
    }
    return false;
}

void qy_threads_seal(bool tell) {
    qy_lock_take(&qy_record.lock);
    for (qy_writer_t *w = qy_record.writers; w; w = w->next)
        if (w->quiet) seal_other(w, tell);
    if (qy_record.late.quiet) seal_other(&qy_record.late, false);
    qy_lock_drop(&qy_record.lock);
}

static void forget_block(qy_writer_t *w, bool in_use) {
    qy_trace_block_t *b = w->block;
    if (!b) return;
    if (in_use) qy_os_map_at(b, b->span, -1, 0, QY_MAP_WRITE);  // fresh pages: nobody's
    else qy_trace_block_unmap(b);
}

void qy_threads_forget(void) {
    qy_writer_t *mine = qy_record_mine;
    bool interrupted = busy(mine) || qy_lock_is_mine(&qy_record.late_lock);
    for (qy_writer_t *w = qy_record.writers; w; w = w->next) forget_block(w, interrupted);
    forget_block(&qy_record.late, interrupted);
    if (interrupted) qy_record.writers = NULL;  // a few pages are lost, to be safe from what is still written to them
    qy_record.idle = NULL;
    qy_record.threads = qy_record.search = 0;
    for (qy_writer_t *w = qy_record.writers; w; w = w->next) {
        w->block = NULL;
        // of threads that were in the middle of a record
        atomic_store_explicit(&w->attention, 0, memory_order_relaxed);
        put_idle(w);
    }
    qy_record.living = 0;
}
