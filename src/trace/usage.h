// SPDX-License-Identifier: MIT
// usage.h: what the process holds and has used, and what of that is the recorder's: so that a replay can say what the
// program would hold under another malloc.
#ifndef QY_TRACE_USAGE_H
#define QY_TRACE_USAGE_H

#include "trace/recording.h"

// Between begin and end: the process as it is now, at most every 10 ms, and so that looking takes a 50th of the time
// at most.
void qy_usage_tell(qy_writer_t *w);
// The same for who knows the time, and asks often.
QY_INLINE void qy_usage_tell_at(qy_writer_t *w, uint64_t now) {
    if (QY_UNLIKELY(now >= atomic_load_explicit(&qy_record.memory_ticks, memory_order_relaxed))) qy_usage_tell(w);
}
// The same at the end of the process, whatever the time, with the resident bytes of large blocks that are still live.
void qy_usage_tell_end(qy_writer_t *w);

// Has the calling thread allocated what stands in its first block?
bool qy_usage_is_early(void);

#endif
