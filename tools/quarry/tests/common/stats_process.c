// SPDX-License-Identifier: MIT
// stats_process.c: a process with a statistics page whose numbers are known; without the library. It says "ready" and
// waits for the end of its input. Arguments: the version that its page claims; what it does then: "fork" has a child
// wait in its place, which has a copy of the page; "undumpable" forbids to be looked at.
#include <quarry/stats_page.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char before[123457];
static quarry_stats_page_t page __attribute__((aligned(QUARRY_STATS_PAGE_ALIGN)));

int main(int argc, char **argv) {
    quarry_stats_page_t *p = &page;
    before[0] = 1;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;

    p->head = (quarry_stats_page_head_t){.version = argc > 1 ? (uint32_t)atoi(argv[1]) : QUARRY_STATS_PAGE_VERSION,
        .bytes = sizeof *p,
        .pid = getpid(),
        .parts = QUARRY_STATS_PAGE_HEAP | QUARRY_STATS_PAGE_POOLS,
        .born_ns = ns,
        .library = "9.8.7",
        .page_bytes = 4096,
        .heap_at = offsetof(quarry_stats_page_t, heap),
        .sums_bytes = sizeof p->heap.sums[0],
        .class_count = QUARRY_STATS_PAGE_CLASSES,
        .class_bytes = sizeof p->heap.classes[0][0],
        .pools_at = offsetof(quarry_stats_page_t, pools),
        .pool_count = QUARRY_STATS_PAGE_POOL_COUNT,
        .pool_bytes = sizeof p->pools.pools[0],
        .range_count = QUARRY_STATS_PAGE_RANGES,
        .range_bytes = sizeof p->heap.ranges[0][0]};
    p->heap.sums[1] = (quarry_stats_page_sums_t){.at_ns = ns,
        .mapped_bytes = 10 << 20,
        .slabs_bytes = 4 << 20,
        .slab_free_bytes = 1 << 20,
        .slab_fresh_bytes = 1 << 19,
        .cached_bytes = 1 << 18,
        .run_live_bytes = 2 << 20,
        .pages_dirty_bytes = 3 << 20,
        .pages_clean_bytes = 1 << 20,
        .metadata_bytes = 1 << 16,
        .heaps = 3,
        .slabs = 64,
        .runs = 5,
        .refills = 12345};
    p->heap.turn = 1;
    p->heap.classes[0][1] = (quarry_stats_page_class_t){
        .number = 6, .block_bytes = 96, .slabs = 64, .slabs_bytes = 4 << 20, .out_blocks = 30000, .free_blocks = 10922};
    p->heap.class_rows[1] = 1;
    p->heap.class_at_ns[1] = ns;
    p->heap.range_rows[1] = 1;
    p->heap.ranges[0][1] = (quarry_stats_page_range_t){0x7f0000000000, 64 << 20, QUARRY_STATS_PAGE_RANGE_BLOCKS};
    p->heap.class_turn = 1;
    quarry_stats_page_pool_t *pool = &p->pools.pools[7];
    *pool = (quarry_stats_page_pool_t){
        .at_ns = ns, .kind = "ring", .name = "packets", .held_bytes = 65536, .used_bytes = 1000, .chunk_gets = 2};
    pool->turn = 6;
    __atomic_store_n(&p->head.magic, QUARRY_STATS_PAGE_MAGIC, __ATOMIC_RELEASE);
    const char *then = argc > 2 ? argv[2] : "";
    if (!strcmp(then, "undumpable")) prctl(PR_SET_DUMPABLE, 0);
    pid_t child = strcmp(then, "fork") ? 0 : fork();
    if (child) {
        waitpid(child, NULL, 0);
        return 0;
    }
    if (!strcmp(then, "fork")) printf("%d ", (int)getpid());
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
