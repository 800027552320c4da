// SPDX-License-Identifier: MIT
// filters: how running means of request sizes answer to a load with outliers: -n requests (4 million) of 16 KiB on average with Gaussian noise
// of 3 KiB, five bunches of 2,000 requests of 256 KiB, and a single one of 1 GiB between the third and the fourth. The means:
//
//   cut          the documents' first one: sum and count, quartered at 65,535; requests from 128 MiB on are ignored
//   uncut        theirs without the cut, which is the one in use (src/pool/mean.h)
//   exponential  with a decay of 1/27279
//   plain        of all requests so far
//
// Prints CSV, a line for each -z requests (8192) and one before and after the peak: the request's number and the means in bytes. The summary is
// on standard error. bench/pools/figures.py draws it.
#include "../../src/pool/mean.h"
#include "pool_bench.h"

enum { MEAN = 16384,
    DEVIATION = 3072,
    BUNCHES = 5,
    BUNCH = 2000,
    BUNCH_BYTES = 262144 };
#define PEAK_BYTES ((uint64_t)1 << 30)
#define CUT ((uint64_t)128 << 20)

typedef struct means {
    qy_mean_t cut, uncut;
    double exponential, sum;
    uint64_t count;
} means_t;

// A sum of twelve even distributions has the deviation 1, and no tails that a size could not have.
static double noise(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(bench_random(state) >> 11) / 9007199254740992.0;
    return sum;
}

static uint64_t request(uint64_t i, uint64_t n, uint64_t *state) {
    const uint64_t part = n / (BUNCHES + 1);
    const double size = MEAN + DEVIATION * noise(state);  // drawn in any case: the same noise with other outliers
    if (i == part * 3 + part / 2) return PEAK_BYTES;
    if (i >= part && i % part < BUNCH && i / part <= BUNCHES) return BUNCH_BYTES;
    return size < 1 ? 1 : (uint64_t)size;
}

static void add(means_t *m, uint64_t size) {
    if (size < CUT) qy_mean_add(&m->cut, size);
    qy_mean_add(&m->uncut, size);
    m->exponential += ((double)size - m->exponential) / 27279;
    m->sum += (double)size;
    m->count++;
}

static double value(const qy_mean_t *m) { return (double)m->sum / (double)m->count; }

static void line(uint64_t i, const means_t *m) {
    printf("%" PRIu64 ",%.1f,%.1f,%.1f,%.1f\n", i, value(&m->cut), value(&m->uncut), m->exponential, m->sum / (double)m->count);
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "filters", .n = 4000000, .size = 8192};
    pool_bench_options(&b, argc, argv);
    if (b.n < 100000 || !b.size) bench_fail("-n 100000.., -z 1..");
    uint64_t state = 1;
    means_t m = {QY_MEAN_INIT, QY_MEAN_INIT, 0, 0, 0};
    double before = 0, after = 0;
    printf("request,cut,uncut,exponential,plain\n");
    for (uint64_t i = 0; i < b.n; i++) {
        const uint64_t size = request(i, b.n, &state);
        if (!i) m.exponential = MEAN;  // the others know their first request at once
        if (size == PEAK_BYTES) {
            line(i, &m);
            before = value(&m.uncut);
        }
        add(&m, size);
        if (size == PEAK_BYTES) after = value(&m.uncut);
        if (size == PEAK_BYTES || i % b.size == b.size - 1 || i == b.n - 1) line(i + 1, &m);
    }
    fprintf(stderr, "the peak of 1 GiB adds %.0f bytes to the mean in use, %.2f MiB to a chunk of 64 means\n", after - before, (after - before) * 64 / 1048576);
    return 0;
}
