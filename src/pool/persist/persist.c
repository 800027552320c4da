// SPDX-License-Identifier: MIT
// persist.c: the operations of a persistent pool: each is a transaction, or a part of the caller's.
#include "pool/persist.h"

#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"

// ---- whose turn it is -----------------------------------------------------------------------------------

static bool in_transaction(const quarry_persist_t *s) {
    return atomic_load_explicit(&s->tx_owner, memory_order_relaxed) == qy_os_thread_token();
}

bool qy_persist_enter(quarry_persist_t *s) {
    qy_pool_must_live(&s->pool);
    if (!in_transaction(s)) qy_lock_take(&s->lock);
    return true;
}

void qy_persist_leave(quarry_persist_t *s) {
    if (!in_transaction(s)) qy_lock_drop(&s->lock);
}

bool qy_persist_may_change(const quarry_persist_t *s) {
    if (s->foreign) return qy_persist_fail(EPERM, "the pool belongs to the process that forked", 0);
    return !(s->flags & QUARRY_PERSIST_READ_ONLY) || qy_persist_fail(EROFS, "the pool is open for reading only", 0);
}

static bool enter_to_write(quarry_persist_t *s) {
    qy_persist_enter(s);
    bool may = qy_persist_may_change(s);
    if (!may) qy_persist_leave(s);
    return may;
}

// One step of the caller's transaction, or a whole one.
typedef struct step {
    uint32_t records, frees;
    size_t traced;
} step_t;

static bool begin_step(quarry_persist_t *s, uint64_t records, step_t *ret_step) {
    if (!enter_to_write(s)) return false;
    qy_lock_take(&s->step);
    *ret_step = (step_t){s->records, s->frees, s->ntraced};
    if (qy_persist_room(s, records)) return true;
    qy_lock_drop(&s->step);
    qy_persist_leave(s);
    return false;
}

// Behind a commit. Blocks of a file that was opened without a look may be damaged, which is nothing that this code has
// done.
static void persist_assert_sound(quarry_persist_t *s) {
    if (!(s->flags & QUARRY_PERSIST_NO_CHECK))
        qy_assert_walk(
            &s->pool, QY_PERSIST_BINS + 2 * s->words->count, qy_persist_verify(s) ? NULL : quarry_persist_error(NULL));
}

static void take_back(quarry_persist_t *s, step_t step) {
    QY_NEEDS(&s->step);
    qy_assert(step.records <= s->records && step.frees <= s->frees);
    size_t traced = s->ntraced;
    if (qy_persist_is_told(s)) qy_persist_trace_rollback(s, step.traced);
    s->frees = step.frees;
    qy_persist_rollback(s, step.records);
    if (qy_persist_is_told(s)) qy_persist_trace_rolled_back(s, traced);
}

static bool commit(quarry_persist_t *s) {
    bool done = true;
    uint32_t frees = s->frees;
    size_t traced = s->ntraced;
    QY_NEEDS(&s->lock);
    QY_NEEDS(&s->step);
    if (QY_MUTANT(3)) qy_persist_log_commit(s);
    for (uint32_t i = 0; i < s->frees && done; i++) done = qy_persist_give(s, s->freed[i]);
    if (qy_persist_is_told(s) && done) qy_persist_trace_commit(s);
    else if (qy_persist_is_told(s)) qy_persist_trace_rollback(s, 0);
    s->frees = 0;
    if (done) qy_persist_log_commit(s);
    else qy_persist_rollback(s, 0);
    if (qy_persist_is_told(s) && done) qy_persist_trace_committed(s, frees);
    else if (qy_persist_is_told(s)) qy_persist_trace_rolled_back(s, traced);
    qy_assert(!s->records);
    persist_assert_sound(s);
    return done;
}

static bool end_step(quarry_persist_t *s, step_t step, bool done) {
    if (!done) take_back(s, step);
    else if (!in_transaction(s)) done = commit(s);
    qy_lock_drop(&s->step);
    qy_persist_leave(s);
    return done;
}

// ---- places ---------------------------------------------------------------------------------------------

static bool is_mapped(const quarry_persist_t *s, uint64_t at) {
    return at >= s->first && at < __atomic_load_n(&s->mapped, __ATOMIC_RELAXED);
}

