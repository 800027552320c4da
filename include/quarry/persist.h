// SPDX-License-Identifier: MIT
// persist.h: a pool in a file: blocks, their links and a root outlive the process.
//
//   quarry_persist_t *store = quarry_persist_open("notes.pool", &(quarry_persist_options_t){.flags =
//   QUARRY_PERSIST_CREATE}); if (!store) fprintf(stderr, "%s\n", quarry_persist_error(NULL));
//   quarry_persist_ptr_t root = quarry_persist_root(store);
//   if (!root) root = quarry_persist_alloc_to(store, quarry_persist_root_link(store), sizeof(struct notes),
//   QUARRY_POOL_ZERO); struct notes *notes = quarry_persist_at(store, root);
//   quarry_persist_close(store);
//
//   Owner           the file; in a process, whoever opened it
//   Lifetime        of a block: until it is freed, by this process or a later one
//   Initialization  undefined, or zero with QUARRY_POOL_ZERO
//
// A block is named by its offset in the file (quarry_persist_ptr_t), which holds in every process and
// mapping; quarry_persist_at gives its address in this one. In the file, store offsets, or quarry_rel_t.
//
// What survives what. Every operation (alloc, free, resize, the _to and _at forms, set, a transaction)
// happens entirely or not at all:
//
//                        the process is killed, anywhere        power fails, or the kernel dies
//   shared (default)     every finished operation is kept,      the last close. A pool that was open is
//                        and every store into blocks            refused (EUCLEAN) unless ACCEPT_TORN: what
//                                                               was stored since the last sync may be there
//                                                               in part
//   QUARRY_PERSIST_      the last sync, or if it was in         the same
//   JOURNAL              progress, that one or the one before
//
// So: shared for what must outlive crashes of the program and is made again after those of the machine;
// journal where each sync must be a commit that nothing can tear.
//
// Threads: any, one operation at a time (a lock); stores into blocks are the program's own to order.
// Processes: one has it open for writing, any number for reading; see quarry_persist_read_begin.
// After a fork the pool belongs to the parent: the child may read (in shared mode its mapping is
// read-only) and its operations fail with EPERM. Cost: an operation is about 20 logged words, no system
// call except for growth. Alignment: 16, up to 2 MiB by quarry_pool_alloc on quarry_persist_pool.
// Errors: 0, NULL or -1 with errno; EUCLEAN: the file is damaged, see quarry_persist_error.
#ifndef QUARRY_PERSIST_H
#define QUARRY_PERSIST_H

#include <quarry/pool.h>

QUARRY_BEGIN

typedef struct quarry_persist quarry_persist_t;

/// A block's place: bytes from the start of the file, a multiple of 16. 0: none.
typedef uint64_t quarry_persist_ptr_t;

#define QUARRY_PERSIST_CREATE 0x1u     ///< make the file if there is none (mode 0600)
#define QUARRY_PERSIST_READ_ONLY 0x2u  ///< never write; others may write meanwhile
#define QUARRY_PERSIST_JOURNAL 0x4u    ///< changes reach the file at sync only, all or none
/// open although power failed while it was open; contents of blocks may be mixed
#define QUARRY_PERSIST_ACCEPT_TORN 0x8u
/// don't walk all blocks at open; damage of blocks is then found where it is met
#define QUARRY_PERSIST_NO_CHECK 0x10u

/// Zero is a good default for every field.
typedef struct quarry_persist_options {
    quarry_pool_options_t pool;  ///< name, limit (of the file's bytes), flags; parent must be NULL
    unsigned flags;              ///< QUARRY_PERSIST_CREATE ...
    size_t initial_bytes;        ///< of a new file; 0: 256 KiB
    size_t max_bytes;            ///< address space kept for growth; 0: 16 GiB, or less where there is less
    size_t log_words;            ///< of a new file: most words one transaction changes, 256 to 65,535; 0: 2,389
} quarry_persist_options_t;

