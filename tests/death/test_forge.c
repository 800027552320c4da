// SPDX-License-Identifier: MIT
// test_forge.c: who reads freed blocks and writes to them tries to make malloc return an address of his own choice. He
// knows how the heap works, and where its blocks are; not its secrets. Each attempt in a process of its own must end
// without that address, mostly with the heap's line. And what malloc returns, and what lies in freed blocks, shows no
// address.
#include <sys/mman.h>

#include "api/family.h"
#include "captured.h"

typedef struct words {
    uint64_t link, mark;
} words_t;
enum { SIZE = 64,
    BLOCKS = 64,
    TIMES = 100,
    GOT_IT = 99 };
static char *block[BLOCKS];
static words_t target[4] __attribute__((aligned(16)));  // of which 16 bytes may be set, too

static words_t peek(const char *p) {
    words_t w;
    memcpy(&w, opaque((void *)(uintptr_t)p), sizeof w);
    return w;
}
static void poke(char *p, words_t w) { memcpy(opaque(p), &w, sizeof w); }

// Blocks in a row, freed so that each links to the one before it.
static void free_some(int n) {
    for (int i = 0; i < n; i++) m.free(block[i]);
}
// The attempt's last step.
static void harvest(const void *wanted) {
    for (int i = 0; i < BLOCKS + 2; i++)
        if (m.malloc(SIZE) == wanted) _exit(GOT_IT);
}

// ---- attempts, each after a read of freed blocks ----------------------------------------------------------

// One read of a mark that is a sum gives its secret.
static void sum(void *unused) {
    (void)unused;
    free_some(3);
    words_t w = peek(block[2]);
    uint64_t secret = w.mark - w.link - (uintptr_t)block[2], t = (uintptr_t)target;
    target[0] = (words_t){0, secret + t};
    poke(block[2], (words_t){t, t + (uintptr_t)block[2] + secret});
    harvest(target);
}
static void xor_of_all(void *unused) {
    (void)unused;
    free_some(3);
    words_t w = peek(block[2]);
    uint64_t secret = w.mark ^ w.link ^ (uintptr_t)block[2], t = (uintptr_t)target;
    poke(block[2], (words_t){t, t ^ (uintptr_t)block[2] ^ secret});
    harvest(target);
}
// Who knows one link knows how links are hidden. The mark stays.
static void other_link(void *unused) {
    (void)unused;
    free_some(3);
    words_t w = peek(block[2]);
    poke(block[2], (words_t){w.link + (uintptr_t)target - (uintptr_t)block[1], w.mark});
    harvest(target);
}
// The words of one free block in another: both would lead to the same.
static void copied(void *unused) {
    (void)unused;
    free_some(6);
    poke(block[5], peek(block[3]));
    harvest(block[4]);  // which is passed over, if nobody looks; so it must not be missed either
    _exit(GOT_IT);
}
// Address and link changed so that their sum, or what differs between them, stays.
static void same_sum(void *unused) {
    (void)unused;
    free_some(20);
    words_t w = peek(block[10]);
    uint64_t d = (uintptr_t)block[19] - (uintptr_t)block[10];
    poke(block[19], (words_t){w.link - d, w.mark});
    harvest((char *)block[9] - d);
}
static void same_difference(void *unused) {
    (void)unused;
    free_some(20);
    words_t w = peek(block[10]);
    uint64_t d = (uintptr_t)block[19] - (uintptr_t)block[10];
    poke(block[19], (words_t){w.link + d, w.mark});
    harvest((char *)block[9] + d);
}
// Marks of blocks in a row, continued as if they were a linear function: of 2, 3 and 4 of them, by sums and by xor.
static void next_mark(int reads, int by_xor) {
    static const int64_t weight[3][4] = {{2, -1}, {3, -3, 1}, {4, -6, 4, -1}};
    free_some(30);
    uint64_t mark = 0;
    for (int i = 0; i < reads; i++) {
        uint64_t w = peek(block[28 - i]).mark;
        mark = by_xor ? mark ^ w : mark + (uint64_t)weight[reads - 2][i] * w;
    }
    if (mark == peek(block[29]).mark) _exit(GOT_IT);
}
static void next_of_2(void *unused) {
    (void)unused;
    next_mark(2, 0);
}
static void next_of_3(void *unused) {
    (void)unused;
    next_mark(3, 0);
}
static void next_of_4(void *unused) {
    (void)unused;
    next_mark(4, 0);
}
static void xor_of_3(void *unused) {
    (void)unused;
    next_mark(3, 1);
}
// A product by a secret is solved by the inverse of what is multiplied, if that is known: of the link, of the address,
// of both.
static uint64_t inverse(uint64_t odd) {
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x;
    return x;
}
static void product_of(uint64_t (*of)(words_t w, const char *b)) {
    free_some(30);
    uint64_t x = of(peek(block[20]), block[20]), y = of(peek(block[29]), block[29]);
    // As far as the powers of two in it leave the secret known.
    int zeros = x ? __builtin_ctzll(x) : 63;
    uint64_t secret = (peek(block[20]).mark >> zeros) * inverse(x >> zeros | 1);
    if (secret * y == peek(block[29]).mark) _exit(GOT_IT);
    // Or what differs is.
    uint64_t dx = x - of(peek(block[21]), block[21]), dm = peek(block[20]).mark - peek(block[21]).mark;
    zeros = dx ? __builtin_ctzll(dx) : 63;
    secret = (dm >> zeros) * inverse(dx >> zeros | 1);
    if (peek(block[20]).mark + secret * (y - x) == peek(block[29]).mark) _exit(GOT_IT);
}
static uint64_t the_link(words_t w, const char *b) {
    (void)b;
    return w.link;
}
static uint64_t the_address(words_t w, const char *b) {
    (void)w;
    return (uintptr_t)b;
}
static uint64_t both(words_t w, const char *b) { return w.link + (uintptr_t)b; }
static uint64_t crossed(words_t w, const char *b) { return w.link ^ (uintptr_t)b; }
static void product_of_link(void *unused) {
    (void)unused;
    product_of(the_link);
}
static void product_of_address(void *unused) {
    (void)unused;
    product_of(the_address);
}
static void product_of_sum(void *unused) {
    (void)unused;
    product_of(both);
}
static void product_of_xor(void *unused) {
    (void)unused;
    product_of(crossed);
}
// What is in a block when malloc returns it.
static void left_in_block(void *unused) {
    (void)unused;
    free_some(3);
    words_t freed = peek(block[2]), w = peek(m.malloc(SIZE));
    if (w.link == freed.link || w.link) _exit(GOT_IT);
}

