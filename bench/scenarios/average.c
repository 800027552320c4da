// SPDX-License-Identifier: MIT
// average: how running means of request sizes answer to a load with outliers: the articles' 4 million requests of 16
// KiB on average with noise of 3 KiB, five bunches of 2,000 requests of 256 KiB, and one of 1 GiB between the third and
// the fourth. The means:
//
//   cut          the articles' first one: sum and count, quartered at 65,535; requests from 128 MiB on are ignored
//   uncut        theirs without the cut, which is the one in use (src/pool/mean.h)
//   exponential  with a decay of 1/27279
//   plain        of all requests so far
//
// Timed is the mean in use alone, over the same sizes.
#include "../../src/pool/mean.h"
#include "scenario.h"

enum { MEAN = 16384,
    DEVIATION = 3072,
    BUNCHES = 5,
    BUNCH = 2000,
    BUNCH_BYTES = 262144 };
#define PEAK_BYTES ((uint64_t)1 << 30)
#define CUT ((uint64_t)128 << 20)

static uint64_t count = 4000000, every = 8192, seed = 1;
static const option_t options[] = {
    NUMBER("count", &count, 100000, 1 << 28, "requests"),
    NUMBER("every", &every, 1, 1 << 28, "requests from one point of the curve to the next"),
    OPTION_SEED(&seed),
    {0},
};

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

static uint64_t request(uint64_t i, uint64_t *state) {
    const uint64_t part = count / (BUNCHES + 1);
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

static void point(uint64_t i, const means_t *m) {
    scenario_row((double)i, value(&m->cut), value(&m->uncut), m->exponential, m->sum / (double)m->count);
}

// Returns by how much the peak raised the mean in use.
static double curves(const uint64_t *sizes) {
    means_t m = {QY_MEAN_INIT, QY_MEAN_INIT, MEAN, 0, 0};
    double raised = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double before = value(&m.uncut);
        if (sizes[i] == PEAK_BYTES) point(i, &m);
        add(&m, sizes[i]);
        if (sizes[i] == PEAK_BYTES) raised = value(&m.uncut) - before;
        if (sizes[i] == PEAK_BYTES || i % every == every - 1 || i == count - 1) point(i + 1, &m);
    }
    return raised;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    scenario_begin(argc, argv, "average",
        "Running means of request sizes with outliers among them. An operation is a request added to the mean in use.",
        options);
    uint64_t *const sizes = scenario_memory(count * sizeof *sizes), state = seed;
    for (uint64_t i = 0; i < count; i++) sizes[i] = request(i, &state);
    scenario_columns("request", "cut", "uncut", "exponential", "plain", NULL);
    const double raised = curves(sizes);
    qy_mean_t mean = QY_MEAN_INIT;
    phase_begin(&all);
    for (uint64_t i = 0; i < count; i++) {
        qy_mean_add(&mean, sizes[i]);
        __asm__ volatile(""
                         : "+m"(mean));  // each one is a request of its own
    }
    phase_end(&all, count);
    scenario_value("peak_raises_mean_bytes", raised);
    scenario_value("peak_raises_chunk_bytes", raised * 64);  // a chunk is 64 means
    scenario_print(&all, 0, mean.sum ^ mean.count << 48);
    return scenario_end();
}
