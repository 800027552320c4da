// SPDX-License-Identifier: MIT
// dropin_runtime.c: see dropin_runtime.h. Exceptions pass through it: compiled with -fexceptions.
#include "api/dropin_runtime.h"

#include <dlfcn.h>
#include <stdint.h>

#include "os/loaded.h"
#include "os/os.h"
#include "rt/diag.h"

// What a program without a dynamic linker has of the C++ runtime, which dlsym does not find there.
// Null where the program has none or not yet; with a dynamic linker, that is looked into again.
__attribute__((weak)) qy_new_handler_t linked_get_handler(void) __asm__("_ZSt15get_new_handlerv");
__attribute__((weak)) void linked_throw(void) __asm__("_ZSt17__throw_bad_allocv");
__attribute__((weak)) qy_runtime_linked_t qy_runtime_linked(void) {
    return (qy_runtime_linked_t){linked_get_handler, linked_throw};
}

__attribute__((weak)) void *qy_runtime_file(const char *name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

// Something of the C++ runtime, if the process has one. Looked for when it is needed, since a program
// may load its C++ runtime later than us, and by the runtimes' names too, since a module that a C
// program loads brings one that the global scope does not show. Nothing is loaded by this.
void *qy_runtime_symbol(void *scope, const char *name) {
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"};
    void *symbol = qy_os_dlsym(scope, name);
    for (unsigned i = 0; !symbol && i < sizeof runtimes / sizeof runtimes[0]; i++) {
        void *runtime = qy_runtime_file(runtimes[i]);
        if (!runtime) continue;
        symbol = qy_os_dlsym(runtime, name);
        dlclose(runtime);  // the module that brought it keeps it
    }
    return symbol;
}

qy_new_handler_t qy_new_handler(void) {
    qy_new_handler_t (*get)(void) = qy_runtime_linked().get_handler;
    if (!get) get = (qy_new_handler_t(*)(void))(uintptr_t)qy_runtime_symbol(RTLD_DEFAULT, "_ZSt15get_new_handlerv");
    return get ? get() : NULL;
}

void qy_new_throw(size_t n) {
    void (*throw_bad_alloc)(void) = qy_runtime_linked().throw_bad_alloc;
    if (!throw_bad_alloc)
        throw_bad_alloc = (void (*)(void))(uintptr_t)qy_runtime_symbol(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    if (throw_bad_alloc) throw_bad_alloc();
    qy_warn("operator new: no memory for %z byte%S, and no C++ runtime to throw std::bad_alloc with", n);
    qy_os_abort();
}
