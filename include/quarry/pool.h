// SPDX-License-Identifier: MIT
// pool.h: one interface for every pool, and the typed macros QUARRY_NEW, QUARRY_RENEW, QUARRY_DELETE over it.
//
//   quarry_pool_t *pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "replies"});
//   reply *r = QUARRY_NEW(pool, reply, 1);     // zeroed, aligned for reply, NULL and ENOMEM if refused
//   QUARRY_DELETE(pool, &r);                   // r is NULL now
//   quarry_pool_destroy(pool);
//
// A program that includes <quarry/short.h> may write p_new and p_delete for these, and so on.
//
// A pool allocates from large chunks, which it takes from its parent: another pool, or (parent NULL)
// pages of the kernel. No pool takes memory from malloc unless quarry_libc_pool() is its parent.
// Which pool for what: docs/pools.md.
//
// Threads: what a kind allows stands in its capabilities and its header. QUARRY_POOL_SHARED: every
// function from any thread. Otherwise one thread at a time, except what the header names.
// Errors: a pool that is refused memory returns NULL and sets errno to ENOMEM (or ends the process
// with one line, for pools made with QUARRY_POOL_ABORT). Misuse that a pool can see ends the process
// with one line, which docs/errors.md explains.
#ifndef QUARRY_POOL_H
#define QUARRY_POOL_H

#include <errno.h>
#include <stdarg.h>

#include <quarry/attr.h>

QUARRY_BEGIN

typedef struct quarry_pool quarry_pool_t;
typedef struct quarry_pool_ops quarry_pool_ops_t;
struct quarry_pool_info;

// ---- what a kind can do (capabilities) ----------------------------------------------------------

#define QUARRY_POOL_FREES 0x1u        ///< free gives memory back one block at a time (else it does nothing)
#define QUARRY_POOL_SIZES 0x2u        ///< knows the size of its blocks: QUARRY_SIZE_UNKNOWN is allowed
#define QUARRY_POOL_ANY_FREE 0x4u     ///< any thread may free (allocation stays with one)
#define QUARRY_POOL_SHARED 0x8u       ///< any thread may do anything
#define QUARRY_POOL_FRAMES 0x10u      ///< blocks end with their frame (stack, ring)
#define QUARRY_POOL_PERSISTENT 0x20u  ///< contents outlive the process
#define QUARRY_POOL_GROWS 0x40u       ///< resize of the newest block happens in place

// ---- flags of one call ----------------------------------------------------------------------------

#define QUARRY_POOL_ZERO 0x1u                  ///< new bytes read as zero; without it their contents are undefined
#define QUARRY_SIZE_UNKNOWN ((size_t)-1)       ///< for pools with QUARRY_POOL_SIZES
#define QUARRY_POOL_MAX ((size_t)PTRDIFF_MAX)  ///< larger requests are refused, whatever there is

// ---- options common to all kinds ------------------------------------------------------------------

#define QUARRY_POOL_ABORT 0x1u      ///< refused memory ends the process with one line, instead of NULL
#define QUARRY_POOL_UNTRACKED 0x2u  ///< not in lists and reports of pools; not reported when left over
#define QUARRY_POOL_GUARD 0x4u      ///< check this pool: canaries around blocks, see "checking" in docs/pools.md
#define QUARRY_POOL_PASS 0x8u       ///< pass-through: every block is a malloc of its own, for checkers
#define QUARRY_POOL_FENCE 0x10u     ///< check this pool: every block ends before a page without access

/// First member of every kind's options. Zero is a good default for every field.
typedef struct quarry_pool_options {
    const char *name;       ///< for reports; copied, at most 31 bytes are kept; NULL: the kind
    quarry_pool_t *parent;  ///< where chunks come from; NULL: the kernel. Must outlive the pool
    size_t limit;           ///< most bytes the pool may hold from its parent; 0: none
    unsigned flags;         ///< QUARRY_POOL_ABORT ...
} quarry_pool_options_t;

// ---- statistics -------------------------------------------------------------------------------------

/// A snapshot. `allocs`, `frees`, `resizes` and `requested_bytes` are counted exactly while a pool is
/// checked or logged; otherwise as far as its kind counts without cost (its header says).
typedef struct quarry_pool_stats {
    const char *kind;          ///< "stack", "fifo", ...
    const char *name;          ///< as given; valid until the pool is destroyed
    size_t held_bytes;         ///< chunks held from the parent
    size_t used_bytes;         ///< given out and not freed, with headers and rounding
    size_t peak_held_bytes;    ///< the most that was ever held
    size_t limit;              ///< as set; 0: none
    uint64_t requested_bytes;  ///< sum of all requests
    uint64_t allocs;           ///< allocations
    uint64_t frees;            ///< single frees (pools with QUARRY_POOL_FREES)
    uint64_t resizes;          ///< resizes
    uint64_t slow_calls;       ///< calls that left the fast path
    uint64_t chunk_gets;       ///< chunks taken from the parent
    uint64_t chunk_puts;       ///< chunks given back
    uint64_t slow_ns;          ///< time spent on taking and giving back chunks
} quarry_pool_stats_t;

