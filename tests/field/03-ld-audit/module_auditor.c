// SPDX-License-Identifier: MIT
// An auditor, which allocates in each of its callbacks, in a namespace of its own.
#include <link.h>
#include <stdlib.h>
#include <string.h>

static void *kept[64];
static int count;

unsigned la_version(unsigned version) {
    kept[count++] = malloc(1000);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}
unsigned la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie) {
    (void)id, (void)cookie;
    char *s = strdup(map->l_name);
    if (count < 64) kept[count++] = s;
    else free(s);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
void la_activity(uintptr_t *cookie, unsigned flag) {
    (void)cookie, (void)flag;
    free(malloc(5000));
}
uintptr_t la_symbind64(
    Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name) {
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    free(malloc(40));
    return symbol->st_value;
}
unsigned la_objclose(uintptr_t *cookie) {
    (void)cookie;
    free(malloc(30));
    return 0;
}
