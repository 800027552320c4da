// SPDX-License-Identifier: MIT
// locality: how far apart blocks lie that were allocated one after the other, and what it costs to walk a list of them:
// in the order of allocation, and at random.
#include <quarry/fifo.h>
#include <quarry/ring.h>
#include <quarry/stack.h>

#include "scenario.h"

enum { MALLOC,
    FIFO,
    RING,
    STACK };
enum { FRESH,
    USED };
enum { NEAR = 2,  // blocks apart: still adjacent, with what a malloc keeps beside a block
    PAGE = 4096,
    WORDS = 8 };

typedef struct node {
    struct node *next;
    uint64_t value;
} node_t;

static uint64_t with = MALLOC, heap = USED, count = 2000000, size = 48, rounds = 3, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|fifo|ring|stack", "where nodes come from"),
    CHOICE("heap", &heap, "fresh|used",
        "used: before, so many blocks of malloc as nodes are made and freed at random, and a tenth stays"),
    NUMBER("count", &count, 2, (uint64_t)1 << 32, "nodes of the list"),
    BYTES("size", &size, sizeof(node_t), 4096, "bytes of a node, of which the link and a number are written"),
    NUMBER("rounds", &rounds, 1, 1000000, "walks of each kind"),
    OPTION_SEED(&seed),
    {0},
};

static quarry_pool_t *pool;

static void *get(void) {
    switch (with) {
    case MALLOC: return malloc(size);
    case FIFO: return quarry_fifo_alloc(pool, size, 8, 0);
    case RING: return quarry_ring_alloc(pool, size, 8, 0);
    default: return quarry_stack_alloc(pool, size, 8, 0);
    }
}

static void shuffle(void *places, uint64_t n, uint64_t *state) {
    void **p = places;
    for (uint64_t i = n - 1; i > 0; i--) {
        const uint64_t j = bench_random(state) % (i + 1);
        void *const kept = p[i];
        p[i] = p[j];
        p[j] = kept;
    }
}

// A heap as programs have it after a while: nine of ten blocks are free, in no order.
static uint64_t use_heap(char **blocks, uint64_t *state) {
    for (uint64_t i = 0; i < count; i++) {
        blocks[i] = must_have(malloc(size));
        blocks[i][0] = 1;
    }
    shuffle(blocks, count, state);
    const uint64_t stay = count / 10;
    for (uint64_t i = stay; i < count; i++) free(blocks[i]);
    return stay;
}

static void tell_distances(node_t *const *nodes) {
    uint64_t by_power[64] = {0}, adjacent = 0, far = 0, seen = 0;
    for (uint64_t i = 1; i < count; i++) {
        const uintptr_t a = (uintptr_t)nodes[i - 1], b = (uintptr_t)nodes[i], apart = a < b ? b - a : a - b;
        adjacent += apart <= NEAR * (size + WORDS);
        far += apart >= PAGE;
        by_power[63 - __builtin_clzll(apart | 1)]++;
    }
    unsigned power = 0;
    while (power < 63 && (seen += by_power[power]) * 2 < count - 1) power++;
    scenario_value("adjacent", (double)adjacent / (double)(count - 1));
    scenario_value("a_page_apart", (double)far / (double)(count - 1));
    scenario_value("median_distance_bytes", (double)((uint64_t)1 << power));
}

static void chain(node_t *const *nodes) {
    for (uint64_t i = 0; i + 1 < count; i++) nodes[i]->next = nodes[i + 1];
    nodes[count - 1]->next = NULL;
}

static uint64_t walk(const node_t *node, phase_t *phase) {
    uint64_t sum = 0;
    for (uint64_t r = 0; r < rounds; r++) {
        sum = 0;
        phase_begin(phase);
        for (const node_t *n = node; n; n = n->next) sum += n->value;
        phase_end(phase, count);
    }
    if (sum != count * (count - 1) / 2) bench_fail("the list is not the one that was made");
    return sum;
}

int main(int argc, char **argv) {
    phase_t alloc = {.name = "alloc"}, in_order = {.name = "in-order"}, at_random = {.name = "random"};
    scenario_begin(argc, argv, "locality",
        "Nodes are allocated, and walked in that order and at random. An operation is a node.", options);
    uint64_t state = seed, stay = 0, check;
    node_t **const nodes = scenario_memory(count * sizeof(node_t *));
    char **const blocks = scenario_memory(count * sizeof(char *));
    quarry_stack_frame_t frame;
    pool = with == FIFO ? quarry_fifo_create(NULL) : with == RING ? quarry_ring_create(NULL)
                                                                  : quarry_stack_create(NULL);
    must_have(pool);
    if (heap == USED) stay = use_heap(blocks, &state);
    const quarry_ring_frame_t ring = with == RING ? quarry_ring_newframe(pool) : (quarry_ring_frame_t){0};
    if (with == STACK) quarry_stack_push(pool, &frame);
    phase_begin(&alloc);
    for (uint64_t i = 0; i < count; i++) {
        nodes[i] = must_have(get());
        nodes[i]->value = i;
    }
    phase_end(&alloc, count);
    tell_distances(nodes);
    scenario_print(&alloc, count * size, count);
    chain(nodes);
    check = walk(nodes[0], &in_order);
    shuffle(nodes, count, &state);
    chain(nodes);
    walk(nodes[0], &at_random);
    scenario_print(&in_order, count * size, check);
    scenario_print(&at_random, count * size, check);
    for (uint64_t i = 0; i < count && with <= FIFO; i++) {
        if (with == MALLOC) free(nodes[i]);
        else quarry_fifo_free(pool, nodes[i], size);
    }
    if (with == RING) quarry_ring_seal(pool), quarry_ring_release(ring);
    if (with == STACK) quarry_stack_pop(pool, &frame);
    for (uint64_t i = 0; i < stay; i++) free(blocks[i]);
    quarry_pool_destroy(pool);
    return scenario_end();
}
