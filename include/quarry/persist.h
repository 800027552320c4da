// SPDX-License-Identifier: MIT
// persist.h: a pool in a file: blocks, their links and a root outlive the process.
//
//   quarry_persist_options_t options = {.flags = QUARRY_PERSIST_CREATE};
//   quarry_persist_t *store = quarry_persist_open("notes.pool", &options);
//   if (!store) return fprintf(stderr, "%s\n", quarry_persist_error(NULL)), 1;
//   quarry_persist_ptr_t root = quarry_persist_root(store);
//   if (!root)
//       root = quarry_persist_alloc_to(store, quarry_persist_root_link(store), sizeof(struct notes), QUARRY_POOL_ZERO);
//   struct notes *notes = quarry_persist_at(store, root);
//   quarry_persist_close(store);
//
//   Owner           the file. In a process, the program that opened it
//   Lifetime        of a block: until it is freed, by this process or a later one
//   Initialization  undefined, or zero with QUARRY_POOL_ZERO
//
// A block is named by its offset in the file (quarry_persist_ptr_t), which holds in every process and mapping.
// quarry_persist_at gives its address in this process. In the file, store offsets, or quarry_rel_t.
//
// Every operation (alloc, free, resize, the _to, _from and _at forms, set, a transaction) happens entirely or not at
// all. After a crash the file has:
//
//                        the process is killed, anywhere        power fails, or the kernel dies
//   shared (default)     every finished operation,              what the last close left. A pool that was
//                        and every store into blocks            open is refused (EUCLEAN). With ACCEPT_TORN
//                                                               it opens; what was stored since the last
//                                                               sync may be there in part
//   QUARRY_PERSIST_      the last sync. If a sync was in        the same
//   JOURNAL              progress, that one or the one before
//
// Take shared mode for data that must outlive crashes of the program, and can be made again after crashes of the
// machine. Take the journal where each sync must be a commit that nothing can tear.
//
//  - Threads: any thread may call, and a lock lets one operation at a time proceed. The program orders its own stores
//    into blocks.
//  - Processes: one process has the file open for writing, any number for reading. See quarry_persist_read_begin.
//  - Fork: the pool stays with the parent. The child may read, and its operations fail with EPERM. In shared mode the
//    child's mapping is read-only, and quarry_persist_refresh maps what the parent's pool has grown by. In journal mode
//    the child sees the pool of the fork until the parent's next sync. From then on quarry_persist_read_begin gives 0.
//  - Cost: an operation takes some 20 logged words. Only growth makes a system call.
//  - Alignment: 16, and up to 2 MiB by quarry_pool_alloc on quarry_persist_pool.
//  - Errors: functions return 0, NULL or -1 with errno, and quarry_persist_error says why. Every function that changes
//    the pool may fail with EROFS (open for reading only), EPERM (after a fork) or EUCLEAN (the file is damaged).
#ifndef QUARRY_PERSIST_H
#define QUARRY_PERSIST_H

#include <quarry/pool.h>

QUARRY_BEGIN

typedef struct quarry_persist quarry_persist_t;

/// A block's place: bytes from the start of the file, a multiple of 16. 0 is no block.
typedef uint64_t quarry_persist_ptr_t;

#define QUARRY_PERSIST_CREATE 0x1u     ///< make the file if there is none (mode 0600)
#define QUARRY_PERSIST_READ_ONLY 0x2u  ///< never write; another process may write meanwhile
#define QUARRY_PERSIST_JOURNAL 0x4u    ///< changes reach the file only at a sync, all or none
/// open a file that was open when power failed; contents of blocks may be mixed
#define QUARRY_PERSIST_ACCEPT_TORN 0x8u
/// do not check all blocks at open: the operation that meets a damaged block then fails
#define QUARRY_PERSIST_NO_CHECK 0x10u

/// Zero is a good default for every field.
typedef struct quarry_persist_options {
    quarry_pool_options_t pool;  ///< name, limit (of the file's bytes), flags; parent must be NULL
    unsigned flags;              ///< QUARRY_PERSIST_CREATE ...
    size_t initial_bytes;        ///< of a new file; 0: 256 KiB
    size_t max_bytes;            ///< address space kept for growth; 0: 16 GiB, or what can be had
    size_t log_words;            ///< of a new file: words one transaction may change, 256 to 65,535; 0: 2,389
} quarry_persist_options_t;

/// Open the pool in file `path`, or make it with QUARRY_PERSIST_CREATE. An interrupted operation is rolled back, and an
/// interrupted sync is finished. `options` may be NULL. The caller owns the result until quarry_persist_close.
/// On failure it returns NULL with errno, and quarry_persist_error says more:
///
///  - ENOENT, EACCES and the other errors of open(2).
///  - EAGAIN: another process has the file open for writing. Of a reader: that process makes the pool, or is busy.
///  - EMEDIUMTYPE: the file is no pool, or one of another version or byte order.
///  - EUCLEAN: the file is damaged or torn.
///  - ENOMEM, ENOSPC: no address space, no room on the disk. EINVAL: the options.
///
/// Cost: a walk over all blocks, unless QUARRY_PERSIST_NO_CHECK.
QUARRY_API quarry_persist_t *quarry_persist_open(
    const char *path, const quarry_persist_options_t *options) QUARRY_NOEXCEPT;

