// SPDX-License-Identifier: MIT
// persist.h: the parts of a persistent pool.
//
//   persist_file.c     open, create, close: from a path to a mapping that may be trusted
//   persist_journal.c  sync, and the journal of the journal mode
//   persist_log.c      the undo log: each word of the pool's own is changed by qy_persist_store
//   persist_blocks.c   blocks and free lists inside the file
//   persist_check.c    walking and verifying
//   persist.c          the public operations: transactions around the above
//   persist_trace.c     what the recorder is told of all that
//   persist_watch.c     what a checker is told, and what it sees later
//   persist_pool.c     the same as a quarry_pool_t
//
// The crash protocol, in one paragraph. Before a word is changed, a record (where, old value) is written and
// then counted in words->log. A transaction is committed by one store to words->log, which sets the count to 0
// and moves to the next number. Whoever opens a file whose count is not 0 stores the old values back, last
// first, and then commits in the same way; doing that twice does no harm. What a killed process has stored is in
// the kernel's page cache, all of it and in order, so the order of the stores (release stores, which the
// compiler keeps in order) is all it needs. The power failing is another matter: persist_journal.c.
//
// Which stores need no record: those into memory that is free before the transaction and after its
// rollback, except the words by which the free lists go through it. Therefore taking a free block
// records its links and footer, even where they are not changed, and blocks freed by a transaction are
// given back at its commit only.
//
// Threads: `lock` covers everything that changes. tx_owner is the thread between begin and commit, which holds it,
// while it may do anything else; the lock says then that its holder is out, as it does during a walk. `step`, inside of
// it, is held for each change: what is true between two of them a fork finds.
#ifndef QY_POOL_PERSIST_H
#define QY_POOL_PERSIST_H

#include <errno.h>
#include <quarry/persist.h>

#include "os/mapfile.h"
#include "pool/persist_format.h"
#include "pool/pool.h"
#include "stacks/stack.h"

#define QY_PERSIST_FREES_MAX 1024u  // blocks freed in one transaction
#define QY_PERSIST_OP_WORDS 64u     // the most records of one operation ...
#define QY_PERSIST_FREE_WORDS 24u   // ... and of one free at commit

// What the program asked for, where that is known (persist_watch.c).
typedef struct qy_persist_asked {
    uint64_t size;
    bool is_zero;  // so are the bytes behind it
} qy_persist_asked_t;

// A block that was made (size UINT64_MAX), or had so many bytes before it was resized in place.
typedef struct qy_persist_traced {
    uint64_t at, size;
    qy_persist_asked_t asked;
} qy_persist_traced_t;

struct quarry_persist {
    quarry_pool_t pool;  // its head: a persistent pool is a pool
    char *base;          // where the file begins in this process
    qy_persist_words_t *words;
    qy_persist_record_t *log;
    uint64_t log_words, first;  // `at` of the first block there may be
    uint64_t mapped;            // bytes of the file that are mapped (and exist)
    uint64_t reserved;          // address space
    qy_lock_t lock, step;
    _Atomic uintptr_t tx_owner;
    uint32_t records;  // of the open transaction; words->log has the same
    uint32_t frees;    // in freed[]
    uint64_t *freed;   // blocks this transaction gives back at commit
    uint64_t number;   // of the transaction
    // a recorded or watched pool: what the open transaction has told of blocks, to be taken back with it
    qy_persist_traced_t *traced;
    size_t ntraced, room_for_traced;
    // NULL unless QY_MODE_WATCHED
    struct qy_persist_watch *watch;
    int fd, lock_fd;      // apart: a mapping would keep a lock of its own description alive
    unsigned flags;       // QUARRY_PERSIST_*
    bool made;            // the file, by this call of open
    bool foreign;         // we are a fork's child
    bool private_map;     // nothing we store reaches the file by itself
    bool sync_failed;     // for good
    bool own_pages;       // the kernel tells which pages we have changed
    uint64_t mark_count;  // of the journal mark in the file
    uint64_t file_log;    // of a private mapping: words->log in the file, which the view may have no more
};

// ---- errors (persist_file.c) ----------------------------------------------------------------------------

// errno and this thread's reason and offset. Returns false and -1 as is convenient.
QY_COLD bool qy_persist_fail(int error, const char *reason, uint64_t offset);

// ---- stores (persist_log.c) -------------------------------------------------------------------------------

