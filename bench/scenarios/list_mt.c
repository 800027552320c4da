// SPDX-License-Identifier: MIT
// list-mt: the articles' contended benchmark: lists that one thread makes are freed by another one while the first
// makes the next.
//
// Nobody waits but at the end, and where too many lists would be alive: if freeing is slower than making, the memory of
// the lists under way grows, and `lag` says how far. That is how allocators' footprints grew with the threads in the
// articles' table.
#include <sched.h>
#include <stdatomic.h>

#include "scenario.h"

typedef struct node {
    struct node *next;
} node_t;

enum { PLACES = 64 };

static uint64_t with, count = 1000000, size = 8, rounds = 30, pending = 8;
static const option_t options[] = {
    CHOICE("with", &with, "malloc", "where nodes come from"),
    NUMBER("count", &count, 1, (uint64_t)1 << 36, "nodes of a list"),
    BYTES("size", &size, sizeof(node_t), 4096, "bytes of a node, of which the link is written"),
    NUMBER("rounds", &rounds, 1, 1000000, "lists"),
    NUMBER("pending", &pending, 1, PLACES, "most lists alive; the making thread waits for the other one then"),
    {0},
};

// Lists are handed over in order; list r lies in place r % pending.
static node_t *places[PLACES];
static _Atomic uint64_t made, freed;  // by the one thread, by the other one
// Each is of the thread that it runs in.
static phase_t alloc = {.name = "alloc", .who = RUSAGE_THREAD}, drops = {.name = "free", .who = RUSAGE_THREAD};

static node_t *build(void) {
    node_t *head = NULL, **tail = &head;
    for (uint64_t i = 0; i < count; i++) {
        node_t *const node = must_have(malloc(size));
        *tail = node;
        tail = &node->next;
    }
    *tail = NULL;
    return head;
}

static uint64_t drop(node_t *node) {
    uint64_t found = 0;
    for (node_t *next; node; node = next, found++) {
        next = node->next;
        free(node);
    }
    if (found != count) bench_fail("the list is not the one that was made");
    return found;
}

static void *freeing(void *arg) {
    uint64_t *const check = arg;
    for (uint64_t r = 0; r < rounds; r++) {
        while (atomic_load_explicit(&made, memory_order_acquire) == r) sched_yield();
        phase_begin(&drops);
        *check += drop(places[r % pending]);
        phase_end(&drops, count);
        atomic_store_explicit(&freed, r + 1, memory_order_release);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t check = 0, lag = 0, whole_lists = 1;
    pthread_t other;
    scenario_begin(argc, argv, "list-mt",
        "One thread makes lists (phase alloc), another one frees them (phase free). An operation is a node. Waiting is "
        "not counted;\nprocessor time and page faults are those of the phase's own thread.",
        options);
    if (pthread_create(&other, NULL, freeing, &check)) bench_fail("no thread");
    const double begin = bench_now();
    for (uint64_t r = 0; r < rounds; r++) {
        uint64_t under_way;
        while ((under_way = r - atomic_load_explicit(&freed, memory_order_acquire)) == pending) sched_yield();
        phase_begin(&alloc);
        places[r % pending] = build();
        phase_end(&alloc, count);
        if (under_way + 1 > lag) lag = under_way + 1;
        // Of those that are there now, the one that is being freed is no longer whole.
        const uint64_t there = r - atomic_load_explicit(&freed, memory_order_acquire);
        if (there > whole_lists) whole_lists = there;
        atomic_store_explicit(&made, r + 1, memory_order_release);
    }
    pthread_join(other, NULL);
    const double whole = bench_now() - begin;
    scenario_value("lag", (double)lag);
    scenario_value("whole_seconds", whole);
    scenario_print(&alloc, whole_lists * count * size, check);
    scenario_print(&drops, whole_lists * count * size, check);
    return scenario_end();
}