// ---- a pool, as far as callers may know it ------------------------------------------------------------

/// The operations of a kind. Constant; shared by all its pools.
struct quarry_pool_ops {
    const char *kind;
    unsigned capabilities;
    size_t max_alignment;  ///< larger ones are refused with EINVAL
    void *(*alloc)(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags);
    void *(*resize)(quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags);
    void (*free)(quarry_pool_t *pool, void *ptr, size_t size);
    size_t (*usable)(quarry_pool_t *pool, const void *ptr);          ///< NULL without QUARRY_POOL_SIZES
    const char *(*check)(quarry_pool_t *pool);                       ///< NULL if sound, else what is wrong
    void (*stats)(quarry_pool_t *pool, quarry_pool_stats_t *stats);  ///< fills what only the kind knows
    void (*destroy)(quarry_pool_t *pool);
    // Under observation (checking and pass-through): memory for a block without bookkeeping, and back.
    void *(*raw_alloc)(quarry_pool_t *pool, size_t size, size_t alignment);
    void (*raw_free)(quarry_pool_t *pool, void *ptr, size_t size);
    // Around fork, for pools with locks: 0 before, 1 after in the parent, 2 after in the child. May be NULL.
    void (*fork)(quarry_pool_t *pool, int phase);
};

/// The head of every pool. Not to be copied or changed by callers.
struct quarry_pool {
    const quarry_pool_ops_t *ops;
    unsigned mode;   ///< why calls take the slow path; 0: nothing is observed
    unsigned alive;  ///< a mark; anything else: destroyed or never a pool
    struct quarry_pool_info *info;
};

// ---- functions ------------------------------------------------------------------------------------------

/// A block of `size` bytes at a multiple of `alignment` (a power of two up to the kind's
/// max_alignment, else NULL and EINVAL). Size 0 gives a block that may be freed and not touched.
/// The caller owns it until it is freed, its frame ends, or the pool is destroyed: as the kind says.
static inline void *quarry_pool_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return pool->ops->alloc(pool, size, alignment, flags);
}

/// Change the size of `ptr`, in place if the kind can, else by moving. The first min(old, new) bytes
/// stay; with QUARRY_POOL_ZERO bytes from `old_size` on are zero. `old_size` is what was asked for
/// last, or QUARRY_SIZE_UNKNOWN (then with ZERO: bytes from the usable size on are zero). NULL `ptr`: as alloc. NULL
/// result: the block is as it was. In a pool of frames, only blocks of the innermost frame.
static inline void *quarry_pool_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    return pool->ops->resize(pool, ptr, old_size, size, alignment, flags);
}

/// Give a block back. NULL is allowed. `size`: as old_size above. errno stays.
static inline void quarry_pool_free(quarry_pool_t *pool, void *ptr, size_t size) {
    if (ptr) pool->ops->free(pool, ptr, size);
}

/// Bytes that may be used behind `ptr`; 0 for kinds that do not know (no QUARRY_POOL_SIZES).
static inline size_t quarry_pool_usable(quarry_pool_t *pool, const void *ptr) {
    return ptr && pool->ops->usable ? pool->ops->usable(pool, ptr) : 0;
}

static inline unsigned quarry_pool_capabilities(const quarry_pool_t *pool) { return pool->ops->capabilities; }
static inline const char *quarry_pool_kind(const quarry_pool_t *pool) { return pool->ops->kind; }