static void try_often(const char *name, void (*attempt)(void *)) {
    int told = 0;
    for (int i = 0; i < TIMES; i++) {
        captured_t c = capture(attempt, NULL);
        if (c.exit_code == GOT_IT) TEST_FAIL("%s, time %d", name, i);
        if (c.exit_code != 0 && c.exit_signal != SIGABRT)
            TEST_FAIL("%s, time %d: exit %d, signal %d: %.200s", name, i, c.exit_code, c.exit_signal, c.text);
        told += c.exit_signal == SIGABRT && !strncmp(c.text, "quarry: corrupted free block: 0x", 32);
    }
    printf("  %-20s %d of %d told\n", name, told, TIMES);
}
TEST(no_forged_link) {
    for (int i = 0; i < BLOCKS; i++) CHECK((block[i] = m.malloc(SIZE)));
    static const struct {
        const char *name;
        void (*attempt)(void *);
    } all[] = {{"sum", sum}, {"xor", xor_of_all}, {"other link", other_link}, {"copied", copied},
        {"same sum", same_sum}, {"same difference", same_difference}, {"next of 2", next_of_2},
        {"next of 3", next_of_3}, {"next of 4", next_of_4}, {"xor of 3", xor_of_3}, {"product, link", product_of_link},
        {"product, address", product_of_address}, {"product, sum", product_of_sum}, {"product, xor", product_of_xor},
        {"left in the block", left_in_block}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) try_often(all[i].name, all[i].attempt);
}

// ---- what can be read -------------------------------------------------------------------------------------

static int is_address(uint64_t word, const char *near) {
    uint64_t distance = word - (uintptr_t)near;
    return distance + ((uint64_t)1 << 32) < (uint64_t)1 << 33 || (word >> 32 && word >> 32 == (uintptr_t)&target >> 32);
}
TEST(no_address_is_shown) {
    enum { MANY = 3000 };
    static char *p[MANY];
    uint64_t random = test_seed;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i++) {
            size_t n = 16 + test_random(&random) % (i % 20 ? 600 : 20000);
            CHECK((p[i] = m.malloc(n)));
            words_t w = peek(p[i]);
            if (is_address(w.link, p[i]) || is_address(w.mark, p[i]))
                TEST_FAIL("malloc(%zu) shows %016lx %016lx", n, (unsigned long)w.link, (unsigned long)w.mark);
            memset(p[i], 0, n);
        }
        for (int i = 0; i < MANY; i++) m.free(p[i]);
        for (int i = 0; i < MANY; i++) {
            words_t w = peek(p[i]);
            if (is_address(w.link, p[i]) || is_address(w.mark, p[i]))
                TEST_FAIL("a freed block shows %016lx %016lx", (unsigned long)w.link, (unsigned long)w.mark);
        }
    }
}

TEST_MAIN()
