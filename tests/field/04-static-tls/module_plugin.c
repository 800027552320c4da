// SPDX-License-Identifier: MIT
// A plug-in that allocates; cases.py links it with the malloc that is tried, which then comes late.
#include <stdlib.h>

int plug(void);
int plug(void) {
    for (int i = 0; i < 20000; i++) {
        char *p = malloc((size_t)(i % 5000 + 1));
        p[0] = 1;
        free(p);
    }
    return 7;
}