// Tests: called before every store to the pool's own words. A build without the fake never reads it.
extern void (*qy_persist_hook)(void *where);
// Tests: a broken protocol, which they must notice. 1: the word is changed before its record counts. 2: the record
// counts before it is written. 3: commit comes before the blocks are given back. 4: links of a taken block are not
// recorded. Sync: 5: no flush before the mark. 6: no mark. 7: the mark is taken back before the pages are on the disk.
extern int qy_persist_mutant;
#define QY_MUTANT(n) (QY_CFG_FAKE && qy_persist_mutant == (n))

QY_INLINE uint64_t *qy_word(const quarry_persist_t *s, uint64_t at) { return (uint64_t *)(void *)(s->base + at); }

// A word that needs no record, or is one.
QY_INLINE void qy_persist_raw(uint64_t *where, uint64_t value) {
    if (QY_CFG_FAKE && qy_persist_hook) qy_persist_hook(where);
    __atomic_store_n(where, value, __ATOMIC_RELEASE);
}
// A word of the pool. There must be room (qy_persist_room).
void qy_persist_store(quarry_persist_t *s, uint64_t *where, uint64_t value);
// Room for so many more records, besides what the frees at commit need? If not: E2BIG.
bool qy_persist_room(quarry_persist_t *s, uint64_t records);
void qy_persist_log_commit(quarry_persist_t *s);
// Take back the records from `mark` on; 0 also ends the transaction.
void qy_persist_rollback(quarry_persist_t *s, uint32_t mark);
// After open: is what the log says sound? And take back what was not committed.
bool qy_persist_log_check(quarry_persist_t *s);
void qy_persist_recover(quarry_persist_t *s);

// ---- blocks (persist_blocks.c) -----------------------------------------------------------------------------
// All within a transaction, with room. 0 or false: errno and reason are set; the caller rolls back.

// Zeros, where there are none yet.
void qy_persist_clear(quarry_persist_t *s, uint64_t at, uint64_t bytes);
uint64_t qy_persist_take(quarry_persist_t *s, uint64_t size, uint64_t alignment, bool zero);
// Mark it as freed; it goes at commit (qy_persist_give).
bool qy_persist_defer(quarry_persist_t *s, uint64_t at);
bool qy_persist_give(quarry_persist_t *s, uint64_t at);
// In place, for a block in use. 1: done, 0: not possible, -1: damage.
int qy_persist_resize_here(quarry_persist_t *s, uint64_t at, uint64_t size, bool zero);

// The size of the block at `at` (with its header), or 0 if there is none in use. `ret_free`: its flags say free.
uint64_t qy_persist_block(const quarry_persist_t *s, uint64_t at, unsigned *ret_flags);
bool qy_persist_must_be_used(quarry_persist_t *s, uint64_t at, uint64_t *ret_size);
// Where blocks end. Never behind the mapping, also while another process changes it under a reader. Needs no lock.
QY_INLINE uint64_t qy_persist_end(const quarry_persist_t *s) {
    return qy_min(
        __atomic_load_n(&s->words->end, __ATOMIC_RELAXED), __atomic_load_n(&s->mapped, __ATOMIC_RELAXED));
}
// The pool as it is when it is made: one free block.
void qy_persist_format(quarry_persist_t *s, uint64_t end);
void qy_persist_link(quarry_persist_t *s, uint64_t at, uint64_t size);

// More file. False: ENOSPC, EFBIG, ENOMEM. (persist_file.c)
bool qy_persist_extend(quarry_persist_t *s, uint64_t bytes);

// ---- the recorder and a checker (persist_trace.c) ----------------------------------------------------------
// With the lock, so before anybody else can do something with the block.

QY_INLINE bool qy_persist_is_told(const quarry_persist_t *s) {
    return QY_UNLIKELY(s->pool.mode & (QY_MODE_RECORDED | QY_MODE_WATCHED));
}
// A block was made; one of `had` bytes was resized in place. `zero`: what nobody asked for is zero as well.
QY_COLD void qy_persist_trace_alloc(
    quarry_persist_t *s, const qy_stack_regs_t *caller, uint64_t at, size_t size, size_t alignment, bool zero);
QY_COLD void qy_persist_trace_resized(quarry_persist_t *s, uint64_t at, uint64_t had, size_t size, bool zero);
// The transaction is about to be committed, and the blocks in freed[] end; it is committed, and there were so many.
QY_COLD void qy_persist_trace_commit(quarry_persist_t *s);
QY_COLD void qy_persist_trace_committed(quarry_persist_t *s, uint32_t frees);
// About to be taken back: what was told since there were `traced`. It is, and there were `more`.
QY_COLD void qy_persist_trace_rollback(quarry_persist_t *s, size_t traced);
QY_COLD void qy_persist_trace_rolled_back(quarry_persist_t *s, size_t more);

