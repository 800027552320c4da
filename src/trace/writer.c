// SPDX-License-Identifier: MIT
// writer.c: the rarer records. What happens when a block is full is in writer_turn.c.
#include "trace/writer.h"

#include <string.h>

void qy_writer_write_lost(qy_writer_t *w) {
    for (unsigned reason = QY_LOST_NO_ROOM; reason <= QY_LOST_TABLE_FULL; reason++) {
        if (!w->lost[reason]) continue;
        uint64_t count = w->lost[reason];
        w->lost[reason] = 0;
        qy_write_numbers(w, QY_OP_LOST, 0, w->time, 2, count, reason);
    }
}

void qy_write_numbers(
    qy_writer_t *w, unsigned op, unsigned variant, uint64_t now, unsigned count, uint64_t first, uint64_t second) {
    uint8_t *at = qy_writer_room(w);
    if (!at) return;
    at = qy_put_tag(at, op, variant);
    at = qy_put_time(at, w, now);
    if (count > 0) at = qy_put(at, first);
    if (count > 1) at = qy_put(at, second);
    qy_writer_commit(w, at);
}

void qy_write_text(qy_writer_t *w, unsigned op, unsigned variant, uint64_t now, const uint64_t *number,
    const char *text, size_t bytes) {
    if (w->at + bytes > w->limit && !qy_writer_turn(w, bytes)) return;
    uint8_t *at = qy_put_tag(w->at, op, variant);
    at = qy_put_time(at, w, now);
    if (number) at = qy_put(at, *number);
    at = qy_put(at, bytes);
    memcpy(at, text, bytes);
    qy_writer_commit(w, at + bytes);
}

// It belongs to the free that follows, so both go into one block.
void qy_write_touched(qy_writer_t *w, uint64_t bytes) {
    if (w->at + QY_RECORD_MOST > w->limit && !qy_writer_turn(w, QY_RECORD_MOST)) return;
    qy_writer_commit(w, qy_put(qy_put_tag(w->at, QY_OP_TOUCHED, 0), bytes));
}

// Of a block that has been told.
void qy_write_zeroed(qy_writer_t *w, uint64_t now, uint64_t size, uintptr_t addr, uint64_t resident) {
    uint8_t *at = qy_writer_room(w);
    if (!at) return;
    at = qy_put_tag(at, QY_OP_TOUCHED, QY_TOUCHED_ZEROED);
    at = qy_put_time(at, w, now);
    at = qy_put(at, size);
    at = qy_put_address(at, &w->previous[qy_trace_kind_of(size)], addr);
    qy_writer_commit(w, qy_put(at, resident));
}

// An extension: its kind, so many numbers. A difference of time is the first, and 0: it is part of the record before.
void qy_write_extension(qy_writer_t *w, unsigned kind, const uint64_t *numbers, unsigned count) {
    uint8_t body[(QY_EXTENSION_NUMBERS + 1) * 10 + 8], *end = body;
    end = qy_put(end, 0);
    for (unsigned i = 0; i < count; i++) end = qy_put(end, numbers[i]);
    size_t bytes = (size_t)(end - body);
    if (w->at + bytes + QY_RECORD_MOST > w->limit && !qy_writer_turn(w, bytes + QY_RECORD_MOST)) return;
    uint8_t *at = qy_put_tag(w->at, QY_OP_EXTENSION, 0);
    at = qy_put(at, kind);
    at = qy_put(at, bytes);
    memcpy(at, body, bytes);
    qy_writer_commit(w, at + bytes);
}

bool qy_write_stack(qy_writer_t *w, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    uint8_t *at = qy_writer_room(w);
    if (!at) return false;
    at = qy_put_tag(at, QY_OP_STACK, is_return);
    at = qy_put(at, qy_zigzag((int64_t)id - 1 - (int64_t)w->previous_stack));
    at = qy_put(at, parent);
    at = qy_put(at, qy_zigzag((int64_t)(pc - w->previous_pc)));
    w->previous_stack = id;
    w->previous_pc = pc;
    qy_writer_commit(w, at);
    return true;
}