void *quarry_persist_at(const quarry_persist_t *s, quarry_persist_ptr_t at) {
    return is_mapped(s, at) ? s->base + at : NULL;
}

quarry_persist_ptr_t quarry_persist_ptr(const quarry_persist_t *s, const void *address) {
    uint64_t at = (uint64_t)((uintptr_t)address - (uintptr_t)s->base);
    return is_mapped(s, at) ? at : 0;
}

quarry_persist_ptr_t quarry_persist_root(const quarry_persist_t *s) {
    return __atomic_load_n(&s->words->root, __ATOMIC_ACQUIRE);
}
quarry_persist_ptr_t *quarry_persist_root_link(quarry_persist_t *s) { return &s->words->root; }

// May it be changed by sets, as a word of a block or the root?
static bool good_word(const quarry_persist_t *s, const uint64_t *where) {
    uint64_t at = (uint64_t)((uintptr_t)where - (uintptr_t)s->base), end = qy_persist_end(s);
    if (where == &s->words->root || (at >= s->first && at % 8 == 0 && at <= end - 16)) return true;
    return qy_persist_fail(EINVAL, "this word is not in the pool", 0);
}

// ---- operations -----------------------------------------------------------------------------------------------

void qy_persist_count(quarry_persist_t *s, qy_count_t what, size_t size) {
    qy_pool_info_t *i = s->pool.info;
    if (QY_UNLIKELY(s->pool.mode & QY_MODE_COUNTED)) {
        qy_count(&s->pool, what, size);
        return;
    }
    qy_bump(what == QY_COUNT_ALLOC ? &i->allocs : what == QY_COUNT_FREE ? &i->frees
                                                                        : &i->resizes,
        1);
    qy_bump(&i->requested, size);
}

// A new block, and its place in *link. Within a step.
static uint64_t make(
    quarry_persist_t *s, const qy_stack_regs_t *caller, quarry_persist_ptr_t *link, size_t size, bool zero) {
    uint64_t at = qy_persist_take(s, size, 16, zero);
    if (!at) return 0;
    if (link) qy_persist_store(s, link, at);
    qy_persist_count(s, QY_COUNT_ALLOC, size);
    if (qy_persist_is_told(s)) qy_persist_trace_alloc(s, caller, at, size, 16, zero);
    return at;
}

uint64_t qy_persist_make(
    quarry_persist_t *s, const qy_stack_regs_t *caller, quarry_persist_ptr_t *link, size_t size, unsigned flags) {
    step_t step;
    if (link && !good_word(s, link)) return 0;
    if (!begin_step(s, QY_PERSIST_OP_WORDS, &step)) return 0;
    uint64_t at = make(s, caller, link, size, flags & QUARRY_POOL_ZERO);
    return end_step(s, step, at != 0) ? at : 0;
}

quarry_persist_ptr_t quarry_persist_alloc_to(
    quarry_persist_t *s, quarry_persist_ptr_t *link, size_t size, unsigned flags) {
    return qy_persist_make(s, &QY_STACK_CALLER(), link, size, flags);
}
quarry_persist_ptr_t quarry_persist_alloc(quarry_persist_t *s, size_t size, unsigned flags) {
    return qy_persist_make(s, &QY_STACK_CALLER(), NULL, size, flags);
}

int qy_persist_unmake(
    quarry_persist_t *s, const qy_stack_regs_t *caller, quarry_persist_ptr_t *link, quarry_persist_ptr_t at) {
    step_t step;
    if (!begin_step(s, QY_PERSIST_OP_WORDS + QY_PERSIST_FREE_WORDS, &step)) return -1;
    if (link) at = *link;  // under the lock
    bool done = !at || qy_persist_defer(s, at);
    if (QY_UNLIKELY(s->watch) && at && done) qy_persist_watch_ends(s, at, caller);
    else if (QY_UNLIKELY(s->watch) && at && errno != E2BIG) qy_persist_watch_wrong(s, at, caller, "free");
    if (done && at && link) qy_persist_store(s, link, 0);
    if (done && at) qy_persist_count(s, QY_COUNT_FREE, 0);
    return end_step(s, step, done) ? 0 : -1;
}

