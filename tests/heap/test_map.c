// SPDX-License-Identifier: MIT
// The map from addresses to chunks, with records of addresses that nobody has.
#include "heap_test.h"

static size_t slots(void) { return (qy_map_mask + 1) / QY_CHUNK_TAGS; }
static size_t slot_of(const char *base) { return ((uintptr_t)base >> QY_CHUNK_SHIFT) & (slots() - 1); }
static qy_map_record_t *in_slot(size_t slot) { return atomic_load(qy_map_slot(qy_map_tags, slot * QY_CHUNK_TAGS)); }

// A chunk address that has slot `slot`, in the `lap`-th stretch of addresses with the same slots.
static char *address(size_t slot, size_t lap) { return (char *)((lap * slots() + slot) << QY_CHUNK_SHIFT); }

static size_t free_slot(uint64_t *rng) {
    for (;;) {
        size_t slot = 1 + test_random(rng) % (slots() - 1);
        if (!in_slot(slot)) return slot;
    }
}

static bool add(qy_map_record_t *c, bool units) { return qy_map_add(c, c->base, units) == QY_MAP_ADDED; }

// No address space is used before there is a chunk, and then little.
static void begins_small(void *unused) {
    (void)unused;
    quarry_free(quarry_malloc(1));
    CHECK_EQ(slots(), 16);  // 32 MiB: 64 KiB of tags
}
TEST(is_there_when_needed) {
    run_apart(begins_small, NULL);
    qy_map_fake_first = (size_t)1 << 20;  // more than one step of tags, for what follows
    CHECK_EQ(qy_map_mask, 0);
    CHECK_EQ(qy_map_tag(&slots), 0);
    CHECK(!qy_map_record(&slots));
    void *p = quarry_malloc(1);
    CHECK_EQ(slots(), 256);
    CHECK(qy_map_record(p));
    quarry_free(p);
}

TEST(found_exactly) {
    uint64_t rng = test_seed;
    static qy_map_record_t a, b, c;
    size_t slot = free_slot(&rng);
    a.base = address(slot, 3);
    b.base = address(slot, 4);
    CHECK(!qy_map_record(a.base));
    CHECK(add(&a, false));
    CHECK_PTR_EQ(qy_map_record(a.base), &a);
    CHECK_PTR_EQ(qy_map_record(a.base + 1), &a);
    CHECK_PTR_EQ(qy_map_record(a.base + QY_CHUNK - 1), &a);
    CHECK(!qy_map_record(a.base - 1));
    CHECK(!qy_map_record(a.base + QY_CHUNK));
    // Same entry, other address: unknown, until it is entered too.
    CHECK(!qy_map_record(b.base));
    CHECK(!qy_map_record(b.base + QY_CHUNK / 2));
    qy_map_remove(&b);  // is not there: the other stays
    CHECK_PTR_EQ(qy_map_record(a.base), &a);
    for (int order = 0; order < 2; order++) {
        CHECK(add(&b, false));
        CHECK_PTR_EQ(qy_map_record(a.base + 7), &a);
        CHECK_PTR_EQ(qy_map_record(b.base + 99), &b);
        qy_map_remove(order ? &b : &a);
        CHECK_PTR_EQ(qy_map_record(a.base), order ? &a : NULL);
        CHECK_PTR_EQ(qy_map_record(b.base), order ? NULL : &b);
        if (!order) {
            CHECK(add(&a, false));
            qy_map_remove(&b);
        }
    }
    // To another base: its own is free then, and the record that held the place is out.
    CHECK_EQ(qy_map_add(&c, address(slot, 5), false), QY_MAP_ADDED);
    char *from = a.base, *to = c.base;
    qy_map_replace(&c, &a);
    CHECK_PTR_EQ(a.base, to);
    CHECK_PTR_EQ(qy_map_record(to), &a);
    CHECK(!qy_map_record(from));
    // Units come first, whoever was there before, and only one chunk of them.
    b.base = address(slot, 6);
    CHECK(add(&b, true));
    CHECK_PTR_EQ(in_slot(slot), &b);
    CHECK_EQ(qy_map_add(&c, address(slot, 7), false), QY_MAP_ADDED);
    CHECK_PTR_EQ(in_slot(slot), &b);
    CHECK(qy_map_record(to) == &a && qy_map_record(b.base) == &b && qy_map_record(c.base) == &c);
    qy_map_remove(&c);
    char *before = c.base;
    quarry_os_fault(1, 1, FAULT(RESERVE));  // the map cannot grow
    CHECK_EQ(qy_map_add(&c, address(slot, 9), true), QY_MAP_TAKEN);
    quarry_os_fault(0, 0, 0);
    CHECK_PTR_EQ(c.base, before);
    qy_map_remove(&b);
    CHECK_PTR_EQ(in_slot(slot), &a);
    qy_map_remove(&a);
    CHECK(!in_slot(slot));
}

