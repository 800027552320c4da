// SPDX-License-Identifier: MIT
// memory.c: see memory.h. Areas of address space, each twice as long as the one before, so that there are few.
#include "check/memory.h"

#include "base/compiler.h"
#include "base/num.h"
#include "stacks/own.h"

#define AREA_FIRST ((size_t)1 << 20)
#define AREA_MOST ((size_t)256 << 20)

static struct {
    qy_lock_t lock;
    char *at, *end;  // [lock] of the newest area
    size_t next;     // [lock] bytes of the next one
} memory;

qy_lock_t *qy_check_memory_lock(void) { return &memory.lock; }

// Where address space is limited, a smaller area does.
static bool memory_grow(size_t bytes) {
    QY_NEEDS(&memory.lock);
    size_t page = qy_os_page_size(), least = qy_round_up(bytes + page, page),
           want = qy_max(memory.next ? memory.next : AREA_FIRST, least);
    char *area = qy_os_map(want, page, NULL);
    if (!area) area = qy_os_map(want = least, page, NULL);
    if (!area) return false;
    qy_own_add(area, want);
    memory.at = area;
    memory.end = area + want;
    memory.next = qy_min(2 * want, AREA_MOST);
    return true;
}

void *qy_check_memory(size_t bytes, bool page) {
    size_t align = page ? qy_os_page_size() : QY_CACHE_LINE;
    qy_lock_take(&memory.lock);
    char *p = qy_ptr_up(memory.at, align);
    if ((!memory.at || p > memory.end || bytes > (size_t)(memory.end - p)) && !memory_grow(bytes)) p = NULL;
    else p = qy_ptr_up(memory.at, align);
    if (p) memory.at = p + bytes;
    qy_lock_drop(&memory.lock);
    return p;
}
