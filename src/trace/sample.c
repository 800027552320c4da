// SPDX-License-Identifier: MIT
// sample.c: see sample.h.
#include "trace/sample.h"

#define SAMPLED_BITS 15
#define LARGE_BITS 12

// A set that is not used has one bucket, in which nothing is.
static _Atomic uint8_t sample_none[1];
qy_addrset_t qy_sampled = {.counts = sample_none};
qy_addrset_t qy_large = {.counts = sample_none};

bool qy_sample_start(void) { return qy_addrset_make(&qy_sampled, SAMPLED_BITS); }
void qy_large_start(void) { qy_addrset_make(&qy_large, LARGE_BITS); }

void qy_sample_restart(void) {
    qy_addrset_clear(&qy_sampled);
    qy_addrset_clear(&qy_large);
}

static uint64_t next_random(uint64_t *state) {  // xorshift64*
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

// -ln(u / 2^64), without libm: u = m 2^e with m in [1, 2), and ln m = 2 artanh((m - 1) / (m + 1)). The argument is at
// most a third, so that the series is good to a millionth after five terms.
static double minus_log(uint64_t u) {
    int e = 63 - __builtin_clzll(u | 1);
    double m = (double)(u | 1) / (double)(UINT64_C(1) << e), t = (m - 1) / (m + 1), t2 = t * t;
    double ln_m = 2 * t * (1 + t2 * (1.0 / 3 + t2 * (1.0 / 5 + t2 * (1.0 / 7 + t2 / 9))));
    return (64 - e) * 0.6931471805599453 - ln_m;
}

uint64_t qy_sample_next(uint64_t *state, uint64_t mean) {
    return (uint64_t)(minus_log(next_random(state)) * (double)mean) + 1;
}
