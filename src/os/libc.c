// SPDX-License-Identifier: MIT
// libc.c: see libc.h.
#include "os/libc.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "os/symbols.h"

#ifdef DLFO_STRUCT_HAS_EH_DBASE
extern __typeof(_dl_find_object) _dl_find_object __attribute__((weak));  // NOLINT(readability-redundant-declaration)

// getauxval where it is missing: a program without a dynamic linker.
const void *qy_os_libc_inside(void) {
    return _dl_find_object ? (const void *)(uintptr_t)_dl_find_object : (const void *)(uintptr_t)getauxval;
}

bool qy_os_libc_is_known(void) { return _dl_find_object; }

static const struct link_map *libc_module(void) {
    struct dl_find_object found;
    if (!_dl_find_object || _dl_find_object((void *)(uintptr_t)qy_os_libc_inside(), &found) != 0) return NULL;
    return found.dlfo_link_map;
}

void *qy_os_libc_function(const char *name) {
    const struct link_map *libc = libc_module();
    if (!libc) return NULL;
    qy_os_symbols_t s = qy_os_symbols_at(libc->l_addr, libc->l_ld);
    const ElfW(Sym) *symbol = qy_os_symbols_find(&s, name, NULL);
    return symbol ? (void *)(libc->l_addr + symbol->st_value) : NULL;
}

// What comes before libc in the list was there when the program began, and so it stays.
void *qy_os_libc_variable(const char *name) {
    const struct link_map *libc = libc_module(), *file = libc;
    while (file && file->l_prev) file = file->l_prev;
    for (; file; file = file == libc ? NULL : libc) {
        qy_os_symbols_t s = qy_os_symbols_at(file->l_addr, file->l_ld);
        if (!s.hash) return NULL;
        const ElfW(Sym) *symbol = qy_os_symbols_variable(&s, name);
        if (symbol) return (void *)(file->l_addr + symbol->st_value);
    }
    return NULL;
}
#else
const void *qy_os_libc_inside(void) { return (const void *)(uintptr_t)getauxval; }
bool qy_os_libc_is_known(void) { return false; }
void *qy_os_libc_function(const char *name) {
    (void)name;
    return NULL;
}
void *qy_os_libc_variable(const char *name) {
    (void)name;
    return NULL;
}
#endif
