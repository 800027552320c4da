// SPDX-License-Identifier: MIT
// quarry.c: the heap under its own names: include/quarry/malloc.h and stats.h. In both libraries.
#include <quarry/malloc.h>
#include <quarry/stats.h>

#include "api/dropin_own.h"
#include "api/family.h"
#include "heap/purge.h"
#include "heap/stats.h"

void *quarry_malloc(size_t n) { return family_malloc(n); }
void quarry_free(void *p) { qy_free_fast(p); }
void qy_own_quarry_free(void *p) __attribute__((alias("quarry_free")));
void quarry_free_sized(void *p, size_t n) {
    family_check_sized(p, 1, n);
    qy_free_fast(p);
}
void quarry_free_aligned_sized(void *p, size_t align, size_t n) {
    family_check_sized(p, align, n);
    qy_free_fast(p);
}
void *quarry_calloc(size_t count, size_t size) { return family_calloc(count, size); }
void *quarry_realloc(void *p, size_t n) { return qy_realloc(p, n); }
void *quarry_reallocarray(void *p, size_t count, size_t size) { return family_reallocarray(p, count, size); }
void *quarry_aligned_alloc(size_t align, size_t n) { return family_aligned_alloc(align, n); }
int quarry_posix_memalign(void **ret_ptr, size_t align, size_t n) { return family_posix_memalign(ret_ptr, align, n); }
void *quarry_memalign(size_t align, size_t n) { return family_memalign(align, n); }
void *quarry_valloc(size_t n) { return family_valloc(n); }
void *quarry_pvalloc(size_t n) { return family_pvalloc(n); }
size_t quarry_usable_size(const void *p) { return qy_usable_size(p); }
int quarry_trim(size_t keep) { return qy_purge_all(keep) != 0; }
const char *quarry_version(void) { return QY_VERSION; }

void quarry_stats_read(quarry_stats_t *ret_stats) { qy_stats_read(ret_stats); }
int quarry_stats_write(int fd, int as_json) { return qy_stats_write(fd, as_json) ? 0 : -1; }
