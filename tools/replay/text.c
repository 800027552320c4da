// SPDX-License-Identifier: MIT
// text.c: text to descriptors through a buffer, and the message a failed replay ends with
#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void qy_flush(qy_out_t *out) {
    for (uint32_t done = 0; done < out->used;) {
        ssize_t n = write(out->fd, out->text + done, out->used - done);
        if (n < 0 && errno != EINTR) qy_fail(QY_SYSTEM, "the report cannot be written: %s", strerror(errno));
        if (n > 0) done += (uint32_t)n;
    }
    out->used = 0;
}

// vsnprintf allocates only for widths and arguments that we never give it.
void qy_print(qy_out_t *out, const char *format, ...) {
    if (sizeof out->text - out->used < 512) qy_flush(out);
    va_list args;
    va_start(args, format);
    size_t room = sizeof out->text - out->used;
    int n = vsnprintf(out->text + out->used, room, format, args);
    va_end(args);
    if (n > 0) out->used += (size_t)n < room ? (uint32_t)n : (uint32_t)room - 1;
}

_Noreturn void qy_fail(int status, const char *format, ...) {
    char text[600];
    static const char who[] = "quarry-replayer: ";
    memcpy(text, who, sizeof who);
    size_t used = sizeof who - 1;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + used, sizeof text - used - 1, format, args);
    va_end(args);
    if (n > 0) used += (size_t)n < sizeof text - used - 1 ? (size_t)n : sizeof text - used - 2;
    text[used++] = '\n';
    if (write(2, text, used) < 0) {}
    _exit(status);
}
