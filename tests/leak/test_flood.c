// SPDX-License-Identifier: MIT
// test_flood.c: blocks and pointers that are made by hand, and the kind that a scan finds for each.
#include "check/leak_flood.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "../harness.h"
#include "check/leak_sites.h"
#include "os/os.h"

enum { NEW_ARRAY = 5,
    MOST = 200000 };

typedef struct made {
    uint64_t *at;
    size_t bytes;
    uint32_t stack;
    uint8_t family;
} made_t;
static made_t made[MOST];
static unsigned made_count;

static uint64_t *make_family(size_t bytes, uint32_t stack, uint8_t family) {
    uint64_t *p = aligned_alloc(16, (bytes + 15) / 16 * 16);
    CHECK(p);
    memset(p, 0, bytes);
    made[made_count++] = (made_t){p, bytes, stack, family};
    return p;
}
static uint64_t *make(size_t bytes, uint32_t stack) { return make_family(bytes, stack, 0); }

typedef struct answer {
    qy_leak_kind_t kind;
    uint64_t held_bytes, held_blocks;
    unsigned times;
} answer_t;
static answer_t answers[MOST];
static qy_leak_sites_t sites;

static void take(const qy_leak_block_t *block, qy_leak_kind_t kind, uint64_t bytes, uint64_t blocks, void *arg) {
    (void)arg;
    qy_leak_sites_add(&sites, block, kind, bytes, blocks);
    answer_t *a = &answers[block->pool];
    *a = (answer_t){kind, bytes, blocks, a->times + 1};
}

// A pool's block within one of these: the last answer is about it.
static struct {
    uint64_t *at;
    size_t bytes;
    uint8_t state;
} within;

static bool vtables(uintptr_t address, void *arg) { return address - *(uintptr_t *)arg < 64; }
static uintptr_t vtable = 0x1234560;

// Scans with these words as the roots.
static const char *scan_until(const uint64_t *roots, size_t count, uint64_t deadline) {
    qy_leak_blocks_t blocks;
    CHECK(qy_leak_blocks_begin(&blocks, made_count + 1));
    for (unsigned i = 0; i < made_count; i++) {
        qy_leak_block_t b = {.address = (uintptr_t)made[i].at, .size = made[i].bytes, .stack = made[i].stack};
        b.ordinal = i;
        b.family = made[i].family;
        b.pool = i;
        CHECK(qy_leak_blocks_add(&blocks, &b));
        answers[i] = (answer_t){.kind = QY_LEAK_KINDS};
    }
    qy_leak_block_t inner = {.address = (uintptr_t)within.at, .size = within.bytes, .stack = MOST, .pool = MOST - 1};
    inner.state = within.state;
    if (within.at) CHECK(qy_leak_blocks_add(&blocks, &inner));
    CHECK(qy_leak_blocks_ready(&blocks));
    qy_leak_sites_end(&sites);
    qy_leak_flood_t f = {.space = {&blocks, vtables, &vtable, NEW_ARRAY}, .deadline = deadline};
    CHECK(qy_leak_flood_begin(&f));
    qy_leak_flood_root(&f, (uintptr_t)roots, (uintptr_t)(roots + count));
    for (uint32_t i = 0; i < blocks.count; i++)
        if (blocks.all[i].state & QY_LEAK_HELD) qy_leak_flood_block(&f, i);
    qy_leak_flood_possible(&f);
    qy_leak_flood_sort_out(&f, take, NULL);
    qy_leak_flood_end(&f);
    qy_leak_blocks_end(&blocks);
    qy_leak_sites_sort(&sites);
    for (unsigned i = 0; i < made_count && !f.stopped; i++) CHECK_EQ(answers[i].times, 1);
    return f.stopped;
}
static void scan(const uint64_t *roots, size_t count) { CHECK(!scan_until(roots, count, 0)); }

