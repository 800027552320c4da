// SPDX-License-Identifier: MIT
// list: the articles' uncontended benchmark: a list of nodes is made, walked, and ended node by node (or at once, where
// blocks end with a frame).
#include <quarry/fifo.h>
#include <quarry/ring.h>
#include <quarry/stack.h>

#include "scenario.h"

enum { MALLOC,
    FIFO,
    FIFO_KEEP,  // keeps all its pages for the next round, as mallocs do
    RING,
    STACK };

enum { LISTS = 64 };

typedef struct node {
    struct node *next;
} node_t;

static uint64_t with = MALLOC, count = 10000000, size = 8, rounds = 3, lists = 1, mixed, seed = 1, value_bytes;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|fifo|fifo-keep|ring|stack", "where nodes come from"),
    NUMBER("count", &count, 1, (uint64_t)1 << 36, "nodes of a list"),
    BYTES("size", &size, sizeof(node_t), 4096,
        "bytes of a node, of which the link and, from 16 on, a number are written"),
    NUMBER("rounds", &rounds, 1, 1000000, "lists, one after the other"),
    NUMBER("lists", &lists, 1, LISTS,
        "lists that take their nodes in turns. Of several, one in four is freed last to first, and of one in four "
        "every other node goes first, which leaves holes"),
    CHOICE("sizes", &mixed, "one|mixed", "mixed: each node has 0 to 4 times 16 bytes more than --size"),
    OPTION_SEED(&seed),
    {0},
};

static phase_t alloc = {.name = "alloc"}, walk = {.name = "walk"}, drop = {.name = "free"};
static quarry_pool_t *pool;
static quarry_ring_frame_t ring_frame;
static quarry_stack_frame_t stack_frame;

ALWAYS_INLINE void *get(uint64_t kind, size_t bytes) {
    switch (kind) {
    case MALLOC: return malloc(bytes);
    case RING: return quarry_ring_alloc(pool, bytes, 8, 0);
    case STACK: return quarry_stack_alloc(pool, bytes, 8, 0);
    default: return quarry_fifo_alloc(pool, bytes, 8, 0);
    }
}

ALWAYS_INLINE node_t *build(uint64_t kind) {
    node_t *head = NULL, **tail = &head;
    if (kind == RING) ring_frame = quarry_ring_newframe(pool);
    if (kind == STACK) quarry_stack_push(pool, &stack_frame);
    for (uint64_t i = 0; i < count; i++) {
        node_t *const node = must_have(get(kind, size));
        if (value_bytes) memcpy(node + 1, &i, 8);
        *tail = node;
        tail = &node->next;
    }
    *tail = NULL;
    return head;
}

// Blocks that end with their frame are not visited.
ALWAYS_INLINE void end(uint64_t kind, node_t *node) {
    if (kind == RING) quarry_ring_seal(pool), quarry_ring_release(ring_frame);
    if (kind == STACK) quarry_stack_pop(pool, &stack_frame);
    for (node_t *next; node && kind <= FIFO; node = next) {
        next = node->next;
        if (kind == MALLOC) free(node);
        else quarry_fifo_free(pool, node, size);
    }
}

static uint64_t visit(const node_t *node) {
    uint64_t sum = 0, found = 0, value = 0;
    for (; node; node = node->next, found++) {
        if (value_bytes) memcpy(&value, node + 1, 8);
        sum += value ^ found;
    }
    if (found != count || (value_bytes && sum)) bench_fail("the list is not the one that was made");
    return found;
}

// ---- several lists, of malloc alone ----

static node_t *heads[LISTS];

static void build_several(uint64_t *random) {
    memset(heads, 0, sizeof heads);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t r = bench_random(random);
        node_t *const node = must_have(malloc(size + (mixed ? r % 5 * 16 : 0)));
        if (value_bytes) memcpy(node + 1, &r, 8);
        node->next = heads[i % lists];
        heads[i % lists] = node;
    }
}

static uint64_t visit_several(void) {
    uint64_t sum = 0, value = 0;
    for (uint64_t l = 0; l < lists; l++)
        for (const node_t *node = heads[l]; node; node = node->next) {
            if (value_bytes) memcpy(&value, node + 1, 8);
            sum = sum * 31 + value + l;
        }
    return sum;
}

static node_t *reversed(node_t *node) {
    node_t *head = NULL;
    for (node_t *next; node; node = next) {
        next = node->next;
        node->next = head;
        head = node;
    }
    return head;
}

// What remains is still a list.
static void free_every_other(node_t *node) {
    for (; node && node->next; node = node->next) {
        node_t *const gone = node->next;
        node->next = gone->next;
        free(gone);
    }
}

static void end_several(void) {
    for (uint64_t l = 0; l < lists; l++) {
        if (l % 4 == 1) heads[l] = reversed(heads[l]);
        if (l % 4 == 2) free_every_other(heads[l]);
        end(MALLOC, heads[l]);
    }
}

// ---- a round ----

static uint64_t round_of_several(uint64_t *random) {
    phase_begin(&alloc);
    build_several(random);
    phase_end(&alloc, count);
    phase_begin(&walk);
    const uint64_t check = visit_several();
    phase_end(&walk, count);
    phase_begin(&drop);
    end_several();
    phase_end(&drop, count);
    return check;
}

static uint64_t round_of_one(long *resident, long before) {
    phase_begin(&alloc);
    node_t *const head = with == MALLOC ? build(MALLOC) : with == RING ? build(RING)
                                                      : with == STACK  ? build(STACK)
                                                                       : build(FIFO);
    phase_end(&alloc, count);
    if (!*resident) *resident = scenario_rss_kib() - before;
    phase_begin(&walk);
    const uint64_t check = visit(head);
    phase_end(&walk, count);
    phase_begin(&drop);
    if (with == MALLOC) end(MALLOC, head);
    else if (with == RING) end(RING, head);
    else if (with == STACK) end(STACK, head);
    else end(FIFO, head);
    phase_end(&drop, count);
    return check;
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "list",
        "A list is made (phase alloc), walked and ended (phase free). An operation is a node.", options);
    value_bytes = size >= 16 ? 8 : 0;
    if (with != MALLOC && (lists > 1 || mixed)) scenario_not_applicable("pools have one list, of nodes of one size");
    if (with == FIFO || with == FIFO_KEEP)
        pool = quarry_fifo_create(&(quarry_fifo_options_t){.spare_pages = with == FIFO_KEEP ? UINT32_MAX : 0});
    if (with == RING) pool = quarry_ring_create(NULL);
    if (with == STACK) pool = quarry_stack_create(NULL);
    if (with != MALLOC) must_have(pool);
    long resident = 0;
    uint64_t check = 0, random = seed;
    const bool several = lists > 1 || mixed;
    const long before = scenario_rss_kib();
    for (uint64_t r = 0; r < rounds; r++)
        check += several ? round_of_several(&random) : round_of_one(&resident, before);
    if (!several) scenario_value("resident_per_payload", (double)resident * 1024 / (double)(count * size));
    // Of mixed sizes the mean is 32 bytes more.
    const uint64_t payload = count * (size + (mixed ? 32 : 0));
    scenario_print(&alloc, payload, check);
    scenario_print(&walk, payload, check);
    scenario_print(&drop, payload, check);
    quarry_pool_destroy(pool);
    return scenario_end();
}
