// SPDX-License-Identifier: MIT
// stats.h: gathers include/quarry/stats.h from the heaps and the page layer.
#ifndef QY_HEAP_STATS_H
#define QY_HEAP_STATS_H

#include <quarry/stats.h>
#include <stdbool.h>

void qy_stats_read(quarry_stats_t *ret);
bool qy_stats_write(int fd, bool json);
void qy_stats_at_exit(void);  // as the options stats and stats_file ask

#endif