static void forget(void) {
    for (unsigned i = 0; i < made_count; i++) free(made[i].at);
    made_count = 0;
}
static unsigned number(const uint64_t *p) {
    for (unsigned i = 0; i < made_count; i++)
        if (made[i].at == p) return i;
    TEST_FAIL("no block");
}
static qy_leak_kind_t kind(const uint64_t *p) { return answers[number(p)].kind; }

TEST(without_pointers_all_are_lost) {
    const uint64_t *a = make(24, 1), *b = make(1, 1), *zero = make(0, 1);
    uint64_t root = 0;
    scan(&root, 1);
    CHECK_EQ(kind(a), QY_LEAK_DEFINITE);
    CHECK_EQ(kind(b), QY_LEAK_DEFINITE);
    CHECK_EQ(kind(zero), QY_LEAK_DEFINITE);
    CHECK_EQ(sites.table[0].blocks, 3);
    CHECK_EQ(sites.table[0].bytes, 25);
    forget();
}

// What lies in a pool's chunk is reached with it, but for the pool's blocks.
TEST(blocks_within_a_block) {
    for (size_t bytes = 1024; bytes < 100000; bytes *= 3) {
        uint64_t *chunk = make(bytes, 1), *of_inner = make(64, 2), *of_chunk = make(64, 3), *behind = make(64, 4);
        uint64_t root = (uintptr_t)chunk;
        within.at = chunk + 16, within.bytes = bytes / 2, within.state = 0;
        chunk[3] = (uintptr_t)of_chunk;
        chunk[20] = (uintptr_t)of_inner;
        chunk[bytes / 8 - 1] = (uintptr_t)behind;
        scan(&root, 1);
        CHECK(kind(chunk) == QY_LEAK_REACHABLE && kind(of_chunk) == QY_LEAK_REACHABLE);
        CHECK_EQ(kind(behind), QY_LEAK_REACHABLE);
        CHECK_EQ(answers[MOST - 1].kind, QY_LEAK_DEFINITE);
        CHECK_EQ(kind(of_inner), QY_LEAK_INDIRECT);
        within.state = QY_LEAK_HELD;  // by its frame
        scan(&root, 1);
        CHECK_EQ(answers[MOST - 1].kind, QY_LEAK_REACHABLE);
        CHECK_EQ(kind(of_inner), QY_LEAK_REACHABLE);
        within.state = 0;
        chunk[4] = (uintptr_t)within.at;
        scan(&root, 1);
        CHECK_EQ(answers[MOST - 1].kind, QY_LEAK_REACHABLE);
        CHECK_EQ(kind(of_inner), QY_LEAK_REACHABLE);
        within.at = NULL;
        forget();
    }
}

TEST(pointers_from_roots_and_from_blocks_reach) {
    uint64_t *a = make(64, 1), *b = make(64, 2), *c = make(64, 3), *huge = make(5 << 20, 4), *end = make(32, 5);
    uint64_t roots[4] = {7, (uintptr_t)a, 0, ~UINT64_C(0)};
    a[7] = (uintptr_t)b;
    b[0] = (uintptr_t)huge;
    huge[(5 << 20) / 8 - 1] = (uintptr_t)end;
    scan(roots, 4);
    CHECK_EQ(kind(a), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(b), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(huge), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(end), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(c), QY_LEAK_DEFINITE);
    forget();
}

TEST(only_the_middle_is_possible_and_what_hangs_on_it_too) {
    uint64_t *a = make(64, 1), *b = make(64, 2), *tagged = make(64, 3), *low = make(64, 4), *past = make(64, 5);
    uint64_t roots[4] = {(uintptr_t)(a + 2), (uintptr_t)tagged | UINT64_C(0xABCD) << 48, (uintptr_t)low | 1,
        (uintptr_t)past + 64};
    a[3] = (uintptr_t)b;
    scan(roots, 4);
    CHECK_EQ(kind(a), QY_LEAK_IS_POSSIBLE);
    CHECK_EQ(kind(b), QY_LEAK_IS_POSSIBLE);
    CHECK_EQ(kind(tagged), QY_LEAK_IS_POSSIBLE);
    CHECK_EQ(kind(low), QY_LEAK_IS_POSSIBLE);
    CHECK_EQ(kind(past), QY_LEAK_DEFINITE);
    // A pointer to the start counts for more, wherever it comes from.
    uint64_t more[2] = {(uintptr_t)(a + 2), (uintptr_t)a};
    scan(more, 2);
    CHECK_EQ(kind(a), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(b), QY_LEAK_REACHABLE);
    forget();
}

