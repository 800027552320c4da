// SPDX-License-Identifier: MIT
// quarry.h: everything libquarry offers, in one include.
#ifndef QUARRY_QUARRY_H
#define QUARRY_QUARRY_H

#include <quarry/heap.h>
#include <quarry/malloc.h>
#include <quarry/stats.h>

#endif
