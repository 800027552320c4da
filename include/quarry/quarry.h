// SPDX-License-Identifier: MIT
// quarry.h: the general heap in one include: malloc.h, heap.h, stats.h. Each pool has a header of its own
// (docs/pools.md). stats_page.h is for programs that read the statistics of other processes.
#ifndef QUARRY_QUARRY_H
#define QUARRY_QUARRY_H

#include <quarry/heap.h>
#include <quarry/malloc.h>
#include <quarry/stats.h>

#endif
