// SPDX-License-Identifier: MIT
// sizeclass.h: sizes and classes.
//
// Sizes are looked up by step: 1..64 are 16 bytes each, above 1 KiB there are 128 per doubling. A heap's table says
// which class it has for a step. Classes 1..64 are size / 16, those above have eight per doubling: the finest set, but
// for what is learned (below). A heap begins with the coarse set (16-byte steps to 128, then four per doubling to
// 1 KiB, two to 64 KiB) and refines a part of it when its population is large enough for the finer set to save memory
// (slab_take.c): every class keeps a few part-filled slabs, which a small heap pays for and a large one does not
// notice.
//
// Block starts. Slabs lie in frames of 64 KiB, those of blocks above 8 KiB in frames of 256 KiB, and their blocks at
// multiples of the size from the frame's start, whatever part of it the slab is. So "is p a block start" needs no
// descriptor:
//   off = p mod 64 Ki;  off * magic (mod 2^32) < magic,  magic = ceil(2^32 / size)
// which is exact for off < 2^16 and size <= 2^13 (off < magic - size). In frames of 256 KiB the test is made in steps
// of 128 bytes. In frames of 64 KiB the product of a start is less than 2^16, since size * magic is 2^32 and less than
// size more; any other's is magic at least, which is 2^19 or more. So free() compares with one number for all classes.
//
// Colours. Were all large blocks to begin on a page, they would fall into the same few sets of the caches; and a copy
// whose destination is less than a line ahead of its source, counted within a page, is slow: on some processors thirty
// times (`rep movsb` on the first EPYCs). A block with a header of the program's own, filled from one without, is just
// that. So in frames of 256 KiB blocks are counted from `colour` bytes behind the frame's start, and are two lines
// longer than the most that is asked for. Classes of 2^k bytes have neither, since they fill their frame.
#ifndef QY_HEAP_SIZECLASS_H
#define QY_HEAP_SIZECLASS_H

#include "heap/types.h"
#include "rt/heuristics.h"

// Bytes per block of class 1..127. Constant but for the classes that are learned, which are as if of 8 KiB until they
// are, once; before any heap's table names them (sizeclass.c). Who has a block of such a class, or a table that names
// it, may read them. The magic of the blocks of 8 bytes is 0: no address passes for the start of one, so that who finds
// one asks tiny.h.
extern uint32_t qy_class_size[QY_CLASS_COUNT];
extern uint32_t qy_class_magic[QY_CLASS_COUNT];
// blocks in one cache generation, where there are not many threads (cache.h)
extern uint8_t qy_class_limit[QY_CLASS_COUNT];
#define QY_GENERATION_MOST ((size_t)32 << 10)  // bytes in one

// Of frames of 64 KiB: the most that the product of a start may be, for free(); and a factor by which nothing but a
// frame's first address is one.
#define QY_START_MOST UINT32_C(65536)
#define QY_START_NONE UINT32_C(65537)

// The number of classes that are learned, and which of them c is.
#define QY_LEARNED_COUNT (QY_CLASS_TINY - QY_CLASS_LEARNED)
QY_INLINE bool qy_class_is_learned(unsigned c) { return c - QY_CLASS_LEARNED < QY_LEARNED_COUNT; }

// The step of a medium request, 1024 < n <= 65536.
QY_INLINE size_t qy_step_medium(size_t n) {
    unsigned log = qy_log2_floor(n - 1);  // 10..15
    return log * 128 + (unsigned)((n - 1) >> (log - 7)) - (10 * 128 + 63);
}
QY_INLINE unsigned qy_step(size_t n) { return (unsigned)(n <= QY_SMALL_MAX ? (n + 15) >> 4 : qy_step_medium(n)); }
size_t qy_step_size(unsigned step);  // the most bytes of a step

// The coarse class set: step -> class, for a heap's first table.
#define QY_CLASS_COARSE_MEDIUM 4u  // one of so many medium classes
void qy_class_coarse(uint8_t cls[QY_STEP_COUNT]);

// The finest class, of those that are not learned, for a step, and for n bytes (1 <= n <= 65536), whatever the heap's
// table says.
QY_INLINE unsigned qy_class_of_step(unsigned step) {
    unsigned c = step <= QY_CLASS_SMALL ? step : QY_CLASS_SMALL + 1 + (step - QY_CLASS_SMALL - 1) / 16;
    return c < QY_CLASS_LEARNED ? c : c + (QY_CLASS_SLAB_64K + 1 - QY_CLASS_LEARNED);
}
QY_INLINE unsigned qy_class_fine(size_t n) { return qy_class_of_step(qy_step(n)); }

