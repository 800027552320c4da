// SPDX-License-Identifier: MIT
// stack_thread.c: the thread's own stack: made by its first allocation, destroyed when the thread ends.
//
// The head, which the fast path uses, is thread-local storage; the rest is an ordinary stack. Until it is made, frames
// are pushed and popped with pos NULL, which stands for the bottom of the stack to come.
//
// The end. A key's destructor destroys it. Destructors of other keys may come later and use t_scope again; how many
// rounds of them are left nobody knows. So a stack made after that is `once`: it is destroyed with its outermost frame.
//
// fork. The child has only the calling thread, and the other threads' stacks would be there for ever. They are found in
// a list, and their chunks unmapped, except where the other thread was just changing them.
#include <errno.h>
#include <pthread.h>

#include "base/num.h"
#include "os/os.h"
#include "os/streams.h"
#include "pool/stack.h"

QUARRY_THREAD_LOCAL quarry_stack_hot_t quarry_thread_stack;

static __thread bool ended;                           // the key's destructor has run
static __thread uintptr_t c_stack_low, c_stack_high;  // once asked for

static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool usable;
    qy_lock_t lock;  // of the list; nothing else is taken with it
    qy_stack_t *first;
} stacks_threads = {.once = PTHREAD_ONCE_INIT};

// ---- the list, and fork ----------------------------------------------------------------------------------

static void stacks_list_insert(qy_stack_t *s) {
    qy_lock_take(&stacks_threads.lock);
    s->next_of_thread = stacks_threads.first;
    s->prev_of_thread = &stacks_threads.first;
    if (stacks_threads.first) stacks_threads.first->prev_of_thread = &s->next_of_thread;
    stacks_threads.first = s;
    qy_lock_drop(&stacks_threads.lock);
}

static void stacks_list_remove(qy_stack_t *s) {
    qy_lock_take(&stacks_threads.lock);
    *s->prev_of_thread = s->next_of_thread;
    if (s->next_of_thread) s->next_of_thread->prev_of_thread = s->prev_of_thread;
    qy_lock_drop(&stacks_threads.lock);
}

uint64_t qy_stacks_of_threads(void) {
    uint64_t n = 0;
    qy_lock_take(&stacks_threads.lock);
    for (const qy_stack_t *s = stacks_threads.first; s; s = s->next_of_thread) n++;
    qy_lock_drop(&stacks_threads.lock);
    return n;
}

static void drop_in_child(qy_stack_t *s) {
    stacks_list_remove(s);
    // A checked stack's records may be half changed as well.
    if (s->open.pool.mode || atomic_load_explicit(&s->busy, memory_order_acquire)) return;
    qy_stack_put_all(s);
    qy_pool_drop(&s->open.pool);
}

static void stacks_fork_prepare(void) {
    qy_os_streams_hold();
    qy_lock_fork(&stacks_threads.lock, 0);
}
static void stacks_fork_parent(void) {
    qy_lock_fork(&stacks_threads.lock, 1);
    qy_os_streams_let_go();
}
static void stacks_fork_child(void) {
    qy_os_streams_in_child();
    if (qy_lock_is_mine(&stacks_threads.lock)) return;  // the list is being changed
    qy_lock_reset(&stacks_threads.lock);
    uintptr_t self = qy_os_thread_token();
    for (qy_stack_t *s = stacks_threads.first, *next; s; s = next) {
        next = s->next_of_thread;
        if (s->owner != self) drop_in_child(s);
    }
}

// ---- beginning and end -------------------------------------------------------------------------------------

static void stacks_thread_ends(void *stack) {
    ended = true;
    quarry_pool_destroy(stack);
}

// After the first pool was made, so that its fork handlers were registered before: a child runs them in that order,
// and ours needs their locks.
static void stacks_make_key(void) {
    stacks_threads.usable = pthread_key_create(&stacks_threads.key, stacks_thread_ends) == 0;
    pthread_atfork(stacks_fork_prepare, stacks_fork_parent, stacks_fork_child);
}

static bool register_end(qy_stack_t *s) {
    pthread_once(&stacks_threads.once, stacks_make_key);
    if (ended) return s->once = true;
    int saved = errno;
    bool done = stacks_threads.usable && pthread_setspecific(stacks_threads.key, s) == 0;
    errno = saved;
    return done;
}

qy_stack_t *qy_stack_of_thread(void) {
    quarry_stack_hot_t *h = &quarry_thread_stack;
    if (h->stack) return (qy_stack_t *)h->stack;
    const quarry_stack_options_t options = {.pool = {.name = "t_stack", .flags = QUARRY_POOL_UNTRACKED}};
    qy_stack_t *s = qy_stack_new(&options, h);
    if (!s) return NULL;
    stacks_list_insert(s);
    if (register_end(s)) return s;
    uintptr_t top = h->top;
    quarry_pool_destroy(&s->open.pool);
    qy_stack_set_top(h, top);  // the frames that are open stay so
    errno = ENOMEM;
    return NULL;
}

quarry_pool_t *quarry_stack_of_thread(void) {
    qy_stack_t *s = qy_stack_of_thread();
    return s ? &s->open.pool : NULL;
}

void qy_stack_thread_forget(qy_stack_t *s) {
    stacks_list_remove(s);
    if (stacks_threads.usable && !s->once) pthread_setspecific(stacks_threads.key, NULL);
    // Frames that are open end with it, as those of a thread that left them by pthread_exit.
    quarry_thread_stack.stack = NULL;
    quarry_thread_stack.limit = NULL;
    qy_stack_set_top(&quarry_thread_stack, 0);
    qy_stack_set_pos(&quarry_thread_stack, NULL);
}

// ---- the C stack ---------------------------------------------------------------------------------------------

static bool ask_bounds(void) {
    if (c_stack_high) return true;
    pthread_attr_t attr;
    void *low;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return false;
    bool known = pthread_attr_getstack(&attr, &low, &bytes) == 0;
    pthread_attr_destroy(&attr);
    if (known) {
        c_stack_low = (uintptr_t)low;
        c_stack_high = c_stack_low + bytes;
    }
    return known;
}

bool qy_stack_was_jumped_over(uintptr_t inner, uintptr_t outer, uintptr_t here) {
    // It grows down: all records that exist are in functions that were called before.
    if (inner >= here || outer <= here || !ask_bounds()) return false;
    return inner >= c_stack_low && outer < c_stack_high;
}
