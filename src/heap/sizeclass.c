// SPDX-License-Identifier: MIT
// sizeclass.c: the tables of sizeclass.h, computed by the compiler.
#include "heap/sizeclass.h"

#include <string.h>

#include "rt/heuristics.h"
#include "rt/opts.h"
#include "pages/chunk.h"

// clang-format off
#define SMALL(i)    ((uint32_t)((i) * 16u))
#define STEP(i)     ((uint32_t)((1024u << ((i) / 8u)) + ((i) % 8u + 1u) * (128u << ((i) / 8u))))  // i = class - 65
#define MEDIUM(i)   (STEP(i) + (STEP(i) > QY_SLAB_64K_MAX && (i) % 8u != 7u ? QY_CLASS_EXTRA : 0u))
#define CEIL_2_32(d) ((uint32_t)((UINT64_C(0x100000000) + (d) - 1) / (d)))
#define SMALL_MAGIC(i)  CEIL_2_32(SMALL(i))
#define MEDIUM_MAGIC(i) CEIL_2_32(MEDIUM(i) <= QY_SLAB_64K_MAX ? MEDIUM(i) : MEDIUM(i) / 128u)
#define CLAMP(x, lo, hi) (uint8_t)((x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))
#define SMALL_LIMIT(i)  CLAMP(16384u / SMALL(i), 16u, 127u)
#define MEDIUM_LIMIT(i) CLAMP((uint32_t)QY_GENERATION_MOST / MEDIUM(i), 1u, 16u)

#define EIGHT(f, i) f(i), f((i) + 1), f((i) + 2), f((i) + 3), f((i) + 4), f((i) + 5), f((i) + 6), f((i) + 7)
#define SMALL_ALL(f)  EIGHT(f, 1), EIGHT(f, 9), EIGHT(f, 17), EIGHT(f, 25), \
                      EIGHT(f, 33), EIGHT(f, 41), EIGHT(f, 49), EIGHT(f, 57)
#define FOURTEEN(x)   x, x, x, x, x, x, x, x, x, x, x, x, x, x
#define MEDIUM_ALL(f, tiny) EIGHT(f, 0), EIGHT(f, 8), EIGHT(f, 16), FOURTEEN(f(23)), tiny, \
                      EIGHT(f, 24), EIGHT(f, 32), EIGHT(f, 40)

uint32_t qy_class_size[QY_CLASS_COUNT]  = {0, SMALL_ALL(SMALL), MEDIUM_ALL(MEDIUM, QY_TINY)};
uint32_t qy_class_magic[QY_CLASS_COUNT] = {0, SMALL_ALL(SMALL_MAGIC), MEDIUM_ALL(MEDIUM_MAGIC, 0)};
uint8_t qy_class_limit [QY_CLASS_COUNT] = {0, SMALL_ALL(SMALL_LIMIT), MEDIUM_ALL(MEDIUM_LIMIT, 0)};
// clang-format on

_Static_assert(QY_LEARNED_COUNT == 14, "FOURTEEN");

size_t qy_step_size(unsigned step) {
    if (step <= QY_CLASS_SMALL) return step * 16u;
    unsigned i = step - QY_CLASS_SMALL - 1;
    return ((size_t)1024 << i / 128) + (i % 128 + 1) * ((size_t)8 << i / 128);
}

void qy_class_coarse(uint8_t cls[QY_STEP_COUNT]) {
    cls[0] = 0;
    for (unsigned i = 1, end; i < QY_STEP_COUNT; i = end) {
        // Four classes per doubling of small sizes, above 128 bytes; of medium ones one of QY_CLASS_COARSE_MEDIUM.
        unsigned steps = i <= 8 || !QY_WITH(classes) ? 1 : i <= QY_CLASS_SMALL ? 1u << (qy_log2_floor(i - 1) - 2)
                                                                               : 16 * QY_CLASS_COARSE_MEDIUM;
        end = (unsigned)qy_round_up(i, steps) + 1;
        memset(cls + i, (int)qy_class_of_step(end - 1), end - i);
    }
}

unsigned qy_class_frame_units(unsigned cls) { return cls > QY_CLASS_SLAB_64K ? 16 : 4; }

// Whole blocks in the units [first, first + n) of a frame of this colour.
static uint32_t blocks_at(unsigned cls, unsigned first, unsigned n, uint32_t colour) {
    uint32_t size = qy_class_size[cls], begin = first * (uint32_t)QY_UNIT, end = begin + n * (uint32_t)QY_UNIT;
    return (end - colour) / size - (begin > colour ? (begin - colour + size - 1) / size : 0);
}

// Of all its colours the least. A larger colour drives the last block out at one point at most, and lets one more begin
// at another.
static size_t fewest_at(unsigned cls, unsigned first, unsigned n) {
    if (!qy_class_is_coloured(cls)) return blocks_at(cls, first, n, 0);
    size_t end = (first + n) * QY_UNIT, fewest = blocks_at(cls, first, n, QY_CACHE_LINE);
    size_t out = (end % qy_class_size[cls] / QY_CACHE_LINE + 1) * QY_CACHE_LINE;
    return out > QY_COLOUR_MAX ? fewest : qy_min(fewest, blocks_at(cls, first, n, (uint32_t)out));
}

unsigned qy_class_slab_units(unsigned cls, unsigned nslabs) {
    unsigned frame = qy_class_frame_units(cls), n = 1;
    if (nslabs >= QY_SLABS_FIRST || cls == QY_CLASS_TINY || !QY_WITH(small_first)) return frame;
    for (; n < frame; n++) {
        size_t bytes = n * QY_UNIT;
        if (fewest_at(cls, 0, n) * qy_class_size[cls] >= bytes - bytes / 4) break;
    }
    return n;
}

