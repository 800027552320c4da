// SPDX-License-Identifier: MIT
// A program with threads, forks, namespaces and large objects, which cases.py runs under auditors.
#include <dlfcn.h>
#include <pthread.h>

#include "field.h"

static void *thread(void *unused) {
    for (int i = 0; i < 20000; i++) {
        char *p = malloc((size_t)(i % 5000 + 1));
        p[0] = 1;
        free(realloc(p, (size_t)(i % 9000 + 1)));
    }
    void *handle = dlopen("libm.so.6", RTLD_NOW);
    if (handle) dlclose(handle);
    return unused;
}
TEST(works) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, thread, NULL), 0);
    thread(NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    pid_t pid = fork();
    if (!pid) {
        thread(NULL);
        exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    work();
}
// A library in a namespace of its own has a libc of its own, too.
TEST(other_namespace) {
    void *handle = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
    if (!handle) TEST_FAIL("%s", dlerror());
    double (*root)(double) = (double (*)(double))dlsym(handle, "sqrt");
    CHECK_EQ((int)root(81.0), 9);
    dlclose(handle);
    work();
}

TEST_MAIN()
