// SPDX-License-Identifier: MIT
// dropin_late.c: functions of others that few processes need, in libquarry-malloc only, shared, for glibc.
//
// A function that a library refers to by its name is looked for in each process that starts, through all its files: 500
// to 900 instructions. These are looked for when they are needed. Elsewhere the linker finds them.
#include <stdint.h>

#include "api/dropin_runtime.h"
#include "os/libc.h"
#include "os/loaded.h"
#include "os/streams.h"

#ifdef __GLIBC__

typedef void call_t(void);

static call_t *find_late(const char *name) {
    void *found = qy_os_libc_function(name);
    if (!found && !qy_os_libc_is_known()) found = qy_os_symbol_next(name);
    return (call_t *)(uintptr_t)found;
}

qy_os_streams_calls_t qy_os_streams_calls(void) {
    return (qy_os_streams_calls_t){
        find_late("_IO_list_lock"), find_late("_IO_list_unlock"), find_late("_IO_list_resetlock")};
}

// Nothing of a C++ runtime is linked into this library: dlsym says what the process has.
qy_runtime_linked_t qy_runtime_linked(void) { return (qy_runtime_linked_t){NULL, NULL}; }

#else
typedef int qy_dropin_late_is_empty;
#endif