// ---- a checker (persist_watch.c) ---------------------------------------------------------------------------
// With the lock, and only of a pool with QY_MODE_WATCHED, but for the first three.

QY_COLD void qy_persist_watch_open(quarry_persist_t *s);
// Looks at all blocks once more.
QY_COLD void qy_persist_watch_close(quarry_persist_t *s);
// False: not known.
QY_COLD bool qy_persist_watch_asked(const quarry_persist_t *s, uint64_t at, qy_persist_asked_t *ret);
// This part of a free block is about to become, or belong to, a block in use.
QY_COLD void qy_persist_watch_taken(quarry_persist_t *s, uint64_t at, uint64_t bytes);
// It has. `caller` NULL: it was in the file before.
QY_COLD void qy_persist_watch_made(
    quarry_persist_t *s, uint64_t at, uint64_t size, bool zero, const qy_stack_regs_t *caller);
// The transaction will free the block, or resize it. What lies around it is looked at.
QY_COLD void qy_persist_watch_ends(quarry_persist_t *s, uint64_t at, const qy_stack_regs_t *caller);
QY_COLD void qy_persist_watch_resized(quarry_persist_t *s, uint64_t at, uint64_t size, bool zero);
// The transaction is at its end: one that it resized, or did not after all. It is committed: one that it freed.
QY_COLD void qy_persist_watch_resettle(quarry_persist_t *s, uint64_t at);
QY_COLD void qy_persist_watch_ended(quarry_persist_t *s, uint64_t at);
// The links of a free block come to be there, or are about to go.
QY_COLD void qy_persist_watch_links(quarry_persist_t *s, uint64_t at, bool come);
// It is taken back: one that it made, one that it resized.
QY_COLD void qy_persist_watch_unmade(quarry_persist_t *s, uint64_t at);
QY_COLD void qy_persist_watch_unsized(quarry_persist_t *s, uint64_t at, uint64_t bytes, qy_persist_asked_t had);
// `function` was given a place where no block in use begins. errno says why: as from qy_persist_must_be_used.
QY_COLD void qy_persist_watch_wrong(
    quarry_persist_t *s, uint64_t at, const qy_stack_regs_t *caller, const char *function);

// ---- verification (persist_check.c) -------------------------------------------------------------------------

bool qy_persist_verify(quarry_persist_t *s);
// Of that, what is true of the words alone: so that blocks may be looked for at all.
bool qy_persist_check_words(const quarry_persist_t *s);

// ---- the disk (persist_journal.c) ---------------------------------------------------------------------------

int qy_persist_write_state(quarry_persist_t *s, bool open);
bool qy_persist_read_state(int fd, qy_persist_state_t *ret_state);
bool qy_persist_read_mark(int fd, qy_persist_mark_t *ret_mark);
int qy_persist_clear_mark(int fd, uint64_t count);
// Bring the journal's pages home: into the file, or into the private mapping at `base`.
bool qy_persist_replay(int fd, const qy_persist_mark_t *mark, char *base);
bool qy_persist_sync_file(quarry_persist_t *s);
void qy_persist_probe_pages(quarry_persist_t *s);

// ---- the pool's side (persist_pool.c) -------------------------------------------------------------------------

extern const quarry_pool_ops_t qy_persist_ops;
// For operations: the lock, unless this thread's transaction has it. False: not now, errno.
bool qy_persist_enter(quarry_persist_t *s);
void qy_persist_leave(quarry_persist_t *s);
// May this process change the pool? False: EPERM, EROFS.
bool qy_persist_may_change(const quarry_persist_t *s);
void qy_persist_count(quarry_persist_t *s, qy_count_t what, size_t size);  // with the lock
bool qy_persist_commit_step(quarry_persist_t *s);
// quarry_persist_alloc and quarry_persist_free for a caller further out.
uint64_t qy_persist_make(
    quarry_persist_t *s, const qy_stack_regs_t *caller, quarry_persist_ptr_t *link, size_t size, unsigned flags);
int qy_persist_unmake(
    quarry_persist_t *s, const qy_stack_regs_t *caller, quarry_persist_ptr_t *link, quarry_persist_ptr_t at);
// Close without sync (tests; a child).
void qy_persist_abandon(quarry_persist_t *s);
// Of that, what gives memory and descriptors back. May be repeated.
void qy_persist_let_go(quarry_persist_t *s);

#endif
