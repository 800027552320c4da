// SPDX-License-Identifier: MIT
// loaded.c: what the dynamic linker has mapped.
#include "os/loaded.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/num.h"
#include "os/symbols.h"

typedef struct each {
    void (*fn)(const qy_os_loaded_t *loaded, void *arg);
    void *arg;
} each_t;

// A file may have notes that are in no segment, and so are not there.
static bool loaded_has(const struct dl_phdr_info *info, const ElfW(Phdr) * part) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        size_t at = part->p_vaddr - h->p_vaddr;
        if (h->p_type == PT_LOAD && (h->p_flags & PF_R) && at <= h->p_memsz && part->p_memsz <= h->p_memsz - at)
            return true;
    }
    return false;
}

// The build id lies in a note.
static void find_id(qy_os_loaded_t *l, const uint8_t *at, size_t bytes) {
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
        size_t name = qy_round_up(note->n_namesz, 4), text = qy_round_up(note->n_descsz, 4);
        if (name > bytes - sizeof *note || text > bytes - sizeof *note - name) return;
        const uint8_t *id = at + sizeof *note + name;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(note + 1, "GNU", 4) == 0) {
            l->id_bytes = (unsigned)qy_min(note->n_descsz, QY_LOADED_ID_BYTES);
            memcpy(l->id, id, l->id_bytes);
            return;
        }
        at = id + text;
        bytes -= sizeof *note + name + text;
    }
}

static int loaded_look_at(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    each_t *each = arg;
    qy_os_loaded_t l = {.base = info->dlpi_addr, .path = info->dlpi_name ? info->dlpi_name : ""};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_NOTE && !l.id_bytes && loaded_has(info, h))
            find_id(&l, (const uint8_t *)(info->dlpi_addr + h->p_vaddr), h->p_memsz);
        if (h->p_type == PT_LOAD && l.segments < QY_LOADED_SEGMENTS)
            l.segment[l.segments++] = (qy_os_segment_t){h->p_vaddr, h->p_memsz, h->p_flags & 7};
    }
    each->fn(&l, each->arg);
    return 0;
}

void qy_os_each_loaded(void (*fn)(const qy_os_loaded_t *loaded, void *arg), void *arg) {
    each_t each = {fn, arg};
    dl_iterate_phdr(loaded_look_at, &each);
}

// A program without a dynamic linker has no use for it, and a weak reference does not bring it in.
#pragma weak dlsym

__attribute__((weak)) void *qy_os_dlsym(void *scope, const char *name) { return dlsym ? dlsym(scope, name) : NULL; }

typedef struct named {
    const char *file;
    bool found;
} named_t;

static void loaded_see(const qy_os_loaded_t *l, void *arg) {
    named_t *n = arg;
    const char *slash = strrchr(l->path, '/');
    n->found |= strncmp(slash ? slash + 1 : l->path, n->file, strlen(n->file)) == 0;
}

void *qy_os_symbol_of(const char *file, const char *name) {
    named_t n = {file, false};
    qy_os_each_loaded(loaded_see, &n);
    return n.found ? qy_os_dlsym(RTLD_DEFAULT, name) : NULL;
}

void *qy_os_symbol(const char *name) { return qy_os_dlsym(RTLD_DEFAULT, name); }
void *qy_os_symbol_next(const char *name) { return qy_os_dlsym(RTLD_NEXT, name); }

// ---- a function in one of them -----------------------------------------------------------------------------

typedef struct wanted {
    const char *file, *name;
    void *function;
} wanted_t;

static int find_function(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    wanted_t *w = arg;
    const char *path = info->dlpi_name ? info->dlpi_name : "", *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, w->file) != 0) return 0;
    qy_os_symbols_t s = qy_os_symbols_of(info);
    const ElfW(Sym) *symbol = qy_os_symbols_find(&s, w->name, NULL);
    if (symbol) w->function = (void *)(info->dlpi_addr + symbol->st_value);
    return symbol != NULL;
}

void *qy_os_function_in(const char *file, const char *name) {
    wanted_t w = {file, name, NULL};
    dl_iterate_phdr(find_function, &w);
    return w.function;
}

typedef struct defined {
    uintptr_t address;
    const char *name;
    bool defines;
} defined_t;

static int find_definition(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    defined_t *d = arg;
    bool inside = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        inside |= h->p_type == PT_LOAD && d->address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz;
    }
    if (!inside) return 0;
    qy_os_symbols_t s = qy_os_symbols_of(info);
    const ElfW(Sym) *symbol = qy_os_symbols_find(&s, d->name, NULL);
    while (symbol && info->dlpi_addr + symbol->st_value != d->address)
        symbol = qy_os_symbols_find(&s, d->name, symbol);
    d->defines = symbol || !s.hash;
    return 1;
}

bool qy_os_defines(uintptr_t address, const char *name) {
    defined_t d = {address, name, true};
    dl_iterate_phdr(find_definition, &d);
    return d.defines;
}

static int changes(struct dl_phdr_info *info, size_t bytes, void *arg) {
    uint64_t *count = arg;
    if (bytes < offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) return 1;
    count[0] = info->dlpi_adds;
    count[1] = info->dlpi_subs;
    return 1;  // the first file tells it
}

void qy_os_loaded_changes(uint64_t *ret_loads, uint64_t *ret_unloads) {
    uint64_t count[2] = {0, 0};
    dl_iterate_phdr(changes, count);
    *ret_loads = count[0];
    *ret_unloads = count[1];
}
