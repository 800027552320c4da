// SPDX-License-Identifier: MIT
// queue_holes: what a FIFO is for. Contexts of requests come and go in order, and beside them the program makes other
// blocks that stay. On a heap these lie between contexts and hold their pages; a FIFO has pages of its own.
#include <malloc.h>
#include <quarry/fifo.h>

#include "scenario.h"

enum { MALLOC,
    FIFO,
    OVERTAKES = 16 };

static uint64_t with = FIFO, count = 2000000, live = 100000, size = 1000, every = 10, foreign = 100, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|fifo", "where contexts come from; the other blocks are always malloc's"),
    NUMBER("count", &count, 1, (uint64_t)1 << 36, "contexts in all"),
    NUMBER("live", &live, OVERTAKES, 1 << 26, "contexts in the queue"),
    BYTES("size", &size, 8, 8192, "bytes of a context, all written; half to one and a half times of it"),
    NUMBER("every", &every, 1, 1000000,
        "one other block with so many contexts, until the queue is full; it stays to the end"),
    BYTES("foreign", &foreign, 8, 8192, "its bytes"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct context {
    char *p;
    size_t size;
} context_t;

static quarry_pool_t *pool;

static void drop(context_t *c) {
    if (c->p[0] != (char)c->size || c->p[c->size - 1] != (char)c->size) bench_fail("a context has changed");
    if (with == MALLOC) free(c->p);
    else quarry_fifo_free(pool, c->p, c->size);
    c->p = NULL;
}

static void make(context_t *c, uint64_t *state) {
    c->size = bench_between((uint32_t)bench_random(state), (uint32_t)(size / 2 + 4), (uint32_t)(size + size / 2));
    c->p = must_have(with == MALLOC ? malloc(c->size) : quarry_fifo_alloc(pool, c->size, 8, 0));
    memset(c->p, (int)(c->size & 0xFF), c->size);
}

int main(int argc, char **argv) {
    phase_t turns = {.name = ""};
    scenario_begin(argc, argv, "queue-holes",
        "Contexts come and go in order; some other blocks stay. An operation is a context made and ended.", options);
    pool = must_have(quarry_fifo_create(NULL));
    context_t *const queue = scenario_memory(live * sizeof *queue);
    const uint64_t others = (live + every - 1) / every;
    char **const stay = scenario_memory(others * sizeof(char *));
    const long before = scenario_anon_kib();
    uint64_t state = seed, payload = 0, check = 0;
    phase_begin(&turns);
    for (uint64_t i = 0; i < count; i++) {
        // The oldest one goes, or one just behind it, which then has its place in the queue.
        context_t *const oldest = &queue[i % live];
        if (i >= live) {
            context_t *const next = &queue[(i + bench_random(&state) % OVERTAKES) % live];
            drop(next);
            *next = *oldest;
        }
        make(oldest, &state);
        check += oldest->size;
        if (i < live && i % every == 0) {
            stay[i / every] = must_have(malloc(foreign));
            memset(stay[i / every], 's', foreign);
        }
    }
    phase_end(&turns, count);
    for (uint64_t i = 0; i < live; i++) payload += queue[i].p ? queue[i].size : 0;
    const double full = (double)(scenario_anon_kib() - before) * 1024;
    for (uint64_t i = 0; i < live; i++)
        if (queue[i].p) drop(&queue[i]);
    quarry_fifo_trim(pool);
    malloc_trim(0);
    const double drained = (double)(scenario_anon_kib() - before) * 1024;
    for (uint64_t i = 0; i < others; i++) {
        if (!stay[i]) continue;
        if (stay[i][foreign - 1] != 's') bench_fail("a block has changed");
        free(stay[i]);
    }
    scenario_value("full_bytes", full);
    scenario_value("drained_bytes", drained);
    scenario_value("stays_bytes", (double)(others * foreign));
    scenario_print(&turns, payload, check);
    quarry_pool_destroy(pool);
    return scenario_end();
}