int quarry_persist_free(quarry_persist_t *s, quarry_persist_ptr_t at) {
    return at ? qy_persist_unmake(s, &QY_STACK_CALLER(), NULL, at) : 0;
}
int quarry_persist_free_from(quarry_persist_t *s, quarry_persist_ptr_t *link) {
    return good_word(s, link) ? qy_persist_unmake(s, &QY_STACK_CALLER(), link, 0) : -1;
}

// The block of *link moves to a place where it has room.
static uint64_t persist_move(
    quarry_persist_t *s, quarry_persist_ptr_t *link, uint64_t old_bytes, size_t size, bool zero) {
    uint64_t from = *link, at = qy_persist_take(s, size, 16, false);
    if (!at) return 0;
    memcpy(s->base + at, s->base + from, qy_min(old_bytes - 8, size));
    unsigned flags;
    uint64_t bytes = qy_persist_block(s, at, &flags);
    if (zero && bytes > old_bytes) qy_persist_clear(s, at + old_bytes - 8, bytes - old_bytes);
    if (!qy_persist_defer(s, from)) return 0;
    qy_persist_store(s, link, at);
    return at;
}

// The block of *link, here or elsewhere. Within a step.
static uint64_t persist_resize(
    quarry_persist_t *s, const qy_stack_regs_t *caller, quarry_persist_ptr_t *link, size_t size, bool zero) {
    uint64_t bytes, at = 0;
    bool used = qy_persist_must_be_used(s, *link, &bytes);
    qy_persist_asked_t had = {bytes - 8, false};
    if (QY_UNLIKELY(s->watch) && !used) qy_persist_watch_wrong(s, *link, caller, "resize");
    if (!used) return 0;
    if (QY_UNLIKELY(s->watch) && qy_persist_watch_asked(s, *link, &had)) qy_persist_watch_ends(s, *link, caller);
    int here = qy_persist_resize_here(s, *link, size, zero);
    if (here > 0) at = *link;
    else if (here == 0) at = persist_move(s, link, bytes, size, zero);
    // What nobody asked for was not the program's, and may have a checker's canary.
    if (at && zero && had.size < qy_min(bytes - 8, size))
        qy_persist_clear(s, at + had.size, qy_min(bytes - 8, size) - had.size);
    if (at && qy_persist_is_told(s)) {
        // The old place is freed by the commit, and told then.
        if (here > 0) qy_persist_trace_resized(s, at, bytes - 8, size, zero);
        else qy_persist_trace_alloc(s, caller, at, size, 16, zero);
    }
    if (at) qy_persist_count(s, QY_COUNT_RESIZE, size);
    return at;
}

quarry_persist_ptr_t quarry_persist_resize_at(
    quarry_persist_t *s, quarry_persist_ptr_t *link, size_t size, unsigned flags) {
    step_t step;
    bool zero = flags & QUARRY_POOL_ZERO;
    if (!good_word(s, link) || !begin_step(s, QY_PERSIST_OP_WORDS + QY_PERSIST_FREE_WORDS, &step)) return 0;
    // Whether there is a block yet is asked under the lock: another thread may be making it.
    const qy_stack_regs_t *caller = &QY_STACK_CALLER();
    uint64_t at = *link ? persist_resize(s, caller, link, size, zero) : make(s, caller, link, size, zero);
    return end_step(s, step, at != 0) ? at : 0;
}

size_t quarry_persist_size(quarry_persist_t *s, quarry_persist_ptr_t at) {
    uint64_t bytes;
    qy_persist_enter(s);
    qy_persist_asked_t asked;
    bool used = qy_persist_must_be_used(s, at, &bytes);
    // In a watched pool the rest is no part of the block.
    if (used && qy_persist_watch_asked(s, at, &asked)) bytes = asked.size + 8;
    qy_persist_leave(s);
    return used ? bytes - 8 : 0;
}

// ---- transactions ---------------------------------------------------------------------------------------------

int quarry_persist_begin(quarry_persist_t *s) {
    if (in_transaction(s)) return qy_persist_fail(EBUSY, "transactions don't nest", 0), -1;
    if (!enter_to_write(s)) return -1;
    atomic_store_explicit(&s->tx_owner, qy_os_thread_token(), memory_order_relaxed);
    qy_lock_go_out(&s->lock);
    return 0;
}

