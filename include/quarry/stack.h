// SPDX-License-Identifier: MIT
// stack.h: a pool for temporary data: blocks lie side by side, and end together with the frame they are in.
//
//   quarry_pool_t *pool = quarry_stack_create(NULL);
//   quarry_stack_frame_t frame;
//   quarry_stack_push(pool, &frame);
//   char *text = p_new_raw(pool, char, 1000);       // about 9 instructions. p_new_raw is of <quarry/short.h>
//   quarry_stack_pop(pool, &frame);                 // text has ended
//   quarry_pool_destroy(pool);
//
//   Owner           of the blocks: the innermost frame that was open when they were allocated
//   Lifetime        until that frame is popped. Single blocks are not freed (quarry_pool_free does nothing)
//   Initialization  zero if asked for (QUARRY_NEW), else undefined (QUARRY_NEW_RAW)
//
// For scopes of C and C++ there is a ready-made stack in each thread: QUARRY_SCOPE below, t_scope in scope.h.
//
// A frame is a record of two words in a variable of the caller; it takes nothing from the pool. It may be in a function
// or in a structure, but stays where it is from push to pop. What is allocated without a frame lives as long as the
// pool; only a thread's own stack demands a frame.
//
// Threads: one at a time. A thread's own stack: that thread.
// Cost: push and pop together 11 or 12 instructions, an allocation 8, 9 when zeroed, 12 when 48 bytes are. A frame of
// any number of blocks ends in the same time, but for about 30 instructions for each chunk (64 KiB and more) it filled.
// Alignment: as asked for, up to 1 GiB; sizes are not rounded.
// Sizes: the stack does not know them. resize needs the true old size (else NULL and EINVAL). The newest block grows
// and shrinks in place, others shrink in place or move.
// Misuse that is always seen, at once: a pop that is not of the innermost frame, allocation from a sealed frame, resize
// of a block of an outer frame, and in a thread's own stack allocation without a frame.
// Memory: chunks that are left empty are kept up to 1 MiB. More than that goes back when the stack has done without
// it for a while, also inside of a frame that lives long; quarry_stack_reset does it at once.
// Statistics: used_bytes and held_bytes are exact. allocs, resizes and requested_bytes are counted for a checked or
// logged pool only (else 0).
#ifndef QUARRY_STACK_H
#define QUARRY_STACK_H

#include <quarry/pool.h>

QUARRY_BEGIN

/// A frame, in the caller's memory. Filled by push; its fields belong to the library.
typedef struct quarry_stack_frame {
    uintptr_t prev;  // the frame below, with marks; 0: none
    char *pos;       // where the stack stood
} quarry_stack_frame_t;

typedef struct quarry_stack_options {
    quarry_pool_options_t pool;
    size_t chunk_bytes;   ///< of a chunk, at the least; 0: 64 KiB. They grow with the mean size of requests
    void *buffer;         ///< not NULL: the stack lives in these bytes, which stay the caller's, and never grows
    size_t buffer_bytes;  ///< of it, at least 256
} quarry_stack_options_t;

/// Make a stack. NULL options: defaults. NULL and ENOMEM when there is no memory for its first chunk, NULL and
/// EINVAL for a buffer that is too small. End it by quarry_pool_destroy, with whatever frames are open.
QUARRY_API quarry_pool_t *quarry_stack_create(const quarry_stack_options_t *options) QUARRY_NOEXCEPT;

