// SPDX-License-Identifier: MIT
// dropin_runtime.h: what operators new need of a C++ runtime, which the process may have or not; in libraries that are
// malloc.
#ifndef QY_API_DROPIN_RUNTIME_H
#define QY_API_DROPIN_RUNTIME_H

#include <stddef.h>

#include "base/compiler.h"

typedef void (*qy_new_handler_t)(void);
// The program's handler for a lack of memory; NULL: none.
QY_COLD qy_new_handler_t qy_new_handler(void);
// Throws std::bad_alloc; without a runtime the process ends in one line.
QY_COLD _Noreturn void qy_new_throw(size_t n);
// A name as the runtime defines it, from this scope on (RTLD_NEXT, RTLD_DEFAULT); NULL: there is none.
QY_COLD void *qy_runtime_symbol(void *scope, const char *name);

// The file of this name if the process has it; one more dlclose is due then. Not by the name dlopen where this library
// has one itself.
QY_COLD void *qy_runtime_file(const char *name);

// What the linker found of the runtime; null where the loader must be asked.
typedef struct qy_runtime_linked {
    qy_new_handler_t (*get_handler)(void);
    void (*throw_bad_alloc)(void);
} qy_runtime_linked_t;
qy_runtime_linked_t qy_runtime_linked(void);

#endif
