// SPDX-License-Identifier: MIT
// A program that opens what others name: cases.py calls it with a malloc, or with a plug-in that is linked with one.
// host OPEN FILE [global|namespace|thread|again] [LIBRARY...]
#include <dlfcn.h>
#include <pthread.h>

#include "field.h"

static void *call(void *f) { return (void *)(long)((int (*)(void))f)(); }
static void *open_there(void *path) { return dlopen(path, RTLD_NOW); }

static int open_file(const char *path, const char *how) {
    void *handle = NULL;
    pthread_t t;
    if (!strcmp(how, "namespace")) handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    else if (!strcmp(how, "thread")) {
        pthread_create(&t, NULL, open_there, (void *)path);
        pthread_join(t, &handle);
    } else if (!strcmp(how, "again")) {
        for (int i = 0; i < 20; i++) {
            handle = dlopen(path, RTLD_NOW);
            if (handle && i < 19) dlclose(handle);
        }
    } else handle = dlopen(path, RTLD_NOW | (!strcmp(how, "global") ? RTLD_GLOBAL : 0));
    if (!handle) {
        const char *why = dlerror();  // it belongs to the thread that asked
        puts(why ? why : "not opened");
        return 2;
    }
    void *f = dlsym(handle, "plug"), *result = NULL;
    if (!f) return 0;  // the malloc itself was opened
    if (call(f) != (void *)7) return 3;
    pthread_create(&t, NULL, call, f);
    pthread_join(t, &result);
    return result == (void *)7 ? 0 : 5;
}
TEST(opens_nothing) { CHECK(dlopen(NULL, RTLD_NOW) != NULL); }

int main(int argc, char **argv) {
    if (argc < 3 || strcmp(argv[1], "open")) return test_main(argc, argv);
    for (int i = 4; i < argc; i++) {
        if (!dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL)) {
            puts(dlerror());
            return 77;
        }
    }
    return open_file(argv[2], argc > 3 ? argv[3] : "local");
}
