// SPDX-License-Identifier: MIT
// record_malloc.c: the C library's allocation functions, recorded; in libquarry-record only.
//
// Fast paths are malloc and free of a thread that has a writer. Times: an allocation's is read after the call, a
// free's before it, so that no block is handed out again at an earlier time than it was given back.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "api/record.h"
#include "base/num.h"
#include "os/process.h"
#include "trace/usage.h"
#include "trace/written.h"

// Not in all C libraries' headers.
void *pvalloc(size_t n);  // NOLINT(readability-redundant-declaration)
void free_sized(void *p, size_t n);
void free_aligned_sized(void *p, size_t align, size_t n);

// ---- events, off the fast path ------------------------------------------------------------------------------

// What the thread hides is hidden again after an event within it.
static void malloc_finish(qy_writer_t *w, uint32_t attention) {
    qy_writer_end(w);
    if (attention == QY_ATTENTION_HIDING) atomic_store_explicit(&w->attention, attention, memory_order_relaxed);
}

// A writer in which a record may be begun. NULL: *ret_late says whether the thread has ended. The time of an event is
// read after this: the process's first one chooses the clock here, and the one before goes by another rate.
QY_INLINE qy_writer_t *writer(uint32_t *ret_attention, bool *ret_late) {
    qy_writer_t *w = qy_record_mine;
    if (!qy_record_ready(w) || !atomic_load_explicit(w->live, memory_order_relaxed)) w = qy_record_writer();
    *ret_late = !w && qy_record_mine == &qy_writer_late;
    *ret_attention = w ? atomic_load_explicit(&w->attention, memory_order_relaxed) : QY_ATTENTION_NOBODY;
    return w;
}

// Is a block of n bytes to be recorded? Each call that asks for one is asked about once, whether it succeeds or not.
static bool draw(qy_writer_t *w, size_t n) {
    uint64_t mean = qy_record.config.sample;
    if (!mean) return true;
    if (n < w->skip) {
        w->skip -= n;
        return false;
    }
    w->skip = qy_sample_next(&w->chance, mean);
    return true;
}

// Of a sample, the addresses of its blocks are kept. False: there is no room, and the block is not recorded.
static bool keep(qy_writer_t *w, const void *p, size_t n) {
    if (!qy_record.config.sample || qy_addrset_add(&qy_sampled, (uintptr_t)p, n)) return true;
    qy_writer_lose(w, QY_LOST_TABLE_FULL);
    return false;
}

// is_drawn: what draw() has answered, if it was asked already.
static void tell_failed(unsigned by, size_t n, bool is_drawn) {
    uint32_t attention;
    bool late;
    qy_writer_t *w = writer(&attention, &late);
    uint64_t now = qy_record_now();
    if (late) qy_record_late(&(qy_event_t){.op = QY_OP_FAILED, .by = by, .time = now, .size = n});
    if (!w || !(is_drawn || draw(w, n))) return;
    if (qy_writer_begin(w)) qy_write_numbers(w, QY_OP_FAILED, by, now, 1, n, 0);
    malloc_finish(w, attention);
}

static void malloc_failed(unsigned by, size_t n) { tell_failed(by, n, false); }

void qy_allocated(unsigned by, size_t n, const void *p, size_t align, const qy_stack_regs_t *caller) {
    uint32_t attention;
    bool late;
    if (!p) {
        malloc_failed(by, n);
        return;
    }
    unsigned align_log2 = align ? qy_log2_floor(align) : 0;
    qy_writer_t *w = writer(&attention, &late);
    uint64_t now = qy_record_now();
    if (late && !qy_record.config.sample)
        qy_record_late(&(qy_event_t){
            .op = QY_OP_ALLOC, .by = by, .time = now, .size = n, .addr = (uintptr_t)p, .align_log2 = align_log2});
    if (!w || !draw(w, n) || !keep(w, p, n)) return;
    if (n >= QY_LARGE_BYTES) qy_addrset_add(&qy_large, (uintptr_t)p, n);
    else if (qy_written_draws(w, n))
        qy_written_watch(w, (void *)(uintptr_t)p, (qy_written_t){.size = n, .zeroed = by == QY_BY_CALLOC});
    if (qy_writer_begin(w)) {
        qy_write_alloc(w, by, now, n, (uintptr_t)p, align_log2, qy_record_stack(w, caller));
        if (by == QY_BY_CALLOC && n >= QY_LARGE_BYTES) qy_write_zeroed(w, now, n, (uintptr_t)p, qy_os_resident(p, n));
        // A thread of few events fills its block late.
        if (n >= QY_WRITTEN_BYTES) qy_usage_tell_at(w, now);
    }
    malloc_finish(w, attention);
}

