// SPDX-License-Identifier: MIT
// ring.h: a pool for messages: many allocations that end together, in any thread, mostly in order.
//
//   quarry_ring_frame_t frame = r_newframe();       // in the thread's own ring. The names r_ are of <quarry/short.h>
//   job *j = r_new(job, 1);                         // zeroed; as many blocks as the message needs
//   r_seal();                                       // complete: nothing more is added
//   hand_over(j, frame);
//   ...
//   r_release(frame);                               // by any thread: all blocks of the frame end
//
//   Owner           of the blocks: the thread that holds the frame. Of the ring: the thread that made or adopted the
//                   ring
//   Lifetime        until their frame is released. Single blocks are not freed (quarry_pool_free does nothing)
//   Initialization  zero if asked for (QUARRY_RING_NEW), else undefined (QUARRY_RING_NEW_RAW)
//
// At most one frame is open. Sealed frames are released in any order, by any thread. Blocks lie side by side in
// chunks, without headers; the owner uses a chunk again when all frames in it are released, so a frame that
// lives long holds its own chunks and no others.
//
// Threads: everything but release belongs to the owner. Release is one atomic operation on the frame's
// own record, and touches nothing that the owner's allocations touch; there is no lock on either side.
// Cost: about 12 instructions for an allocation, 200 for newframe, seal and release together.
// Alignment: as asked for, 1 to 4096; sizes are not rounded.
// Sizes: the ring does not know them. resize needs the true old size (else NULL and EINVAL); the newest block grows and
// shrinks in place, other blocks of the open frame shrink in place or move. A block of a sealed
// frame cannot be resized.
// Misuse that is always seen, at once: newframe while a frame is open, allocation without one, sealing twice,
// release of an unsealed frame, second release, release of what is no frame, resize of a sealed frame's block.
// Statistics: used_bytes is what lies in chunks with a live frame, as far as the owner knows. The owner looks when the
// ring needs a chunk, every 256 frames, and in quarry_ring_reset. For a checked or logged pool the fields allocs and
// requested_bytes are exact. For others allocs is 0, and requested_bytes is the bytes in chunks that were left.
// Destruction with sealed frames is deferred: their memory stays until each is released; the last release, in
// whatever thread, ends the ring. An open frame ends with quarry_pool_destroy.
// A parent that is not QUARRY_POOL_SHARED gets chunks back in the owner's calls only; while such a ring waits for
// its last frames, the thread that releases one must be one that may use the parent.
#ifndef QUARRY_RING_H
#define QUARRY_RING_H

#include <quarry/pool.h>

QUARRY_BEGIN

/// A frame: its number and the generation of its record. 0 is no frame. Valid from newframe to release; what is
/// kept longer is seen when it is used.
typedef uint64_t quarry_ring_frame_t;

typedef struct quarry_ring_options {
    quarry_pool_options_t pool;
    size_t chunk_bytes;  ///< of a chunk, at the least; they grow with the ring up to 2 MiB; 0: 64 KiB
} quarry_ring_options_t;

/// Make a ring whose owner is the calling thread. NULL options: defaults. NULL and ENOMEM when there is no
/// memory for its first chunk. End it by quarry_pool_destroy.
QUARRY_API quarry_pool_t *quarry_ring_create(const quarry_ring_options_t *options) QUARRY_NOEXCEPT;

