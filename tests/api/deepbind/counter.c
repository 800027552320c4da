// SPDX-License-Identifier: MIT
// Another library that is between the program and dlopen: it counts.
#include <dlfcn.h>
#include <stdint.h>

extern int dlopen_counted;
int dlopen_counted;
void *dlopen(const char *name, int flags) {
    dlopen_counted++;
    return ((void *(*)(const char *, int))(uintptr_t)dlsym(RTLD_NEXT, "dlopen"))(name, flags);
}