/// Seal the innermost frame: an allocation from it is a fault until it is unsealed. Frames opened inside of it
/// are not concerned. To prove that a piece of code allocates nothing for its caller.
QUARRY_API void quarry_stack_seal(quarry_pool_t *pool) QUARRY_NOEXCEPT;
QUARRY_API void quarry_stack_unseal(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Give all chunks that hold no block back to the parent at once: for a stack that will be idle for long.
QUARRY_API void quarry_stack_reset(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// The calling thread's own stack, made by the first call; NULL and ENOMEM if that fails. It is destroyed when the
/// thread ends.
QUARRY_API quarry_pool_t *quarry_stack_of_thread(void) QUARRY_NOEXCEPT;

// ---- the fast path -----------------------------------------------------------------------------
// What follows is here to be inlined; its fields belong to the library.

/// The part of a stack that allocation and frames touch.
typedef struct quarry_stack_hot {
    uintptr_t top;               // the innermost frame, with marks; 0: none
    char *pos;                   // where the next block may begin
    char *limit;                 // the fast path may go so far; NULL: every call takes the slow path
    struct quarry_stack *stack;  // NULL: a thread that has none yet
} quarry_stack_hot_t;

typedef struct quarry_stack {
    quarry_pool_t pool;
    quarry_stack_hot_t own;   // here, so that the link of records that are free lies in it, and not in `hot`
    quarry_stack_hot_t *hot;  // &own, or a thread's
} quarry_stack_t;

/// Of the calling thread's own stack.
extern QUARRY_API QUARRY_THREAD_LOCAL quarry_stack_hot_t quarry_thread_stack;

QUARRY_API void *quarry_stack_alloc_slow(
    quarry_stack_hot_t *hot, size_t size, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
QUARRY_API void *quarry_stack_resize_slow(
    quarry_stack_hot_t *hot, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
QUARRY_API void quarry_stack_pop_slow(quarry_stack_hot_t *hot, quarry_stack_frame_t *frame) QUARRY_NOEXCEPT;
QUARRY_API void quarry_stack_seal_slow(quarry_stack_hot_t *hot, int seal) QUARRY_NOEXCEPT;

#define QUARRY_STACK_ALIGN_MAX ((size_t)1 << 30)

// Statistics may be read by another thread; only its sanitizer needs to be told that words are written whole.
#if defined(__SANITIZE_THREAD__)
#define QUARRY_STACK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUARRY_STACK_TSAN 1
#endif
#endif
#ifdef QUARRY_STACK_TSAN
#define QUARRY_STACK_SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#else
#define QUARRY_STACK_SET(field, value) (void)((field) = (value))
#endif

static inline __attribute__((always_inline)) quarry_stack_frame_t quarry_stack_enter(
    quarry_stack_hot_t *h, quarry_stack_frame_t *frame) {
    // The frame's two words are the first two of the stack: one move for both.
    quarry_stack_frame_t before;
    __builtin_memcpy(&before, h, sizeof before);
    QUARRY_STACK_SET(h->top, (uintptr_t)frame);
    return before;
}

static inline __attribute__((always_inline)) void quarry_stack_leave(
    quarry_stack_hot_t *h, quarry_stack_frame_t *frame) {
    // A mark in `top` makes it differ as well: what a frame's end must look at is then seen.
    if (__builtin_expect(h->top != (uintptr_t)frame, 0)) {
        quarry_stack_pop_slow(h, frame);
        return;
    }
#ifdef QUARRY_STACK_TSAN
    QUARRY_STACK_SET(h->top, frame->prev);
    QUARRY_STACK_SET(h->pos, frame->pos);
#else
    __builtin_memcpy((void *)h, frame, sizeof *frame);
#endif
}

static inline __attribute__((always_inline)) void *quarry_stack_bump(
    quarry_stack_hot_t *h, size_t size, size_t alignment, unsigned flags) {
    uintptr_t p = ((uintptr_t)h->pos + alignment - 1) & -alignment, next = 0;  // a compiler may not see that it is set
    int odd = alignment - 1 > QUARRY_STACK_ALIGN_MAX - 1 || (alignment & (alignment - 1));
    if (__builtin_constant_p(size) && size && size < (size_t)1 << 30) next = p + size;
    else odd |= !size || __builtin_add_overflow(p, size, &next);
    if (__builtin_expect(odd || next > (uintptr_t)h->limit, 0))
        return quarry_stack_alloc_slow(h, size, alignment, flags);
    QUARRY_STACK_SET(h->pos, (char *)next);
    if (flags & QUARRY_POOL_ZERO) __builtin_memset((void *)p, 0, size);
    return (void *)p;
}

static inline quarry_stack_hot_t *quarry_stack_hot_of(quarry_pool_t *pool) { return ((quarry_stack_t *)pool)->hot; }

/// Open a frame inside of the innermost one. `pool` must be a stack.
static inline __attribute__((always_inline)) void quarry_stack_push(quarry_pool_t *pool, quarry_stack_frame_t *frame) {
    *frame = quarry_stack_enter(quarry_stack_hot_of(pool), frame);
}

/// End the innermost frame, which must be `frame`, and all blocks in it. errno stays.
static inline __attribute__((always_inline)) void quarry_stack_pop(quarry_pool_t *pool, quarry_stack_frame_t *frame) {
    quarry_stack_leave(quarry_stack_hot_of(pool), frame);
}

/// quarry_pool_alloc without the indirect call. `pool` must be a stack.
static inline __attribute__((always_inline)) void *quarry_stack_alloc(
    quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return quarry_stack_bump(quarry_stack_hot_of(pool), size, alignment, flags);
}

static inline void *quarry_stack_dup(
    quarry_stack_hot_t *h, const void *from, size_t bytes, size_t extra_zeroes, size_t alignment) {
    char *p = (char *)quarry_stack_bump(h, quarry_array_bytes(bytes, 1, extra_zeroes), alignment, 0);
    if (p && bytes) __builtin_memcpy(p, from, bytes);
    if (p && extra_zeroes) __builtin_memset(p + bytes, 0, extra_zeroes);
    return p;
}

// ---- the thread's own stack ------------------------------------------------------------------------
// docs/pools/stack.md and scope.h say what a scope is.

// The address of a thread-local variable is never NULL. A sanitizer tests it all the same, gcc takes the flags of the
// addition that made it, and the linker turns that into one that sets none: so it must not see where the address is
// from.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_UNDEFINED__)
static inline __attribute__((always_inline)) quarry_stack_hot_t *quarry_thread_stack_hidden(void) {
    quarry_stack_hot_t *h = &quarry_thread_stack;
    __asm__(""
            : "+r"(h));
    return h;
}
#define QUARRY_THREAD_STACK quarry_thread_stack_hidden()
#else
#define QUARRY_THREAD_STACK (&quarry_thread_stack)
#endif

// Inlined always, also without optimisation: its caller's variables are then all above what it calls (pop_slow relies
// on it to tell scopes that longjmp skipped).
static inline __attribute__((always_inline)) void quarry_scope_end(quarry_stack_frame_t *frame) {
    quarry_stack_leave(QUARRY_THREAD_STACK, frame);
}

QUARRY_END

#define QUARRY_SCOPE_PASTE_(a, b) a##b
#define QUARRY_SCOPE_PASTE(a, b) QUARRY_SCOPE_PASTE_(a, b)
#define QUARRY_SCOPE_NAMED(name)                                                   \
    quarry_stack_frame_t name __attribute__((cleanup(quarry_scope_end), unused)) = \
        quarry_stack_enter(QUARRY_THREAD_STACK, &name)

/// A frame of the thread's stack that ends with the enclosing block. A declaration; there may be several in a block.
#define QUARRY_SCOPE QUARRY_SCOPE_NAMED(QUARRY_SCOPE_PASTE(quarry_scope_, __COUNTER__))

/// The calling thread's stack as a pool, for code that takes one. NULL and ENOMEM if there is no memory for it.
#define QUARRY_SCOPE_POOL() quarry_stack_of_thread()

/// Seal the innermost scope: an allocation that is not in a scope inside of it ends the process. And undo that.
#define QUARRY_SCOPE_SEAL() quarry_stack_seal_slow(QUARRY_THREAD_STACK, 1)
#define QUARRY_SCOPE_UNSEAL() quarry_stack_seal_slow(QUARRY_THREAD_STACK, 0)

// As the macros of pool.h, in the innermost scope.

#define QUARRY_SCOPE_NEW(T, n) ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, QUARRY_ARRAY_(T, n), QUARRY_POOL_ZERO))
#define QUARRY_SCOPE_NEW_RAW(T, n) ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, QUARRY_ARRAY_(T, n), 0))
#define QUARRY_SCOPE_NEW_EXTRA(T, extra) \
    ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, QUARRY_EXTRA_(T, extra), QUARRY_POOL_ZERO))
#define QUARRY_SCOPE_NEW_EXTRA_RAW(T, extra) ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, QUARRY_EXTRA_(T, extra), 0))
#define QUARRY_SCOPE_NEW_EXTRA_FIELD(T, field, n) \
    ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, QUARRY_FIELD_(T, field, n), QUARRY_POOL_ZERO))
