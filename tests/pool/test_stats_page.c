// SPDX-License-Identifier: MIT
// Pools in the statistics page: by name, as soon as they have memory; more than there are entries; in children; from
// many threads.
#include <pthread.h>
#include <quarry/fifo.h>
#include <quarry/pages.h>
#include <quarry/persist.h>
#include <quarry/stack.h>
#include <quarry/tlsf.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "pool_test.h"
#include "rt/stats_page.h"
#include "stats_page_read.h"

static quarry_pool_t *stack(const char *name) {
    quarry_pool_t *p = quarry_stack_create(&(quarry_stack_options_t){.pool = {.name = name}});
    CHECK(p);
    return p;
}

// A pool that was there before the page is in it, too.
TEST(all_appear_when_there_is_a_page) {
    quarry_pool_t *early = stack("early");
    quarry_stack_frame_t frame;
    quarry_stack_push(early, &frame);
    CHECK(quarry_pool_alloc(early, 1000, 16, 0));
    CHECK(!qy_stats_page());
    quarry_pool_t *other = stack("other");
    quarry_stack_frame_t inner;
    quarry_stack_push(other, &inner);
    CHECK(quarry_pool_alloc(other, 1 << 20, 16, 0));
    const quarry_stats_page_t *page = qy_stats_page();
    CHECK(page);
    CHECK(page->head.parts & QUARRY_STATS_PAGE_POOLS);
    quarry_stats_page_pool_t e;
    CHECK(page_pool(page, "early", &e));
    CHECK_STR_EQ(e.kind, "stack");
    CHECK_EQ(e.held_bytes, held(early));
    CHECK(page_pool(page, "other", &e));
    CHECK_EQ(e.held_bytes, held(other));
    quarry_stack_pop(other, &inner);
    quarry_stack_pop(early, &frame);
    end(other);
    end(early);
    CHECK(!page_pool(page, "early", &e));
}

TEST(numbers) {
    const quarry_stats_page_t *page = qy_stats_page();
    CHECK(page);
    quarry_stats_page_pool_t e;
    quarry_pool_t *tlsf = quarry_tlsf_create(
        &(quarry_tlsf_options_t){.pool = {.name = "a tlsf with a name too long to fit", .limit = 64 << 20}});
    CHECK(tlsf);
    void *p = quarry_pool_alloc(tlsf, 100000, 16, 0);
    CHECK(p);
    CHECK(page_pool(page, "a tlsf with a name too long to ", &e));
    quarry_pool_stats_t s = stats_of(tlsf);
    CHECK_EQ(e.held_bytes, s.held_bytes);
    CHECK_EQ(e.limit_bytes, 64 << 20);
    CHECK_EQ(e.chunk_gets, s.chunk_gets);
    CHECK_LE(e.used_bytes, s.held_bytes);
    quarry_pool_free(tlsf, p, 100000);
    end(tlsf);

    quarry_pool_t *fifo = quarry_fifo_create(&(quarry_fifo_options_t){.pool = {.name = "a fifo"}});
    CHECK(fifo);
    CHECK(page_pool(page, "a fifo", &e));
    CHECK_EQ(e.held_bytes, held(fifo));
    CHECK_EQ(e.used_bytes, plain(fifo) ? QUARRY_STATS_PAGE_UNKNOWN : e.used_bytes);
    end(fifo);
    CHECK(!page_pool(page, "a fifo", &e));
}

