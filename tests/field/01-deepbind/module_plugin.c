// SPDX-License-Identifier: MIT
// A plug-in that is opened with RTLD_DEEPBIND: its calls of malloc and free are bound to what it is linked with, libc,
// first.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *at_load;
__attribute__((constructor)) static void load(void) { at_load = strdup("made by a constructor"); }

char *plugin_at_load(void) { return at_load; }
void *plugin_malloc(size_t n) { return memset(malloc(n), 5, n); }
void *plugin_calloc(size_t n) { return calloc(1, n); }
void *plugin_realloc(void *p, size_t n) { return realloc(p, n); }
void plugin_free(void *p) { free(p); }
void *plugin_aligned(size_t n) { return aligned_alloc(256, n); }
size_t plugin_usable(void *p) { return malloc_usable_size(p); }
char *plugin_strdup(const char *s) { return strdup(s); }
char *plugin_print(int n) {
    char *s = NULL;
    return asprintf(&s, "%0*d", n, 7) < 0 ? NULL : s;
}
// Grows a line that the program made.
long plugin_getline(char **line, size_t *n) {
    FILE *f = fopen("/proc/self/maps", "r");
    long got = f ? (long)getline(line, n, f) : -1;
    if (f) fclose(f);
    return got;
}
// The flag is there so that a library finds its own function where the program has one of the same name.
int shared_name(void) { return 2; }
int plugin_shared_name(void) { return shared_name(); }

static void *thread(void *p) {
    free(p);
    return strdup("made in a thread of the plug-in");
}
char *plugin_thread(void *p) {
    pthread_t t;
    void *made = NULL;
    if (pthread_create(&t, NULL, thread, p) == 0) pthread_join(t, &made);
    return made;
}
// A plug-in of the plug-in, by a name that only this file's rpath ($ORIGIN) finds. This must be a call, not a jump:
// dlopen looks who called.
void *plugin_open(const char *name, int flags) {
    void *volatile handle = dlopen(name, flags);
    return handle;
}
