// SPDX-License-Identifier: MIT
// sizeclass.c: the tables of sizeclass.h, computed by the compiler.
#include "heap/sizeclass.h"
#include "rt/heuristics.h"

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
#define FIFTEEN(x)    x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
#define MEDIUM_ALL(f) EIGHT(f, 0), EIGHT(f, 8), EIGHT(f, 16), FIFTEEN(f(23)), EIGHT(f, 24), EIGHT(f, 32), EIGHT(f, 40)

uint32_t qy_class_size[QY_CLASS_COUNT]  = {0, SMALL_ALL(SMALL), MEDIUM_ALL(MEDIUM)};
uint32_t qy_class_magic[QY_CLASS_COUNT] = {0, SMALL_ALL(SMALL_MAGIC), MEDIUM_ALL(MEDIUM_MAGIC)};
uint8_t qy_class_limit [QY_CLASS_COUNT] = {0, SMALL_ALL(SMALL_LIMIT), MEDIUM_ALL(MEDIUM_LIMIT)};
// clang-format on

_Static_assert(QY_LEARNED_COUNT == 15, "FIFTEEN");

size_t qy_step_size(unsigned step) {
    if (step <= QY_CLASS_SMALL) return step * 16u;
    unsigned i = step - QY_CLASS_SMALL - 1;
    return ((size_t)1024 << i / 128) + (i % 128 + 1) * ((size_t)8 << i / 128);
}

void qy_class_coarse(uint8_t cls[QY_STEP_COUNT]) {
    cls[0] = 0;
    for (unsigned i = 1; i < QY_STEP_COUNT; i++) {
        // Four classes per doubling of small sizes, above 128 bytes; of medium ones one of QY_CLASS_COARSE_MEDIUM.
        unsigned steps = i <= 8 || !QY_WITH(coarse) ? 1 : i <= QY_CLASS_SMALL ? 1u << (qy_log2_floor(i - 1) - 2)
                                                                              : 16 * QY_CLASS_COARSE_MEDIUM;
        cls[i] = (uint8_t)qy_class_of_step((unsigned)qy_round_up(i, steps));
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
    if (nslabs >= QY_SLABS_FIRST || !QY_WITH(small_first)) return frame;
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
