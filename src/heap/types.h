// SPDX-License-Identifier: MIT
// types.h: START HERE. The words and the structures of the heap, and who may touch what.
//
// Words
//   block   what malloc returns. Free blocks carry a link in their first 16 bytes (qy_block_t).
//   class   one block size. 1..64 are 16, 32, ... 1024 bytes (size / 16); 65..88 are eight steps per doubling to 8 KiB,
//           104..127 likewise to 64 KiB; 89..102 are sizes of up to 8 KiB that are learned (sizeclass.h); 103 is 8
//           bytes, of which all is told in tiny.h.
//   unit    16 KiB of address space, the granule of everything below. Each unit belongs to one span.
//   chunk   2 MiB, aligned: 128 units, the page layer's book-keeping group (chunk.h).
//   span    consecutive units with one owner: a slab or a run.
//   slab    a span cut into blocks of one class. No header: all about it is in its descriptor.
//   run     a span that is one object of more than 64 KiB, up to 128 MiB; it may go through several chunks.
//   huge    a larger object, or one that grew or was to be zero above 1 MiB: a mapping of its own (huge.c),
//           which begins on a chunk boundary and has its 2 MiB to itself.
//   heap    a set of slabs with one owner id and one lock; usually of one thread (then idle after
//           it, then of another), or shared by several (option arenas), or first-class.
//   cache   a thread's own free blocks, by class: what the fast paths push to and pop from.
//   home    a free block is at home when its slab knows it: by a bit, or on a chain that was handed over.
//
// Where a block of a slab is, always exactly one of:
//   live | in a thread's cache (head, prev), in its heap's depot, or parked with the heap between two
//   threads | in a freer's pending group | in its slab's remote chain | at home (by its bit, or on chain or
//   chain2) | purged (its page was given back; another bit in the slab says so)
// (Blocks of 8 bytes have no lists: tiny.h.)
// Equation, under the heap's lock (qy_slab_check):
//   live + cached + pending + remote.count + nhome + nchain + npurged == ncarved <= nblocks
//
// Locks: locks.h has them in the order in which they may be taken.
// Field tags: [const] after creation, [lock: x] needs x, [atomic], [owner] the owning thread only.
#ifndef QY_HEAP_TYPES_H
#define QY_HEAP_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/num.h"
#include "pages/types.h"
#include "rt/lock.h"

#define QY_ALIGN_MIN 16u
#define QY_SMALL_MAX 1024u
#define QY_MEDIUM_MAX 65536u
#define QY_RUN_MAX ((size_t)1 << 20)  // up to here always within a chunk
#define QY_CLASS_SMALL 64u            // last small class
#define QY_CLASS_LEARNED 89u          // first of the classes whose size is found out while the program runs
#define QY_CLASS_TINY 103u            // blocks of 8 bytes (tiny.h); behind the last of the learned ones
#define QY_CLASS_SLAB_64K 103u        // last class in frames of 64 KiB
#define QY_TINY ((size_t)8)
#define QY_SLAB_64K_MAX ((size_t)8192)  // most bytes there
#define QY_CLASS_COUNT 128u             // classes 1..127; 0 is "none" and its cache list is always empty
#define QY_STEP_COUNT 833u              // steps of sizes: 1..64 of 16 bytes, then 128 per doubling; 0 is size 0

// A free block. `link` is the next one, hidden; `mark` is made of address, link and secrets (link.h): it says that the
// block is free (a second free is seen), that the link is intact (a write after free is seen before it is followed) and
// cannot be copied to another address. The link is cleared when the block is given out. The last block of a list links
// to qy_link_end.
typedef struct qy_block {
    uint64_t link;
    uint64_t mark;
} qy_block_t;

typedef struct qy_thread qy_thread_t;
typedef struct qy_huge qy_huge_t;
typedef struct qy_draw qy_draw_t;
typedef struct qy_tiny_word qy_tiny_word_t;
typedef struct qy_tiny qy_tiny_t;
typedef struct qy_tiny_group qy_tiny_group_t;

