// SPDX-License-Identifier: MIT
// log.h: the log of pools (QUARRY_CONF=pool_log:FILE): for each pool a record now and then of what it
// holds and what of it is used. docs/pool-log.md describes the file.
#ifndef QY_POOL_LOG_H
#define QY_POOL_LOG_H

#include "pool/pool.h"

// Sets QY_MODE_COUNTED if there is a log. False: no memory.
bool qy_log_open(quarry_pool_t *pool);
void qy_log_close(quarry_pool_t *pool);
void qy_log_fork(quarry_pool_t *pool, int phase);

// A slow event: always an entry of its own. Only with QY_MODE_COUNTED.
typedef enum qy_log_event {
    QY_LOG_BIRTH,
    QY_LOG_DEATH,
    QY_LOG_PERIOD,  // so many cheap operations have passed
    QY_LOG_CHUNK_GET,
    QY_LOG_CHUNK_PUT,
    QY_LOG_RESET,  // a page was cleaned for reuse
} qy_log_event_t;
// Calls the kind's `stats`, which therefore takes no lock.
QY_COLD void qy_log_event(quarry_pool_t *pool, qy_log_event_t event);

#endif
