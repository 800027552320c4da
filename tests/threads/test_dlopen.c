// SPDX-License-Identifier: MIT
// Libraries that allocate while they come and go; and libquarry.so itself, opened late.
#include <pthread.h>

#include "api/family.h"

static void *use(void *f) {
    for (int n = 1; n < 300000; n = n * 3 + 1) CHECK(((int (*)(int))(uintptr_t)f)(n));
    return NULL;
}

TEST(module_comes_and_goes) {
    for (int round = 0; round < 200; round++) {
        void *module = dlopen(TEST_MODULE, RTLD_NOW | (round % 2 ? RTLD_LOCAL : RTLD_GLOBAL));
        if (!module) TEST_FAIL("%s", dlerror());
        void *f = dlsym(module, "module_use");
        CHECK(f != NULL);
        use(f);
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, use, f), 0);
        pthread_join(thread, NULL);
        CHECK_EQ(dlclose(module), 0);
    }
}

TEST(failed_dlopen) {
    for (int i = 0; i < 100; i++) {
        CHECK(!dlopen("/nonexistent/library.so", RTLD_NOW));
        CHECK(dlerror() != NULL);  // allocates, and is freed by the next
    }
}

#ifdef LM_ID_NEWLM  // musl has one namespace
TEST(own_namespace) {
    void *module = dlmopen(LM_ID_NEWLM, TEST_MODULE, RTLD_NOW);  // has a C library, and a malloc, of its own
    if (!module) TEST_SKIP("needs a C library that opens it: %s", dlerror());
    use(dlsym(module, "module_use"));
    CHECK_EQ(dlclose(module), 0);
}
#endif

TEST_MAIN()