// Of a block that was taken from qy_large: what the program did with its memory.
static void tell_end(qy_writer_t *w, const void *p, uint64_t value) {
    if (qy_written_is(value)) {
        uint64_t numbers[] = {(uintptr_t)p, qy_written_bytes(p, value)};
        qy_write_extension(w, QY_EXTENSION_WRITTEN, numbers, 2);
    } else qy_write_touched(w, qy_os_resident(p, value));
}

void qy_freed(unsigned by, const void *p) {
    uint32_t attention;
    bool late;
    uint64_t size;
    if (!p) by = QY_FREE_NULL;
    if (qy_record.config.sample &&
        (!qy_addrset_maybe(&qy_sampled, (uintptr_t)p) || !qy_addrset_take(&qy_sampled, (uintptr_t)p, &size)))
        return;
    // The C library calls free(NULL) in a thread that has ended. One that never allocated would get a writer for that,
    // and nobody would hear of its end.
    bool first = !p && qy_record_mine == &qy_writer_new && atomic_load(&qy_record.state) == QY_RECORD_RUNNING;
    qy_writer_t *w = first ? NULL : writer(&attention, &late);
    uint64_t now = qy_record_now();
    if (first || late) qy_record_late(&(qy_event_t){.op = QY_OP_FREE, .by = by, .time = now, .addr = (uintptr_t)p});
    // Whoever frees a large block takes it from the set, recorded or not: else it stands there for the next block of
    // its address.
    bool large = qy_written_take(p, &size);
    if (!w) return;
    if (qy_writer_begin(w)) {
        if (large) tell_end(w, p, size);
        qy_write_free(w, by, now, (uintptr_t)p);
    }
    malloc_finish(w, attention);
}

// ---- malloc and free -------------------------------------------------------------------------------------------

QY_COLD static void *malloc_slow(size_t n, const qy_stack_regs_t *caller) {
    unsigned by = QY_BY_NOBODY;
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) return qy_early_alloc(n, 16);
    bool hidden = qy_hidden(QY_HIDES_NEW, n, &by);
    void *p = qy_real.malloc(n);
    if (!hidden) qy_allocated(QY_BY_MALLOC, n, p, 0, caller);
    else if (!p && by != QY_BY_NOBODY) malloc_failed(by, n);
    return p;
}

QY_EXPORT void *malloc(size_t n) {
    qy_writer_t *w = qy_record_mine;
    if (QY_UNLIKELY(!qy_record_ready(w))) {
        if (w == &qy_writer_off && qy_real.malloc) return qy_real.malloc(n);
        qy_stack_regs_t caller = QY_STACK_CALLER();
        return malloc_slow(n, &caller);
    }
    if (n < w->skip) {
        w->skip -= n;
        return qy_real.malloc(n);
    }
    void *p = qy_real.malloc(n);
    uint64_t now = qy_record_now();
    // Without a block there is nothing to look at later; samples go the long way, too.
    if (QY_UNLIKELY(!p || n >= QY_WRITTEN_BYTES || w->samples || !qy_writer_begin(w))) {
        qy_stack_regs_t caller = QY_STACK_CALLER();
        qy_writer_end(w);
        qy_allocated(QY_BY_MALLOC, n, p, 0, &caller);
        return p;
    }
    uint32_t stack = 0;
    if (QY_UNLIKELY(w->stacks)) {
        qy_stack_regs_t caller = QY_STACK_CALLER();
        stack = qy_record_stack(w, &caller);
    }
    qy_write_alloc(w, QY_BY_MALLOC, now, n, (uintptr_t)p, 0, stack);
    qy_writer_end(w);
    return p;
}

// Recorded before it is done. What is no block of the real allocator's is not.
QY_COLD static void free_slow(void *p, unsigned by) {
    unsigned part;
    if (qy_is_early(p) || (!qy_real.free && !qy_real_find())) return;
    if (!qy_hidden((uintptr_t)p, 0, &part)) qy_freed(by, p);
    qy_real.free(p);
}

