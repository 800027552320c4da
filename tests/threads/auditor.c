// SPDX-License-Identifier: MIT
// auditor.c: an auditor of the dynamic linker (LD_AUDIT) that allocates. With one, ld.so lays out static thread-local
// storage before it knows what is preloaded, so that a preloaded library comes late, too.
#include <link.h>
#include <stdlib.h>
#include <string.h>

static void *kept[64];
static unsigned n;

unsigned la_version(unsigned version) {
    kept[n++] = malloc(1000);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}
unsigned la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie) {
    (void)id, (void)cookie;
    char *name = strdup(map->l_name);
    if (n < sizeof kept / sizeof *kept) kept[n++] = name;
    else free(name);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
void la_activity(uintptr_t *cookie, unsigned flag) {
    (void)cookie, (void)flag;
    free(malloc(5000));
}
unsigned la_objclose(uintptr_t *cookie) {
    (void)cookie;
    free(malloc(30));
    return 0;
}
