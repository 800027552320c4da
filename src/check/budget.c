// SPDX-License-Identifier: MIT
// budget.c: see budget.h.
#include "check/budget.h"

#include <stdatomic.h>

#include "base/num.h"
#include "os/os.h"
#include "os/process.h"
#include "stacks/stacks_tree.h"

#define SITE_FRAMES 4u
#define SITES 65536u  // numbers that sites are counted by; those that share one have their turn together
#define OF_SITE 4u
#define OF_STACK 2u
#define OF_CHANCE 16u
#define COST_NS INT64_C(10000)
#define SHARE_PERCENT 10
#define START_NS INT64_C(30000000)
#define MOST_NS (2 * START_NS)
#define FLOOR_OF_STACK (START_NS / 4)
#define FLOOR_OF_CHANCE (START_NS / 2)

static struct {
    _Atomic int64_t credit_ns;
    _Atomic uint64_t tick_ns;  // of the coarse clock, when the processor time was asked for
    _Atomic uint64_t cpu_ns;   // of the process, then
    _Atomic uint8_t of_site[SITES];
} budget = {.credit_ns = START_NS};

// The processor time is asked for once in a tick of the coarse clock.
static void budget_earn(void) {
    uint64_t tick = qy_os_now_coarse_ns(), before = atomic_load_explicit(&budget.tick_ns, memory_order_relaxed);
    if (tick == before || !atomic_compare_exchange_strong(&budget.tick_ns, &before, tick)) return;
    uint64_t cpu = qy_os_cpu_ns(), was = atomic_exchange(&budget.cpu_ns, cpu);
    // A fork's child begins anew with its clock.
    if (!before || cpu <= was) return;
    int64_t more = (int64_t)qy_min(cpu - was, (uint64_t)MOST_NS * 100 / SHARE_PERCENT) * SHARE_PERCENT / 100;
    int64_t credit = atomic_load(&budget.credit_ns);
    atomic_fetch_add(&budget.credit_ns, qy_min(more, MOST_NS - credit));
}

static bool budget_has(int64_t floor) {
    if (atomic_load_explicit(&budget.credit_ns, memory_order_relaxed) > floor) return true;
    budget_earn();
    return atomic_load_explicit(&budget.credit_ns, memory_order_relaxed) > floor;
}

static uint32_t site_of(uint32_t stack) {
    uint64_t hash = 0;
    for (unsigned i = 0; i < SITE_FRAMES && stack; i++) {
        const qy_stacks_node_t *node = &qy_tree.nodes[stack];
        hash = (hash ^ atomic_load_explicit(&node->pc, memory_order_relaxed)) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
        stack = atomic_load_explicit(&node->parent, memory_order_relaxed) & ~QY_NODE_THERE;
    }
    return (uint32_t)hash % SITES;
}

// Is it one of the first of its site? Counted only when it can be had, so that a site keeps its turn.
static bool site_allows(uint32_t stack) {
    _Atomic uint8_t *count = &budget.of_site[site_of(stack)];
    uint8_t n = atomic_load_explicit(count, memory_order_relaxed);
    if (n >= OF_SITE || !budget_has(0)) return false;
    atomic_store_explicit(count, (uint8_t)(n + 1), memory_order_relaxed);
    return true;
}

bool qy_check_budget_allows(uint32_t stack, uint64_t ordinal, size_t n) {
    if (!ordinal) return false;  // no memory to count the blocks of its stack
    if (ordinal <= OF_CHANCE && site_allows(stack)) return true;
    if (ordinal <= OF_STACK && budget_has(FLOOR_OF_STACK)) return true;
    bool whole_pages = n >= qy_os_page_size();
    uint64_t chance = (ordinal * UINT64_C(0x9E3779B97F4A7C15) ^ stack) * UINT64_C(0xD1B54A32D192ED03) >> 32;
    return (whole_pages || chance % ordinal < OF_CHANCE) && budget_has(FLOOR_OF_CHANCE);
}

void qy_check_budget_spend(void) { atomic_fetch_sub_explicit(&budget.credit_ns, COST_NS, memory_order_relaxed); }
