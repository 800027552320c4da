// SPDX-License-Identifier: MIT
// pages_advice.c: what a program expects of its pages.
#include <errno.h>

#include "base/num.h"
#include "os/advice.h"
#include "os/os.h"
#include "pool/pages.h"

_Static_assert((int)QUARRY_ADVICE_FREE == (int)QY_ADVICE_FREE, "both enumerations have one order");
_Static_assert((int)QUARRY_ADVICE_KEEP_ON_FORK == (int)QY_ADVICES - 1, "both enumerations have one length");

int quarry_advise(void *addr, size_t bytes, quarry_advice_t advice) {
    size_t page = qy_os_page_size();
    int r = -EINVAL;
    if (bytes && bytes <= QUARRY_POOL_MAX && (uintptr_t)addr % page == 0 && (unsigned)advice < QY_ADVICES)
        r = qy_os_advise(addr, qy_round_up(bytes, page), (qy_advice_t)advice);
    if (!r) return 0;
    errno = -r;
    return -1;
}