TEST(the_four_ways_to_own_a_block_by_its_middle) {
    uint64_t *string = make(3 * 8 + 10 + 1, 1), *length = make(8 + 40, 2);
    uint64_t *many = make_family(8 + 3 * 16, 3, NEW_ARRAY);
    uint64_t *bases = make(48, 4), *not_many = make(8 + 3 * 16, 5), *wrong = make(8 + 40, 6);
    uint64_t *few = make_family(8 + 4, 7, NEW_ARRAY), *short_length = make(8 + 3, 8);  // a word does not fit behind
    string[0] = 4, string[1] = 10;
    length[0] = 40;
    many[0] = not_many[0] = 3;
    bases[0] = vtable;
    bases[2] = vtable + 32;
    wrong[0] = 39;
    few[0] = 1;
    short_length[0] = 3;
    uint64_t roots[8] = {(uintptr_t)(string + 3), (uintptr_t)(length + 1), (uintptr_t)(many + 1),
        (uintptr_t)(bases + 2), (uintptr_t)(not_many + 1), (uintptr_t)(wrong + 1), (uintptr_t)(few + 1),
        (uintptr_t)(short_length + 1)};
    scan(roots, 8);
    CHECK_EQ(kind(string), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(length), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(many), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(bases), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(few), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(short_length), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(not_many), QY_LEAK_IS_POSSIBLE);  // not of new[]
    CHECK_EQ(kind(wrong), QY_LEAK_IS_POSSIBLE);
    forget();
}

TEST(a_tree_has_one_head_that_holds_the_rest) {
    uint64_t *head = make(32, 1), root = 0;
    uint64_t *last = head;
    for (unsigned i = 0; i < 100; i++) {
        uint64_t *side = make(16, 2), *next = make(32, 3);
        last[0] = (uintptr_t)side;
        last[1] = (uintptr_t)next + 8;  // by its middle, which is enough for what is lost
        last = next;
    }
    scan(&root, 1);
    answer_t a = answers[number(head)];
    CHECK_EQ(a.kind, QY_LEAK_DEFINITE);
    CHECK_EQ(a.held_blocks, 200);
    CHECK_EQ(a.held_bytes, 100 * (16 + 32));
    CHECK_EQ(kind(last), QY_LEAK_INDIRECT);
    CHECK_EQ(sites.table[0].kind, QY_LEAK_DEFINITE);
    CHECK_EQ(sites.table[0].held_blocks, 200);
    CHECK_EQ(sites.table[1].kind, QY_LEAK_INDIRECT);
    CHECK_EQ(sites.table[1].bytes, 3200);
    forget();
}

TEST(of_a_circle_the_oldest_is_the_head_and_who_holds_it_comes_first) {
    uint64_t *a = make(16, 1), *b = make(16, 2), *c = make(16, 3), *self = make(16, 4), root = 0;
    a[0] = (uintptr_t)b;
    b[0] = (uintptr_t)c;
    c[0] = (uintptr_t)a;
    self[1] = (uintptr_t)self;
    scan(&root, 1);
    CHECK_EQ(kind(a), QY_LEAK_DEFINITE);
    CHECK_EQ(answers[number(a)].held_blocks, 2);
    CHECK_EQ(kind(b), QY_LEAK_INDIRECT);
    CHECK_EQ(kind(c), QY_LEAK_INDIRECT);
    CHECK_EQ(kind(self), QY_LEAK_DEFINITE);
    uint64_t *holder = make(16, 9);
    holder[0] = (uintptr_t)c;
    scan(&root, 1);
    CHECK_EQ(kind(holder), QY_LEAK_DEFINITE);
    CHECK_EQ(answers[number(holder)].held_blocks, 3);
    CHECK_EQ(kind(a), QY_LEAK_INDIRECT);
    forget();
}