#define QUARRY_SCOPE_NEW_EXTRA_FIELD_RAW(T, field, n) \
    ((T *)quarry_stack_bump(QUARRY_THREAD_STACK, QUARRY_FIELD_(T, field, n), 0))

// The block was made in the innermost scope.
#define QUARRY_SCOPE_RENEW(pp, old_n, n) \
    QUARRY_RENEW_(quarry_stack_resize_slow, QUARRY_THREAD_STACK, pp, old_n, n, QUARRY_POOL_ZERO)
#define QUARRY_SCOPE_RENEW_RAW(pp, old_n, n) \
    QUARRY_RENEW_(quarry_stack_resize_slow, QUARRY_THREAD_STACK, pp, old_n, n, 0)

#define QUARRY_SCOPE_DUP(p, n) QUARRY_DUP_(quarry_stack_dup, QUARRY_THREAD_STACK, p, n)
#define QUARRY_SCOPE_DUPZ(s, n) ((char *)quarry_stack_dup(QUARRY_THREAD_STACK, (s), (n), 1, 1))
#define QUARRY_SCOPE_STRDUP(s)                                                                       \
    __extension__({                                                                                  \
        const char *quarry_s_ = (s);                                                                 \
        (char *)quarry_stack_dup(QUARRY_THREAD_STACK, quarry_s_, __builtin_strlen(quarry_s_), 1, 1); \
    })

/// printf into a new block of exactly the right size.
#define QUARRY_SCOPE_PRINTF(...)                                             \
    __extension__({                                                          \
        quarry_pool_t *quarry_pool_ = QUARRY_SCOPE_POOL();                   \
        quarry_pool_ ? quarry_pool_printf(quarry_pool_, __VA_ARGS__) : NULL; \
    })

#endif