/// Open (or make) the pool in file `path`. NULL and errno on failure: ENOENT, EACCES and what else
/// open may say; EAGAIN: open for writing elsewhere; EMEDIUMTYPE: not a pool, or of another version or
/// byte order; EUCLEAN: damaged or torn; ENOMEM, ENOSPC; EINVAL: the options. quarry_persist_error says
/// more. An interrupted operation is rolled back, an interrupted sync is finished. The caller owns the result.
/// Cost: a walk over all blocks, unless QUARRY_PERSIST_NO_CHECK.
QUARRY_API quarry_persist_t *quarry_persist_open(
    const char *path, const quarry_persist_options_t *options) QUARRY_NOEXCEPT;

/// Sync, and close: no pointer into the pool may be used any more. An open transaction is taken back. -1 and errno if
/// the sync failed; it is closed even then. NULL is allowed. Same: quarry_pool_destroy of its pool.
QUARRY_API int quarry_persist_close(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Why the last call of this thread failed: one constant sentence, never NULL, and in *ret_offset
/// (may be NULL) the place in the file it is about, or 0.
QUARRY_API const char *quarry_persist_error(uint64_t *ret_offset) QUARRY_NOEXCEPT;

// ---- places and addresses ---------------------------------------------------------------------------

/// The address of an offset in this process, valid until close (growth does not move it); NULL if it
/// is 0 or outside of the pool's blocks. Cost: a few instructions.
QUARRY_API void *quarry_persist_at(const quarry_persist_t *store, quarry_persist_ptr_t at) QUARRY_NOEXCEPT;
/// The offset of an address inside the pool's blocks; 0 for others.
QUARRY_API quarry_persist_ptr_t quarry_persist_ptr(const quarry_persist_t *store, const void *address) QUARRY_NOEXCEPT;

/// A pointer that is relative to its own place: it holds in every mapping, as long as it and its target
/// are in the same pool and neither is copied elsewhere by itself. It is a word: quarry_persist_set works on it.
typedef uint64_t quarry_rel_t;
static inline void *quarry_rel_get(const quarry_rel_t *link) {
    return *link ? (void *)((uintptr_t)link + (uintptr_t)*link) : NULL;
}
/// The value that makes *link point to `target` (NULL: none; not link itself).
static inline quarry_rel_t quarry_rel_to(const quarry_rel_t *link, const void *target) {
    return target ? (quarry_rel_t)((uintptr_t)target - (uintptr_t)link) : 0;
}

/// The root: one offset from which the program finds everything else; 0 in a new pool. The link may
/// be given to quarry_persist_alloc_to and its kin, and to quarry_persist_set. It names a block or nothing.
QUARRY_API quarry_persist_ptr_t quarry_persist_root(const quarry_persist_t *store) QUARRY_NOEXCEPT;
QUARRY_API quarry_persist_ptr_t *quarry_persist_root_link(quarry_persist_t *store) QUARRY_NOEXCEPT;

// ---- operations ---------------------------------------------------------------------------------------

/// A block of `size` bytes; flags: QUARRY_POOL_ZERO. 0 on failure: ENOMEM, ENOSPC, EFBIG. If the
/// process dies before it stores the result somewhere, the block is lost: see quarry_persist_alloc_to.
QUARRY_API quarry_persist_ptr_t quarry_persist_alloc(
    quarry_persist_t *store, size_t size, unsigned flags) QUARRY_NOEXCEPT;
/// Give a block back; 0 is allowed. -1 and EINVAL: not a block, EALREADY: it is free.
QUARRY_API int quarry_persist_free(quarry_persist_t *store, quarry_persist_ptr_t at) QUARRY_NOEXCEPT;

/// The same together with a link in the pool (the root link, or an aligned word in a block), in one step: no block is
/// without its link and no link without its block, wherever the process dies.
/// alloc_to: *link = a new block; what *link was before is not freed.
QUARRY_API quarry_persist_ptr_t quarry_persist_alloc_to(
    quarry_persist_t *store, quarry_persist_ptr_t *link, size_t size, unsigned flags) QUARRY_NOEXCEPT;
/// free_from: the block of *link is freed, and *link = 0. A link of 0 is allowed.
QUARRY_API int quarry_persist_free_from(quarry_persist_t *store, quarry_persist_ptr_t *link) QUARRY_NOEXCEPT;
/// resize_at: the block of *link gets `size` bytes, in place or by moving (then *link changes). With
/// QUARRY_POOL_ZERO bytes behind the old usable size are zero. A link of 0: as alloc_to.
QUARRY_API quarry_persist_ptr_t quarry_persist_resize_at(
    quarry_persist_t *store, quarry_persist_ptr_t *link, size_t size, unsigned flags) QUARRY_NOEXCEPT;

/// Bytes that may be used in a block; 0 and errno if it is none.
QUARRY_API size_t quarry_persist_size(quarry_persist_t *store, quarry_persist_ptr_t at) QUARRY_NOEXCEPT;

// ---- transactions ---------------------------------------------------------------------------------------

/// Between begin and commit this thread's operations and sets become one step; other threads' wait.
/// Blocks freed in it are not reused before commit. Transactions don't nest (EBUSY). E2BIG: more words
/// than the pool's log holds; the transaction stays open, without that operation.
QUARRY_API int quarry_persist_begin(quarry_persist_t *store) QUARRY_NOEXCEPT;
QUARRY_API int quarry_persist_commit(quarry_persist_t *store) QUARRY_NOEXCEPT;
/// Take everything back since begin.
QUARRY_API int quarry_persist_abort(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// *where = value, for an aligned word in a block or the root link. Without a transaction it is one of its own.
QUARRY_API int quarry_persist_set(quarry_persist_t *store, uint64_t *where, uint64_t value) QUARRY_NOEXCEPT;
/// In a transaction: what is in `range` now comes back if it is not committed. Call it before the
/// first store into the range. Blocks made in the same transaction don't need it.
QUARRY_API int quarry_persist_save(quarry_persist_t *store, void *range, size_t bytes) QUARRY_NOEXCEPT;

// ---- the disk, other processes, checks ------------------------------------------------------------------

/// Make all that was done so far durable (see the table above). No other thread may store into blocks meanwhile. -1
/// and errno: ENOSPC (journal: nothing has changed, try again), EIO: in shared mode, and while a journal was applied,
/// final: all later syncs fail, as the kernel forgets what it could not write. EBUSY: within a transaction.
/// Cost: shared: msync of the pool. Journal: each changed page is written twice, and four flushes.
QUARRY_API int quarry_persist_sync(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// For readers of a pool that another process writes: a mark, and whether since then no operation (in
/// journal mode: no sync) happened. If not: what was read may be mixed; begin again. 0: an operation is on, or its
/// writer died in it. Of a store that was opened when its writer had died in an operation: 0 for good once another
/// writer has come; open it again. Stores into blocks that are no operations are not seen by it.
QUARRY_API uint64_t quarry_persist_read_begin(const quarry_persist_t *store) QUARRY_NOEXCEPT;
QUARRY_API int quarry_persist_read_ok(const quarry_persist_t *store, uint64_t mark) QUARRY_NOEXCEPT;
/// Readers: see what the pool has grown by since. Addresses stay.
QUARRY_API int quarry_persist_refresh(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Verify every block, list and count. 0, or -1 and EUCLEAN; quarry_persist_error has reason and offset.
QUARRY_API int quarry_persist_check(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// visit(block, usable size, arg) for every block, in the order of the file, until it returns non-zero, which
/// is returned; -1 and EUCLEAN at damage. `visit` must not use the pool, except for quarry_persist_at.
QUARRY_API int quarry_persist_walk(
    quarry_persist_t *store, int (*visit)(quarry_persist_ptr_t at, size_t size, void *arg), void *arg) QUARRY_NOEXCEPT;

/// The same pool behind the common interface: QUARRY_POOL_FREES | SIZES | SHARED | PERSISTENT. Also as a
/// parent: "memory from a file". Misuse of it ends the process, as with every pool. Blocks are never
/// framed by canaries: a file's format must not depend on how a program is checked.
QUARRY_API quarry_pool_t *quarry_persist_pool(quarry_persist_t *store) QUARRY_NOEXCEPT;

QUARRY_END
#endif
