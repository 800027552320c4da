// SPDX-License-Identifier: MIT
// loaded.c: what the dynamic linker has mapped.
#include "os/loaded.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/num.h"

typedef struct each {
    void (*fn)(const qy_os_loaded_t *loaded, void *arg);
    void *arg;
} each_t;

// The build id lies in a note, which lies in a segment that is mapped.
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

static int look_at(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    each_t *each = arg;
    qy_os_loaded_t l = {.base = info->dlpi_addr, .path = info->dlpi_name ? info->dlpi_name : ""};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_NOTE && !l.id_bytes) find_id(&l, (const uint8_t *)(info->dlpi_addr + h->p_vaddr), h->p_memsz);
        if (h->p_type == PT_LOAD && l.segments < QY_LOADED_SEGMENTS) l.segment[l.segments++] = (qy_os_segment_t){h->p_vaddr, h->p_memsz, h->p_flags & 7};
    }
    each->fn(&l, each->arg);
    return 0;
}

void qy_os_each_loaded(void (*fn)(const qy_os_loaded_t *loaded, void *arg), void *arg) {
    each_t each = {fn, arg};
    dl_iterate_phdr(look_at, &each);
}

// A program without a dynamic linker has no use for it, and a weak reference does not bring it in.
#pragma weak dlsym

typedef struct named {
    const char *file;
    bool found;
} named_t;

static void see(const qy_os_loaded_t *l, void *arg) {
    named_t *n = arg;
    const char *slash = strrchr(l->path, '/');
    n->found |= strncmp(slash ? slash + 1 : l->path, n->file, strlen(n->file)) == 0;
}

void *qy_os_symbol_of(const char *file, const char *name) {
    named_t n = {file, false};
    if (!dlsym) return NULL;
    qy_os_each_loaded(see, &n);
    return n.found ? dlsym(RTLD_DEFAULT, name) : NULL;
}

void *qy_os_symbol_next(const char *name) { return dlsym ? dlsym(RTLD_NEXT, name) : NULL; }

// ---- a function in one of them -----------------------------------------------------------------------------

// A file's table of symbols, by the hash that the GNU tools write.
typedef struct symbols {
    const uint32_t *hash;
    const ElfW(Sym) * symbols;
    const char *names;
} symbols_t;

typedef struct wanted {
    const char *file, *name;
    void *function;
} wanted_t;

// Some C libraries put addresses into the table in memory, others leave what the file says.
static const void *at(uintptr_t base, uintptr_t address) { return (const void *)(address < base ? base + address : address); }

static symbols_t symbols_of(const struct dl_phdr_info *info) {
    symbols_t s = {NULL, NULL, NULL};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        for (const ElfW(Dyn) *d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_GNU_HASH) s.hash = at(info->dlpi_addr, d->d_un.d_ptr);
            if (d->d_tag == DT_SYMTAB) s.symbols = at(info->dlpi_addr, d->d_un.d_ptr);
            if (d->d_tag == DT_STRTAB) s.names = at(info->dlpi_addr, d->d_un.d_ptr);
        }
    }
    return s;
}

// The table: how many buckets, the first symbol in them, words of the filter, its shift; the filter; the buckets, each the first of its
// symbols; then a word for each symbol: its hash, but for the lowest bit, which says that it is the last of its bucket.
static const ElfW(Sym) * look_up(const symbols_t *s, const char *name) {
    if (!s->hash || !s->symbols || !s->names || !s->hash[0]) return NULL;
    uint32_t hash = 5381, first = s->hash[1];
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) hash = hash * 33 + *c;
    const uint32_t *buckets = s->hash + 4 + s->hash[2] * (sizeof(ElfW(Addr)) / sizeof *buckets), *hashes = buckets + s->hash[0];
    uint32_t i = buckets[hash % s->hash[0]];
    if (i < first) return NULL;
    for (;; i++) {
        const ElfW(Sym) *symbol = &s->symbols[i];
        bool is_function = symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 15) == STT_FUNC;
        if ((hashes[i - first] | 1) == (hash | 1) && is_function && strcmp(s->names + symbol->st_name, name) == 0) return symbol;
        if (hashes[i - first] & 1) return NULL;
    }
}

static int find_function(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    wanted_t *w = arg;
    const char *path = info->dlpi_name ? info->dlpi_name : "", *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, w->file) != 0) return 0;
    symbols_t s = symbols_of(info);
    const ElfW(Sym) *symbol = look_up(&s, w->name);
    if (symbol) w->function = (void *)(info->dlpi_addr + symbol->st_value);
    return symbol != NULL;
}

void *qy_os_function_in(const char *file, const char *name) {
    wanted_t w = {file, name, NULL};
    dl_iterate_phdr(find_function, &w);
    return w.function;
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
