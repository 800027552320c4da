// SPDX-License-Identifier: MIT
// symbols.h: the functions that a loaded file defines, by its own table. Unlike dlsym() it takes no lock and leaves no
// message.
#ifndef QY_OS_SYMBOLS_H
#define QY_OS_SYMBOLS_H

#include <elf.h>
#include <link.h>
#include <stdint.h>

// The table, by the hash that the GNU tools write.
typedef struct qy_os_symbols {
    const uint32_t *hash;  // NULL: it has none
    const ElfW(Sym) * symbols;
    const char *names;
} qy_os_symbols_t;

qy_os_symbols_t qy_os_symbols_of(const struct dl_phdr_info *info);
qy_os_symbols_t qy_os_symbols_at(uintptr_t base, const ElfW(Dyn) * dynamic);
// The next function of this name behind `after`, or the first: there is one for each version of it. NULL: no more.
const ElfW(Sym) * qy_os_symbols_find(const qy_os_symbols_t *s, const char *name, const ElfW(Sym) * after);

// The variable of this name. NULL: there is none.
const ElfW(Sym) * qy_os_symbols_variable(const qy_os_symbols_t *s, const char *name);

#endif
