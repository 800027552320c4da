// SPDX-License-Identifier: MIT
// knobs.h: what mallocs let a user set from outside: the number of arenas, thread caches.
#ifndef BENCH_KNOBS_H
#define BENCH_KNOBS_H

#include <stdint.h>

enum { CACHES_DEFAULT,
    CACHES_ON,
    CACHES_OFF };

// Starts the program again with the environment that makes the malloc which serves it have so many arenas (0: as many
// as it likes) and thread caches or none; returns in the new process, or at once if nothing is to be set. A malloc
// without such a knob: status 77.
void knobs_set(char **argv, uint64_t arenas, uint64_t caches);

#endif
