// SPDX-License-Identifier: MIT
// module.c: a library that allocates while it is loaded, used and unloaded.
#include <stdlib.h>
#include <string.h>

static char *text;
static __thread char *of_thread;
int module_use(int n);

__attribute__((constructor)) static void load(void) {
    text = calloc(1, 5000);
    strcpy(text, "loaded");
    free(malloc(100000));
}
__attribute__((destructor)) static void unload(void) {
    char *p = realloc(text, 50000);
    free(p);
    free(malloc(20));
}

int module_use(int n) {
    free(of_thread);
    of_thread = malloc((size_t)n);
    memset(of_thread, 1, (size_t)n);
    char *p = of_thread;
    of_thread = NULL;
    int ok = p[n - 1] == 1 && !strcmp(text, "loaded");
    free(p);
    return ok;
}
