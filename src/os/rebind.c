// SPDX-License-Identifier: MIT
// rebind.c: see rebind.h.
#include "os/rebind.h"

#include <sys/mman.h>

#include "base/num.h"
#include "os/fake.h"
#include "os/os.h"
#include "os/symbols.h"
#include "os/syscall.h"

typedef struct add {
    qy_os_rebind_t *r;
    const char *name;
    const void *function;
} add_t;

// The segment that holds `address`, or NULL.
static const ElfW(Phdr) * segment_of(const struct dl_phdr_info *info, uintptr_t address) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz) return h;
    }
    return NULL;
}

static int protection_of(const ElfW(Phdr) * h) {
    return (h->p_flags & PF_R ? PROT_READ : 0) | (h->p_flags & PF_W ? PROT_WRITE : 0) |
           (h->p_flags & PF_X ? PROT_EXEC : 0);
}

static void rebind_note(qy_os_rebind_t *r, ElfW(Addr) * word, ElfW(Addr) value) {
    if (*word == value || r->count == QY_REBIND_MAX) return;
    r->entry[r->count].word = word;
    r->entry[r->count++].value = value;
    if (!r->begin || (uintptr_t)word < r->begin) r->begin = (uintptr_t)word;
    r->end = qy_max(r->end, (uintptr_t)(word + 1));
}

static int add(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    add_t *a = arg;
    if (!segment_of(info, (uintptr_t)a->r->inside)) return 0;
    qy_os_symbols_t symbols = qy_os_symbols_of(info);
    const ElfW(Phdr) *table = symbols.hash ? segment_of(info, (uintptr_t)symbols.symbols) : NULL;
    if (!table) return 1;
    a->r->found = true;
    a->r->protection = protection_of(table);
    for (const ElfW(Sym) *s = NULL; (s = qy_os_symbols_find(&symbols, a->name, s));)
        rebind_note(a->r, (ElfW(Addr) *)(uintptr_t)&s->st_value, (uintptr_t)a->function - info->dlpi_addr);
    return 1;
}

void qy_os_rebind_add(qy_os_rebind_t *r, const char *name, const void *function) {
    add_t a = {r, name, function};
    dl_iterate_phdr(add, &a);
}

bool qy_os_rebind(const qy_os_rebind_t *r) {
    if (!r->count) return r->found;
    uintptr_t page = qy_os_page_size(), begin = r->begin & ~(page - 1), bytes = qy_round_up(r->end, page) - begin;
    if (qy_os_fake_fails(QY_OS_PROTECT)) return false;
    if (qy_syscall(SYS_mprotect, begin, bytes, r->protection | PROT_WRITE) != 0) return false;
    for (unsigned i = 0; i < r->count; i++) __atomic_store_n(r->entry[i].word, r->entry[i].value, __ATOMIC_RELAXED);
    qy_syscall(SYS_mprotect, begin, bytes, r->protection);
    return true;
}