// Where NULL looks there may be blocks: their tags are none of NULL.
TEST(null_is_nobodys) {
    static qy_map_record_t c;
    c.base = address(0, 5);
    CHECK_EQ(qy_map_tag(NULL), 0);
    CHECK(add(&c, true));
    qy_map_set_tags(c.base, QY_TAG_PAGE, qy_tag_owner(1) | 5);
    CHECK_EQ(qy_map_tag(NULL), 0);
    CHECK_EQ(qy_map_tag(c.base), qy_tag_owner(1) | 5);
    CHECK((qy_map_look(NULL) ^ qy_tag_owner(1)) > QY_TAG_CLASS);
    CHECK((qy_map_look(NULL) ^ QY_TAG_NO_OWNER) > QY_TAG_CLASS);
    CHECK(!qy_map_record(NULL));
    quarry_free(NULL);
    qy_map_set_tags(c.base, QY_TAG_PAGE, 0);
    qy_map_remove(&c);
}

TEST(unknown_addresses) {
    uint64_t rng = test_seed;
    static char in_data;
    char on_stack;
    CHECK(!qy_map_record(NULL));
    CHECK(!qy_map_record((void *)~(uintptr_t)0));
    CHECK(!qy_map_record(&in_data));
    CHECK(!qy_map_record(&on_stack));
    CHECK_EQ(qy_map_tag(NULL), 0);
    for (int i = 0; i < 1000000; i++) {
        char *p = (char *)(uintptr_t)test_random(&rng);
        qy_map_record_t *c = qy_map_record(p);
        if (c) CHECK_LT((size_t)(p - c->base), QY_CHUNK);
    }
}

TEST(tags) {
    uint64_t rng = test_seed;
    static qy_map_record_t c;
    c.base = address(free_slot(&rng), 2);
    CHECK(add(&c, true));
    CHECK_GT(qy_map_bytes(), 0);
    for (unsigned i = 0; i < QY_CHUNK_TAGS; i++) CHECK_EQ(qy_map_tag(c.base + i * QY_TAG_PAGE), 0);
    for (unsigned i = 0; i < QY_CHUNK_TAGS; i++)
        qy_map_set_tags(c.base + i * QY_TAG_PAGE, QY_TAG_PAGE, qy_tag_owner(1 + i) | (i & QY_TAG_CLASS));
    for (size_t at = 0; at < QY_CHUNK; at += 4099) {
        unsigned i = (unsigned)(at / QY_TAG_PAGE);
        CHECK_EQ(qy_map_tag(c.base + at), qy_tag_owner(1 + i) | (i & QY_TAG_CLASS));
        CHECK_EQ(qy_map_look(c.base + at) ^ qy_tag_owner(1 + i), i & QY_TAG_CLASS);
    }
    qy_map_set_tags(c.base + QY_TAG_PAGE, 3 * QY_TAG_PAGE, qy_tag_owner(7));
    for (unsigned i = 0; i < QY_CHUNK_TAGS; i++)
        CHECK_EQ(qy_map_tag(c.base + i * QY_TAG_PAGE), i >= 1 &&
                                                               i < 4
                                                           ? qy_tag_owner(7)
                                                           : qy_tag_owner(1 + i) | (i & QY_TAG_CLASS));
    qy_map_set_tags(c.base, QY_CHUNK, 0);
    for (unsigned i = 0; i < QY_CHUNK_TAGS; i++) CHECK_EQ(qy_map_tag(c.base + i * QY_TAG_PAGE), 0);
    qy_map_remove(&c);
}

// An address that shares the entry is nobody's, whatever bits it differs in; and one without a tag is not taken for
// anybody's.
TEST(tags_of_other_addresses) {
    uint64_t rng = test_seed;
    static qy_map_record_t c;
    c.base = address(free_slot(&rng), 2);
    CHECK(add(&c, true));
    qy_map_set_tags(c.base, QY_TAG_PAGE, qy_tag_owner(1) | QY_CLASS_SLAB_64K);
    for (uintptr_t bit = (uintptr_t)1 << 63; bit > (uintptr_t)qy_map_mask << QY_TAG_SHIFT; bit >>= 1) {
        for (uintptr_t more = 0; more < 64; more++) {
            const char *p = (const char *)((uintptr_t)c.base ^ bit ^ (more << 40));
            if (p == c.base) continue;
            CHECK_EQ(qy_map_tag(p), 0);
            for (uint32_t id = 1; id < 2000; id += 37) CHECK((qy_map_look(p) ^ qy_tag_owner(id)) > QY_TAG_CLASS);
        }
    }
    qy_map_set_tags(c.base, QY_TAG_PAGE, 0);
    qy_map_remove(&c);
    for (int i = 0; i < 1000000; i++) {
        const char *p = (const char *)(uintptr_t)test_random(&rng);
        CHECK((qy_map_look(p) ^ qy_tag_owner(1 + (uint32_t)i % 4000)) > QY_TAG_CLASS);
        CHECK((qy_map_look(p) ^ QY_TAG_NO_OWNER) > QY_TAG_CLASS);
    }
}