QY_EXPORT void free(void *p) {
    qy_writer_t *w = qy_record_mine;
    if (QY_UNLIKELY(
            !qy_record_ready(w) || !p || qy_is_early(p) || w->samples || qy_addrset_maybe(&qy_large, (uintptr_t)p))) {
        if (w->samples && p && !qy_is_early(p) && qy_record_ready(w) && !qy_addrset_maybe(&qy_sampled, (uintptr_t)p))
            qy_real.free(p);
        else free_slow(p, QY_FREE_PLAIN);
        return;
    }
    uint64_t now = qy_record_now();
    if (QY_LIKELY(qy_writer_begin(w))) {
        qy_write_free(w, QY_FREE_PLAIN, now, (uintptr_t)p);
        qy_writer_end(w);
    } else {
        qy_writer_end(w);
        qy_freed(QY_FREE_PLAIN, p);
    }
    qy_real.free(p);
}

// Where the real library doesn't know these, they are free.
QY_EXPORT void free_sized(void *p, size_t n) {
    unsigned part;
    if (!qy_real.free_sized) {
        free_slow(p, QY_FREE_SIZED);
        return;
    }
    if (!qy_hidden((uintptr_t)p, 0, &part)) qy_freed(QY_FREE_SIZED, p);
    uintptr_t outer = qy_hide((uintptr_t)p, 0);
    qy_real.free_sized(p, n);
    qy_show(outer);
}

QY_EXPORT void free_aligned_sized(void *p, size_t align, size_t n) {
    unsigned part;
    if (!qy_real.free_aligned_sized) {
        free_slow(p, QY_FREE_SIZED);
        return;
    }
    if (!qy_hidden((uintptr_t)p, 0, &part)) qy_freed(QY_FREE_SIZED, p);
    uintptr_t outer = qy_hide((uintptr_t)p, 0);
    qy_real.free_aligned_sized(p, align, n);
    qy_show(outer);
}

// No event: a program may ask for each block. That it asks is told, since what it does may depend on the answers, which
// differ between mallocs. The flag is written once, so that its line stays with all processors.
QY_EXPORT size_t malloc_usable_size(void *p) {
    if ((QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) || qy_is_early(p) || !qy_real.malloc_usable_size) return 0;
    if (QY_UNLIKELY(!(atomic_load_explicit(&qy_record.traits, memory_order_relaxed) & QY_TRAIT_ASKS)))
        atomic_fetch_or_explicit(&qy_record.traits, QY_TRAIT_ASKS, memory_order_relaxed);
    return qy_real.malloc_usable_size(p);
}

// ---- the others that hand out blocks ------------------------------------------------------------------------------

// Around a real function: `call` is an expression, of which the result is p. Calls within it are hidden; it may
// itself be hidden, as a part of operator new.
#define AROUND(p, call, by_, n, align)                                \
    do {                                                              \
        unsigned part = QY_BY_NOBODY;                                 \
        bool ready = qy_record_ready(qy_record_mine);                 \
        if (!ready && qy_hidden(QY_HIDES_NEW, n, &part)) {            \
            (p) = (call);                                             \
            if (!(p) && part != QY_BY_NOBODY) malloc_failed(part, n); \
        } else {                                                      \
            qy_stack_regs_t from = QY_STACK_CALLER();                 \
            uintptr_t outer = qy_hide(QY_HIDES_ALL, 0);               \
            (p) = (call);                                             \
            qy_show(outer);                                           \
            qy_allocated(by_, n, p, align, &from);                    \
        }                                                             \
    } while (0)

QY_EXPORT void *calloc(size_t count, size_t size) {
    void *p;
    size_t n;
    bool overflows = qy_mul_overflows(count, size, &n);
    if (QY_UNLIKELY(!qy_real.calloc) && !qy_real_find()) return overflows ? NULL : qy_early_alloc(n, 16);
    AROUND(p, qy_real.calloc(count, size), QY_BY_CALLOC, overflows ? SIZE_MAX : n, 0);
    return p;
}

QY_EXPORT void *memalign(size_t align, size_t n) {
    void *p;
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) return qy_early_alloc(n, align);
    AROUND(p, qy_real.memalign(align, n), QY_BY_MEMALIGN, n, align);
    return p;
}

