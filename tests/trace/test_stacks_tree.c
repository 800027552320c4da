// SPDX-License-Identifier: MIT
// The tree of stacks against a model, alone and with threads, full and begun anew.
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "os/fake.h"
#include "stacks/stacks_tree.h"
#include "stacks/unwind.h"

#define LIMIT 200000u

// What was told, by id.
static struct {
    uint32_t parent;
    uintptr_t pc;
    _Atomic uint32_t times;
} told[LIMIT + 1];
static _Atomic uint32_t tellings;
static bool others_come;  // alone, each yield would only wait for what else the machine does

static bool tell(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    CHECK(id > 0 && id <= LIMIT);
    CHECK_EQ(told[id].times, 0);
    if (others_come && id % 16 == 0) sched_yield();  // so that they do while it is being told
    told[id].parent = parent;
    told[id].pc = pc | (is_return ? 0 : QY_PC_EXACT);
    atomic_fetch_add(&tellings, 1);
    atomic_store(&told[id].times, 1);
    (void)arg;
    return true;
}

static bool refuse(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)id;
    (void)parent;
    (void)pc;
    (void)is_return;
    ++*(int *)arg;
    return false;
}

static void forget_told(void) {
    for (uint32_t i = 0; i <= LIMIT; i++) told[i].times = 0;
    tellings = 0;
}

// The id must have been told before anybody gets it, as what was asked for.
static uint32_t add(uint32_t parent, uintptr_t pc, uint32_t *spare) {
    uint32_t id = qy_tree_find(parent, pc);
    if (!id && qy_tree_add(parent, pc, spare, tell, NULL, &id) == QY_ADD_FULL) return 0;
    CHECK_EQ(atomic_load(&told[id].times), 1);
    CHECK_EQ(told[id].parent, parent);
    CHECK_EQ(told[id].pc, pc);
    return id;
}

TEST(no_memory) {
    quarry_os_fault(1, true, 1u << QY_OS_MAP);
    CHECK(!qy_tree_start(LIMIT));
    CHECK_EQ(quarry_os_fault_hits(), 6);  // 200000 is halved five times
    quarry_os_fault(0, false, 0);
    CHECK_EQ(qy_tree_memory(), 0);
}

TEST(pairs_once) {
    CHECK(qy_tree_start(LIMIT));
    CHECK_EQ(qy_tree.limit, LIMIT);
    uint32_t spare = 0, first = add(0, 0x1000, &spare);
    CHECK_EQ(first, 1);
    CHECK_EQ(add(0, 0x1000, &spare), first);
    CHECK_EQ(add(0, 0x1000 | QY_PC_EXACT, &spare), 2);
    CHECK_EQ(add(first, 0x1000, &spare), 3);
    CHECK_EQ(add(2, 0x1000, &spare), 4);
    CHECK_EQ(add(first, 0x1000, &spare), 3);
    CHECK_EQ(tellings, 4);
}

// A node that could not be told is not there, and its number is used by the next.
TEST(refused) {
    uint32_t spare = 0, id, before = qy_tree.taken;
    int times = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(qy_tree_add(1, 0x777, &spare, refuse, &times, &id), QY_ADD_REFUSED);
        CHECK_EQ(spare, before + 1);
        CHECK_EQ(qy_tree_find(1, 0x777), 0);
    }
    CHECK_EQ(times, 3);
    CHECK_EQ(add(1, 0x777, &spare), before + 1);
    CHECK_EQ(spare, 0);
}

