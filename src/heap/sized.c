// SPDX-License-Identifier: MIT
// sized.c: see sized.h.
#include "heap/sized.h"

#include "heap/lookup.h"
#include "rt/diag.h"

void qy_sized_check(const void *p, size_t align, size_t n) {
    if (!p) return;
    qy_object_t o = qy_lookup(p);
    if (o.kind != QY_OBJECT_BLOCK && o.kind != QY_OBJECT_RUN && o.kind != QY_OBJECT_HUGE &&
        o.kind != QY_OBJECT_GUARDED && o.kind != QY_OBJECT_ZERO)
        return;
    if (n > o.usable) qy_fatal(QY_FAULT_WRONG_SIZE, p, "freed as %z byte%S, the block has %z", n, o.usable);
    if (qy_is_pow2(align) && qy_align_is_wrong(p, align))
        qy_fatal(QY_FAULT_WRONG_ALIGN, p, "freed as aligned to %z", align);
}
