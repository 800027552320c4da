// SPDX-License-Identifier: MIT
// Standard containers on every kind of pool, through the memory resource and the allocator; and the macros of
// pool.h in C++.
#include <list>
#include <map>
#include <quarry/pool.hpp>
#include <quarry/short.h>
#include <string>
#include <unordered_map>
#include <vector>

#include "../harness.h"
#include "kinds.h"

pool_kind_t *pool_kinds;

static void each(void (*body)(quarry_pool_t *pool)) {
    for (pool_kind_t *k = pool_kinds; k; k = k->next) {
        printf("  %s\n", k->name);
        quarry_pool_t *pool = k->create(nullptr);
        CHECK(pool);
        if (k->begin) k->begin(pool);
        body(pool);
        CHECK_EQ(quarry_pool_check(pool), 0);
        if (k->end) k->end(pool);
        if (k->destroy) k->destroy(pool);
        else quarry_pool_destroy(pool);
    }
}

TEST(pmr_containers) {
    each([](quarry_pool_t *pool) {
        quarry::memory_resource resource(pool), same(pool);
        CHECK(resource == same);
        CHECK(resource != *std::pmr::new_delete_resource());
        std::pmr::vector<std::pmr::string> words(&resource);
        for (int i = 0; i < 2000; i++)
            words.emplace_back("a word that is too long for the small buffer " + std::to_string(i));
        std::pmr::map<int, std::pmr::string> index(&resource);
        for (int i = 0; i < 2000; i++) index[i * 7919 % 2000] = words[i];
        for (int i = 0; i < 2000; i += 2) index.erase(i);
        CHECK_EQ(index.size(), 1000);
        CHECK(index[7919 % 2000] == words[1]);
        CHECK(words[1999].get_allocator().resource() == &resource);
    });
}

TEST(allocator_containers) {
    each([](quarry_pool_t *pool) {
        std::list<int, quarry::allocator<int>> list(pool);
        for (int i = 0; i < 3000; i++) list.push_back(i);
        for (int i = 0; i < 1000; i++) list.pop_front();
        CHECK_EQ(list.front(), 1000);
        std::unordered_map<int, int, std::hash<int>, std::equal_to<int>, quarry::allocator<std::pair<const int, int>>>
            squares(pool);
        for (int i = 0; i < 1000; i++) squares[i] = i * i;
        CHECK_EQ(squares[31], 961);
        std::list<int, quarry::allocator<int>> moved = std::move(list), copy = moved;
        CHECK_EQ(copy.size(), 2000);
        CHECK(copy.get_allocator() == quarry::allocator<long>(pool));
    });
}

struct counted {
    static int alive;
    explicit counted(bool fail) {
        if (fail) throw 7;
        alive++;
    }
    ~counted() { alive--; }
    alignas(32) char room[100];
};
int counted::alive;

TEST(objects) {
    each([](quarry_pool_t *pool) {
        {
            auto object = quarry::make_unique<counted>(pool, false);
            CHECK_EQ((uintptr_t)object.get() % alignof(counted), 0);
            CHECK_EQ(counted::alive, 1);
            int caught = 0;
            try {
                quarry::make_unique<counted>(pool, true);
            } catch (int n) { caught = n; }
            CHECK_EQ(caught, 7);
        }
        CHECK_EQ(counted::alive, 0);
    });
}

TEST(refusal_throws) {
    each([](quarry_pool_t *pool) {
        quarry::memory_resource resource(pool);
        volatile size_t too_much = (size_t)PTRDIFF_MAX - 1000;
        bool thrown = false;
        try {
            (void)resource.allocate(too_much);
        } catch (const std::bad_alloc &) { thrown = true; }
        CHECK(thrown);
        thrown = false;
        try {
            (void)quarry::allocator<long>(pool).allocate(too_much);
        } catch (const std::bad_array_new_length &) { thrown = true; }
        CHECK(thrown);
    });
}

struct tail {
    long head;
    int items[1];
};
TEST(macros) {
    each([](quarry_pool_t *pool) {
        long *a = p_new(pool, long, 10);
        CHECK(a && !a[9]);
        a[9] = 9;
        char *raw = p_new_raw(pool, char, 5);
        CHECK(raw);
        CHECK(p_renew(pool, &a, 10, 1000) == a && a[9] == 9 && a[999] == 0);
        CHECK(p_renew_raw(pool, &a, 1000, 2000) == a);
        CHECK(p_new_extra(pool, tail, 30) && p_new_extra_raw(pool, tail, 30));
        CHECK(p_new_extra_field(pool, tail, items, 30) && p_new_extra_field_raw(pool, tail, items, 30));
        long *copy = p_dup(pool, a, 10);
        CHECK_EQ(copy[9], 9);
        CHECK_STR_EQ(p_dupz(pool, "hello", 4), "hell");
        char *s = p_strdup(pool, "hello");
        if (quarry_pool_capabilities(pool) & (QUARRY_POOL_SIZES | QUARRY_POOL_FRAMES)) p_delete(pool, &s);
    });
}

TEST(owned) {
    quarry::pool pool{quarry_heap_pool(nullptr, nullptr)};
    CHECK(pool);
    CHECK_STR_EQ(quarry_pool_name(pool.get()), "heap");
}

TEST_MAIN()
