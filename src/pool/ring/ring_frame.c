// SPDX-License-Identifier: MIT
// ring_frame.c: the records of all frames of all rings.
//
// A table of segments, which are made when needed and never go: a number that was a frame once can be looked up for
// ever. Rings take records in batches and keep them until they end.
#include <pthread.h>

#include "base/num.h"
#include "os/os.h"
#include "os/streams.h"
#include "pool/ring.h"

#define BATCH 64u

_Atomic(qy_ring_frame_t *) qy_frame_segments[QY_FRAME_SEGMENTS];

static struct {
    qy_lock_t lock;  // a leaf: only the kernel is called with it held
    qy_ring_frame_t *free;
    uint32_t made;  // records that have been in use
} frames;

// ---- fork: the lock must not stay held in the child -----------------------------------------------------

static void frames_fork_prepare(void) {
    qy_os_streams_hold();
    qy_lock_fork(&frames.lock, 0);
}
static void frames_fork_parent(void) {
    qy_lock_fork(&frames.lock, 1);
    qy_os_streams_let_go();
}
static void frames_fork_child(void) {
    qy_os_streams_in_child();
    qy_lock_fork(&frames.lock, 2);
}
static void frames_register_fork_handlers(void) {
    pthread_atfork(frames_fork_prepare, frames_fork_parent, frames_fork_child);
}

// ---------------------------------------------------------------------------------------------------------

static qy_ring_frame_t *segment_of(uint32_t index) {
    uint32_t number = index / QY_FRAME_SEGMENT;
    if (number >= QY_FRAME_SEGMENTS) return NULL;
    qy_ring_frame_t *segment = atomic_load_explicit(&qy_frame_segments[number], memory_order_relaxed);
    if (segment) return segment;
    size_t bytes = qy_round_up(QY_FRAME_SEGMENT * sizeof *segment, qy_os_page_size());
    segment = qy_os_map(bytes, qy_os_page_size(), NULL);
    if (!segment) return NULL;
    qy_os_name(segment, bytes, "quarry frames");
    atomic_store_explicit(&qy_frame_segments[number], segment, memory_order_release);
    return segment;
}

static qy_ring_frame_t *make_one(void) {
    QY_NEEDS(&frames.lock);
    qy_ring_frame_t *segment = segment_of(frames.made);
    if (!segment) return NULL;
    qy_ring_frame_t *f = segment + frames.made % QY_FRAME_SEGMENT;
    f->index = frames.made++;
    return f;
}

qy_ring_frame_t *qy_frames_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, frames_register_fork_handlers);
    qy_ring_frame_t *chain = NULL;
    qy_lock_take(&frames.lock);
    for (unsigned i = 0; i < BATCH; i++) {
        qy_ring_frame_t *f = frames.free;
        if (f) frames.free = f->next;
        else f = make_one();
        if (!f) break;
        f->next = chain;
        chain = f;
    }
    qy_lock_drop(&frames.lock);
    return chain;
}

void qy_frames_put(qy_ring_frame_t *first) {
    if (!first) return;
    qy_ring_frame_t *last = first;
    while (last->next) last = last->next;
    qy_lock_take(&frames.lock);
    last->next = frames.free;
    frames.free = first;
    qy_lock_drop(&frames.lock);
}
