// SPDX-License-Identifier: MIT
// list.h: a doubly linked list through the members' own links, closed to a ring by its head.
//
//   head <-> a.link <-> b.link <-> head
//
// Invariant: link->next->prev == link, for the head and every member. A link that is in no list is
// a ring of its own after qy_list_init and qy_list_remove, so removing it again does no harm.
// Threads: none of its own; the owner's lock covers the head and all members.
#ifndef QY_BASE_LIST_H
#define QY_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct qy_list {
    struct qy_list *next, *prev;
} qy_list_t;

static inline void qy_list_init(qy_list_t *l) { l->next = l->prev = l; }
static inline bool qy_list_empty(const qy_list_t *l) { return l->next == l; }

static inline void qy_list_insert_between(qy_list_t *prev, qy_list_t *next, qy_list_t *link) {
    link->prev = prev;
    link->next = next;
    prev->next = link;
    next->prev = link;
}
static inline void qy_list_push_front(qy_list_t *head, qy_list_t *link) {
    qy_list_insert_between(head, head->next, link);
}
static inline void qy_list_push_back(qy_list_t *head, qy_list_t *link) {
    qy_list_insert_between(head->prev, head, link);
}

static inline void qy_list_remove(qy_list_t *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    qy_list_init(link);
}

// The first link, taken out; NULL if the list is empty.
static inline qy_list_t *qy_list_pop_front(qy_list_t *head) {
    if (qy_list_empty(head)) return NULL;
    qy_list_t *link = head->next;
    qy_list_remove(link);
    return link;
}

// The object of `type` whose member `member` is this link.
#define QY_LIST_ITEM(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

// For every link from front to back; the body may remove `at` itself, but no other.
#define QY_LIST_EACH(at, head) \
    for (qy_list_t *at = (head)->next, *at##_next = at->next; at != (head); at = at##_next, at##_next = at->next)

#endif
