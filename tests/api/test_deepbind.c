// SPDX-License-Identifier: MIT
// A host opens plug-ins with RTLD_DEEPBIND: their malloc is the program's, the flag means what it did, and dlopen still
// knows who called.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "harness.h"

const char *deepbind_who(void);
const char *deepbind_who(void) { return "program"; }

typedef struct plugin {
    void *handle;
    const char *(*who)(void);
    void *(*address)(int i);
    const char *(*name)(int i);
    void *(*make)(int way, size_t n);
    void (*end)(int way, void *p);
} plugin_t;

static plugin_t plugin_of(void *handle) {
    if (!handle) TEST_FAIL("%s", dlerror());
    plugin_t p = {.handle = handle};
    *(void **)&p.who = dlsym(handle, "plugin_who");
    *(void **)&p.address = dlsym(handle, "plugin_address");
    *(void **)&p.name = dlsym(handle, "plugin_name");
    *(void **)&p.make = dlsym(handle, "plugin_make");
    *(void **)&p.end = dlsym(handle, "plugin_end");
    CHECK(p.who && p.address && p.name && p.make && p.end);
    return p;
}

static void *hide(void *p) {
    __asm__ volatile(""
                     : "+r"(p)::"memory");
    return p;
}

#ifndef USES
#define USES 5000
#endif
static void use(const plugin_t *p) {
    for (int i = 0; p->address(i); i++) {
        if (p->address(i) != dlsym(RTLD_DEFAULT, p->name(i))) TEST_FAIL("its %s is another's", p->name(i));
    }
    for (int i = 0; i < USES; i++) {
        size_t n = (size_t)(i * 7919) % 100000 + 1;
        free(hide(p->make(i, n)));
        p->end(i, hide(malloc(n)));
        p->end(i, hide(strdup("what the C library allocates")));
    }
}

// Before anything else has opened a file so.
TEST(a_plug_in) {
    CHECK(dlsym(RTLD_DEFAULT, "quarry_version") || dlsym(RTLD_DEFAULT, "quarry_pow2_process_pool"));
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND));
    use(&p);
    if (!getenv("QY_REFUSED")) CHECK_STR_EQ(p.who(), "plug-in");  // the flag is kept
    else CHECK_STR_EQ(p.who(), "program");
    CHECK_EQ(dlclose(p.handle), 0);
}

TEST(bound_lazily) {
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND));
    use(&p);
    CHECK_EQ(dlclose(p.handle), 0);
}

TEST(without_the_flag) {
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_NOW));
    use(&p);
    CHECK_STR_EQ(p.who(), "program");
    CHECK_EQ(dlclose(p.handle), 0);
    CHECK(!dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND));
}

TEST(in_the_base_namespace) {
    plugin_t p = plugin_of(dlmopen(LM_ID_BASE, PLUGIN, RTLD_NOW | RTLD_DEEPBIND));
    use(&p);
    CHECK_EQ(dlclose(p.handle), 0);
}