static int persist_end(quarry_persist_t *s, bool keep) {
    if (!in_transaction(s)) return qy_persist_fail(EINVAL, "no transaction is open", 0), -1;
    bool done = true;
    qy_lock_take(&s->step);
    if (keep) done = commit(s);
    else take_back(s, (step_t){0, 0, 0});
    atomic_store_explicit(&s->tx_owner, 0, memory_order_relaxed);
    qy_lock_drop(&s->step);
    qy_lock_drop(&s->lock);
    return done ? 0 : -1;
}

int quarry_persist_commit(quarry_persist_t *s) { return persist_end(s, true); }
int quarry_persist_abort(quarry_persist_t *s) { return persist_end(s, false); }

int quarry_persist_set(quarry_persist_t *s, uint64_t *where, uint64_t value) {
    step_t step;
    if (!good_word(s, where) || !begin_step(s, 1, &step)) return -1;
    qy_persist_store(s, where, value);
    return end_step(s, step, true) ? 0 : -1;
}

// A word is recorded by storing what it has.
int quarry_persist_save(quarry_persist_t *s, void *range, size_t bytes) {
    step_t step;
    uintptr_t first = (uintptr_t)range & ~(uintptr_t)7;
    if (!bytes) return 0;
    if (!in_transaction(s)) return qy_persist_fail(EINVAL, "no transaction is open", 0), -1;
    if (bytes > QUARRY_POOL_MAX / 2)
        return qy_persist_fail(E2BIG, "the transaction changes more words than the pool's log holds", 0), -1;
    uint64_t words = ((uintptr_t)range + bytes + 7 - first) / 8;
    uint64_t *word = (uint64_t *)first;
    if (!good_word(s, word) || !good_word(s, word + words - 1) || !begin_step(s, words, &step)) return -1;
    for (uint64_t i = 0; i < words; i++) qy_persist_store(s, word + i, word[i]);
    return end_step(s, step, true) ? 0 : -1;
}

// ---- the disk, other processes ----------------------------------------------------------------------------------

int quarry_persist_sync(quarry_persist_t *s) {
    if (in_transaction(s)) return qy_persist_fail(EBUSY, "within a transaction", 0), -1;
    if (!enter_to_write(s)) return -1;
    qy_lock_take(&s->step);
    bool done = qy_persist_sync_file(s);
    qy_lock_drop(&s->step);
    qy_persist_leave(s);
    return done ? 0 : -1;
}

// A view that was repaired has copies of some pages, those of the log and the mark among them, and of the others what
// the file has. It is sound until the next writer comes, who changes one of the two in the file before anything else
// that the view does not have.
// The same is true of what a fork's child sees of a pool with a journal. If another thread's transaction was open at
// the fork, the child's words say so for ever.
static uint64_t moment_of_copies(const quarry_persist_t *s) {
    qy_persist_mark_t mark;
    uint64_t log;
    bool same = qy_persist_read_mark(s->fd, &mark) && qy_os_file_read_at(s->fd, &log, 8, QY_PERSIST_UNIT) == 0 &&
                mark.count == s->mark_count && log == s->file_log && (s->words->log & 0xFFFF) == 0;
    return same ? (log >> 16) + mark.count + 1 : 0;
}

// The transaction's number and the journal's count only ever grow, so their sum names a moment. A mark
// that is being written does not fit its sum.
uint64_t quarry_persist_read_begin(const quarry_persist_t *s) {
    if (s->private_map && (s->foreign || (s->flags & QUARRY_PERSIST_READ_ONLY))) return moment_of_copies(s);
    const uint64_t *from = (const uint64_t *)(const void *)(s->base + 2 * QY_PERSIST_SECTOR);
    qy_persist_mark_t mark;
    for (size_t i = 0; i < sizeof mark / 8; i++) ((uint64_t *)&mark)[i] = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
    uint64_t log = __atomic_load_n(&s->words->log, __ATOMIC_ACQUIRE);
    bool quiet = mark.sum == qy_persist_sum_of(&mark) && mark.count % 2 == 0 && (log & 0xFFFF) == 0;
    return quiet ? (log >> 16) + mark.count + 1 : 0;
}

int quarry_persist_read_ok(const quarry_persist_t *s, uint64_t mark) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return mark && quarry_persist_read_begin(s) == mark;
}
