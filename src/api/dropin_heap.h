// SPDX-License-Identifier: MIT
// dropin_heap.h: what the libraries that are malloc say of the heap as a whole, where it is ours. It defines exported
// functions, as dropin.h does, which it includes.
#ifndef QY_API_DROPIN_HEAP_H
#define QY_API_DROPIN_HEAP_H

#include <errno.h>

#include "api/dropin.h"
#include "base/num.h"
#include "heap/purge.h"
#include "heap/stats.h"

EXPORT int malloc_trim(size_t keep) { return qy_purge_all(keep) != 0; }

// The two are not read at once, and meanwhile other threads go on.
static size_t dropin_free_of(const quarry_stats_t *st) {
    return st->mapped_bytes - qy_min(st->mapped_bytes, st->live_bytes);
}

QY_HIDDEN struct mallinfo2 qy_dropin_mallinfo(void) {
    quarry_stats_t st;
    qy_stats_read(&st);
    struct mallinfo2 m = {0};
    m.arena = st.mapped_bytes;
    m.ordblks = st.slabs;
    m.hblks = st.runs;
    m.uordblks = st.live_bytes;
    m.fordblks = dropin_free_of(&st);
    m.keepcost = st.pages_dirty_bytes;
    return m;
}

EXPORT void malloc_stats(void) {
    qy_stats_write(2, false);
    dropin_stats_as_glibc(2);
}

int malloc_info(int options, FILE *out);  // NOLINT(readability-redundant-declaration): not in musl's headers
EXPORT int malloc_info(int options, FILE *out) {
    if (options != 0) {
        errno = EINVAL;
        return -1;
    }
    quarry_stats_t st;
    qy_stats_read(&st);
    return dropin_info_as_glibc(out, st.slabs, st.live_blocks);
}

#endif
