// SPDX-License-Identifier: MIT
// libc.c: see libc.h.
#include "os/libc.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "os/symbols.h"

const void *qy_os_libc_inside(void) { return (const void *)(uintptr_t)getauxval; }

#ifdef DLFO_STRUCT_HAS_EH_DBASE
extern __typeof(_dl_find_object) _dl_find_object __attribute__((weak));  // NOLINT(readability-redundant-declaration)

bool qy_os_libc_is_known(void) { return _dl_find_object; }

void *qy_os_libc_function(const char *name) {
    struct dl_find_object found;
    if (!_dl_find_object || _dl_find_object((void *)(uintptr_t)qy_os_libc_inside(), &found) != 0) return NULL;
    uintptr_t base = found.dlfo_link_map->l_addr;
    qy_os_symbols_t s = qy_os_symbols_at(base, found.dlfo_link_map->l_ld);
    const ElfW(Sym) *symbol = qy_os_symbols_find(&s, name, NULL);
    return symbol ? (void *)(base + symbol->st_value) : NULL;
}
#else
bool qy_os_libc_is_known(void) { return false; }
void *qy_os_libc_function(const char *name) {
    (void)name;
    return NULL;
}
#endif
