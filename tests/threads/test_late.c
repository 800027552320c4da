// SPDX-License-Identifier: MIT
// libquarry.so opened by a program that knows nothing of it, after threads exist: their static
// thread-local storage is laid out, and the library must fit into what the C library keeps in reserve.
#include <dlfcn.h>
#include <pthread.h>

#include "harness.h"

static void *(*take)(size_t);
static void *(*take_zeros)(size_t, size_t);
static void *(*resize)(void *, size_t);
static void (*give)(void *);
static size_t (*usable)(const void *);

static void *use(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    unsigned char *p[50] = {0};
    for (int i = 0; i < 5000; i++) {
        size_t k = test_random(&random) % 50, n = (size_t)1 << test_random(&random) % 21;
        if (p[k]) CHECK_EQ(p[k][0], k);
        if (i % 3) {
            give(p[k]);
            p[k] = i % 2 ? take(n) : take_zeros(1, n);
        } else {
            p[k] = resize(p[k], n);
        }
        CHECK(p[k] && usable(p[k]) >= n);
        p[k][0] = (unsigned char)k;
    }
    for (int k = 0; k < 50; k++) give(p[k]);
    return NULL;
}

static pthread_barrier_t barrier;
static void *older(void *arg) {  // a thread that was there before the library
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return use(arg);
}

TEST(opened_late) {
    char path[4096];
    CHECK(getenv("QUARRY_LIB_DIR") != NULL);
    snprintf(path, sizeof path, "%s/libquarry.so", getenv("QUARRY_LIB_DIR"));
    pthread_t before[4], after[4];
    pthread_barrier_init(&barrier, NULL, 5);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&before[i], NULL, older, (void *)(uintptr_t)i), 0);
    pthread_barrier_wait(&barrier);
    void *own = malloc(100);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) TEST_FAIL("%s", dlerror());
    take = (void *(*)(size_t))(uintptr_t)dlsym(library, "quarry_malloc");
    take_zeros = (void *(*)(size_t, size_t))(uintptr_t)dlsym(library, "quarry_calloc");
    resize = (void *(*)(void *, size_t))(uintptr_t)dlsym(library, "quarry_realloc");
    give = (void (*)(void *))(uintptr_t)dlsym(library, "quarry_free");
    usable = (size_t(*)(const void *))(uintptr_t)dlsym(library, "quarry_usable_size");
    CHECK(take && take_zeros && resize && give && usable);
    Dl_info ours, theirs;  // it replaces nobody's malloc: what is found there is of another library
    void *other = dlsym(library, "malloc");
    CHECK(dladdr((void *)(uintptr_t)take, &ours));
    CHECK(!other || (dladdr(other, &theirs) && theirs.dli_fbase != ours.dli_fbase));
    pthread_barrier_wait(&barrier);
    use(NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&after[i], NULL, use, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < 4; i++) pthread_join(before[i], NULL), pthread_join(after[i], NULL);
    // Closed and opened again while blocks live.
    char *p = take(1000);
    memset(p, 1, 1000);
    dlclose(library);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    for (int i = 0; i < 1000; i++) CHECK_EQ(p[i], 1);
    give(p);
    use(NULL);
    free(own);
}

TEST_MAIN()