// Memory in a file is no chunk, and counts all the same.
TEST(pools_in_files) {
    const quarry_stats_page_t *page = qy_stats_page();
    quarry_stats_page_pool_t e;
    CHECK(page);
    quarry_pool_t *memory =
        quarry_pages_create(&(quarry_pages_options_t){.pool = {.name = "memory"}, .flags = QUARRY_PAGES_MEMFD});
    CHECK(memory && quarry_pool_alloc(memory, 4096, 1, 0));
    CHECK(page_pool(page, "memory", &e));
    CHECK_GT(e.held_bytes, 0);
    CHECK_EQ(e.held_bytes, held(memory));
    end(memory);
    char path[] = "/tmp/quarry-stats-page-XXXXXX";
    int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    close(fd);
    quarry_persist_options_t options = {
        .pool = {.name = "store"}, .flags = QUARRY_PERSIST_CREATE, .max_bytes = (size_t)1 << 30};
    quarry_persist_t *s = quarry_persist_open(path, &options);
    CHECK(s && page_pool(page, "store", &e));
    CHECK_EQ(e.held_bytes, held(quarry_persist_pool(s)));
    options = (quarry_persist_options_t){
        .pool = {.name = "reader"}, .flags = QUARRY_PERSIST_READ_ONLY, .max_bytes = (size_t)1 << 30};
    quarry_persist_t *r = quarry_persist_open(path, &options);
    CHECK(r && quarry_persist_alloc(s, 1 << 20, 0));
    CHECK(page_pool(page, "store", &e));
    CHECK_GT(e.held_bytes, 1 << 20);
    CHECK_EQ(e.held_bytes, held(quarry_persist_pool(s)));
    CHECK_EQ(quarry_persist_refresh(r), 0);
    CHECK_EQ(held(quarry_persist_pool(r)), e.held_bytes);
    CHECK(page_pool(page, "reader", &e));
    CHECK_EQ(held(quarry_persist_pool(r)), e.held_bytes);
    CHECK_EQ(quarry_persist_close(r), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK(!page_pool(page, "store", &e));
    unlink(path);
}

TEST(more_than_there_are_entries) {
    const quarry_stats_page_t *page = qy_stats_page();
    enum { MORE = QUARRY_STATS_PAGE_POOL_COUNT + 20 };
    quarry_pool_t *pool[MORE];
    quarry_stack_frame_t frame[MORE];
    size_t others_held = 0;
    for (int i = 0; i < MORE; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        pool[i] = stack(name);
        quarry_stack_push(pool[i], &frame[i]);
        CHECK(quarry_pool_alloc(pool[i], 3000, 16, 0));
        if (i >= (int)QUARRY_STATS_PAGE_POOL_COUNT) others_held += held(pool[i]);
    }
    CHECK_EQ(page->pools.others, 20);
    CHECK_EQ(page->pools.others_held_bytes, others_held);
    // An entry is free again: one of the others takes it with its next chunk.
    quarry_stack_pop(pool[0], &frame[0]);
    end(pool[0]);
    CHECK(quarry_pool_alloc(pool[MORE - 1], 300000, 16, 0));
    quarry_stats_page_pool_t e;
    CHECK(page_pool(page, "p147", &e));
    CHECK_EQ(e.held_bytes, held(pool[MORE - 1]));
    CHECK_EQ(page->pools.others, 19);
    for (int i = 1; i < MORE; i++) {
        quarry_stack_pop(pool[i], &frame[i]);
        end(pool[i]);
    }
    CHECK_EQ(page->pools.others, 0);
    CHECK_EQ(page->pools.others_held_bytes, 0);
    for (size_t i = 0; i < QUARRY_STATS_PAGE_POOL_COUNT; i++) CHECK_EQ(page->pools.pools[i].turn & 3, 0);
}

TEST(in_a_child) {
    quarry_pool_t *p = stack("of the parent");
    quarry_stack_frame_t frame;
    quarry_stack_push(p, &frame);
    CHECK(quarry_pool_alloc(p, QY_STATS_PAGE_CHILD_LARGE, 16, 0));
    pid_t pid = fork();
    if (!pid) {
        quarry_stats_page_pool_t e;
        CHECK(qy_stats_page() && qy_stats_page()->head.pid == getpid());
        CHECK(page_pool(qy_stats_page(), "of the parent", &e));
        CHECK_EQ(e.held_bytes, held(p));
        CHECK(quarry_pool_alloc(p, 5 << 20, 16, 0));
        CHECK(page_pool(qy_stats_page(), "of the parent", &e));
        CHECK_EQ(e.held_bytes, held(p));
        _exit(0);
    }
    size_t mine = held(p);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    quarry_stats_page_pool_t e;
    CHECK(page_pool(qy_stats_page(), "of the parent", &e));
    CHECK_EQ(e.held_bytes, mine);
    quarry_stack_pop(p, &frame);
    end(p);
}

static void *makes_pools(void *arg) {
    uint64_t r = test_seed + (uintptr_t)arg;
    for (int i = 0; i < 1500; i++) {
        quarry_pool_t *p = stack(test_random(&r) % 2 ? "one" : "another");
        quarry_stack_frame_t frame;
        quarry_stack_push(p, &frame);
        for (int k = 0; k < 3; k++) CHECK(quarry_pool_alloc(p, test_random(&r) % 200000, 16, 0));
        quarry_stack_pop(p, &frame);
        quarry_pool_destroy(p);
    }
    return NULL;
}

TEST(from_many_threads) {
    const quarry_stats_page_t *page = qy_stats_page();
    pthread_t t[4];
    for (size_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, makes_pools, (void *)i), 0);
    for (int i = 0; i < 3000; i++) {
        quarry_stats_page_pool_t e;
        if (!page_pool(page, "one", &e)) continue;
        CHECK_STR_EQ(e.kind, "stack");
        CHECK_GE(e.peak_held_bytes, e.held_bytes);
        CHECK_GE(e.chunk_gets, e.chunk_puts);
    }
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(page->pools.others, 0);
    for (size_t i = 0; i < QUARRY_STATS_PAGE_POOL_COUNT; i++) CHECK_EQ(page->pools.pools[i].turn & 3, 0);
}

TEST_MAIN()