// Units of a slab that is made when there are nslabs of its class. The first QY_SLABS_FIRST have no more than their
// blocks fill to three quarters: what a class has of memory that was touched before, and has not cut into blocks yet,
// is lost to all others. Those after them are whole frames. So are all of the blocks of 8 bytes, which only large heaps
// have.
#define QY_SLABS_FIRST 8u
unsigned qy_class_frame_units(unsigned cls);
unsigned qy_class_slab_units(unsigned cls, unsigned nslabs);

// At which units of a frame a slab of so many may begin, bit 0 the frame's first: where it has as many blocks as there,
// whatever its colour.
unsigned qy_class_slab_places(unsigned cls, unsigned units);

// Bytes of the nslabs slabs of a class, had none been released. O(1).
size_t qy_class_slabs_bytes(unsigned cls, unsigned nslabs);

// (cls & 7) == 7: 2^k bytes
QY_INLINE bool qy_class_is_coloured(unsigned cls) {
    return QY_WITH(colour) && cls > QY_CLASS_SLAB_64K && (cls & 7) != 7;
}

// The most bytes that are asked for of a class: those of a block but for the two lines more.
#define QY_CLASS_EXTRA (2u * QY_CACHE_LINE)
QY_INLINE size_t qy_class_most(unsigned cls) {
    return qy_class_size[cls] - (qy_class_is_coloured(cls) ? QY_CLASS_EXTRA : 0);
}

// Bytes from the start of the frame that p lies in to the first of its blocks of this class: 0, or 1 to 16 cache lines.
#define QY_COLOUR_MAX ((size_t)16 * QY_CACHE_LINE)
QY_INLINE size_t qy_class_colour(unsigned cls, const void *p) {
    return qy_class_is_coloured(cls) ? ((((uintptr_t)p >> 18) + cls) % 16 + 1) * QY_CACHE_LINE : 0;
}

// How far is p from where the blocks of its class are counted from, in the frame of 64 or 256 KiB, which a slab that is
// not one of the first fills. Below that it is a number close to SIZE_MAX, which is no multiple of a size by
// qy_class_is_start.
QY_INLINE size_t qy_class_offset(unsigned cls, const void *p) {
    return cls <= QY_CLASS_SLAB_64K ? (uintptr_t)p & 0xFFFFu : ((uintptr_t)p & 0x3FFFFu) - qy_class_colour(cls, p);
}

// The number of a block without a division: offset / size == offset * reciprocal >> 32, where the offset, from any
// block of its slab, is a multiple of the size. The magic is 2^32 / size, rounded up, or 128 times that: any number a
// little larger does.
QY_INLINE uint32_t qy_class_reciprocal(unsigned cls) {
    return cls <= QY_CLASS_SLAB_64K ? qy_class_magic[cls] : qy_class_magic[cls] / 128 + 1;
}
QY_INLINE uint32_t qy_class_index(uint32_t reciprocal, size_t offset) {
    return (uint32_t)((uint64_t)offset * reciprocal >> 32);
}

// Is `offset`, counted so, a multiple of the block size?
QY_INLINE bool qy_class_is_start(size_t cls, size_t offset) {
    if (cls <= QY_CLASS_SLAB_64K) return (uint32_t)offset * qy_class_magic[cls] < qy_class_magic[cls];
    return (offset & 127) == 0 && (uint32_t)(offset >> 7) * qy_class_magic[cls] < qy_class_magic[cls];
}

// The class for n bytes at an alignment, by table `cls`; 0: none (a run or more is needed).
unsigned qy_class_aligned(const uint8_t *cls, size_t align, size_t n);

// More than an address space of 47 bits holds, or a multiple that it has none of: not worth giving everything back for.
QY_INLINE bool qy_size_is_hopeless(size_t align, size_t n) { return (align | n) >> 47 != 0; }

// ---- classes of just the size that a program asks for ----------------------------------------------------
//
// Above 1 KiB classes are an eighth of their doubling apart, so a block may be a ninth larger than what was asked for.
// A program that holds tens of thousands of objects of one such size (pages of a database, nodes with a buffer in them)
// pays for that in all of them. So each heap watches, where it refills a list, which step of sizes is asked for; when a
// class of 1 to 8 KiB fills 256 KiB and most of its requests were of one step that leaves a thirty-second of the block
// or more, the heap gets a class of that step's size for it and what is smaller. What was allocated before stays as it
// is.
//
// There are 14 such classes in a process; a heap that learns the size of one that is there shares its number. A class,
// once learned, stays.

// In the same way a heap that holds many blocks of 16 bytes, most of them for 1 to 8 bytes, gets those of 8 bytes
// (tiny.h): how many is the option `tiny`. Small programs have no use for one more class.

// n bytes are asked for, of class c, in h, which is locked. A few instructions.
void qy_learn_request(qy_heap_t *h, unsigned c, size_t n);

// h, which is locked, has a new slab of class c: perhaps the next one should be of another class. Changes cls and its
// version. Takes the lock of the page layer when it does.
void qy_learn(qy_heap_t *h, unsigned c);

#endif
