// SPDX-License-Identifier: MIT
// look.c: the memory of this process at the places of the plan where the recorder looked at the program's
#include "replay.h"

qy_look_t *qy_looks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t most;  // with the lock

void qy_looks_prepare(void) {
    if (qy_config.looks) qy_looks = qy_own(qy_plan.looks, sizeof *qy_looks);
}

// The peak is that of the interval that ends here; where the kernel cannot begin it anew, that of all so far.
void qy_look(uint32_t number) {
    pthread_mutex_lock(&lock);
    qy_look_t look = {.anonymous = qy_rss_anonymous(), .peak = qy_rss_peak()};
    qy_rss_reset_peak();
    if (look.peak < look.anonymous) look.peak = look.anonymous;
    if (look.peak > most) most = look.peak;
    qy_looks[number] = look;
    pthread_mutex_unlock(&lock);
}

uint64_t qy_looks_peak(void) { return most; }
