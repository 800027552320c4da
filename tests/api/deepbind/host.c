// SPDX-License-Identifier: MIT
// A library that opens another one by its bare name, which is found by the RUNPATH of this one alone.
#include <dlfcn.h>
#include <stddef.h>

void *host_open(const char *name, int flags);
void *host_open(const char *name, int flags) {
    void *volatile opened = dlopen(name, flags);  // not a tail call: it is this library that calls
    return opened;
}

// Into which namespace does it go?
long host_namespace_of(void *opened);
long host_namespace_of(void *opened) {
    Lmid_t id = -1;
    return dlinfo(opened, RTLD_DI_LMID, &id) ? -1 : (long)id;
}
