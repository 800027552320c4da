// SPDX-License-Identifier: MIT
// text.c: a report as lines on descriptor 2, for a program that runs under the library without `quarry check`. Frames
// are addresses in files, which addr2line names.
#include "check/frames.h"
#include "check/report.h"
#include "os/os.h"
#include "rt/diag.h"

#define TEXT_BYTES 5000

void qy_check_text_stack(const char *title, uint32_t stack) {
    char line[TEXT_BYTES];
    qy_os_write(2, line, qy_format(line, sizeof line, "  %s:\n", title));
    for (unsigned n = 0; stack && n < 32;) {
        qy_check_frame_t f;
        stack = qy_check_frame(stack, &f);
        if (qy_check_frame_is_ours(&f)) continue;
        const char *path = f.module ? f.module->path : "?";
        uintptr_t bias = f.module ? f.module->bias : 0;
        qy_os_write(2, line, qy_format(line, sizeof line, "    #%u %s+%p\n", n++, path, (void *)(f.pc - bias)));
    }
}

void qy_check_text(const qy_check_fault_t *f, uint32_t stack) {
    char line[TEXT_BYTES];
    size_t n = qy_format(line, sizeof line, "quarry check: %s%s%s: address %p", f->kind, f->function ? " in " : "",
        f->function ? f->function : "", (void *)f->address);
    if (f->bytes) n += qy_format(line + n, sizeof line - n, ", %z byte%S", f->bytes);
    if (f->detail) n += qy_format(line + n, sizeof line - n, ", %s", f->detail);
    n += qy_format(line + n, sizeof line - n, "\n");
    qy_os_write(2, line, n);
    qy_check_text_stack(f->is_evidence ? "found at" : "at", stack);
    if (!f->has_block) return;
    const qy_check_block_t *b = &f->block;
    qy_os_write(2, line,
        qy_format(line, sizeof line, "  block of %z byte%S at %p, offset %s%l\n", b->size, (void *)b->address,
            f->offset < 0 ? "-" : "", f->offset < 0 ? -(uint64_t)f->offset : (uint64_t)f->offset));
    qy_check_text_stack("allocated at", b->alloc_stack);
    if (b->freed) qy_check_text_stack("freed at", b->free_stack);
}