// ---- per thread -----------------------------------------------------------------------------

typedef enum qy_thread_state {
    QY_THREAD_NONE = 0,   // has no heap yet (all zero is a valid state: no constructor is needed)
    QY_THREAD_ATTACHING,  // is getting one; a recursive call uses the shared heap
    QY_THREAD_LIVE,
    QY_THREAD_DEAD,  // its exit handler ran; late destructors use the shared heap
} qy_thread_state_t;

// What the fast paths touch. [owner] throughout.
typedef struct qy_cache {
    qy_block_t *head[QY_CLASS_COUNT];       // free blocks of this thread's heap, last in first out
    uint64_t key;                           // the heap's owner bits (map.h); QY_TAG_NO_OWNER: no heap, or tcache:off
    uint32_t start_most;                    // block-start test: the most that a product may be (sizeclass.h), ...
    uint32_t magic[QY_CLASS_SLAB_64K + 1];  // ... and factors; QY_START_NONE: of none, or not copied yet
    uint8_t room[QY_CLASS_COUNT];           // pushes left before the list is a full generation, and one
    uint8_t cls[QY_STEP_COUNT + 7];         // step of a size -> class that this heap has for it; [0] = 0
    uint8_t small[QY_SMALL_MAX + 8];        // the same by the size itself, to 1,024; 0 for those of 8 bytes
    qy_thread_t *thread;                    // whose it is; NULL in the one of threads without
    qy_tiny_word_t *tiny;                   // blocks of 8 bytes come from this word of bits, ...
    char *tiny_at;                          // ... whose first block is here
    uint32_t tiny_left;                     // so many requests of 1 to 8 bytes come before one that draw.h must see
} qy_cache_t;

// Blocks of one foreign slab, gathered before they are handed over in one go.
typedef struct qy_pend {
    qy_slab_t *slab;  // NULL: empty
    qy_block_t *first, *last;
    uint16_t count, most;  // blocks; so many are handed over
    uint32_t size;         // of one
} qy_pend_t;
_Static_assert(sizeof(qy_pend_t) == 32, "four places are two cache lines");

#define QY_PEND_COUNT 64u
#define QY_PEND_WAYS 4u  // so many places for a slab to be in
#define QY_PEND_BYTES (64u * 1024)

#define QY_BEGAN_LONG 0x80u  // head[] began with more than a generation, from a slab

// A slab of 8-byte blocks that the thread freed a block of, until its heap has another one (qy_tiny_refill): what lies
// there and has this heap's tag is a block of it.
typedef struct qy_tiny_seen {
    uint64_t frame;  // the number of the one it lies in; 0: none
    qy_tiny_word_t *words;
} qy_tiny_seen_t;
#define QY_TINY_SEEN 256u  // places, by that number

