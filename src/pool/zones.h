// SPDX-License-Identifier: MIT
// zones.h: the bytes of a block in mode GUARD, and of what lies beside it, from its beginning until its memory is given
// out again. Of blocks without a fence: the right zone has 16 to 31 bytes, so two words of 16 cover it.
#ifndef QY_POOL_ZONES_H
#define QY_POOL_ZONES_H

#include "pool/checker.h"
#include "pool/faults.h"
#include "pool/filling.h"
#include "pool/node.h"

QY_INLINE size_t qy_zone_left(size_t alignment) { return qy_max(QY_REDZONE, alignment); }
QY_INLINE size_t qy_zones_bytes(size_t size, size_t alignment) {
    return qy_zone_left(alignment) + qy_round_up(size, QY_REDZONE) + QY_REDZONE;
}

QY_INLINE void qy_zones_begin(unsigned char *raw, unsigned char *p, size_t size, size_t raw_bytes, bool zero) {
    qy_fill(raw, (size_t)(p - raw), QY_CANARY_BYTE);
    qy_fill_16(p + size, QY_CANARY_BYTE);
    qy_fill_16(raw + raw_bytes - QY_REDZONE, QY_CANARY_BYTE);
    if (zero) memset(p, 0, size);
    else qy_fill_block(p, size, QY_RAW_BYTE);  // so that use before writing shows
}

// Are the canaries on both sides of it what they were?
QY_INLINE bool qy_zones_intact(const qy_block_node_t *n) {
    const unsigned char *raw = qy_shown_pointer(n->raw), *p = qy_shown_pointer(n->ptr);
    qy_fill_words_t differs = qy_fill_differs(p - QY_REDZONE, QY_CANARY_BYTE) |
                              qy_fill_differs(p + n->size, QY_CANARY_BYTE) |
                              qy_fill_differs(raw + n->raw_bytes - QY_REDZONE, QY_CANARY_BYTE);
    if (QY_UNLIKELY(n->alignment > QY_REDZONE) && !qy_is_filled(raw, (size_t)(p - raw), QY_CANARY_BYTE)) return false;
    return QY_LIKELY(!(differs[0] | differs[1]));
}

// Nobody may touch the block any more, nor what lies beside it.
QY_INLINE void qy_zones_end(quarry_pool_t *pool, qy_block_node_t *n) {
    if (QY_UNLIKELY(!qy_zones_intact(n))) qy_found_canary(pool, n);
    size_t bytes;
    unsigned char *dead = qy_node_dead(n, &bytes);
    qy_fill_block(dead, bytes, QY_DEAD_BYTE);
    if (QY_UNLIKELY(pool->info->checked)) qy_checker_ended(pool, qy_shown_pointer(n->raw), n->died);
}

// What lay in quarantine must be as it was left.
QY_INLINE void qy_zones_must_be_dead(quarry_pool_t *pool, const qy_block_node_t *n) {
    size_t bytes;
    const unsigned char *dead = qy_node_dead(n, &bytes);
    if (QY_UNLIKELY(!qy_is_filled_block(dead, bytes, QY_DEAD_BYTE))) qy_found_written(pool, n);
}

#endif
