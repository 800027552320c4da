// SPDX-License-Identifier: MIT
// sample.h: which blocks are recorded when not all are, and which are looked at when they are freed.
//
// Sampling: bytes are drawn, one in `mean` on average, each as likely as any other; the blocks they lie in are
// recorded, with all that happens to them. So a block of n bytes is in the trace with a probability of 1 - exp(-n /
// mean).
#ifndef QY_TRACE_SAMPLE_H
#define QY_TRACE_SAMPLE_H

#include "trace/addrset.h"

// Live blocks that were drawn: 128 Ki of them at most.
extern qy_addrset_t qy_sampled;
bool qy_sample_start(void);
void qy_sample_restart(void);  // in the child of a fork; also of qy_large
// Bytes up to the next that is drawn. *state: of a generator, not 0.
uint64_t qy_sample_next(uint64_t *state, uint64_t mean);

// Large live blocks, with their sizes: how much of them was touched is asked when they are freed. 16 Ki of them at
// most; of others it is not known.
#define QY_LARGE_BYTES ((size_t)128 * 1024)
extern qy_addrset_t qy_large;
void qy_large_start(void);

#endif
