// SPDX-License-Identifier: MIT
// module.c: which file of the program is mapped where.
#include "os/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/compiler.h"
#include "os/os.h"

// The readable segment that holds `table`; false if the headers don't show it.
static bool find_segment(qy_os_module_t *m, uintptr_t base, const ElfW(Phdr) * headers, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const ElfW(Phdr) *h = &headers[i];
        uintptr_t begin = base + h->p_vaddr, table = (uintptr_t)m->eh_frame_hdr;
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_R) || table < begin || table - begin >= h->p_memsz) continue;
        m->readable = (const uint8_t *)begin;
        m->readable_end = m->readable + h->p_memsz;
        return true;
    }
    return false;
}

typedef struct search {
    uintptr_t pc;
    qy_os_module_t *ret;
} search_t;

static int module_look_at(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    search_t *s = arg;
    qy_os_module_t *m = s->ret;
    const ElfW(Phdr) *table = NULL;
    bool here = false;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_GNU_EH_FRAME) table = h;
        if (h->p_type != PT_LOAD) continue;
        here |= s->pc - at < h->p_memsz;
        if (at < begin) begin = at;
        if (at + h->p_memsz > end) end = at + h->p_memsz;
    }
    if (!here) return 0;
    if (!table) return -1;
    *m = (qy_os_module_t){.begin = begin, .end = end, .base = info->dlpi_addr, .path = info->dlpi_name};
    if (!m->path) m->path = "";
    m->main = !m->path[0];
    m->eh_frame_hdr = (const uint8_t *)(info->dlpi_addr + table->p_vaddr);
    return find_segment(m, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum) ? 1 : -1;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE  // headers of glibc 2.35 or later; the library at run time may be older
#pragma weak _dl_find_object

// The mapping begins with the ELF header: every linker puts it into the first segment.
static bool find_segment_in_file(qy_os_module_t *m, uintptr_t base) {
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)m->begin;
    if (m->end - m->begin < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return false;
    uintptr_t headers = m->begin + head->e_phoff, bytes = (uintptr_t)head->e_phnum * sizeof(ElfW(Phdr));
    if (head->e_phentsize != sizeof(ElfW(Phdr)) || headers < m->begin || headers > m->end || m->end - headers < bytes ||
        headers % 8)
        return false;
    return find_segment(m, base, (const ElfW(Phdr) *)headers, head->e_phnum);
}

static bool ask_glibc(uintptr_t pc, qy_os_module_t *m) {
    struct dl_find_object found;
    if (_dl_find_object((void *)pc, &found) != 0 || !found.dlfo_eh_frame) return false;
    *m = (qy_os_module_t){.begin = (uintptr_t)found.dlfo_map_start,
        .end = (uintptr_t)found.dlfo_map_end,
        .eh_frame_hdr = found.dlfo_eh_frame,
        .base = found.dlfo_link_map->l_addr,
        .path = found.dlfo_link_map->l_name};
    if (!m->path) m->path = "";
    m->main = !m->path[0];
    return find_segment_in_file(m, found.dlfo_link_map->l_addr);
}
#define HAVE_FIND_OBJECT (DLFO_EH_SEGMENT_TYPE == PT_GNU_EH_FRAME && &_dl_find_object != NULL)
#else
static bool ask_glibc(uintptr_t pc, qy_os_module_t *m) {
    (void)pc;
    (void)m;
    return false;
}
#define HAVE_FIND_OBJECT false
#endif

bool qy_os_module_at(uintptr_t pc, qy_os_module_t *ret) {
    if (HAVE_FIND_OBJECT) return ask_glibc(pc, ret);
    search_t search = {pc, ret};
    return dl_iterate_phdr(module_look_at, &search) == 1;
}

// musl's lock for the list is not taken twice by one thread, and dlopen holds it while it calls malloc.
bool qy_os_module_may_be_asked(void) {
#ifdef __GLIBC__
    return true;
#else
    return false;
#endif
}
