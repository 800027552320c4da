// SPDX-License-Identifier: MIT
#include "base/list.h"

#include "harness.h"

typedef struct item {
    int value;
    qy_list_t link;
} item_t;

static int value_of(qy_list_t *link) { return QY_LIST_ITEM(link, item_t, link)->value; }

// The list reads as `expect`, forwards, and backwards the other way round.
static void check_order(qy_list_t *head, const int *expect, int count) {
    int n = 0;
    QY_LIST_EACH(at, head) {
        CHECK_LT(n, count);
        CHECK_EQ(value_of(at), expect[n]);
        CHECK_PTR_EQ(at->next->prev, at);
        n++;
    }
    CHECK_EQ(n, count);
    for (qy_list_t *at = head->prev; at != head; at = at->prev) CHECK_EQ(value_of(at), expect[--n]);
    CHECK_EQ(n, 0);
    CHECK_EQ(qy_list_empty(head), count == 0);
}

TEST(both_ends) {
    qy_list_t head;
    item_t a = {1, {0, 0}}, b = {2, {0, 0}}, c = {3, {0, 0}};
    qy_list_init(&head);
    check_order(&head, NULL, 0);
    CHECK_PTR_EQ(qy_list_pop_front(&head), NULL);
    qy_list_push_back(&head, &b.link);
    check_order(&head, (int[]){2}, 1);
    qy_list_push_front(&head, &a.link);
    qy_list_push_back(&head, &c.link);
    check_order(&head, (int[]){1, 2, 3}, 3);
    CHECK_PTR_EQ(qy_list_pop_front(&head), &a.link);
    check_order(&head, (int[]){2, 3}, 2);
}

TEST(removal) {
    qy_list_t head;
    item_t items[5];
    qy_list_init(&head);
    for (int i = 0; i < 5; i++) items[i].value = i, qy_list_push_back(&head, &items[i].link);
    qy_list_remove(&items[2].link);
    check_order(&head, (int[]){0, 1, 3, 4}, 4);
    qy_list_remove(&items[2].link);  // a ring of its own now
    check_order(&head, (int[]){0, 1, 3, 4}, 4);
    qy_list_remove(&items[1].link);
    qy_list_remove(&items[2].link);  // its former neighbours have moved on
    check_order(&head, (int[]){0, 3, 4}, 3);
    qy_list_remove(&items[0].link);
    qy_list_remove(&items[4].link);
    check_order(&head, (int[]){3}, 1);
    qy_list_push_front(&head, &items[4].link);
    check_order(&head, (int[]){4, 3}, 2);
}

TEST(removal_on_the_way) {
    qy_list_t head, other;
    item_t items[6];
    qy_list_init(&head);
    qy_list_init(&other);
    for (int i = 0; i < 6; i++) items[i].value = i, qy_list_push_back(&head, &items[i].link);
    QY_LIST_EACH(at, &head) {
        if (value_of(at) % 2) continue;
        qy_list_remove(at);
        qy_list_push_front(&other, at);
    }
    check_order(&head, (int[]){1, 3, 5}, 3);
    check_order(&other, (int[]){4, 2, 0}, 3);
}

TEST_MAIN()