TEST(shared_blocks_are_counted_once) {
    uint64_t *one = make(16, 1), *two = make(16, 2), *both = make(48, 3), root = 0;
    one[0] = two[0] = (uintptr_t)both;
    scan(&root, 1);
    CHECK_EQ(kind(one), QY_LEAK_DEFINITE);
    CHECK_EQ(kind(two), QY_LEAK_DEFINITE);
    CHECK_EQ(kind(both), QY_LEAK_INDIRECT);
    CHECK_EQ(answers[number(one)].held_bytes + answers[number(two)].held_bytes, 48);
    forget();
}

// A list as long as this ends every recursion.
TEST(long_lists_need_no_recursion) {
    uint64_t *head = make(16, 1), *last = head, root = (uintptr_t)head;
    while (made_count < MOST) {
        uint64_t *next = make(16, 2);
        last[0] = (uintptr_t)next;
        last = next;
    }
    scan(&root, 1);
    CHECK_EQ(answers[MOST - 1].kind, QY_LEAK_REACHABLE);
    root = 0;
    scan(&root, 1);
    CHECK_EQ(answers[0].kind, QY_LEAK_DEFINITE);
    CHECK_EQ(answers[0].held_blocks, MOST - 1);
    last[0] = (uintptr_t)head;
    scan(&root, 1);
    CHECK_EQ(answers[0].held_blocks, MOST - 1);
    root = (uintptr_t)head + 8;
    scan(&root, 1);
    CHECK_EQ(answers[MOST - 1].kind, QY_LEAK_IS_POSSIBLE);
    forget();
}

TEST(pages_that_cannot_be_read_are_passed_by) {
    const size_t page = qy_os_page_size(), bytes = 4 * page;
    char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    uint64_t *a = make(16, 1), *b = make(16, 2);
    memcpy(m + page - 8, &a, 8);
    memcpy(m + 3 * page, &b, 8);
    CHECK_EQ(mprotect(m + page, page, PROT_NONE), 0);
    scan((const uint64_t *)m, bytes / 8);
    CHECK_EQ(kind(a), QY_LEAK_REACHABLE);
    CHECK_EQ(kind(b), QY_LEAK_REACHABLE);
    munmap(m, bytes);
    forget();
}

TEST(when_the_time_is_up_nothing_is_said) {
    uint64_t *a = make(8 << 20, 1), root = (uintptr_t)a;
    for (size_t i = 0; i < (8 << 20) / 8; i++) a[i] = i;
    const char *why = scan_until(&root, 1, 1);
    CHECK(why && strstr(why, "time"));
    CHECK_EQ(answers[0].times, 0);
    forget();
}

