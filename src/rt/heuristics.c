// SPDX-License-Identifier: MIT
// heuristics.c: see heuristics.h. Nothing in most builds.
#include "rt/heuristics.h"

#if QY_CFG_WITHOUT

#include <string.h>

#include "os/os.h"
#include "rt/diag.h"

uint64_t qy_without;

static const char *const heuristic_names[] = {
#define X(name, what) #name,
    QY_HEURISTICS(X)
#undef X
};
_Static_assert(QY_HEURISTIC_COUNT <= 64, "qy_without is 64 bits");

void qy_without_read(void) {
    const char *at = qy_os_getenv("QUARRY_WITHOUT");
    while (at && *at) {
        size_t n = strcspn(at, ",");
        unsigned i = 0;
        while (i < QY_HEURISTIC_COUNT && (strlen(heuristic_names[i]) != n || memcmp(heuristic_names[i], at, n) != 0))
            i++;
        if (i == QY_HEURISTIC_COUNT) {
            qy_warn("QUARRY_WITHOUT: '%s' does not begin with a name of heuristics.h", at);
            qy_os_abort();
        }
        qy_without |= UINT64_C(1) << i;
        at += n + (at[n] == ',');
    }
}

#endif
