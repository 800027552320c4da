// SPDX-License-Identifier: MIT
// record_thread.c: the calls that create threads, so that the trace says by whom; in libquarry-record only. Threads
// that the C library creates for itself don't come here, and have no creator.
#include <errno.h>
#include <pthread.h>
#include <threads.h>

#include "api/record.h"
#include "trace/births.h"

typedef int pthread_create_t(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
typedef int thrd_create_t(thrd_t *ret, thrd_start_t start, void *arg);

// The program's function is the last thing they call, so that no frame of ours is left in its stacks.
static void *begin_posix(void *birth) {
    void *(*start)(void *) = ((qy_birth_t *)birth)->start.posix;
    void *arg = ((qy_birth_t *)birth)->arg;
    qy_birth_begin(birth);
    return start(arg);
}

static int begin_c11(void *birth) {
    int (*start)(void *) = ((qy_birth_t *)birth)->start.c11;
    void *arg = ((qy_birth_t *)birth)->arg;
    qy_birth_begin(birth);
    return start(arg);
}

typedef int pthread_setname_np_t(pthread_t thread, const char *name);

static pthread_create_t *real_pthread_create;
static thrd_create_t *real_thrd_create;
static pthread_setname_np_t *real_pthread_setname_np;

// Found before there is a second thread.
__attribute__((constructor)) static void thread_find_real(void) {
    *(void **)&real_pthread_create = qy_real_symbol("pthread_create");
    *(void **)&real_thrd_create = qy_real_symbol("thrd_create");
    *(void **)&real_pthread_setname_np = qy_real_symbol("pthread_setname_np");
}

QY_EXPORT int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    if (QY_UNLIKELY(!real_pthread_create)) thread_find_real();
    if (QY_UNLIKELY(!real_pthread_create)) return EAGAIN;
    qy_birth_t *birth = qy_birth_take(qy_record_number());
    if (!birth) return real_pthread_create(ret, attr, start, arg);
    birth->start.posix = start;
    birth->arg = arg;
    int error = real_pthread_create(ret, attr, begin_posix, birth);
    if (error) qy_birth_give(birth);
    return error;
}

QY_EXPORT int thrd_create(thrd_t *ret, thrd_start_t start, void *arg) {
    if (QY_UNLIKELY(!real_thrd_create)) thread_find_real();
    if (QY_UNLIKELY(!real_thrd_create)) return thrd_error;
    qy_birth_t *birth = qy_birth_take(qy_record_number());
    if (!birth) return real_thrd_create(ret, start, arg);
    birth->start.c11 = start;
    birth->arg = arg;
    int error = real_thrd_create(ret, begin_c11, birth);
    if (error != thrd_success) qy_birth_give(birth);
    return error;
}

// A name is told with the thread's next block, and at the end of the process. A thread that names itself need not wait
// for that: it may be killed before.
QY_EXPORT int pthread_setname_np(pthread_t thread, const char *name) {
    if (QY_UNLIKELY(!real_pthread_setname_np)) thread_find_real();
    if (QY_UNLIKELY(!real_pthread_setname_np)) return ENOSYS;
    int error = real_pthread_setname_np(thread, name);
    if (!error && pthread_equal(thread, pthread_self())) qy_record_thread_name();
    return error;
}