QY_EXPORT void *aligned_alloc(size_t align, size_t n) {
    void *p;
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) return qy_early_alloc(n, align);
    AROUND(p, qy_real.aligned_alloc(align, n), QY_BY_MEMALIGN, n, align);
    return p;
}

QY_EXPORT void *valloc(size_t n) {
    void *p;
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) return qy_early_alloc(n, qy_os_page_size());
    AROUND(p, qy_real.valloc(n), QY_BY_MEMALIGN, n, qy_os_page_size());
    return p;
}

QY_EXPORT void *pvalloc(size_t n) {
    void *p;
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) return qy_early_alloc(n, qy_os_page_size());
    AROUND(p, qy_real.pvalloc(n), QY_BY_MEMALIGN, n, qy_os_page_size());
    return p;
}

QY_EXPORT int posix_memalign(void **ret_ptr, size_t align, size_t n) {
    void *p;
    int error = 0;
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) {
        p = qy_early_alloc(n, align);
        if (p) *ret_ptr = p;
        return p ? 0 : ENOMEM;
    }
    AROUND(p, (error = qy_real.posix_memalign(ret_ptr, align, n)) == 0 ? *ret_ptr : NULL, QY_BY_MEMALIGN, n, align);
    return error;
}

// ---- realloc --------------------------------------------------------------------------------------------------------

static void *early_realloc(const void *p, size_t n) {
    void *q = malloc(n);
    if (q && p) memcpy(q, p, qy_min(n, (size_t)(qy_early + sizeof qy_early - (const char *)p)));
    return q;
}

// How a realloc is recorded.
typedef enum malloc_how {
    AS_ONE,   // by a record that is written after the call
    AS_TWO,   // as a free, which is written before the call, and an allocation
    NOT_TOLD  // there is no room, nobody to write it, or neither block is in the sample
} malloc_how_t;

// A realloc on its way.
typedef struct malloc_move {
    const void *old;
    size_t n;
    bool known;     // the old block is in the trace; else the sample does not have it
    bool is_drawn;  // the new block is to be in the trace
    uint32_t stack;
    uint64_t before;  // when the call began
    bool watched;
    qy_written_t block;  // if it is watched: the new one
} malloc_move_t;

// When samples are recorded the new block is drawn before the call, so that its stack is there before that, too.
static bool draw_new(size_t n) {
    uint32_t attention;
    bool late;
    qy_writer_t *w = writer(&attention, &late);
    return !w || draw(w, n);
}

// That one record has the time before the call, as the old block may be another's at once. A writer that is new, and a
// block of the trace that is, begin with the time of then: so both are there, with the room, before that time is read,
// and so is the stack, which may end a block. What ended threads write goes where others of them write meanwhile, at
// later times: no room there keeps its time, and they say at once that the old block is gone.
static malloc_how_t before_realloc(malloc_move_t *m, const qy_stack_regs_t *caller) {
    uint32_t attention;
    bool late;
    if (!m->known && !m->is_drawn) return NOT_TOLD;
    qy_writer_t *w = writer(&attention, &late);
    if (late && m->known)
        qy_record_late(
            &(qy_event_t){.op = QY_OP_FREE, .by = QY_FREE_OTHER, .time = qy_os_ticks(), .addr = (uintptr_t)m->old});
    if (!w) return late ? AS_TWO : NOT_TOLD;
    bool room = qy_writer_begin(w);
    if (room) {
        if (m->is_drawn) m->stack = qy_record_stack(w, caller);
        room = qy_writer_room(w) != NULL;
    }
    malloc_finish(w, attention);
    return room ? AS_ONE : NOT_TOLD;
}

// What is seen of the new block, before the call: it is judged behind what it has of the old one. `value`: of the old
// one in qy_large, or 0; what is not known of it counts as written.
static void watch_on(malloc_move_t *m, uint64_t value) {
    qy_writer_t *w = qy_record_mine;
    size_t size, written;
    if (m->n < QY_WRITTEN_BYTES || m->n >= QY_LARGE_BYTES || !qy_record_ready(w)) return;
    if (qy_written_is(value)) {
        size = qy_written_size(value);
        written = qy_written_bytes(m->old, value);
    } else {
        if (value || !qy_real.malloc_usable_size || !qy_written_draws(w, m->n)) return;
        size = written = qy_real.malloc_usable_size((void *)(uintptr_t)m->old);
        if (size >= m->n) return;
    }
    m->watched = true;
    m->block = (qy_written_t){.size = m->n, .from = qy_min(size, m->n), .written = qy_min(written, m->n)};
}