unsigned qy_class_slab_places(unsigned cls, unsigned units) {
    unsigned places = 0;
    size_t wanted = fewest_at(cls, 0, units);
    for (unsigned u = 0; u + units <= qy_class_frame_units(cls); u++)
        if (fewest_at(cls, u, units) >= wanted) places |= 1u << u;
    return places;
}

size_t qy_class_slabs_bytes(unsigned cls, unsigned nslabs) {
    size_t first = qy_min(nslabs, QY_SLABS_FIRST);
    return (first * qy_class_slab_units(cls, 0) + (nslabs - first) * qy_class_frame_units(cls)) * QY_UNIT;
}

unsigned qy_class_aligned(const uint8_t *cls, size_t align, size_t n) {
    if (n > QY_MEDIUM_MAX || align > QY_MEDIUM_MAX) return 0;
    // Above a line of alignment only blocks of 2^k bytes are left of those beyond 8 KiB; a run of three units is less
    // than the largest.
    if (align > QY_CACHE_LINE && n > 2 * QY_UNIT && n <= 3 * QY_UNIT) return 0;
    // A block lies at a multiple of its size from a 64 KiB boundary, or some lines behind: it is aligned if its size is
    // and they are.
    for (unsigned i = qy_step(n); i < QY_STEP_COUNT; i = qy_step(qy_class_most(cls[i])) + 1)
        if ((qy_class_size[cls[i]] & (align - 1)) == 0 && (align <= QY_CACHE_LINE || !qy_class_is_coloured(cls[i])))
            return cls[i];
    return 0;
}

// ---- classes of just the size that a program asks for ----------------------------------------------------

#define LEARN_WORTH ((size_t)256 << 10)  // bytes of slabs that a class must have,
#define LEARN_PART 32u                   // part of a block that must be saved,
#define LEARN_REQUESTS 8u                // and requests of the step beyond the others

static unsigned learned;  // [lock: pages] so many there are

void qy_learn_request(qy_heap_t *h, unsigned c, size_t n) {
    QY_NEEDS(&h->lock);
    if (c == 1) {
        if (n > QY_TINY) h->tiny_requests -= h->tiny_requests > 0;
        else h->tiny_requests += h->tiny_requests < UINT8_MAX;
    }
    if (c - QY_REQUESTS_FIRST >= QY_REQUESTS_COUNT) return;
    // Who has more than half of the requests remains, without counting each.
    qy_requests_t *a = &h->requests[c - QY_REQUESTS_FIRST];
    unsigned step = qy_step(qy_round_up(n, QY_ALIGN_MIN));  // of 8 bytes up to 2 KiB, which no block can end with
    if (a->step == step) a->more += a->more < UINT16_MAX;
    else if (a->more) a->more--;
    else *a = (qy_requests_t){.step = (uint16_t)step, .more = 1};
}

// The class of this size: one that is there, or a new one. 0: there is no number left.
static unsigned class_of(uint32_t size) {
    qy_lock_take(qy_units_lock());
    unsigned c = QY_CLASS_LEARNED, end = QY_CLASS_LEARNED + learned;
    while (c < end && qy_class_size[c] != size) c++;
    if (c == end) {
        if (learned < QY_LEARNED_COUNT) {
            qy_class_size[c] = size;
            qy_class_magic[c] = (uint32_t)((UINT64_C(0x100000000) + size - 1) / size);
            qy_class_limit[c] = (uint8_t)qy_max(1, qy_min(32768 / size, 16));
            learned++;
        } else {
            c = 0;
        }
    }
    qy_lock_drop(qy_units_lock());
    return c;
}

// The heap has a class of its own for the step from now on. Some times in the life of a process: apart from what each
// slab asks (rare.ld).
QY_COLD static void learn(qy_heap_t *h, unsigned c, qy_requests_t *a) {
    unsigned own = class_of((uint32_t)qy_step_size(a->step));
    if (!own) return;
    for (unsigned i = a->step; i && h->cls[i] == c; i--) h->cls[i] = (uint8_t)own;
    h->learned |= (uint16_t)(1u << (own - QY_CLASS_LEARNED));
    *a = (qy_requests_t){0};
    atomic_fetch_add_explicit(&h->cls_version, 1, memory_order_release);
}

// Blocks of 8 bytes save at most half of what those of 16 take, but a free and a malloc at random take longer with
// them. So they are for a heap that has little else.
static bool is_tiny_worth(const qy_heap_t *h) {
    size_t bytes = qy_class_slabs_bytes(1, h->bins[1].nslabs);
    return h->tiny_requests >= LEARN_REQUESTS && qy_opts.tiny && bytes >= qy_opts.tiny && bytes >= h->slab_bytes / 2;
}

void qy_learn(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    if (QY_WITH(classes) && c == 1 && !h->tiny && is_tiny_worth(h)) {
        h->tiny = true;
        atomic_fetch_add_explicit(&h->cls_version, 1, memory_order_release);
    }
    if (!QY_WITH(classes) || c - QY_REQUESTS_FIRST >= QY_REQUESTS_COUNT) return;
    qy_requests_t *a = &h->requests[c - QY_REQUESTS_FIRST];
    if (a->more < LEARN_REQUESTS || h->cls[a->step] != c) return;
    if (qy_class_slabs_bytes(c, h->bins[c].nslabs) < LEARN_WORTH) return;
    if (qy_class_size[c] - qy_step_size(a->step) >= qy_class_size[c] / LEARN_PART) learn(h, c, a);
}
