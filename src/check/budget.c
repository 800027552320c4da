// SPDX-License-Identifier: MIT
// budget.c: see budget.h.
#include "check/budget.h"

#include <stdatomic.h>

#include "base/num.h"
#include "guard/credit.h"
#include "os/os.h"
#include "stacks/stacks_tree.h"

#define SITE_FRAMES 4u
#define SITES 65536u  // numbers that sites are counted by; those that share one have their turn together
#define OF_SITE 4u
#define OF_STACK 2u
#define OF_CHANCE 16u
// Of a block of one page, and of each page more: the kernel makes it zero, and takes it back.
#define COST_NS INT64_C(5000)
#define COST_OF_PAGE_NS INT64_C(3000)
#define SHARE_ONE_IN 20u
#define START_NS INT64_C(15000000)
#define MOST_NS (2 * START_NS)
#define FLOOR_OF_STACK (START_NS / 4)
#define FLOOR_OF_CHANCE (START_NS / 2)
#define LIVE_OF_SITE 1u
#define LIVE_OF_STACK 2u
#define LIVE_OF_CHANCE 4u

static qy_guard_credit_t budget_credit = {.ns = START_NS, .most_ns = MOST_NS, .one_in = SHARE_ONE_IN};
static _Atomic uint8_t blocks_of_site[SITES];

static bool budget_has(int64_t floor) { return qy_guard_credit_has(&budget_credit, floor); }

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
    _Atomic uint8_t *count = &blocks_of_site[site_of(stack)];
    uint8_t n = atomic_load_explicit(count, memory_order_relaxed);
    if (n >= OF_SITE || !budget_has(0)) return false;
    atomic_store_explicit(count, (uint8_t)(n + 1), memory_order_relaxed);
    return true;
}

unsigned qy_check_budget_allows(uint32_t stack, uint64_t ordinal, size_t n) {
    if (!ordinal) return 0;  // no memory to count the blocks of its stack
    if (ordinal <= OF_CHANCE && site_allows(stack)) return LIVE_OF_SITE;
    if (ordinal <= OF_STACK && budget_has(FLOOR_OF_STACK)) return LIVE_OF_STACK;
    bool whole_pages = n >= qy_os_page_size();
    uint64_t chance = (ordinal * UINT64_C(0x9E3779B97F4A7C15) ^ stack) * UINT64_C(0xD1B54A32D192ED03) >> 32;
    if (!whole_pages && chance % ordinal >= OF_CHANCE) return 0;
    if (!budget_has(FLOOR_OF_CHANCE)) return 0;
    return whole_pages ? LIVE_OF_STACK : LIVE_OF_CHANCE;
}

void qy_check_budget_spend(size_t n) {
    int64_t more = (int64_t)(qy_max(n, 1) - 1) / (int64_t)qy_os_page_size();
    qy_guard_credit_spend(&budget_credit, COST_NS + more * COST_OF_PAGE_NS);
}
