// SPDX-License-Identifier: MIT
// fence.c: see fence.h.
#include "pool/fence.h"

#include "base/num.h"
#include "os/os.h"

size_t qy_fence_bytes(const qy_block_node_t *n) { return n->raw_bytes + qy_os_page_size(); }

bool qy_fence_take(qy_block_node_t *n) {
    size_t page = qy_os_page_size(), unit = qy_max(page, n->alignment), size = qy_max(n->size, 1);
    n->raw_bytes = qy_round_up(size, unit);
    char *raw = qy_os_map(n->raw_bytes + page, unit, NULL);
    if (!raw) return false;
    if (!qy_os_protect_none(raw + n->raw_bytes, page)) {
        qy_os_unmap(raw, n->raw_bytes + page);
        return false;
    }
    n->raw = qy_hide_pointer(raw);
    n->ptr = qy_hide_pointer(raw + qy_round_down(n->raw_bytes - size, n->alignment));
    return true;
}

// A kernel that refuses leaves the block as it is: then a late access is not found, and nothing else is lost.
void qy_fence_hide(qy_block_node_t *n) { qy_os_decommit(qy_shown_pointer(n->raw), n->raw_bytes); }

void qy_fence_give(qy_block_node_t *n) { qy_os_unmap(qy_shown_pointer(n->raw), qy_fence_bytes(n)); }
