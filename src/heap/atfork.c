// SPDX-License-Identifier: MIT
// atfork.c: see atfork.h.
#include "heap/atfork.h"

#include <pthread.h>
#include <stdatomic.h>

#include "os/os.h"
#include "rt/stats_page.h"

enum { WAITS = 0,
    NEEDED = 1,  // but the heap has not started
    READY = 2 };

static struct {
    _Atomic int state;
    _Atomic bool known;  // the heap has started
    qy_atfork_t *prepare, *parent, *child;
} atfork;

// Defaults, not references that stay empty: those have an address in position-independent programs that gold links.
__attribute__((weak)) bool qy_atfork_may_wait(void) { return false; }
__attribute__((weak)) int qy_atfork_register(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child) {
    return pthread_atfork(prepare, parent, child);
}

// Once. Registering may allocate.
QY_COLD static void register_now(void) {
    int waits = WAITS;
    if (!atomic_load(&atfork.known)) {
        atomic_compare_exchange_strong(&atfork.state, &waits, NEEDED);
    } else if (atomic_exchange(&atfork.state, READY) != READY) {
        qy_stats_page_process();
        qy_atfork_register(atfork.prepare, atfork.parent, atfork.child);
    }
}

void qy_atfork_begin(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child) {
    atfork.prepare = prepare;
    atfork.parent = parent;
    atfork.child = child;
    atomic_store(&atfork.known, true);
    if (atomic_load(&atfork.state) == NEEDED || !qy_atfork_may_wait()) register_now();
}

void qy_atfork_needed(void) {
    if (QY_UNLIKELY(atomic_load_explicit(&atfork.state, memory_order_relaxed) != READY)) register_now();
}

// Without handlers nobody has told the child of a fork that it is another process.
void qy_atfork_thread(void) {
    if (atomic_load_explicit(&atfork.state, memory_order_relaxed) == READY) return;
    qy_os_first_thread_unknown();
    if (!qy_os_is_first_thread()) register_now();
}
