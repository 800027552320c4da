// SPDX-License-Identifier: MIT
// advice.h: what a program expects of its pages, told to the kernel.
#ifndef QY_OS_ADVICE_H
#define QY_OS_ADVICE_H

#include <stddef.h>

// In the order of quarry_advice_t.
typedef enum qy_advice {
    QY_ADVICE_NORMAL,
    QY_ADVICE_SEQUENTIAL,
    QY_ADVICE_RANDOM,
    QY_ADVICE_WILL_NEED,
    QY_ADVICE_POPULATE_READ,
    QY_ADVICE_POPULATE,
    QY_ADVICE_COLD,
    QY_ADVICE_PAGE_OUT,
    QY_ADVICE_FREE,
    QY_ADVICE_DROP,
    QY_ADVICE_REMOVE,
    QY_ADVICE_HUGE,
    QY_ADVICE_NO_HUGE,
    QY_ADVICE_COLLAPSE,
    QY_ADVICE_MERGE,
    QY_ADVICE_NO_MERGE,
    QY_ADVICE_NO_DUMP,
    QY_ADVICE_DUMP,
    QY_ADVICE_NO_FORK,
    QY_ADVICE_FORK,
    QY_ADVICE_WIPE_ON_FORK,
    QY_ADVICE_KEEP_ON_FORK,
    QY_ADVICES
} qy_advice_t;

// Whole pages of the program's. 0 or -errno; -ENOTSUP: the kernel does not know this advice.
int qy_os_advise(void *addr, size_t bytes, qy_advice_t advice);

#endif
