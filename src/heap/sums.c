// SPDX-License-Identifier: MIT
// sums.c: see sums.h.
#include "heap/sums.h"

#include "heap/heaps.h"
#include "heap/large.h"
#include "pages/chunk.h"
#include "pages/meta.h"
#include "pages/purging.h"

void qy_sums_add_heap(qy_sums_t *s, const qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    s->slabs_bytes += h->slab_bytes;
    s->slab_free_bytes += h->free_bytes;
    s->slab_purged_bytes += h->purged_bytes;
    s->slab_mailed_bytes += atomic_load_explicit(&h->mailed, memory_order_relaxed);
    s->cached_bytes += h->depot_bytes;
    s->cached_blocks += h->depot_blocks;
    s->slabs += h->nslabs;
    s->refills += h->refills;
    s->flushes += h->flushes;
    s->remote_adoptions += h->adoptions;
    s->slab_steals += h->steals;
    s->remote_publishes += atomic_load_explicit(&h->publishes, memory_order_relaxed);
}

void qy_sums_set_rest(qy_sums_t *s) {
    qy_large_stats_t large;
    size_t idle, purged, free = qy_units_free_bytes();
    qy_large_stats(&large);
    s->runs = large.runs;
    s->run_live_bytes = large.run_live;
    s->run_slack_bytes = large.run_slack;
    s->huges = large.huges;
    s->huge_live_bytes = large.huge_live;
    s->huge_cached_bytes = large.huge_stuck;
    s->pages_dirty_bytes = qy_units_dirty_bytes();
    s->pages_clean_bytes = free > s->pages_dirty_bytes ? free - s->pages_dirty_bytes : 0;  // read a moment apart
    s->mapped_bytes = qy_units_mapped_bytes() + large.huge_live + large.huge_stuck;
    s->metadata_bytes = qy_meta_bytes();  // without the map of addresses
    s->heaps = qy_heaps_count(&idle);
    s->heaps_idle = idle;
    s->heap_adoptions = atomic_load_explicit(&qy_heap_adoptions, memory_order_relaxed);
    s->purges = qy_purging_counted(&purged);
    s->purged_bytes = purged;
    s->regret_bytes = qy_purging_regretted();
}
