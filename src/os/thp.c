// SPDX-License-Identifier: MIT
// thp.c: the system's policy of transparent huge pages.
#include <stdatomic.h>

#include "os/file.h"

// The file reads "always [madvise] never": the one in brackets holds.
bool qy_os_thp_always(void) {
    static _Atomic int cached;  // 0: not asked yet, 1: no, 2: yes
    int state = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!state) {
        char text[48];
        size_t n = qy_os_read_small("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
        state = 1;
        for (size_t i = 0; i + 1 < n; i++) {
            if (text[i] == '[') {
                state = text[i + 1] == 'a' ? 2 : 1;
                break;
            }
        }
        atomic_store_explicit(&cached, state, memory_order_relaxed);
    }
    return state == 2;
}
