// SPDX-License-Identifier: MIT
// record_real.c: see record.h. The functions behind ours, and who hides whose calls; in libquarry-record only.
#include <dlfcn.h>
#include <stdatomic.h>

#include "api/record.h"
#include "base/num.h"

#define ROUNDING 4096  // operators may ask malloc for so much more, and as much again

qy_real_t qy_real;
__thread uintptr_t qy_mark_hides;
__thread size_t qy_mark_hides_size;
char qy_early[16384] QY_ALIGNED(16);

// Bytes used. What is never freed needs no more.
void *qy_early_alloc(size_t n, size_t align) {
    static _Atomic size_t used;
    if (align < 16) align = 16;
    if (n > sizeof qy_early || align > 4096) return NULL;
    size_t at = atomic_fetch_add(&used, n + align);
    return at + n + align > sizeof qy_early ? NULL : qy_ptr_up(qy_early + at, align);
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

// What was not found leaves a message, which the program must not take for its own. dlerror() is not how to be rid of
// it: it translates it, under the C library's lock of locales, and who is here may have been called within newlocale(),
// which has that lock for writing and gives it back a second time then. A name that is found leaves none, and frees the
// one before.
static void forget_message(void) { next("malloc"); }

// The assignments are of functions to void pointers and back, which POSIX wants to work.
#define FIND(function) *(void **)&found.function = next(#function)

bool qy_real_find(void) {
    static _Atomic bool finding;
    if (qy_real.malloc) return true;
    if (atomic_exchange(&finding, true)) return qy_real.malloc != NULL;
    qy_real_t found = {0};
    FIND(malloc);
    FIND(free);
    FIND(calloc);
    FIND(realloc);
    FIND(memalign);
    FIND(aligned_alloc);
    FIND(posix_memalign);
    FIND(valloc);
    FIND(pvalloc);
    FIND(malloc_usable_size);
    qy_real = found;
    // Messages are allocated.
    qy_writer_t *mine = qy_record_mine;
    qy_record_mine = &qy_writer_off;
    FIND(free_sized);
    FIND(free_aligned_sized);
    if (!found.free_sized || !found.free_aligned_sized) forget_message();
    qy_real = found;
    static Dl_info where;
    if (dladdr(*(void **)&found.malloc, &where)) qy_record.malloc_library = where.dli_fname;
    qy_record_mine = mine;
    return true;
}

void *qy_real_symbol(const char *name) {
    qy_writer_t *mine = qy_record_mine;
    qy_record_mine = &qy_writer_off;
    void *symbol = next(name);
    if (!symbol) forget_message();
    qy_record_mine = mine;
    return symbol;
}

static uint32_t attention_of(const qy_writer_t *w) { return atomic_load_explicit(&w->attention, memory_order_relaxed); }

uintptr_t qy_hide(uintptr_t what, size_t size) {
    qy_writer_t *w = qy_record_mine;
    uint32_t attention = attention_of(w);
    uintptr_t outer = 0;
    if (attention & QY_ATTENTION_WRITING) return QY_HIDES_RECORD;
    if (attention & QY_ATTENTION_NOBODY) {
        outer = qy_mark_hides;
        qy_mark_hides = what;
        qy_mark_hides_size = size;
        return outer;
    }
    if (attention == QY_ATTENTION_HIDING) outer = w->hides;
    w->hides = what;
    w->hides_size = size;
    atomic_store_explicit(&w->attention, QY_ATTENTION_HIDING, memory_order_relaxed);
    return outer;
}

// Meanwhile the thread may have got a writer, or lost it.
bool qy_show(uintptr_t outer) {
    qy_writer_t *w = qy_record_mine;
    uint32_t attention = attention_of(w);
    bool left = qy_mark_hides || attention == QY_ATTENTION_HIDING;
    if (outer == QY_HIDES_RECORD) return true;
    qy_mark_hides = 0;
    if (attention & QY_ATTENTION_NOBODY) qy_mark_hides = outer;
    else {
        w->hides = outer;
        atomic_store_explicit(&w->attention, outer ? QY_ATTENTION_HIDING : 0, memory_order_relaxed);
    }
    return left;
}

// Of operator new one allocation is hidden, and what a new_handler does is not. If that allocation fails and is tried
// again, it is recorded as what it is. Its size is that of the operator, perhaps rounded up: so an operator that threw
// without any allocation, after which nothing of ours runs, hides none of the program's later.
bool qy_hidden(uintptr_t what, size_t size, unsigned *ret_by) {
    qy_writer_t *w = qy_record_mine;
    if (w == &qy_writer_off) return true;
    uint32_t attention = attention_of(w);
    bool mark = attention & QY_ATTENTION_NOBODY;
    uintptr_t hides = mark ? qy_mark_hides : attention == QY_ATTENTION_HIDING ? w->hides
                                                                              : 0;
    if (!hides) return false;
    if (hides == QY_HIDES_ALL) return true;
    size_t asked = mark ? qy_mark_hides_size : w->hides_size;
    bool allocates =
        what == QY_HIDES_NEW && hides <= QY_HIDES_ALIGNED_NEW && size >= asked && size - asked <= asked + ROUNDING;
    if (!allocates && hides != what) return false;
    if (allocates) *ret_by = hides == QY_HIDES_NEW ? QY_BY_NEW : QY_BY_ALIGNED_NEW;
    if (mark) qy_mark_hides = 0;
    else atomic_store_explicit(&w->attention, 0, memory_order_relaxed);
    return true;
}
