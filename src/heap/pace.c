// SPDX-License-Identifier: MIT
// pace.c: see pace.h.
#include "heap/pace.h"

#include "base/num.h"
#include "heap/draw.h"

static bool is_many(const qy_pace_t *pace, uint64_t now) {
    uint32_t judges = pace->judges ? pace->judges : QY_PACE_MANY;
    return pace->births >= judges && pace->births * QY_PACE_SECOND >= QY_PACE_MANY * (now - pace->since_ns);
}

static bool is_few(const qy_pace_t *pace, uint64_t now) {
    return pace->births * QY_PACE_SECOND < QY_PACE_FEW * (now - pace->since_ns);
}

// Half of what is left, and never less than half of all: few live samples are no reason.
static uint32_t live_most(uint32_t live, uint32_t rows) {
    return live < rows / 2 ? rows / 2 : live + (uint32_t)qy_max((rows - live) / 2, 1);
}

QY_COLD uint64_t qy_pace_next(
    qy_pace_t *pace, uint64_t control, uint64_t now, bool birth, uint32_t live, uint32_t rows, unsigned finest) {
    if ((control & (QY_DRAW_ON | QY_DRAW_ADAPTS)) != (QY_DRAW_ON | QY_DRAW_ADAPTS)) return control;
    uint64_t rest = control & ~(QY_DRAW_ON - 1);
    unsigned rate = qy_draw_rate(control);
    if (pace->control != rest)
        *pace = (qy_pace_t){
            .control = rest, .since_ns = now, .judges = pace->judges, .live_most = live_most(live, rows)};
    pace->births += birth;
    bool late = now - pace->since_ns >= QY_PACE_SECOND;
    bool full = live >= pace->live_most, many = full || is_many(pace, now);
    if (!many && !late) return control;
    if (many && rate < QY_PACE_COARSEST) rate++;
    else if (!many && is_few(pace, now) && rate > finest && live < rows / 2) rate--;
    pace->since_ns = now;
    pace->births = 0;
    uint32_t most = live_most(live, rows);
    if (full || most < pace->live_most) pace->live_most = most;
    return rest | rate;
}
