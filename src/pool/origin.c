// SPDX-License-Identifier: MIT
// origin.c: see origin.h.
#include "pool/origin.h"

#include <errno.h>
#include <pthread.h>

#include "os/module.h"
#include "os/os.h"
#include "pool/checker.h"
#include "rt/diag.h"
#include "stacks/stacks_tree.h"
#include "stacks/unwind.h"

#define PRINTED 12u

// What was learnt of a module's code is forgotten after so many stacks: it may have been unloaded, and other code may
// be in its place. Forgetting costs 50 us.
#define FORGET_EACH (1u << 16)

static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool has_key;
    const qy_tree_t *tree;  // for debuggers: another library of the process may have one of this name
    _Atomic uint32_t captures;
} origins = {.once = PTHREAD_ONCE_INIT};
static _Thread_local bool registered;  // the thread's end will be seen

static void thread_with_origins_ends(void *unused) {
    (void)unused;
    registered = false;  // a destructor that comes later may use a pool
    qy_stacks_thread_end();
}

// A checker has stacks of its own.
static void origin_begin(void) {
    if (qy_checker()) return;
    origins.tree = &qy_tree;
    origins.has_key = pthread_key_create(&origins.key, thread_with_origins_ends) == 0;
    // Without tables: the caller, and what has frame pointers.
    qy_stacks_start(qy_os_module_may_be_asked() ? QY_STACKS_CFI : QY_STACKS_FP, 0);
}

void qy_origin_start(void) { pthread_once(&origins.once, origin_begin); }

// Set first: pthread_setspecific may allocate, from a pool if that is malloc.
static QY_COLD void origin_register(void) {
    registered = true;
    int saved = errno;
    if (origins.has_key) pthread_setspecific(origins.key, &origins);
    errno = saved;
}

static bool told(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)arg, (void)id, (void)parent, (void)pc, (void)is_return;
    return true;
}

// A thread that has captured nothing yet comes here.
static QY_COLD uint32_t origin_capture(const qy_stack_regs_t *caller) {
    if (QY_UNLIKELY(!registered)) origin_register();
    return qy_stack_capture_outside(caller, told, NULL);
}

uint32_t qy_origin(const qy_stack_regs_t *caller) {
    const quarry_check_pool_t *checker = qy_checker_if_known();  // since qy_origin_start
    if (QY_UNLIKELY(checker)) return checker->stack(caller->pc, caller->sp, caller->fp);
    uint32_t n = atomic_load_explicit(&origins.captures, memory_order_relaxed) + 1;
    atomic_store_explicit(&origins.captures, n, memory_order_relaxed);  // roughly, where threads meet
    if (QY_UNLIKELY(n % FORGET_EACH == 0)) qy_stacks_modules_changed();
    uint32_t known = qy_stack_recall(caller);
    return QY_LIKELY(known != 0) ? known : origin_capture(caller);
}

// A node of a tree that was begun anew (in the child of a fork) has other addresses, or none.
void qy_origin_print(const char *what, uint32_t origin) {
    if (!origin || !origins.tree || origin > qy_stacks_ids()) return;
    char line[512];
    size_t n = qy_format(line, sizeof line, "quarry: note: %s at", what);
    for (unsigned i = 0; origin && i < PRINTED; i++) {
        const qy_stacks_node_t *node = &origins.tree->nodes[origin];
        uintptr_t pc = atomic_load_explicit(&node->pc, memory_order_relaxed);
        n += qy_format(line + n, sizeof line - n, " %p", (void *)(pc & ~QY_PC_EXACT));
        origin = atomic_load_explicit(&node->parent, memory_order_relaxed) & ~QY_NODE_THERE;
    }
    n += qy_format(line + n, sizeof line - n, "\n");
    qy_os_write(2, line, n);
}
