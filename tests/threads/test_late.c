// SPDX-License-Identifier: MIT
// Our libraries opened by a program that knows nothing of them, after threads exist: their static thread-local storage
// is laid out, and the library must fit into what the C library keeps in reserve. libquarry.so has names of its own.
// The drop-in has those of malloc, but a library that comes late replaces nobody's.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "harness.h"

typedef struct heap {
    void *library;
    void *(*take)(size_t);
    void *(*take_zeros)(size_t, size_t);
    void *(*resize)(void *, size_t);
    void (*give)(void *);
    size_t (*usable)(const void *);
} heap_t;

static const char *const own_names[] = {
    "libquarry.so", "quarry_malloc", "quarry_calloc", "quarry_realloc", "quarry_free", "quarry_usable_size"};
static const char *const dropin_names[] = {
    "libquarry-malloc.so", "malloc", "calloc", "realloc", "free", "malloc_usable_size"};

static const char *path_of(const char *file) {
    static _Thread_local char path[4096];
    CHECK(getenv("QUARRY_LIB_DIR") != NULL);
    snprintf(path, sizeof path, "%s/%s", getenv("QUARRY_LIB_DIR"), file);
    return path;
}

static void *find(void *library, const char *name) {
    void *f = dlsym(library, name);
    if (!f) TEST_FAIL("%s", dlerror());
    return f;
}

static heap_t heap_in(void *library, const char *const names[]) {
    if (!library) TEST_FAIL("%s", dlerror());
    heap_t h = {.library = library};
    h.take = (void *(*)(size_t))(uintptr_t)find(library, names[1]);
    h.take_zeros = (void *(*)(size_t, size_t))(uintptr_t)find(library, names[2]);
    h.resize = (void *(*)(void *, size_t))(uintptr_t)find(library, names[3]);
    h.give = (void (*)(void *))(uintptr_t)find(library, names[4]);
    h.usable = (size_t(*)(const void *))(uintptr_t)find(library, names[5]);
    return h;
}
static heap_t heap_open(const char *const names[], int flags) {
    return heap_in(dlopen(path_of(names[0]), RTLD_NOW | flags), names);
}

static void use_heap(const heap_t *h, uint64_t random) {
    unsigned char *p[50] = {0};
    for (int i = 0; i < 5000; i++) {
        size_t k = test_random(&random) % 50, n = (size_t)1 << test_random(&random) % 21;
        if (p[k]) CHECK_EQ(p[k][0], k);
        if (i % 3) {
            h->give(p[k]);
            p[k] = i % 2 ? h->take(n) : h->take_zeros(1, n);
        } else {
            p[k] = h->resize(p[k], n);
        }
        CHECK(p[k] && h->usable(p[k]) >= n);
        p[k][0] = (unsigned char)k;
    }
    for (int k = 0; k < 50; k++) h->give(p[k]);
}

static heap_t late[2];
static void *use_first(void *arg) {
    use_heap(&late[0], (uintptr_t)arg + 1);
    return NULL;
}
static void *use_both(void *arg) {
    use_heap(&late[(uintptr_t)arg % 2], (uintptr_t)arg + 1);
    use_heap(&late[((uintptr_t)arg + 1) % 2], (uintptr_t)arg + 1);
    return NULL;
}

// Threads that were there before the library, and threads that come after it.
#define BEFORE 10
static pthread_barrier_t barrier;
static void *(*task)(void *arg);
static void *older(void *arg) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return task(arg);
}
static pthread_t before[BEFORE];
static void threads_before(void *(*fn)(void *arg)) {
    task = fn;
    pthread_barrier_init(&barrier, NULL, BEFORE + 1);
    for (int i = 0; i < BEFORE; i++) CHECK_EQ(pthread_create(&before[i], NULL, older, (void *)(uintptr_t)i), 0);
    pthread_barrier_wait(&barrier);
}
static void threads_after(void) {
    pthread_t after[4];
    pthread_barrier_wait(&barrier);
    task(NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&after[i], NULL, task, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < 4; i++) pthread_join(after[i], NULL);
    for (int i = 0; i < BEFORE; i++) pthread_join(before[i], NULL);
}