// What lay in unloaded code is found no more, nor what hangs from it: these get new ids, newer than all before.
TEST(unloaded) {
    uint32_t spare = 0;
    qy_tree_restart();
    forget_told();
    uint32_t host = add(0, 0x1000, &spare), plugin = add(host, 0x20010, &spare), inner = add(plugin, 0x1500, &spare),
             last = add(host, 0x21000, &spare), exact = add(host, 0x21000 | QY_PC_EXACT, &spare);
    CHECK_EQ(qy_tree_ids(), 5);
    qy_tree_forget(0x20000, 0x1000);
    CHECK_EQ(qy_tree_find(0, 0x1000), host);
    CHECK_EQ(qy_tree_find(host, 0x20010), 0);
    // A return address behind the last call is still of it, an instruction there is not.
    CHECK_EQ(qy_tree_find(host, 0x21000), 0);
    CHECK_EQ(qy_tree_find(host, 0x21000 | QY_PC_EXACT), exact);
    uint32_t again = add(host, 0x20010, &spare), inner_again = add(again, 0x1500, &spare);
    CHECK(again > exact && inner_again > again && inner_again != inner && last < again);
    CHECK_EQ(qy_tree_find(plugin, 0x1500), inner);  // nobody has `plugin` any more
    // Numbers that were taken before the last look at the modules are not used afterwards.
    int times = 0;
    uint32_t id;
    CHECK_EQ(qy_tree_add(host, 0x30000, &spare, refuse, &times, &id), QY_ADD_REFUSED);
    CHECK(spare == 8);
    qy_tree.seen = 8;
    CHECK_EQ(add(host, 0x30000, &spare), 9);
    CHECK_EQ(spare, 0);
}

// Random stacks: equal stacks have equal ids, others others.
TEST(model) {
    uint64_t rng = test_seed;
    static uint32_t child[4096][8];
    uint32_t spare = 0;
    qy_tree_restart();
    forget_told();
    for (int i = 0; i < 100000; i++) {
        uint32_t id = 0;
        for (unsigned depth = 0; depth < 20 && id < 4096; depth++) {
            unsigned which = (unsigned)(test_random(&rng) >> 61);
            uint32_t next = add(id, 0x400000 + which * 4, &spare);
            if (!child[id][which]) child[id][which] = next;
            CHECK_EQ(child[id][which], next);
            id = next;
        }
    }
    CHECK_EQ(tellings, qy_tree.taken);
    CHECK_EQ(qy_tree.doubled, 0);
}

// ---- threads -----------------------------------------------------------------------------------------------

#define THREADS 4
#define STACKS 1000
#define DEPTH 12

static uint32_t found[THREADS][STACKS];

// Every thread adds the same stacks, in another order.
static void *adder(void *number) {
    unsigned me = (unsigned)(uintptr_t)number;
    uint32_t spare = 0;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < STACKS; i++) {
            unsigned which = (i * 7 + me * 31) % STACKS;
            uint64_t rng = test_seed + which;
            uint32_t id = 0;
            for (unsigned depth = 0; depth < DEPTH; depth++)
                id = add(id, 0x10000 + (test_random(&rng) >> 60) * 4, &spare);
            CHECK(round == 0 || found[me][which] == id);
            found[me][which] = id;
        }
    return NULL;
}

TEST(threads_agree) {
    for (int round = 0; round < 5; round++) {
        qy_tree_restart();
        forget_told();
        pthread_t threads[THREADS];
        others_come = true;
        for (uintptr_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, adder, (void *)i), 0);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        others_come = false;
        for (int i = 1; i < THREADS; i++)
            for (int j = 0; j < STACKS; j++) CHECK_EQ(found[i][j], found[0][j]);
        CHECK_EQ(tellings, qy_tree.taken);
    }
    // Numbers are ids of nodes, or told for nothing.
    uint32_t reached = 0;
    for (uint64_t h = 0; h < (uint64_t)1 << (64 - qy_tree.shift); h++)
        for (uint32_t id = qy_tree.heads[h]; id; id = qy_tree.nodes[id].next) reached++;
    CHECK_LE(reached, qy_tree.taken);
    CHECK_LE(qy_tree.taken - reached, qy_tree.doubled);
    printf("%u nodes, %llu told twice in all\n", reached, (unsigned long long)qy_tree.doubled);
}

TEST(full) {
    uint32_t spare = 0;
    qy_tree_restart();
    forget_told();
    for (uint32_t i = 1; i <= LIMIT; i++) CHECK_EQ(add(0, i * 16, &spare), i);
    for (uint32_t i = 1; i <= 1000; i++) CHECK_EQ(add(0, (LIMIT + i) * 16, &spare), 0);
    for (uint32_t i = 1; i <= LIMIT; i += 97) CHECK_EQ(add(0, i * 16, &spare), i);
    qy_tree_restart();
    forget_told();
    CHECK_EQ(qy_tree_find(0, 16), 0);
    CHECK_EQ(add(0, 32, &spare), 1);
}

TEST_MAIN()
