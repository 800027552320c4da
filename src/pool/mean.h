// SPDX-License-Identifier: MIT
// mean.h: a running mean of request sizes, in integers: what came last counts for more.
//
// Sum and count; when the count is full both are quartered. That is close to an exponential moving average with a
// decay of 1/27279, and smoother, for one addition per request. One peak of p bytes raises the mean by p / 16384 when
// it comes right after a quartering and by p / 65535 at worst before one; it is forgotten at the same rate.
#ifndef QY_POOL_MEAN_H
#define QY_POOL_MEAN_H

#include <stddef.h>
#include <stdint.h>

#define QY_MEAN_COUNT_MAX ((uint64_t)UINT16_MAX)
#define QY_MEAN_SIZE_MAX ((uint64_t)1 << 30)  // larger requests count as this

// The sum never overflows, so nothing asks for it.
_Static_assert(QY_MEAN_SIZE_MAX < UINT64_MAX / QY_MEAN_COUNT_MAX, "the largest size, as often as is counted");

typedef struct qy_mean {
    uint64_t sum, count;
} qy_mean_t;

#define QY_MEAN_INIT ((qy_mean_t){0, 1})

static inline void qy_mean_add(qy_mean_t *m, uint64_t size) {
    if (size > QY_MEAN_SIZE_MAX) size = QY_MEAN_SIZE_MAX;
    if (m->count >= QY_MEAN_COUNT_MAX) {
        m->sum /= 4;
        m->count /= 4;
    }
    m->sum += size;
    m->count++;
}

// The same n times, in as many steps as there are quarterings.
static inline void qy_mean_add_many(qy_mean_t *m, uint64_t size, uint64_t n) {
    if (size > QY_MEAN_SIZE_MAX) size = QY_MEAN_SIZE_MAX;
    while (n) {
        if (m->count >= QY_MEAN_COUNT_MAX) {
            m->sum /= 4;
            m->count /= 4;
        }
        uint64_t room = QY_MEAN_COUNT_MAX - m->count, k = n < room ? n : room;
        m->sum += k * size;
        m->count += k;
        n -= k;
    }
}

static inline uint64_t qy_mean_get(const qy_mean_t *m) { return m->sum / m->count; }

#endif
