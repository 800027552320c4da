// SPDX-License-Identifier: MIT
// knobs.c: the knobs are read when a malloc starts, so the program sets the environment and executes itself once.
#include "knobs.h"

#include <dlfcn.h>
#include <unistd.h>

#include "scenario.h"

#define SET "QUARRY_BENCH_KNOBS_SET"

typedef struct knobs {
    const char *file;      // in the name of the file that has malloc
    const char *variable;  // of the environment
    const char *arenas;    // the number follows
    const char *caches[3];
    const char *between;  // parts
} knobs_t;

static const knobs_t known[] = {
    {"quarry-malloc", "QUARRY_CONF", "arenas:", {"", "tcache:on", "tcache:off"}, ","},
    {"jemalloc", "MALLOC_CONF", "narenas:", {"", "tcache:true", "tcache:false"}, ","},
    {"libc.so", "GLIBC_TUNABLES",
        "glibc.malloc.arena_max=", {"", "glibc.malloc.tcache_count=7", "glibc.malloc.tcache_count=0"}, ":"},
};

// Without its folder.
static const char *serving_file(void) {
    Dl_info info;
    void *(*volatile serving)(size_t) = malloc;  // volatile: the address that calls are bound to
    void *(*function)(size_t) = serving;
    void *address;
    memcpy(&address, &function, sizeof address);
    if (!dladdr(address, &info) || !info.dli_fname) return "this malloc";
    const char *const slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

void knobs_set(char **argv, uint64_t arenas, uint64_t caches) {
    if ((!arenas && caches == CACHES_DEFAULT) || getenv(SET)) return;
    const char *const file = serving_file();
    const knobs_t *k = NULL;
    char text[300];
    for (size_t i = 0; i < sizeof known / sizeof *known && !k; i++)
        if (strstr(file, known[i].file)) k = &known[i];
    if (!k) {
        snprintf(text, sizeof text, "%.100s has no such knob, or it is not known here", file);
        scenario_not_applicable(text);
    }
    const char *const before = getenv(k->variable);
    char number[40] = "";
    if (arenas) snprintf(number, sizeof number, "%s%" PRIu64, k->arenas, arenas);
    const char *const parts[3] = {before ? before : "", number, k->caches[caches]};
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        if (!*parts[i]) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? k->between : "", parts[i]);
        if (used >= sizeof text) bench_fail("the environment's settings are too long");
    }
    setenv(k->variable, text, 1);
    setenv(SET, "1", 1);
    execv("/proc/self/exe", argv);
    bench_fail("the program cannot be started again");
}