static void *open_and_use(void *unused) {
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_NOW | RTLD_DEEPBIND));
    use(&p);
    dlclose(p.handle);
    return unused;
}
// The first of them all, in a fresh process, by several threads.
TEST(by_threads) {
    pid_t pid = fork();
    if (pid == 0) {
        char *args[] = {(char *)"test", (char *)"by_threads_at_first", NULL};
        execv("/proc/self/exe", args);
        _exit(1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
TEST(by_threads_at_first) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, open_and_use, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
}

// ---- who calls
// ---------------------------------------------------------------------------------------------------------

typedef void *(*host_open_t)(const char *name, int flags);
#define HOST_OPEN(handle) ((host_open_t)(uintptr_t)dlsym(handle, "host_open"))

TEST(runpath_of_the_caller) {
    void *host = dlopen(HOST, RTLD_NOW);
    CHECK(host != NULL);
    CHECK(!dlopen(HIDDEN_NAME, RTLD_NOW | RTLD_DEEPBIND));  // the program has no such path
    plugin_t p = plugin_of(HOST_OPEN(host)(HIDDEN_NAME, RTLD_NOW | RTLD_DEEPBIND));
    use(&p);
    CHECK_EQ(dlclose(p.handle), 0);
    p = plugin_of(HOST_OPEN(host)("$ORIGIN/hidden/" HIDDEN_NAME, RTLD_LAZY));
    use(&p);
    CHECK_EQ(dlclose(p.handle), 0);
}

TEST(namespace_of_the_caller) {
    void *host = dlmopen(LM_ID_NEWLM, HOST, RTLD_NOW);
    if (!host) TEST_SKIP("needs a C library that opens it: %s", dlerror());
    void *hidden = HOST_OPEN(host)(HIDDEN_NAME, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(hidden != NULL);
    Lmid_t of_host = 0, of_hidden = 0;
    CHECK(dlinfo(host, RTLD_DI_LMID, &of_host) == 0 && dlinfo(hidden, RTLD_DI_LMID, &of_hidden) == 0);
    CHECK_NE(of_host, LM_ID_BASE);
    CHECK_EQ(of_host, of_hidden);
}

TEST(errors_are_the_caller_s) {
    dlerror();
    CHECK(!dlopen("/nowhere/no_such_file.so", RTLD_NOW | RTLD_DEEPBIND));
    const char *message = dlerror();
    CHECK(message && strstr(message, "no_such_file"));
    CHECK(!dlerror());
}

// ---- the C library by its handle
// -----------------------------------------------------------------------------------------

TEST(malloc_by_the_handle_of_libc) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    CHECK(libc != NULL);
    static const char *const names[] = {
        "malloc", "free", "calloc", "realloc", "reallocarray", "posix_memalign", "malloc_usable_size"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_PTR_EQ(dlsym(libc, names[i]), dlsym(RTLD_DEFAULT, names[i]));
    ((void (*)(void *))(uintptr_t)dlsym(libc, "free"))(hide(malloc(100)));
    free(((char *(*)(const char *))(uintptr_t)dlsym(libc, "strdup"))("x"));
    // All else is still its own, and has its name.
    Dl_info info;
    CHECK(dladdr(dlsym(libc, "strdup"), &info) && strstr(info.dli_fname, "libc.so"));
    CHECK(dlvsym(libc, "malloc", "GLIBC_2.2.5") || dlvsym(libc, "malloc", "GLIBC_2.17"));
}

// A file opened without the flag is asked for what it was linked with, as Python's ctypes do: lib.free(p).
static void find_by(void *handle) {
    void *p = ((void *(*)(size_t))(uintptr_t)dlsym(handle, "malloc"))(100);
    CHECK_PTR_EQ(dlsym(handle, "free"), dlsym(RTLD_DEFAULT, "free"));
    free(hide(p));
    ((void (*)(void *))(uintptr_t)dlsym(handle, "free"))(hide(malloc(100)));
}
TEST(malloc_by_the_handle_of_a_plug_in) {
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_NOW));
    find_by(p.handle);
    dlclose(p.handle);
}
TEST(malloc_by_a_handle_at_first) {
    find_by(dlopen("libc.so.6", RTLD_LAZY));
    find_by(dlopen(NULL, RTLD_LAZY));
}
// dlsym knows who calls: what is next behind the plug-in, which is the last, is nothing; behind the program it is ours.
TEST(next_of_the_caller) {
    void *next = dlsym(RTLD_NEXT, "malloc");
    Dl_info info;
    CHECK(next && dladdr(next, &info) && strstr(info.dli_fname, "quarry"));
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_NOW));
    void *(*next_of)(const char *) = NULL;
    *(void **)&next_of = dlsym(p.handle, "plugin_next");
    CHECK(next_of && !next_of("deepbind_who") && !next_of("plugin_who"));
    dlclose(p.handle);
}

TEST(others_in_the_chain) {
    int *counted = dlsym(RTLD_DEFAULT, "dlopen_counted");
    if (!counted) TEST_SKIP("needs another library between the program and dlopen");
    int before = *counted;
    plugin_t p = plugin_of(dlopen(PLUGIN, RTLD_NOW | RTLD_DEEPBIND));
    use(&p);
    CHECK_EQ(*counted, before + 1);
    dlclose(p.handle);
}

#ifdef FAULTS
void quarry_os_fault(uint64_t first, int persist, uint32_t mask) __attribute__((weak));
__attribute__((constructor)) static void refuse(void) { quarry_os_fault(1, 1, FAULTS); }
#endif

TEST_MAIN()