static void opened_late(const char *const names[], int flags) {
    threads_before(use_first);
    void *own = malloc(100);
    late[0] = heap_open(names, flags);
    Dl_info ours, theirs;  // what this program calls malloc is what it was
    CHECK(dladdr((void *)(uintptr_t)late[0].take, &ours));
    CHECK(
        dladdr(dlsym(RTLD_DEFAULT, "malloc"), &theirs) && (theirs.dli_fbase != ours.dli_fbase || getenv("LD_PRELOAD")));
    threads_after();
    // Closed and opened again while blocks live.
    char *p = late[0].take(1000);
    memset(p, 1, 1000);
    dlclose(late[0].library);
    late[0] = heap_open(names, flags);
    for (int i = 0; i < 1000; i++) CHECK_EQ(p[i], 1);
    late[0].give(p);
    use_first(NULL);
    free(own);
}

TEST(opened_late) { opened_late(own_names, RTLD_LOCAL); }
TEST(dropin_opened_late) { opened_late(dropin_names, RTLD_LOCAL); }
TEST(dropin_opened_late_for_all) { opened_late(dropin_names, RTLD_GLOBAL); }

TEST(both_opened_late) {
    threads_before(use_both);
    late[0] = heap_open(own_names, RTLD_LOCAL);
    late[1] = heap_open(dropin_names, RTLD_LOCAL);
    threads_after();
}

static void *open_and_end(void *arg) {
    late[0] = heap_open(dropin_names, RTLD_LOCAL);
    use_first(arg);
    return late[0].take(5000);
}
TEST(dropin_opened_by_a_thread_that_ends) {
    threads_before(use_first);
    pthread_t thread;
    void *p;
    CHECK_EQ(pthread_create(&thread, NULL, open_and_end, NULL), 0);
    pthread_join(thread, &p);
    late[0].give(p);
    threads_after();
}

#ifdef LM_ID_NEWLM  // musl has one namespace
// Each with a C library of its own. A thread that ends tells its own C library only, and has places for keys that all
// of them share.
TEST(dropin_in_two_namespaces) {
    threads_before(use_both);
    for (int i = 0; i < 2; i++) {
        void *library = dlmopen(LM_ID_NEWLM, path_of(dropin_names[0]), RTLD_NOW);
        if (!library) TEST_FAIL("%s", dlerror());
        late[i] = heap_in(library, dropin_names);
    }
    CHECK(late[0].take != late[1].take);
    threads_after();
}

// One in the program's own namespace, one in another: their keys are the same.
TEST(dropin_here_and_in_a_namespace) {
    threads_before(use_both);
    late[0] = heap_open(dropin_names, RTLD_LOCAL);
    late[1] = heap_in(dlmopen(LM_ID_NEWLM, path_of(dropin_names[0]), RTLD_NOW), dropin_names);
    for (int round = 0; round < 50; round++) {
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, use_both, (void *)(uintptr_t)i), 0);
        for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    }
    threads_after();
}

#endif

// The first call of a thread comes from a signal's handler, which interrupted nothing of ours.
static sem_t handled;
static void handler(int signal) {
    (void)signal;
    use_heap(&late[0], 7);
    sem_post(&handled);
}
static void *wait_for_signal(void *arg) {
    while (sem_wait(&handled)) {}
    return use_first(arg);
}
// It takes what its handler posted: the next thread would begin before its signal comes, which then interrupts a call.
static void *be_interrupted(void *arg) {
    raise(SIGUSR1);
    return wait_for_signal(arg);
}
TEST(first_call_in_a_handler) {
    sem_init(&handled, 0, 0);
    late[0] = heap_open(dropin_names, RTLD_LOCAL);
    signal(SIGUSR1, handler);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, i % 2 ? be_interrupted : wait_for_signal, NULL), 0);
        if (i % 2 == 0) pthread_kill(thread, SIGUSR1);
        pthread_join(thread, NULL);
    }
}

TEST_MAIN()