// The answers of a slow search that follows the definitions, for random graphs.
static bool leads[64][64];
static void close_over(unsigned n) {
    for (unsigned k = 0; k < n; k++)
        for (unsigned i = 0; i < n; i++)
            for (unsigned j = 0; j < n; j++) leads[i][j] |= leads[i][k] && leads[k][j];
}
TEST(random_graphs_as_the_definitions_say) {
    uint64_t state = test_seed;
    for (unsigned round = 0; round < 300; round++) {
        unsigned n = 2 + (unsigned)(test_random(&state) % 62), edges = (unsigned)(test_random(&state) % (2 * n));
        memset(leads, 0, sizeof leads);
        for (unsigned i = 0; i < n; i++) make(64, i + 1);
        for (unsigned e = 0; e < edges; e++) {
            unsigned from = (unsigned)(test_random(&state) % n), to = (unsigned)(test_random(&state) % n);
            made[from].at[test_random(&state) % 8] = (uintptr_t)made[to].at;
        }
        for (unsigned i = 0; i < n; i++)
            for (unsigned w = 0; w < 8; w++)
                for (unsigned j = 0; j < n; j++) leads[i][j] |= made[i].at[w] == (uintptr_t)made[j].at;
        close_over(n);
        unsigned rooted = (unsigned)(test_random(&state) % n);
        uint64_t root = round % 2 ? (uintptr_t)made[rooted].at : 0, heads = 0, held = 0, lost = 0;
        scan(&root, 1);
        for (unsigned i = 0; i < n; i++) {
            bool reached = root && (i == rooted || leads[rooted][i]), outside = false, older = false;
            for (unsigned j = 0; j < n; j++) {
                bool j_reached = root && (j == rooted || leads[rooted][j]);
                if (j_reached || j == i || !leads[j][i]) continue;
                outside |= !leads[i][j];
                older |= leads[i][j] && j < i;
            }
            qy_leak_kind_t want = reached ? QY_LEAK_REACHABLE : outside || older ? QY_LEAK_INDIRECT
                                                                                 : QY_LEAK_DEFINITE;
            CHECK_EQ(answers[i].kind, want);
            heads += want == QY_LEAK_DEFINITE;
            lost += want == QY_LEAK_DEFINITE || want == QY_LEAK_INDIRECT;
            held += want == QY_LEAK_DEFINITE ? answers[i].held_blocks : 0;
        }
        CHECK_EQ(heads + held, lost);
        forget();
    }
}

// ---- growth ---------------------------------------------------------------------------------------

static unsigned grown;
static uint64_t grown_before;
static void note_grown(const qy_leak_site_t *site, uint64_t before, void *arg) {
    (void)arg;
    grown = site->stack;
    grown_before = before;
}
static unsigned history_of(qy_leak_history_t *h, const unsigned *bytes, unsigned count) {
    qy_leak_sites_t s = {0};
    for (unsigned i = 0; i < count; i++) {
        qy_leak_block_t b = {.address = 4096, .size = bytes[i], .stack = i + 1};
        if (bytes[i]) qy_leak_sites_add(&s, &b, QY_LEAK_REACHABLE, 0, 0);
    }
    grown = 0;
    qy_leak_history_scan(h, &s, note_grown, NULL);
    qy_leak_sites_end(&s);
    return grown;
}

TEST(a_site_grows_that_rose_from_scan_to_scan) {
    qy_leak_history_t *h = qy_leak_history_new();
    CHECK(h);
    CHECK_EQ(history_of(h, (unsigned[]){100, 50, 10}, 3), 0);
    CHECK_EQ(history_of(h, (unsigned[]){110, 60, 10}, 3), 0);
    CHECK_EQ(history_of(h, (unsigned[]){110, 70, 10}, 3), 2);
    CHECK_EQ(grown_before, 50);
    CHECK_EQ(history_of(h, (unsigned[]){120, 71, 10}, 3), 2);
    CHECK_EQ(grown_before, 60);
    CHECK_EQ(history_of(h, (unsigned[]){130, 0, 10}, 3), 0);  // the second 110 of site 1 was no more than the first
    CHECK_EQ(history_of(h, (unsigned[]){140, 99, 10}, 3), 1);
    CHECK_EQ(grown_before, 120);
    CHECK_EQ(history_of(h, (unsigned[]){139, 100, 10}, 3), 0);  // 2 was gone meanwhile
}

TEST(a_site_that_fell_has_three_scans_to_rise) {
    qy_leak_history_t *h = qy_leak_history_new();
    CHECK(h);
    const unsigned bytes[] = {100, 110, 105, 120, 130, 140};
    for (unsigned i = 0; i < 6; i++) CHECK_EQ(history_of(h, &bytes[i], 1), i == 5);
}

TEST_MAIN()
