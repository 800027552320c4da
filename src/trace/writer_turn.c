// SPDX-License-Identifier: MIT
// writer_turn.c: a thread's stream, where its block is full and the recording gives it another.
#include "trace/writer.h"

#include <errno.h>

#include "base/num.h"
#include "trace/modules.h"
#include "trace/recording.h"
#include "trace/sample.h"
#include "trace/threads.h"
#include "trace/usage.h"

#define TRY_AGAIN 64  // so many events are lost before a block is asked for again

// A writer without a block: at > limit, so that each record comes to qy_writer_turn.
static uint8_t nowhere[2];

QY_COLD void qy_writer_lose(qy_writer_t *w, qy_trace_lost_t reason) {
    w->lost[reason]++;
    atomic_fetch_add_explicit(&qy_record.lost, 1, memory_order_relaxed);
}

void qy_writer_seal(qy_writer_t *w) {
    qy_trace_block_t *b = w->block;
    w->at = &nowhere[1];
    w->limit = &nowhere[0];
    if (!b) return;
    qy_trace_block_seal(b);
    qy_record_detach(w);
    qy_trace_block_unmap(b);
}

void qy_writer_init(qy_writer_t *w) {
    w->live = qy_record.live;
    w->at = &nowhere[1];
    w->limit = &nowhere[0];
    w->stacks = qy_record.config.stacks != QY_STACKS_NONE && w->thread;
    w->samples = qy_record.config.sample != 0;
    w->scanning = !w->thread;  // ended threads come with locks held
    w->chance = qy_os_random() | 1;
    w->skip = w->samples ? qy_sample_next(&w->chance, qy_record.config.sample) : 0;
}

// A thread of few events shall need little room, one of many few blocks.
static size_t wanted(const qy_writer_t *w, size_t grain) {
    return w->sequence == 0 ? grain : w->sequence == 1 ? 4 * grain
                                                       : 16 * grain;
}

static bool take_block(qy_writer_t *w, size_t more) {
    size_t grain = qy_record.file.grain, span;
    size_t least = qy_round_up(sizeof(qy_trace_block_t) + 4 * QY_RECORD_MOST + QY_LAST_MOST + more, grain);
    if (!qy_record_attach(w, qy_max(wanted(w, grain), least), least, &span)) return false;
    qy_trace_block_t *b = w->block;
    w->time = qy_max(w->time, qy_os_ticks());
    w->previous_pc = w->previous_stack = 0;
    b->thread = w->thread;
    b->sequence = w->sequence++;
    b->time = w->time;
    b->address = w->previous[QY_KIND_FREE];  // near what comes next
    for (unsigned i = 0; i < QY_KINDS; i++) w->previous[i] = b->address;
    qy_trace_block_begin(b, QY_TRACE_EVENTS, span, (uint32_t)qy_record.pid);
    w->at = (uint8_t *)(b + 1);
    w->limit = (uint8_t *)b + span - QY_RECORD_MOST - QY_LAST_MOST;
    return true;
}

bool qy_writer_turn(qy_writer_t *w, size_t more) {
    if (qy_lock_is_mine(&qy_record.lock)) {  // a signal handler: the lock comes back after it only
        qy_writer_lose(w, QY_LOST_REENTERED);
        return false;
    }
    int saved = errno;
    bool have = w->block || w->without++ % TRY_AGAIN == 0;
    if (have) {
        qy_writer_seal(w);
        have = take_block(w, more);
    }
    if (have) {
        uint64_t ticks, ns;
        w->without = 0;
        qy_os_ticks_pair(&ticks, &ns);
        qy_write_numbers(w, QY_OP_CLOCK, 0, ticks, 1, ns, 0);
        qy_writer_write_lost(w);
        qy_usage_tell(w);
        if (w->thread) qy_thread_tell_name(w);
        qy_record_tell_full(w);
        qy_modules_write(w);
    } else qy_writer_lose(w, QY_LOST_NO_ROOM);
    errno = saved;
    // Modules may have filled it again; they are told once.
    return have && (w->at + more <= w->limit || qy_writer_turn(w, more));
}