static void malloc_resized(const malloc_move_t *m, const void *p) {
    uint32_t attention;
    bool late;
    qy_writer_t *w = writer(&attention, &late);
    uint64_t now = qy_record_now();
    if (!w) return;
    bool is_kept = p && m->is_drawn && keep(w, p, m->n);
    if (is_kept && m->n >= QY_LARGE_BYTES) qy_addrset_add(&qy_large, (uintptr_t)p, m->n);
    else if (is_kept && m->watched) qy_written_watch(w, (void *)(uintptr_t)p, m->block);
    uint64_t took = now > m->before ? now - m->before : 0;
    // A sample that has the old block alone tells its end. That of realloc(p, 0) is a free as any other.
    unsigned by = p || !w->samples ? QY_FREE_OTHER : QY_FREE_PLAIN;
    if (qy_writer_begin(w)) {
        if (is_kept) qy_write_realloc(w, m->before, took, (uintptr_t)m->old, m->n, (uintptr_t)p, m->stack);
        else if (m->known) qy_write_free(w, by, m->before, (uintptr_t)m->old);
        if (m->n >= QY_WRITTEN_BYTES) qy_usage_tell_at(w, now);
    }
    malloc_finish(w, attention);
}

// The block stays. If its end has been told it is born again, with the size that one of the sets knew, or 0.
static void not_resized(const malloc_move_t *m, malloc_how_t how, uint64_t size) {
    if (how != NOT_TOLD && m->is_drawn) tell_failed(QY_BY_REALLOC, m->n, true);
    if (how != AS_TWO || !m->known) return;
    qy_record_late(&(qy_event_t){
        .op = QY_OP_ALLOC, .by = QY_BY_REALLOC, .time = qy_os_ticks(), .size = size, .addr = (uintptr_t)m->old});
}

static void *reallocate(void *p, size_t n, const qy_stack_regs_t *caller) {
    uint64_t size = 0, value;
    unsigned part;
    if (!qy_record_ready(qy_record_mine) && qy_hidden(0, 0, &part)) return qy_real.realloc(p, n);
    bool samples = qy_record.config.sample != 0;
    bool was_drawn = samples && qy_addrset_take(&qy_sampled, (uintptr_t)p, &size);
    bool was_large = qy_written_take(p, &value);
    if (was_large) size = qy_written_size(value);
    malloc_move_t m = {.old = p, .n = n, .known = !samples || was_drawn, .is_drawn = !samples || draw_new(n)};
    watch_on(&m, was_large ? value : 0);
    malloc_how_t how = before_realloc(&m, caller);
    m.before = qy_os_ticks();
    uintptr_t outer = qy_hide(QY_HIDES_ALL, 0);
    void *q = qy_real.realloc(p, n);
    qy_show(outer);
    if (!q && n) {
        not_resized(&m, how, size);
        if (was_drawn) qy_addrset_add(&qy_sampled, (uintptr_t)p, size);
        if (was_large) qy_written_put(p, value);
        // realloc(p, 0) that returns nothing has freed the block
    } else if (how == AS_ONE) malloc_resized(&m, q);
    else if (how == AS_TWO && q) qy_allocated(QY_BY_REALLOC, n, q, 0, caller);
    return q;
}

QY_EXPORT void *realloc(void *p, size_t n) {
    qy_stack_regs_t caller = QY_STACK_CALLER();
    if (QY_UNLIKELY(!qy_real.malloc) && !qy_real_find()) return p ? early_realloc(p, n) : qy_early_alloc(n, 16);
    if (qy_is_early(p)) return early_realloc(p, n);
    if (p) return reallocate(p, n, &caller);
    void *q;
    AROUND(q, qy_real.realloc(NULL, n), QY_BY_REALLOC, n, 0);
    return q;
}

QY_EXPORT void *reallocarray(void *p, size_t count, size_t size) {
    size_t n;
    qy_stack_regs_t caller = QY_STACK_CALLER();
    if (qy_mul_overflows(count, size, &n)) {
        malloc_failed(QY_BY_REALLOC, SIZE_MAX);
        errno = ENOMEM;
        return NULL;
    }
    if (p && qy_real.malloc && !qy_is_early(p)) return reallocate(p, n, &caller);
    return realloc(p, n);
}