/// Open a frame; the one before must be sealed. 0 and ENOMEM when there is no memory for its record.
QUARRY_API quarry_ring_frame_t quarry_ring_newframe(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// The open frame; 0: none.
QUARRY_API quarry_ring_frame_t quarry_ring_getframe(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Close the open frame and return it: its blocks stay, nothing is added any more. It may be released from now on.
QUARRY_API quarry_ring_frame_t quarry_ring_seal(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// All blocks of a sealed frame end. Threads: any; the frame's number says which ring it is of. errno stays.
QUARRY_API void quarry_ring_release(quarry_ring_frame_t frame) QUARRY_NOEXCEPT;

/// A place in the open frame, to go back to.
typedef struct quarry_ring_mark {
    quarry_ring_frame_t frame;
    char *pos;
    void *chunk, *newest;
} quarry_ring_mark_t;

/// The present place, and back to it: blocks of the open frame that were allocated since end. The mark must be of
/// the open frame and no earlier place may have been gone back to meanwhile.
QUARRY_API quarry_ring_mark_t quarry_ring_checkpoint(quarry_pool_t *pool) QUARRY_NOEXCEPT;
QUARRY_API void quarry_ring_rewind(quarry_pool_t *pool, quarry_ring_mark_t mark) QUARRY_NOEXCEPT;

/// Look at all frames, and give all chunks without a live frame back to the parent, but the current one. For
/// the owner, when the ring will be idle for long; otherwise the ring gives back by itself what it has not needed for
/// 256 frames. Cost: a walk over chunks.
QUARRY_API void quarry_ring_reset(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// The calling thread becomes the owner. The former owner must have made its last call as owner before (joined, or
/// told so by a lock). No frame may be open.
QUARRY_API void quarry_ring_adopt(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// The calling thread's own ring, made by the first call; NULL and ENOMEM if that fails. It is destroyed when the
/// thread ends (deferred, as above).
QUARRY_API quarry_pool_t *quarry_ring_of_thread(void) QUARRY_NOEXCEPT;

// ---- the fast path -----------------------------------------------------------------------------
// What follows is here to be inlined; its fields belong to the library.

/// The part of a ring that allocation touches.
typedef struct quarry_ring {
    quarry_pool_t pool;
    char *pos;    // where the next block may begin
    char *limit;  // end of the chunk; pos == limit == NULL: no open frame, or every call takes the slow path
    char *clean;  // what lies in [pos, clean) is zero
} quarry_ring_t;

/// Of the calling thread; never NULL: a thread without a ring has one that is always full.
extern QUARRY_API QUARRY_THREAD_LOCAL quarry_ring_t *quarry_thread_ring;

QUARRY_API void *quarry_ring_alloc_slow(
    quarry_ring_t *ring, size_t size, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
QUARRY_API void *quarry_ring_resize_slow(
    quarry_ring_t *ring, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
QUARRY_API void quarry_ring_clean(quarry_ring_t *ring, char *block, char *next) QUARRY_NOEXCEPT;

static inline __attribute__((always_inline)) void *quarry_ring_bump(
    quarry_ring_t *r, size_t size, size_t alignment, unsigned flags) {
    // limit is a multiple of 64, so that aligning does not carry p beyond it.
    char *p = (char *)(((uintptr_t)r->pos + alignment - 1) & -alignment);
    if (__builtin_expect(alignment - 1 > 63 || (alignment & (alignment - 1)) || size - 1 >= (size_t)(r->limit - p), 0))
        return quarry_ring_alloc_slow(r, size, alignment, flags);
    char *next = p + size;
    __atomic_store_n(&r->pos, next, __ATOMIC_RELAXED);  // one writer; atomic for statistics read elsewhere
    if (flags & QUARRY_POOL_ZERO) {
        if (__builtin_constant_p(size) && size <= 64) __builtin_memset(p, 0, size);
        else if (__builtin_expect(next > r->clean, 0)) quarry_ring_clean(r, p, next);
    }
    return p;
}

/// quarry_pool_alloc without the indirect call. `pool` must be a ring.
static inline __attribute__((always_inline)) void *quarry_ring_alloc(
    quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return quarry_ring_bump((quarry_ring_t *)pool, size, alignment, flags);
}

static inline void *quarry_ring_dup(
    quarry_ring_t *ring, const void *from, size_t bytes, size_t extra_zeroes, size_t alignment) {
    char *p = (char *)quarry_ring_bump(ring, quarry_array_bytes(bytes, 1, extra_zeroes), alignment, 0);
    if (p && bytes) __builtin_memcpy(p, from, bytes);
    if (p && extra_zeroes) __builtin_memset(p + bytes, 0, extra_zeroes);
    return p;
}
static inline char *quarry_ring_strdup(quarry_ring_t *ring, const char *s) {
    return (char *)quarry_ring_dup(ring, s, __builtin_strlen(s), 1, 1);
}

QUARRY_END

// ---- the thread's own ring -------------------------------------------------------------------------
// As the functions above, on the ring of the calling thread.

#define QUARRY_RING_POOL() quarry_ring_of_thread()
#define QUARRY_RING_NEWFRAME() quarry_ring_newframe(&quarry_thread_ring->pool)
#define QUARRY_RING_GETFRAME() quarry_ring_getframe(&quarry_thread_ring->pool)
#define QUARRY_RING_SEAL() quarry_ring_seal(&quarry_thread_ring->pool)
#define QUARRY_RING_RELEASE(frame) quarry_ring_release(frame)
#define QUARRY_RING_CHECKPOINT() quarry_ring_checkpoint(&quarry_thread_ring->pool)
#define QUARRY_RING_REWIND(mark) quarry_ring_rewind(&quarry_thread_ring->pool, (mark))

// As the macros of pool.h, in that ring's open frame.

#define QUARRY_RING_NEW(T, n) ((T *)quarry_ring_bump(quarry_thread_ring, QUARRY_ARRAY_(T, n), QUARRY_POOL_ZERO))
#define QUARRY_RING_NEW_RAW(T, n) ((T *)quarry_ring_bump(quarry_thread_ring, QUARRY_ARRAY_(T, n), 0))
#define QUARRY_RING_NEW_EXTRA(T, extra) \
    ((T *)quarry_ring_bump(quarry_thread_ring, QUARRY_EXTRA_(T, extra), QUARRY_POOL_ZERO))
#define QUARRY_RING_NEW_EXTRA_RAW(T, extra) ((T *)quarry_ring_bump(quarry_thread_ring, QUARRY_EXTRA_(T, extra), 0))
#define QUARRY_RING_NEW_EXTRA_FIELD(T, field, n) \
    ((T *)quarry_ring_bump(quarry_thread_ring, QUARRY_FIELD_(T, field, n), QUARRY_POOL_ZERO))
#define QUARRY_RING_NEW_EXTRA_FIELD_RAW(T, field, n) \
    ((T *)quarry_ring_bump(quarry_thread_ring, QUARRY_FIELD_(T, field, n), 0))

#define QUARRY_RING_RENEW(pp, old_n, n) \
    QUARRY_RENEW_(quarry_ring_resize_slow, quarry_thread_ring, pp, old_n, n, QUARRY_POOL_ZERO)
#define QUARRY_RING_RENEW_RAW(pp, old_n, n) \
    QUARRY_RENEW_(quarry_ring_resize_slow, quarry_thread_ring, pp, old_n, n, 0)

#define QUARRY_RING_DUP(p, n) QUARRY_DUP_(quarry_ring_dup, quarry_thread_ring, p, n)
#define QUARRY_RING_DUPZ(s, n) ((char *)quarry_ring_dup(quarry_thread_ring, (s), (n), 1, 1))
#define QUARRY_RING_STRDUP(s) quarry_ring_strdup(quarry_thread_ring, (s))

#endif
