// SPDX-License-Identifier: MIT
// name.c: what the process is called.
#include <errno.h>

#include "os/os.h"

void qy_os_program_name(char *buf, size_t bytes) {
    const char *name = qy_os_started_as();
    if (!name) name = program_invocation_short_name ? program_invocation_short_name : "";
    size_t n = 0;
    while (name[n] && n + 1 < bytes) {
        buf[n] = name[n];
        n++;
    }
    if (bytes) buf[n] = 0;
}
