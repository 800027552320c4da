// SPDX-License-Identifier: MIT
// A program whose plug-ins are opened with RTLD_DEEPBIND (PHP, JNI, Apache modules): memory goes both ways between them
// and it.
#include <dlfcn.h>
#include <pthread.h>

#include "field.h"

int shared_name(void);
__attribute__((visibility("default"))) int shared_name(void) { return 1; }

static void *open_module(const char *name, int flags) {
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 20);
    CHECK_GT(n, 0);
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    void *handle = dlopen(path, flags);
    if (!handle) TEST_FAIL("%s", dlerror());
    return handle;
}
static void *plugin(const char *function) {
    static void *handle;
    if (!handle) handle = open_module("plugin.so", RTLD_NOW | RTLD_DEEPBIND);
    void *f = dlsym(handle, function);
    if (!f) TEST_FAIL("no %s", function);
    return f;
}
#define PLUGIN(type, name) type name = (type)plugin("plugin_" #name)

typedef void *maker(size_t);
typedef void *grower(void *, size_t);
typedef void taker(void *);
typedef char *text(void);
typedef size_t asker(void *);

static const size_t sizes[] = {1, 24, 100, 5000, 70000, 300000, 5 << 20, 40 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(plugin_frees_ours) {
    taker *f = (taker *)plugin("plugin_free");
    for (int i = 0; i < SIZES; i++) f(memset(malloc(sizes[i]), 1, sizes[i]));
}
TEST(we_free_the_plugins) {
    maker *f = (maker *)plugin("plugin_malloc");
    for (int i = 0; i < SIZES; i++) {
        char *p = f(sizes[i]);
        CHECK_EQ(p[sizes[i] - 1], 5);
        free(p);
    }
}
TEST(plugin_grows_ours) {
    grower *grow = (grower *)plugin("plugin_realloc");
    for (int i = 0; i < SIZES; i++) {
        char *p = memset(malloc(sizes[i]), 9, sizes[i]);
        p = grow(p, sizes[i] * 2);
        CHECK_EQ(p[sizes[i] - 1], 9);
        free(p);
    }
}
TEST(we_grow_the_plugins) {
    maker *f = (maker *)plugin("plugin_malloc");
    for (int i = 0; i < SIZES; i++) {
        char *p = realloc(f(sizes[i]), sizes[i] * 2);
        CHECK_EQ(p[sizes[i] - 1], 5);
        free(p);
    }
}
TEST(zeroed_and_aligned) {
    maker *zero = (maker *)plugin("plugin_calloc"), *aligned = (maker *)plugin("plugin_aligned");
    for (int i = 0; i < SIZES; i++) {
        char *p = zero(sizes[i]);
        CHECK_EQ(p[sizes[i] / 2], 0);
        free(p);
        p = aligned((sizes[i] + 255) & ~(size_t)255);
        CHECK_EQ((uintptr_t)p % 256, 0);
        free(p);
    }
}
TEST(usable_size) {
    asker *usable = (asker *)plugin("plugin_usable");
    maker *f = (maker *)plugin("plugin_malloc");
    void *p = malloc(1000), *q = f(1000);
    CHECK_GE(usable(p), 1000);
    CHECK_GE(malloc_usable_size(q), 1000);
    free(p);
    free(q);
}
TEST(made_by_libc_for_the_plugin) {
    char *(*dup)(const char *) = (char *(*)(const char *))plugin("plugin_strdup");
    char *(*print)(int) = (char *(*)(int))plugin("plugin_print");
    free(dup("hello"));
    free(print(3000));
}
TEST(getline_grows_ours) {
    long (*get)(char **, size_t *) = (long (*)(char **, size_t *))plugin("plugin_getline");
    char *line = malloc(1);
    size_t n = 1;
    CHECK_GT(get(&line, &n), 1);
    free(line);
}
TEST(made_by_a_constructor) { free(((text *)plugin("plugin_at_load"))()); }
TEST(made_in_a_thread) {
    char *(*run)(void *) = (char *(*)(void *))plugin("plugin_thread");
    for (int i = 0; i < 20; i++) free(run(malloc(100)));
}
// What the flag is for stays.
TEST(finds_its_own_function) {
    CHECK_EQ(shared_name(), 1);
    CHECK_EQ(((int (*)(void))plugin("plugin_shared_name"))(), 2);
}
// dlopen looks along the rpath of its caller: who puts a function before it must not be the caller.
TEST(opens_by_its_own_rpath) {
    void *(*open)(const char *, int) = (void *(*)(const char *, int))plugin("plugin_open");
    CHECK(dlopen("cxx.so", RTLD_NOW) == NULL);
    void *handle = open("cxx.so", RTLD_NOW | RTLD_DEEPBIND);
    if (!handle) TEST_FAIL("%s", dlerror());
    free(malloc(10));
}
TEST(a_plugin_in_cxx) {
    void *handle = open_module("cxx.so", RTLD_NOW | RTLD_DEEPBIND);
    void *(*make)(void) = (void *(*)(void))dlsym(handle, "cxx_new");
    taker *drop = (taker *)dlsym(handle, "cxx_delete"), *drop_bytes = (taker *)dlsym(handle, "cxx_delete_bytes");
    for (int i = 0; i < 20; i++) drop(make());
    drop_bytes(malloc(100));
    CHECK_EQ(((int (*)(void))dlsym(handle, "cxx_throw"))(), 500);
}
TEST(closed_and_opened_again) {
    for (int i = 0; i < 5; i++) {
        void *handle = open_module("plugin.so", RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
        maker *f = (maker *)dlsym(handle, "plugin_malloc");
        taker *g = (taker *)dlsym(handle, "plugin_free");
        void *p = f(5000);
        g(malloc(100));
        free(p);
        CHECK_EQ(dlclose(handle), 0);
    }
}
// The flag with RTLD_NOLOAD on what is loaded, and on libc itself.
TEST(of_what_is_loaded) {
    plugin("plugin_free");
    void *handle = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND);
    CHECK(handle != NULL);
    CHECK_EQ(dlclose(handle), 0);
    CHECK(dlopen("libno-such-file.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    CHECK(dlerror() != NULL);
    CHECK(dlopen(NULL, RTLD_NOW) != NULL);
}

TEST_MAIN()