/// Free the pool and everything in it. NULL is allowed. No thread may be using it. Kinds with
/// deferred destruction say so. A pool that is still the parent of others is misuse (one line, abort).
QUARRY_API void quarry_pool_destroy(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// The name, valid until the pool is destroyed.
QUARRY_API const char *quarry_pool_name(const quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// The parent; NULL: the kernel.
QUARRY_API quarry_pool_t *quarry_pool_parent(const quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Bytes of a cache line, asked of the processor; 64 where it does not say. What different threads write to should lie
/// in lines of its own: at this alignment, and on processors that fetch lines in pairs at twice of it. Threads: any.
QUARRY_API size_t quarry_cache_line(void) QUARRY_NOEXCEPT;

/// Change the limit on held bytes (0: none). What is held stays, also above it. Threads: any.
QUARRY_API void quarry_pool_set_limit(quarry_pool_t *pool, size_t limit) QUARRY_NOEXCEPT;

/// Fill *ret_stats. Threads: as alloc; from another thread the figures may be a moment old each.
QUARRY_API void quarry_pool_stats(quarry_pool_t *pool, quarry_pool_stats_t *ret_stats) QUARRY_NOEXCEPT;

/// Verify every invariant that can be seen, and all canaries of a checked pool. 0 if it is sound; else
/// -1 and one line on stderr that says what was found. Cost: a walk over the pool.
QUARRY_API int quarry_pool_check(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Call `visit(pool, arg)` for every tracked pool of the process until it returns non-zero, which is then
/// returned; else 0. No pool is created or destroyed meanwhile: `visit` must not do so. One that another thread is
/// making or destroying at that moment is not visited.
QUARRY_API int quarry_pools_walk(int (*visit)(quarry_pool_t *pool, void *arg), void *arg) QUARRY_NOEXCEPT;

/// Write a table of all tracked pools to file descriptor `fd`, as text or as one line of JSON.
/// Allocates nothing. 0, or -1 when the write failed.
QUARRY_API int quarry_pools_write(int fd, int as_json) QUARRY_NOEXCEPT;

/// The C library's malloc (whichever serves the process) as a pool: parent for those that want it, and
/// a stand-in when a pool is asked for but malloc is wanted. One for the process; destroying it does nothing.
QUARRY_API quarry_pool_t *quarry_libc_pool(void) QUARRY_NOEXCEPT;

struct quarry_heap;
/// A heap (heap.h) as a pool. NULL heap: the general heap, quarry_malloc. Destroying the pool leaves
/// the heap alone. NULL and ENOMEM when there is no memory for it. It holds nothing of its own, so a parent, a limit
/// and guards are without effect here: a heap's own limit is in its options (heap.h), and quarry_pool_stats shows that.
QUARRY_API quarry_pool_t *quarry_heap_pool(
    struct quarry_heap *heap, const quarry_pool_options_t *options) QUARRY_NOEXCEPT;

/// printf into a new block of exactly the right size, which ends with NUL. NULL and errno on failure.
QUARRY_API char *quarry_pool_printf(quarry_pool_t *pool, const char *format, ...) QUARRY_NOEXCEPT
    __attribute__((format(printf, 2, 3)));
QUARRY_API char *quarry_pool_vprintf(quarry_pool_t *pool, const char *format, va_list args) QUARRY_NOEXCEPT
    __attribute__((format(printf, 2, 0)));

// ---- checked arithmetic behind the macros ---------------------------------------------------------------

/// Not defined anywhere: a call that survives to the compiler's last pass stops the build.
extern void quarry_size_too_large(void) __attribute__((error("this allocation is larger than any object can be")));

/// count * size + extra; more than any allocation if that overflows. A constant that is too large does
/// not compile (with optimisation on).
static inline __attribute__((always_inline)) size_t quarry_array_bytes(size_t count, size_t size, size_t extra) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, extra, &bytes))
        bytes = QUARRY_SIZE_UNKNOWN;
#ifdef __OPTIMIZE__
    if (__builtin_constant_p(bytes > QUARRY_POOL_MAX) && bytes > QUARRY_POOL_MAX) quarry_size_too_large();
#endif
    return bytes;
}

/// Bytes of a structure that ends with an array member: at least sizeof(structure).
static inline __attribute__((always_inline)) size_t quarry_extra_bytes(
    size_t whole, size_t offset, size_t count, size_t element) {
    size_t bytes = quarry_array_bytes(count, element, offset);
    return bytes < whole ? whole : bytes;
}

static inline void *quarry_pool_dup(
    quarry_pool_t *pool, const void *from, size_t bytes, size_t extra_zeroes, size_t alignment) {
    size_t total = quarry_array_bytes(bytes, 1, extra_zeroes);
    char *p = (char *)quarry_pool_alloc(pool, total, alignment, 0);
    if (p && bytes && bytes <= QUARRY_POOL_MAX) __builtin_memcpy(p, from, bytes);
    if (p && extra_zeroes) __builtin_memset(p + bytes, 0, extra_zeroes);
    return p;
}

QUARRY_END

// ---- the macros ---------------------------------------------------------------------------------------------
// Each argument is evaluated once. Alignment is that of the type. NULL and ENOMEM on refusal and on
// overflow of n * sizeof.

#ifdef __cplusplus
#define QUARRY_ALIGNOF(T) alignof(T)
#else
#define QUARRY_ALIGNOF(T) _Alignof(T)
#endif

// Parts of the macros; they belong to the library. Size and alignment, as two arguments.
#define QUARRY_ARRAY_(T, n) quarry_array_bytes((n), sizeof(T), 0), QUARRY_ALIGNOF(T)
#define QUARRY_EXTRA_(T, extra) quarry_array_bytes((extra), 1, sizeof(T)), QUARRY_ALIGNOF(T)
#define QUARRY_FIELD_(T, field, n) \
    quarry_extra_bytes(sizeof(T), offsetof(T, field), (n), sizeof(((T *)0)->field[0])), QUARRY_ALIGNOF(T)

/// n objects of type T, zeroed. QUARRY_NEW_RAW leaves their contents undefined.
#define QUARRY_NEW(pool, T, n) ((T *)quarry_pool_alloc((pool), QUARRY_ARRAY_(T, n), QUARRY_POOL_ZERO))
#define QUARRY_NEW_RAW(pool, T, n) ((T *)quarry_pool_alloc((pool), QUARRY_ARRAY_(T, n), 0))

/// One T and `extra` bytes behind it.
#define QUARRY_NEW_EXTRA(pool, T, extra) ((T *)quarry_pool_alloc((pool), QUARRY_EXTRA_(T, extra), QUARRY_POOL_ZERO))
#define QUARRY_NEW_EXTRA_RAW(pool, T, extra) ((T *)quarry_pool_alloc((pool), QUARRY_EXTRA_(T, extra), 0))

/// One T whose last member is the array `field`, with room for n elements of it.
#define QUARRY_NEW_EXTRA_FIELD(pool, T, field, n) \
    ((T *)quarry_pool_alloc((pool), QUARRY_FIELD_(T, field, n), QUARRY_POOL_ZERO))
#define QUARRY_NEW_EXTRA_FIELD_RAW(pool, T, field, n) ((T *)quarry_pool_alloc((pool), QUARRY_FIELD_(T, field, n), 0))

// Of any family: `resize` is its function, `from` the function's first argument.
#define QUARRY_RENEW_(resize, from, pp, old_n, n, flags)                                                            \
    __extension__({                                                                                                 \
        __typeof__(pp) quarry_pp_ = (pp);                                                                           \
        __typeof__(*quarry_pp_) quarry_new_ = (__typeof__(*quarry_pp_))resize((from), *quarry_pp_,                  \
            quarry_array_bytes((old_n), sizeof(**quarry_pp_), 0), quarry_array_bytes((n), sizeof(**quarry_pp_), 0), \
            __alignof__(**quarry_pp_), (flags));                                                                    \
        if (quarry_new_) *quarry_pp_ = quarry_new_;                                                                 \
        quarry_new_;                                                                                                \
    })

/// *pp has old_n elements and gets n. New elements are zeroed; QUARRY_RENEW_RAW leaves them undefined. Returns the
/// new place, which is also in *pp. NULL: refused, and *pp and its block are as they were.
#define QUARRY_RENEW(pool, pp, old_n, n) QUARRY_RENEW_(quarry_pool_resize, pool, pp, old_n, n, QUARRY_POOL_ZERO)
#define QUARRY_RENEW_RAW(pool, pp, old_n, n) QUARRY_RENEW_(quarry_pool_resize, pool, pp, old_n, n, 0)

static inline char *quarry_pool_strdup(quarry_pool_t *pool, const char *s) {
    return (char *)quarry_pool_dup(pool, s, __builtin_strlen(s), 1, 1);
}

// Of any family: `dup` is its function, `from` the function's first argument.
#define QUARRY_DUP_(dup, from, p, n) \
    ((__typeof__(&*(p)))dup((from), (p), quarry_array_bytes((n), sizeof(*(p)), 0), 0, __alignof__(*(p))))

/// A copy of n elements at p. QUARRY_DUPZ copies n characters and puts a NUL behind them, QUARRY_STRDUP a string.
#define QUARRY_DUP(pool, p, n) QUARRY_DUP_(quarry_pool_dup, pool, p, n)
#define QUARRY_DUPZ(pool, s, n) ((char *)quarry_pool_dup((pool), (s), (n), 1, 1))
#define QUARRY_STRDUP(pool, s) quarry_pool_strdup((pool), (s))

/// Free *pp and set it to NULL. May be repeated. For pools that know sizes or free by frames.
#define QUARRY_DELETE(pool, pp)                                             \
    do {                                                                    \
        __typeof__(pp) quarry_pp_ = (pp);                                   \
        quarry_pool_free((pool), (void *)*quarry_pp_, QUARRY_SIZE_UNKNOWN); \
        *quarry_pp_ = NULL;                                                 \
    } while (0)

#endif
