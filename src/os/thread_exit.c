// SPDX-License-Identifier: MIT
// thread_exit.c: a call at the end of a thread, after the destructors of others.
//
// What happens when a thread ends (glibc 2.34 and later; musl does the same but for step 3):
//   1. C++ thread_local destructors;
//   2. destructors of pthread keys: up to PTHREAD_DESTRUCTOR_ITERATIONS (4) rounds; in each, all
//      keys in the order of their index: the value is set to NULL, then its destructor is called.
//      There is another round if any value was set during the last one;
//   3. libc frees what it keeps per thread (buffers of strerror, the resolver...);
//   4. the thread's storage and stack are freed, later and perhaps by another thread.
// Destructors in step 2 allocate and free. Ours should come after those of others, but it must come:
// a thread may call us for the first time in another key's destructor, in any round, and how many
// rounds are left cannot be known, so setting our value again is no way to be last. The index is: a
// high one comes last in the first round, and still in the same round for who registers in one. What
// comes after us: destructors that set their value again, then steps 3 and 4.
#include <pthread.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "os/fake.h"
#include "os/os.h"
#include "os/syscall.h"

typedef void exit_fn_t(void *arg);
static _Atomic(exit_fn_t *) exit_fn;  // set once
static _Atomic uint64_t exit_key;     // the key + 1; 0: none yet

static bool arm(void *arg) {
    int saved = errno;  // may allocate, see os.h
    int r = pthread_setspecific((pthread_key_t)(exit_key - 1), arg);
    errno = saved;
    return r == 0;
}

static void destructor(void *arg) {
    exit_fn_t *fn = atomic_load(&exit_fn);
    fn(arg);
}

// Keys take the lowest free index: to come late, take all up to the one wanted for a moment and keep that. It is the
// last whose value glibc keeps in the thread's own record: for a later one each thread would allocate a table when it
// begins and free it after our end, and be searched through for 32 values more. The key is made on the first use, which
// a program without threads does not come to, by whoever comes first; a loser of the race returns its own.
//
// musl gives out the index behind the one that it gave out last, and has 128: to come last there takes all of them for
// a moment, in which a thread of the program would get none. So the first will do. It is made before there are threads:
// up to musl 1.2.3 the child of a fork
// that meets another thread in pthread_key_create waits for that when it makes a key, and when its threads end.
#define KEY_LATE 31u
static _Atomic bool late;

// A program may take all keys before it has a thread. So one is kept from the start on, until there is a better one.
static _Atomic uint64_t spare_key;  // the key + 1, or 0. Its place in a round is an early one

// Where the program has all indices up to that one, only later ones are left, and the table for their values is
// allocated within pthread_setspecific. If that is a thread's first call of the heap, it comes here, and what is set
// here is lost with the first of two tables. So the kept key says that the thread ends, and this one then comes late.
static _Atomic uint64_t last_key;  // the key + 1, or 0

static bool set_key(pthread_key_t key) {
    uint64_t none = 0;
    return atomic_compare_exchange_strong(&exit_key, &none, (uint64_t)key + 1);
}

// False: `last` is not needed.
static QY_COLD bool set_both(uint64_t spare, pthread_key_t last) {
    uint64_t none = 0;
    bool needed = atomic_compare_exchange_strong(&last_key, &none, (uint64_t)last + 1);
    set_key((pthread_key_t)(spare - 1));
    return needed;
}

static bool have_key(void) {
    if (exit_key) return true;
    pthread_key_t key[KEY_LATE + 1];
    unsigned n = 0;
    while (n <= KEY_LATE && pthread_key_create(&key[n], destructor) == 0)
        if (key[n++] >= KEY_LATE || !late) break;
    uint64_t spare = spare_key;
    if (n && spare && key[n - 1] > KEY_LATE) {
        n -= set_both(spare, key[n - 1]);
    } else if (n && set_key(key[n - 1])) {
        n--;
        if (spare) pthread_key_delete((pthread_key_t)(spare - 1));  // nobody else comes to use it
        spare_key = 0;
    } else if (!n && spare) {
        set_key((pthread_key_t)(spare - 1));
    }
    while (n) pthread_key_delete(key[--n]);
    return exit_key != 0;
}

#ifdef __GLIBC__
static QY_COLD void spare_destructor(void *arg) {
    uint64_t last = last_key;
    if (!last || pthread_setspecific((pthread_key_t)(last - 1), arg) != 0) destructor(arg);
}

void qy_os_thread_exit_late(void) {
    late = true;
    pthread_key_t key;
    if (!exit_key && !spare_key && pthread_key_create(&key, spare_destructor) == 0) spare_key = (uint64_t)key + 1;
}
#else
void qy_os_thread_exit_late(void) { have_key(); }
#endif

bool qy_os_at_thread_exit(void (*fn)(void *arg), void *arg) {
    if (qy_os_fake_fails(QY_OS_THREAD_EXIT) || !arg) return false;
    exit_fn_t *none = NULL;
    if (!atomic_compare_exchange_strong(&exit_fn, &none, fn) && none != fn) return false;
    return have_key() && arm(arg);
}
