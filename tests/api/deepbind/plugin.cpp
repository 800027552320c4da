// SPDX-License-Identifier: MIT
// A plug-in that a host opens with RTLD_DEEPBIND: what it allocates, others free, and the other way round.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <new>

#define PLUGIN extern "C" __attribute__((visibility("default")))

// The program has a function of this name, too. With the flag, the plug-in's calls find its own.
PLUGIN const char *deepbind_who() { return "plug-in"; }
PLUGIN const char *plugin_who() { return deepbind_who(); }

PLUGIN void *plugin_address(int i) {
    switch (i) {
    case 0: return (void *)malloc;
    case 1: return (void *)free;
    case 2: return (void *)calloc;
    case 3: return (void *)realloc;
    case 4: return (void *)reallocarray;
    case 5: return (void *)memalign;
    case 6: return (void *)aligned_alloc;
    case 7: return (void *)posix_memalign;
    case 8: return (void *)valloc;
    case 9: return (void *)malloc_usable_size;
    case 10: return (void *)malloc_trim;
    case 11: return (void *)mallinfo2;
    case 12: return (void *)mallopt;
    default: return NULL;
    }
}
PLUGIN const char *plugin_name(int i) {
    static const char *const names[] = {"malloc", "free", "calloc", "realloc", "reallocarray", "memalign",
        "aligned_alloc", "posix_memalign", "valloc", "malloc_usable_size", "malloc_trim", "mallinfo2", "mallopt", NULL};
    return names[i];
}

PLUGIN void *plugin_make(int way, size_t n) {
    void *p = NULL;
    switch (way % 8) {
    case 0: return malloc(n);
    case 1: return calloc(1, n);
    case 2: return realloc(malloc(1), n);
    case 3: return posix_memalign(&p, 64, n) ? NULL : p;
    case 4: return operator new(n);
    case 5: return new char[n];
    case 6: return strdup("what the C library allocates");
    default: return operator new(n, std::align_val_t(64));
    }
}
PLUGIN void plugin_end(int way, void *p) {
    switch (way % 3) {
    case 0: return free(p);
    case 1: return operator delete(p);
    default: return free(realloc(p, 5000));
    }
}
PLUGIN void *plugin_next(const char *name) {
    void *volatile found = dlsym(RTLD_NEXT, name);  // not a tail call: it is this file that asks
    return found;
}
