// SPDX-License-Identifier: MIT
// A program of C without the C++ runtime loads a library of C++, as interpreters do: with RTLD_LOCAL,
// so that the runtime is not among the program's global names. operator new must find it all the same.
#include <dlfcn.h>

#include "harness.h"

static void calls(const char *function) {
    // The heap is Quarry's: by the link or by the preload.
    Dl_info heap, libc;
    CHECK(dladdr((void *)(uintptr_t)malloc, &heap) && dladdr((void *)(uintptr_t)getpid, &libc));
    CHECK(heap.dli_fbase != libc.dli_fbase);
    CHECK(dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") == NULL);  // else this tests nothing
    void *module = dlopen(CXX_MODULE, RTLD_NOW | RTLD_LOCAL);
    if (!module) TEST_FAIL("%s", dlerror());
    int (*f)(void) = (int (*)(void))(uintptr_t)dlsym(module, function);
    CHECK(f != NULL);
    CHECK_EQ(f(), 0);
    dlclose(module);
}

TEST(works) { calls("module_works"); }
TEST(catches_bad_alloc) { calls("module_catches"); }
TEST(calls_the_handler) { calls("module_handles"); }

TEST_MAIN()