TEST(owners_differ) {
    CHECK_NE(qy_tag_owner(1), qy_tag_owner(2));
    CHECK_NE(qy_tag_owner(1) & QY_TAG_SLAB, 0);
    for (uint32_t i = 1; i < QY_HEAP_ID_MAX; i += 1 + i / 8) {
        CHECK_EQ(qy_tag_owner(i) & (QY_TAG_OTHERS | 0xFF | QY_TAG_FIRST_CLASS | QY_TAG_NO_OWNER), 0);
        for (uint32_t k = 1; k < 64; k++) CHECK_NE(qy_tag_owner(i), qy_tag_owner((i + k - 1) % QY_HEAP_ID_MAX + 1));
    }
}

TEST(no_memory_for_tags) {
    uint64_t rng = test_seed + 1;
    static qy_map_record_t c;
    quarry_os_fault(1, 1, FAULT(COMMIT));
    size_t refused = 0;
    for (int i = 0; i < 50; i++) {
        c.base = address(free_slot(&rng), 2);
        size_t before = qy_map_bytes();
        uint64_t calls = quarry_os_fault_calls();
        qy_map_answer_t answer = qy_map_add(&c, c.base, true);
        bool added = answer == QY_MAP_ADDED;
        CHECK_EQ(answer, added ? QY_MAP_ADDED : QY_MAP_NO_MEMORY);
        // Refused exactly when the tags were not open already; then nothing is entered.
        CHECK_EQ(added, quarry_os_fault_calls() == calls);
        CHECK_EQ(qy_map_bytes(), before);
        CHECK_PTR_EQ(qy_map_record(c.base), added ? &c : NULL);
        refused += !added;
        if (added) qy_map_remove(&c);
    }
    CHECK_GT(refused, 0);
    quarry_os_fault(0, 0, 0);
    size_t before = qy_map_bytes();
    c.base = address(free_slot(&rng), 2);
    CHECK(add(&c, true));  // works again, and once open costs nothing more
    size_t open = qy_map_bytes();
    CHECK_GE(open, before);
    qy_map_remove(&c);
    quarry_os_fault(1, 1, FAULT(COMMIT));
    CHECK(add(&c, true));
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(qy_map_bytes(), open);
    qy_map_remove(&c);
}

// Random adds and removes over few slots against a table of who is where.
TEST(against_a_model) {
    uint64_t rng = test_seed;
    enum { SLOTS = 16,
        LAPS = 3,
        RECORDS = SLOTS * LAPS };
    static qy_map_record_t records[RECORDS];
    size_t slot[SLOTS];
    bool is_in[RECORDS] = {0}, units[RECORDS] = {0};
    for (int i = 0; i < SLOTS; i++) {
        bool again;
        do {
            slot[i] = free_slot(&rng);
            again = false;
            for (int j = 0; j < i; j++) again |= slot[j] == slot[i];
        } while (again);
        for (int lap = 0; lap < LAPS; lap++) records[i * LAPS + lap].base = address(slot[i], (size_t)lap + 2);
    }
    for (int step = 0; step < 20000; step++) {
        int i = (int)(test_random(&rng) % SLOTS), r = i * LAPS + (int)(test_random(&rng) % LAPS);
        if (is_in[r]) {
            qy_map_remove(&records[r]);
            is_in[r] = false;
        } else {
            bool taken = false;
            for (int k = i * LAPS; k < (i + 1) * LAPS; k++) taken |= is_in[k] && units[k];
            units[r] = test_random(&rng) % 3 == 0;
            quarry_os_fault(1, 1, FAULT(RESERVE));
            is_in[r] = add(&records[r], units[r]);
            quarry_os_fault(0, 0, 0);
            CHECK_EQ(is_in[r], !(units[r] && taken));
        }
        for (int k = 0; k < RECORDS; k++) {
            char *p = records[k].base + test_random(&rng) % QY_CHUNK;
            CHECK_PTR_EQ(qy_map_record(p), is_in[k] ? &records[k] : NULL);
        }
        CHECK_EQ(slot_of(records[r].base), slot[i]);
        if (step % 100 == 0) CHECK_PTR_EQ(qy_map_check(), NULL);
    }
    for (int i = 0; i < RECORDS; i++)
        if (is_in[i]) qy_map_remove(&records[i]);
    CHECK_PTR_EQ(qy_map_check(), NULL);
}

TEST_MAIN()