/// Sync and close the pool. No pointer into it may be used any more. An open transaction is taken back. NULL is
/// allowed. Returns 0, or -1 with errno if the sync failed: the pool is closed even then. quarry_pool_destroy of its
/// pool does the same. Cost: as quarry_persist_sync.
QUARRY_API int quarry_persist_close(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Why the last call of this thread failed: one constant sentence, never NULL. *ret_offset is the place in the file
/// that the sentence is about, or 0. `ret_offset` may be NULL.
QUARRY_API const char *quarry_persist_error(uint64_t *ret_offset) QUARRY_NOEXCEPT;

// ---- places and addresses ---------------------------------------------------------------------------

/// The address of an offset in this process, or NULL if the offset is 0 or outside of what is mapped of the file. That
/// may be more than the pool has blocks in. The address is valid until close, since growth moves nothing. Threads: any,
/// without a lock. Cost: a few instructions.
QUARRY_API void *quarry_persist_at(const quarry_persist_t *store, quarry_persist_ptr_t at) QUARRY_NOEXCEPT;
/// The offset of an address, or 0 where quarry_persist_at would give NULL.
QUARRY_API quarry_persist_ptr_t quarry_persist_ptr(const quarry_persist_t *store, const void *address) QUARRY_NOEXCEPT;

/// A pointer that is relative to its own place. It holds in every mapping while it and its target are in the same pool
/// and neither is copied elsewhere by itself. It is one word, so quarry_persist_set can store it.
typedef uint64_t quarry_rel_t;
/// The address that *link points to, or NULL.
static inline void *quarry_rel_get(const quarry_rel_t *link) {
    return *link ? (void *)((uintptr_t)link + (uintptr_t)*link) : NULL;
}
/// The value that makes *link point to `target`, which may be NULL and may not be `link` itself.
static inline quarry_rel_t quarry_rel_to(const quarry_rel_t *link, const void *target) {
    return target ? (quarry_rel_t)((uintptr_t)target - (uintptr_t)link) : 0;
}

/// The root: the offset of the one block from which the program finds all others, or 0. It is 0 in a new pool.
QUARRY_API quarry_persist_ptr_t quarry_persist_root(const quarry_persist_t *store) QUARRY_NOEXCEPT;
/// The word that holds the root, for quarry_persist_alloc_to, its kin, and quarry_persist_set. It names a block or
/// none.
QUARRY_API quarry_persist_ptr_t *quarry_persist_root_link(quarry_persist_t *store) QUARRY_NOEXCEPT;

// ---- operations ---------------------------------------------------------------------------------------

/// Allocate a block of `size` bytes. `flags` is 0 or QUARRY_POOL_ZERO. The pool owns the block until it is freed. If
/// the process dies before it stores the result in the pool, no link leads to the block: quarry_persist_alloc_to
/// avoids this. 0 with errno ENOMEM, ENOSPC or EFBIG on failure. E2BIG: the transaction is full, as with
/// quarry_persist_begin.
QUARRY_API quarry_persist_ptr_t quarry_persist_alloc(
    quarry_persist_t *store, size_t size, unsigned flags) QUARRY_NOEXCEPT;
/// Free the block at `at`, which may be 0. Returns 0, or -1: with EINVAL if it is no block, with EALREADY if it is
/// free.
QUARRY_API int quarry_persist_free(quarry_persist_t *store, quarry_persist_ptr_t at) QUARRY_NOEXCEPT;

/// Allocate a block and store its place in *link, in one step. `link` is the root link, or an aligned word in a block.
/// Wherever the process dies, no block is without its link and no link without its block. The block that *link named
/// before is not freed. Errors: as quarry_persist_alloc, and EINVAL if `link` is not in the pool.
QUARRY_API quarry_persist_ptr_t quarry_persist_alloc_to(
    quarry_persist_t *store, quarry_persist_ptr_t *link, size_t size, unsigned flags) QUARRY_NOEXCEPT;
/// Free the block that *link names and set *link to 0, in one step. A link of 0 is allowed. Errors: as
/// quarry_persist_free.
QUARRY_API int quarry_persist_free_from(quarry_persist_t *store, quarry_persist_ptr_t *link) QUARRY_NOEXCEPT;
/// Resize the block that *link names to `size` bytes, in one step. If the block moves, *link changes. With
/// QUARRY_POOL_ZERO the bytes behind the old usable size are zero. A link of 0 gets a new block. Returns the block's
/// place, or 0 with the errors of quarry_persist_alloc_to. The old block is then unchanged.
QUARRY_API quarry_persist_ptr_t quarry_persist_resize_at(
    quarry_persist_t *store, quarry_persist_ptr_t *link, size_t size, unsigned flags) QUARRY_NOEXCEPT;

/// Bytes that may be used in the block at `at`, or 0 with the errors of quarry_persist_free.
QUARRY_API size_t quarry_persist_size(quarry_persist_t *store, quarry_persist_ptr_t at) QUARRY_NOEXCEPT;

// ---- transactions ---------------------------------------------------------------------------------------

/// Begin a transaction: until commit, this thread's operations and sets are one step, and those of other threads wait.
/// Blocks that are freed in it are not reused before the commit. Transactions do not nest: -1 with EBUSY. An operation
/// that needs more words than the pool's log has left fails with E2BIG, and the transaction stays open without it.
QUARRY_API int quarry_persist_begin(quarry_persist_t *store) QUARRY_NOEXCEPT;
/// Commit the transaction of this thread. Returns 0, or -1: with EINVAL if none is open.
QUARRY_API int quarry_persist_commit(quarry_persist_t *store) QUARRY_NOEXCEPT;
/// Take back all operations since begin, and end the transaction. Returns 0, or -1 with EINVAL if none is open.
QUARRY_API int quarry_persist_abort(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Store `value` in *where, an aligned word in a block or the root link. Outside of a transaction the store is one of
/// its own. Returns 0, or -1: with EINVAL if the word is not in the pool, with E2BIG as above.
QUARRY_API int quarry_persist_set(quarry_persist_t *store, uint64_t *where, uint64_t value) QUARRY_NOEXCEPT;
/// Log the contents of `bytes` bytes at `range`, so that they come back if the open transaction is not committed. Call
/// it before the first store into the range. Blocks that were made in the same transaction do not need it. Returns 0,
/// or -1: with EINVAL if no transaction is open or the range is not in the pool, with E2BIG as above.
QUARRY_API int quarry_persist_save(quarry_persist_t *store, void *range, size_t bytes) QUARRY_NOEXCEPT;

// ---- the disk, other processes, checks ------------------------------------------------------------------

/// Make all finished operations and stores durable, as the table above says. No other thread may store into blocks
/// meanwhile. Returns 0, or -1 with errno:
///
///  - ENOSPC: in journal mode, no room for the journal. Nothing has changed, so try again.
///  - EIO: final in shared mode, and while a journal is applied. All later syncs fail, since the kernel forgets what it
///    could not write.
///  - EBUSY: called within a transaction.
///
/// Cost: in shared mode an msync of the pool. With a journal each changed page is written twice, with four flushes.
QUARRY_API int quarry_persist_sync(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Begin to read a pool that another process writes. The result is a mark for quarry_persist_read_ok. 0: an operation
/// is in progress, or its writer died in it, so try again. A store that was opened after its writer had died in an
/// operation gets 0 for good once another writer has come: open it again. So does a fork's child in journal mode, once
/// its parent has synced.
QUARRY_API uint64_t quarry_persist_read_begin(const quarry_persist_t *store) QUARRY_NOEXCEPT;
/// 1 if no operation happened since `mark` (in journal mode: no sync), so what was read belongs together. Else 0: begin
/// again. Plain stores into blocks are no operations, and are not seen.
QUARRY_API int quarry_persist_read_ok(const quarry_persist_t *store, uint64_t mark) QUARRY_NOEXCEPT;
/// For a reader, or a fork's child: map what the pool has grown by. Addresses stay. Returns 0, or -1 with errno.
QUARRY_API int quarry_persist_refresh(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Verify every block, list and count. Returns 0, or -1 with EUCLEAN: quarry_persist_error has reason and offset.
/// EBUSY: a transaction of this thread is open and has changed something. A reader asks quarry_persist_read_ok
/// afterwards: what a writer does meanwhile looks like damage. Cost: a walk over all blocks, under the lock.
QUARRY_API int quarry_persist_check(quarry_persist_t *store) QUARRY_NOEXCEPT;

/// Call `visit(block, usable size, arg)` for every block in use, in the order of the file. The walk ends when `visit`
/// returns non-zero, and returns that value, else 0. -1 with EUCLEAN: the file is damaged. `visit` must not use the
/// pool, except for quarry_persist_at. Cost: a walk over all blocks, under the lock.
QUARRY_API int quarry_persist_walk(
    quarry_persist_t *store, int (*visit)(quarry_persist_ptr_t at, size_t size, void *arg), void *arg) QUARRY_NOEXCEPT;

/// The same pool behind the common interface, QUARRY_POOL_FREES | SIZES | SHARED | PERSISTENT. As a parent it is memory
/// from a file. The store owns it. Misuse of it ends the process, as with every pool. QUARRY_CONF=pools:guard
/// and fence do nothing for it. Under quarry check its blocks are checked: faults are reported, and the program goes
/// on.
/// The file stays one that any process can open.
QUARRY_API quarry_pool_t *quarry_persist_pool(quarry_persist_t *store) QUARRY_NOEXCEPT;

QUARRY_END
#endif