// A thread's state, on a page of its own. Recycled, never unmapped. [owner]
struct qy_thread {
    qy_cache_t cache;  // first: a cache that belongs to a thread is at its address
    qy_heap_t *heap;
    uint8_t merged[QY_CLASS_COUNT];    // generations that may be in head[] already, at most, and QY_BEGAN_LONG
    uint8_t balanced[QY_CLASS_COUNT];  // head[] had less than a generation when it was last looked at: so many pass now
    bool busy[QY_CLASS_COUNT];         // its list was filled, or a generation passed, in this period (cache.h)
    size_t period_least;               // a period has so many bytes at least
    uint8_t swept;                     // classes below this one had their turn in this period
    uint8_t filled;                    // the class whose list the slabs filled last; 0: none
    size_t period;                     // bytes into and out of its lists, on the slow paths, in this period
    uint32_t cls_version;              // of the heap's table that cache.cls is a copy of
    qy_thread_t *next;                 // [lock: heaps list] list of spare records
    // For the statistics page (stats_page.h):
    size_t moved, moved_most;         // bytes through the slow paths; at so many something is due (moved.c)
    size_t unlooked, looks_at;        // those before since it last looked at the page; it looks at so many
    uint64_t cached_ns, cached_cost;  // when it counted its own cache, in this time, ...
    uint32_t seen;                    // [lock: statistics page] ... or others while it slept: by what that is told, ...
    bool counted;                     // [lock: statistics page] ... and whether they were counted since
    size_t pend_bytes;
    qy_slab_t *tiny_slab;  // the slab that cache.tiny is a word of; NULL: none
    bool tiny_on;          // requests of 1 to 8 bytes take 8 bytes
    uint8_t tiny_open;     // bit i: tiny_groups[i] is open
    uint64_t drawn;        // the control word that the blocks on its lists were drawn by (draw.h)
    // From here on a record keeps what it has when the next thread gets it: others read it at any time. `prev` is the
    // first.
    qy_block_t **prev;                           // [const] the full generation before head[]: qy_thread_more_t
    qy_pend_t *pend;                             // [const] QY_PEND_COUNT of them, likewise
    qy_tiny_group_t *tiny_groups;                // [const] QY_TINY_GROUPS of them, likewise
    qy_tiny_seen_t *tiny_seen;                   // [const] QY_TINY_SEEN of them, apart from these, too
    bool tiny_saw;                               // some of these are of a slab
    qy_thread_t *all_next;                       // [const] all records
    qy_draw_t *draw;                             // NULL: the sampler was never on
    _Atomic size_t cached_bytes, cached_blocks;  // in its cache, as was last counted; 0 when its thread has ended
    _Atomic uint16_t *cached_of;                 // [const] the same, blocks of each class: qy_thread_more_t
};
// Frees of blocks of 8 bytes of one foreign slab, of which its owner is told in one go (tiny.h).
struct qy_tiny_group {
    qy_slab_t *slab;
    uint32_t untold;  // frees
};
#define QY_TINY_GROUPS 8u

// What many threads do not write to, apart from the rest.
typedef struct qy_thread_more {
    qy_block_t *prev[QY_CLASS_COUNT];
    qy_pend_t pend[QY_PEND_COUNT];
    qy_tiny_group_t tiny_groups[QY_TINY_GROUPS];
    _Atomic uint16_t cached_of[QY_CLASS_COUNT];
} qy_thread_more_t;

// ---- spans ----------------------------------------------------------------------------------

typedef enum qy_span_kind { QY_SPAN_NONE = 0,
    QY_SPAN_SLAB,
    QY_SPAN_RUN } qy_span_kind_t;

// Which of its bin's lists a slab is on, in the order in which they serve.
enum { QY_LIST_SOME,
    QY_LIST_EMPTY,
    QY_LIST_FRESH,
    QY_LISTS,
    QY_LIST_NONE = QY_LISTS };

// The remote word: free blocks of a slab that other threads handed over.
//   bits 0..19 offset of the first block / 16 + 1 (0: none), 20..39 count, 40..59 offset of the last one, bit 60 queued
// Of a slab of 8-byte blocks bits 20..39 count the groups that threads have open for it. Bits 0..19 and 40..59 are 0.
#define QY_REMOTE_MASK ((UINT64_C(1) << 20) - 1)
#define QY_REMOTE_COUNT_SHIFT 20
#define QY_REMOTE_LAST_SHIFT 40
#define QY_REMOTE_QUEUED (UINT64_C(1) << 60)

// Descriptor of a slab or run. Three cache lines: what threads touch that hand over blocks, what the owner's slow paths
// mostly write to, and the rest. Recycled through a free list, never unmapped, so a stale pointer to one always points
// to some descriptor.
struct qy_slab {
    _Atomic uint64_t remote;    // [atomic] see above; remote.c
    _Atomic(qy_heap_t *) heap;  // [atomic] where to send; changes under both heaps' locks (steal)
    qy_slab_t *mail_next;       // written by who set QUEUED, read by who drains
    char *base;                 // [const] first byte of the span
    char *origin;               // [const, but for a run that is resized] where block 0, or the run's object, begins
    uint32_t nblocks;           // [const]
    uint16_t units;             // [const] (runs: [lock: pages])
    uint8_t kind, cls;          // [const]
    uint16_t touched;           // [const] which of its units may hold old contents; bit 0 the first
    bool fresh;                 // [const] none of them: the uncarved part is known to be zero
    bool zeroed;                // [const] run: calloc's, above QY_RUN_MAX (clear.h)

