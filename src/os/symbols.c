// SPDX-License-Identifier: MIT
// symbols.c: see symbols.h.
#include "os/symbols.h"

#include <stdbool.h>
#include <string.h>

// Some C libraries put addresses into the table in memory, others leave what the file says.
static const void *at(uintptr_t base, uintptr_t address) {
    return (const void *)(address < base ? base + address : address);
}

qy_os_symbols_t qy_os_symbols_at(uintptr_t base, const ElfW(Dyn) * dynamic) {
    qy_os_symbols_t s = {NULL, NULL, NULL};
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL && !(s.hash && s.symbols && s.names); d++) {
        if (d->d_tag == DT_GNU_HASH) s.hash = at(base, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB) s.symbols = at(base, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) s.names = at(base, d->d_un.d_ptr);
    }
    if (!s.symbols || !s.names) s.hash = NULL;
    return s;
}

qy_os_symbols_t qy_os_symbols_of(const struct dl_phdr_info *info) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return qy_os_symbols_at(info->dlpi_addr, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
    return (qy_os_symbols_t){NULL, NULL, NULL};
}

typedef ElfW(Sym) symbol_t;

static bool defines(const symbol_t *symbol, unsigned type) {
    return symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 15u) == type;
}

// The table: how many buckets, the first symbol in them, words of the filter, its shift; the filter; the buckets, each
// the first of its symbols; then a word for each symbol: its hash, but for the lowest bit, which says that it is the
// last of its bucket.
static const symbol_t *next_symbol(
    const qy_os_symbols_t *s, const char *name, unsigned type, const symbol_t *after) {
    if (!s->hash || !s->hash[0]) return NULL;
    uint32_t hash = 5381, first = s->hash[1];
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) hash = hash * 33 + *c;
    const uint32_t *buckets = s->hash + 4 + s->hash[2] * (sizeof(ElfW(Addr)) / sizeof *buckets),
                   *hashes = buckets + s->hash[0];
    uint32_t i = buckets[hash % s->hash[0]];
    if (i < first) return NULL;
    for (;; i++) {
        const ElfW(Sym) *symbol = &s->symbols[i];
        if ((hashes[i - first] | 1) == (hash | 1) && defines(symbol, type) && symbol > after &&
            strcmp(s->names + symbol->st_name, name) == 0)
            return symbol;
        if (hashes[i - first] & 1) return NULL;
    }
}

const ElfW(Sym) * qy_os_symbols_find(const qy_os_symbols_t *s, const char *name, const ElfW(Sym) * after) {
    return next_symbol(s, name, STT_FUNC, after);
}

const ElfW(Sym) * qy_os_symbols_variable(const qy_os_symbols_t *s, const char *name) {
    return next_symbol(s, name, STT_OBJECT, NULL);
}