    QY_ALIGNED(QY_CACHE_LINE)
    union {
        uint64_t *home;   // [lock: heap] bit per block: is at home. Its link stays as it was when it came
        qy_tiny_t *tiny;  // [const] of 8-byte blocks: all about them
    };
    qy_block_t *chain;  // [lock: heap] at home, too: what others handed over, not walked yet
    qy_slab_t *next;    // [lock: heap] its list in the bin
    qy_slab_t *prev;
    uint32_t ncarved;    // [lock: heap]
    uint32_t nhome;      // [lock: heap] blocks by their bit, ...
    uint32_t nchain;     // [lock: heap] ... on chain and chain2, ...
    uint32_t npurged;    // [lock: heap] ... and without their page
    uint32_t settle_at;  // [lock: heap] with so many in nhome it belongs on another list, or is empty
    uint32_t epoch;      // [lock: heap] when blocks last came or went
    uint8_t list;        // [lock: heap] which of the bin's
    uint8_t low;         // [lock: heap] words of home below this one are zero

    QY_ALIGNED(QY_CACHE_LINE)
    qy_slab_t *all_next;  // [lock: heap] all spans of the heap
    qy_slab_t *all_prev;
    union {
        size_t size;         // [lock: heap] run: bytes asked for
        uint64_t purged_ns;  // [lock: heap] slab: when pages of it last went back
    };
    qy_block_t *chain2;   // [lock: heap] handed over while there was a chain
    uint32_t nchain2;     // [lock: heap] those of nchain that are on it
    uint32_t purge_seen;  // [lock: heap] the epoch already purged (purge.c)
    uint64_t *purged;     // [lock: heap] bit per block whose page was given back, or NULL
    union {
        uint64_t home_word;   // the bits themselves, where 64 are enough; ...
        uint64_t made;        // [lock: heap] run: when it was, or grew last (run.c)
        uint64_t home_pages;  // [lock: heap] of 8-byte blocks: bit per page that is at home, ...
    };
    union {
        uint64_t purged_word;   // ... likewise
        uint64_t purged_pages;  // [lock: heap] ... or was given back
    };
};
_Static_assert(sizeof(struct qy_slab) == 3 * QY_CACHE_LINE, "an attribute before two declarators aligns both");

// ---- heaps ----------------------------------------------------------------------------------

typedef struct qy_bin {
    qy_slab_t *list[QY_LISTS];  // slabs with something to give, by how much (slab.c)
    uint32_t nslabs;            // all slabs of the class, full ones too
    uint32_t nempty;            // wholly free ones: on QY_LIST_EMPTY, and a new one until its first block leaves
} qy_bin_t;

// Which step most requests for a class are of, if more than half are (sizeclass.h).
typedef struct qy_requests {
    uint16_t step, more;  // so many requests more than others
} qy_requests_t;
#define QY_REQUESTS_FIRST (QY_CLASS_SMALL + 1)
#define QY_REQUESTS_COUNT (QY_CLASS_LEARNED - QY_REQUESTS_FIRST)

// Whole generations that caches gave up; depot.h. A class has a stack of them, a stack of nodes of which only the top
// one may have places left.
#define QY_DEPOT_NODE_LISTS 15u
typedef struct qy_depot_node {
    struct qy_depot_node *below;  // a full one, or NULL
    qy_block_t *list[QY_DEPOT_NODE_LISTS];
} qy_depot_node_t;
typedef struct qy_depot_stack {
    qy_depot_node_t *top;  // NULL: count is 0
    uint32_t count;        // lists on all its nodes
} qy_depot_stack_t;
typedef struct qy_depot {
    qy_depot_node_t *spare;  // empty ones
    qy_depot_stack_t stack[QY_CLASS_COUNT];
} qy_depot_t;

typedef enum qy_heap_kind { QY_HEAP_THREAD,
    QY_HEAP_SHARED,
    QY_HEAP_FIRST_CLASS } qy_heap_kind_t;

// Type-stable: recycled, never unmapped.
struct qy_heap {
    // What other threads touch when they hand over blocks; a line of its own.
    _Atomic(qy_slab_t *) mailbox;  // [atomic] slabs with remote blocks
    _Atomic size_t mailed;         // [atomic, relaxed] bytes handed to this heap and not taken in yet
    _Atomic size_t publishes;      // [atomic, relaxed] groups handed to this heap
    _Atomic bool idle;             // [lock: heaps list] no thread is attached; readers are racy
    QY_ALIGNED(QY_CACHE_LINE)
    qy_lock_t lock;
    uint32_t id;                                 // [const] 1...
    uint64_t owner;                              // [const] what it is in the tags of its slabs (map.h)
    uint8_t kind;                                // [lock: heaps list]
    uint32_t threads;                            // [lock: heaps list] attached now
    qy_slab_t *all;                              // [lock: heap] every span that belongs to the heap
    size_t slab_bytes, free_bytes;               // [lock: heap] spans of slabs; free blocks at home in them, ...
    size_t purged_bytes;                         // [lock: heap] ... of which blocks that touch a page given back
    size_t purge_mark;                           // [lock: heap] what could go when purging last found nothing more
    qy_slab_t *purge_at;                         // [lock: heap] where purging goes on
    size_t made_bytes;                           // [lock: heap] slabs made since it was last reclaimed, ...
    uint64_t reclaim_at;                         // [lock: heap] ... which may not be again before this time
    size_t held_bytes, limit;                    // [lock: heap] first-class: spans and huge objects
    size_t nslabs, nruns;                        // [lock: heap]
    size_t refills, flushes, adoptions, steals;  // [lock: heap]
    qy_huge_t *huges;                            // [lock: heap] first-class: its huge objects
    qy_heap_t *next;                             // [lock: heaps list] every heap, for ever
    qy_heap_t *idle_next;                        // [lock: heaps list]
    char name[32];                               // [const]
    uint8_t cls[QY_STEP_COUNT];                  // [lock: heap] step of a size -> its class; refined as the heap grows
    _Atomic uint32_t cls_version;                // [lock: heap] changes with cls; threads compare it with their copy's
    bool purge_waits;                            // [lock: heap] some slabs were too young since purging began at `all`
    qy_depot_t *depot;                           // [lock: heap] NULL: none was needed yet
    size_t depot_bytes, depot_blocks;            // [lock: heap] about, and not in free_bytes
    uint16_t learned;                            // [lock: heap] bit i: cls has named class QY_CLASS_LEARNED + i
    size_t lent;                                 // [lock: heap] bytes into its thread's lists since they were empty
    uint64_t has_parked;                         // [lock: heap] bit c - 1: a list of class c waits here (lists.h)
    bool tiny;                                   // [lock: heap] requests of 1 to 8 bytes take 8 bytes, ...
    uint8_t tiny_requests;                       // [lock: heap] ... for of class 1 these are so many more than others
    _Atomic(char *) tiny_at;                     // [owner writes] cache.tiny_at of its thread; NULL: none
    qy_slab_t *tiny_mail;                        // [lock: heap] slabs whose owner must take in itself (tiny.h)
    // What is long comes last: a heap of few classes touches one page less.
    uint64_t used[QY_CLASS_COUNT / 64];         // [lock: heap] bit c: it has slabs, and lists, of class c
    qy_bin_t bins[QY_CLASS_COUNT];              // [lock: heap]
    qy_requests_t requests[QY_REQUESTS_COUNT];  // [lock: heap] of classes from QY_REQUESTS_FIRST on
    qy_block_t *parked[QY_CLASS_SMALL + 1];     // [lock: heap] those lists
};

#endif
