// SPDX-License-Identifier: MIT
// giveback.c: see giveback.h; and whether somebody watches.
//
// Watched is answered by looking at three things: where the entries of our own module's tables lead, in which module
// that is, and how the functions' code begins. All are noted when it is asked for the first time, and compared from
// then on. What was changed before is seen, too: a name that another module defines is not in libc's module, and code
// that was changed begins with a jump, a call, a trap or an address loaded into a register, as no function of libc
// does.
//
// Which module has an address is asked without a lock, where libc can (glibc 2.35). Elsewhere it takes the loader's,
// under which others may call malloc; so there it is noted in the constructor.
#include "os/giveback.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "os/libc.h"
#include "os/os.h"
#include "os/syscall.h"

// ---- calls --------------------------------------------------------------------------------------------

static _Atomic uintptr_t bare_stack, bare_bytes;

void qy_os_bare_thread_on(const void *stack, size_t bytes) {
    atomic_store_explicit(&bare_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&bare_stack, (uintptr_t)stack, memory_order_release);
}

// A bare thread's thread pointer leads into its stack.
static bool is_bare(void) {
    uintptr_t stack = atomic_load_explicit(&bare_stack, memory_order_acquire);
    return qy_os_thread_token() - stack < atomic_load_explicit(&bare_bytes, memory_order_relaxed);
}

#define THROUGH_LIBC(call, failed)         \
    do {                                   \
        int saved = errno;                 \
        long ret = (long)(call);           \
        if (ret == (failed)) ret = -errno; \
        errno = saved;                     \
        return ret;                        \
    } while (0)

long qy_os_seen_munmap(void *addr, size_t bytes) {
    if (is_bare()) return qy_syscall(SYS_munmap, addr, bytes);
    THROUGH_LIBC(munmap(addr, bytes), -1);
}
long qy_os_seen_madvise(void *addr, size_t bytes, int advice) {
    if (is_bare()) return qy_syscall(SYS_madvise, addr, bytes, advice);
    THROUGH_LIBC(madvise(addr, bytes, advice), -1);
}
long qy_os_seen_mremap(void *from, size_t old_bytes, size_t new_bytes, int flags, void *to) {
    if (is_bare()) return qy_syscall(SYS_mremap, from, old_bytes, new_bytes, flags, to);
    THROUGH_LIBC(mremap(from, old_bytes, new_bytes, flags, to), -1);
}
long qy_os_seen_mmap(void *addr, size_t bytes, int prot, int flags, int fd, long offset) {
    if (is_bare()) return qy_syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
    THROUGH_LIBC(mmap(addr, bytes, prot, flags, fd, offset), -1);
}

// ---- who watches ----------------------------------------------------------------------------------------

enum { FUNCTIONS = 4,
    SLOTS = 16,
    HEAD = 2 * sizeof(uint64_t) };  // bytes of code that are compared

enum { UNKNOWN,
    NOTING,  // by one thread
    KNOWN };

// Written once, and only read since.
static struct {
    const unsigned char *code[FUNCTIONS];
    unsigned char head[FUNCTIONS][HEAD];
    _Atomic(uintptr_t) *slot[SLOTS];  // entries of our tables, ...
    uintptr_t leads_to[SLOTS];        // ... where they led, ...
    uintptr_t after_bind[SLOTS];      // ... and where they lead when the loader has bound them
    unsigned slots;
    _Atomic int state;
    bool odd;  // somebody was there before
} giveback_watch;

static int function_of(const char *name) {
    static const char *const names[] = {"munmap", "madvise", "mremap", "mmap"};
    for (int i = 0; i < FUNCTIONS; i++)
        if (!strcmp(name, names[i])) return i;
    return strcmp(name, "mmap64") ? -1 : 3;
}

// The module that has an address.
typedef struct module {
    uintptr_t address;
    uintptr_t base, begin, end;
    const ElfW(Dyn) * dynamic;
} module_t;

#ifdef DLFO_STRUCT_HAS_EH_DBASE
extern __typeof(_dl_find_object) _dl_find_object __attribute__((weak));  // NOLINT(readability-redundant-declaration)
static bool is_lock_free(void) { return _dl_find_object; }
static bool find_without_lock(module_t *m) {
    struct dl_find_object found;
    if (_dl_find_object((void *)m->address, &found)) return false;
    m->begin = (uintptr_t)found.dlfo_map_start;
    m->end = (uintptr_t)found.dlfo_map_end;
    m->base = found.dlfo_link_map->l_addr;
    m->dynamic = found.dlfo_link_map->l_ld;
    return true;
}
#else
static bool is_lock_free(void) { return false; }
static bool find_without_lock(module_t *m) { return m->dynamic; }
#endif

static int giveback_look_at(struct dl_phdr_info *info, size_t bytes, void *arg) {
    (void)bytes;
    module_t *m = arg, here = {.address = m->address, .base = info->dlpi_addr, .begin = UINTPTR_MAX};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_DYNAMIC) here.dynamic = (const ElfW(Dyn) *)begin;
        if (p->p_type != PT_LOAD) continue;
        if (begin < here.begin) here.begin = begin;
        if (begin + p->p_memsz > here.end) here.end = begin + p->p_memsz;
    }
    if (m->address < here.begin || m->address >= here.end) return 0;
    *m = here;
    return 1;
}
static bool module_of(const void *address, module_t *ret) {
    *ret = (module_t){.address = (uintptr_t)address};
    return is_lock_free() ? find_without_lock(ret) : dl_iterate_phdr(giveback_look_at, ret) == 1;
}

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#define GLOB_DAT R_X86_64_GLOB_DAT
#elif defined(__aarch64__)
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#define GLOB_DAT R_AARCH64_GLOB_DAT
#endif

#ifdef JUMP_SLOT
// Some loaders leave addresses in this table as they are in the file.
static uintptr_t giveback_moved(const module_t *m, ElfW(Addr) address) {
    return address < m->base ? m->base + address : address;
}

static void note_slots(
    const module_t *m, const ElfW(Sym) * symbols, const char *strings, uintptr_t table, size_t bytes) {
    const ElfW(Rela) *r = (const ElfW(Rela) *)table;
    for (size_t i = 0; table && i < bytes / sizeof *r && giveback_watch.slots < SLOTS; i++) {
        unsigned type = ELF64_R_TYPE(r[i].r_info);
        if (type != JUMP_SLOT && type != GLOB_DAT) continue;
        int f = function_of(strings + symbols[ELF64_R_SYM(r[i].r_info)].st_name);
        if (f < 0) continue;
        giveback_watch.slot[giveback_watch.slots] = (_Atomic(uintptr_t) *)(m->base + r[i].r_offset);
        giveback_watch.after_bind[giveback_watch.slots++] = (uintptr_t)giveback_watch.code[f];
    }
}

// All entries of our module that lead to the functions, by its tables of relocations. A static program has none.
static void find_slots(const module_t *m) {
    uintptr_t symbols = 0, strings = 0, rela = 0, jump = 0;
    size_t rela_bytes = 0, jump_bytes = 0;
    for (const ElfW(Dyn) *d = m->dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) symbols = giveback_moved(m, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) strings = giveback_moved(m, d->d_un.d_ptr);
        if (d->d_tag == DT_RELA) rela = giveback_moved(m, d->d_un.d_ptr);
        if (d->d_tag == DT_RELASZ) rela_bytes = d->d_un.d_val;
        if (d->d_tag == DT_JMPREL) jump = giveback_moved(m, d->d_un.d_ptr);
        if (d->d_tag == DT_PLTRELSZ) jump_bytes = d->d_un.d_val;
    }
    if (!symbols || !strings) return;
    note_slots(m, (const ElfW(Sym) *)symbols, (const char *)strings, rela, rela_bytes);
    note_slots(m, (const ElfW(Sym) *)symbols, (const char *)strings, jump, jump_bytes);
}

// Of an entry that the loader has not bound yet, which leads into our own module. (Where there are gaps between its
// parts, as in programs whose parts lie at multiples of more than a page, the range that was found is that of one
// part.)
static bool is_unbound(const module_t *m, uintptr_t leads_to) {
    module_t there;
    return module_of((const void *)leads_to, &there) && there.dynamic == m->dynamic;
}
#endif

#if defined(__x86_64__)
static bool is_changed(const unsigned char *code) {
    static const unsigned char endbr64[] = {0xF3, 0x0F, 0x1E, 0xFA};
    if (!memcmp(code, endbr64, sizeof endbr64)) code += sizeof endbr64;
    switch (code[0]) {
    case 0xE9:
    case 0xEB:
    case 0xE8:
    case 0xCC:
    case 0xCD:
    case 0x68: return true;                                // jump, call, trap; push and return
    case 0xFF: return code[1] == 0x25 || code[1] == 0x15;  // jump or call through memory
    case 0x0F: return code[1] == 0x0B;                     // trap
    case 0x48:
    case 0x49: return (code[1] & 0xF8) == 0xB8;                              // an address into a register, for a jump
    case 0x50: return (code[1] & 0xFE) == 0x48 && (code[2] & 0xF8) == 0xB8;  // the same, with one saved
    default: return false;
    }
}
#elif defined(__aarch64__)
static bool is_changed(const unsigned char *code) {
    uint32_t word[2];
    memcpy(word, code, sizeof word);
    uint32_t w = word[0] == 0xD503245F || word[0] == 0xD503233F ? word[1] : word[0];  // bti c, paciasp
    unsigned rd = w & 31;
    bool scratch = rd == 16 || rd == 17;
    return (w & 0x7C000000) == 0x14000000 || (w & 0xFF9FFC1F) == 0xD61F0000 || (w & 0xFFE0001F) == 0xD4200000 ||
           (scratch &&
               ((w & 0xFF000000) == 0x58000000 || (w & 0x9F000000) == 0x90000000 || (w & 0xFF800000) == 0xD2800000));
}
#else
static bool is_changed(const unsigned char *code) {
    (void)code;
    return false;
}
#endif

QY_COLD static void giveback_note(void) {
    const void *functions[FUNCTIONS] = {(const void *)(uintptr_t)munmap, (const void *)(uintptr_t)madvise,
        (const void *)(uintptr_t)mremap, (const void *)(uintptr_t)mmap};
    int unknown = UNKNOWN;
    if (!atomic_compare_exchange_strong(&giveback_watch.state, &unknown, NOTING)) return;
    module_t libc, ours;
    bool odd = !module_of(qy_os_libc_inside(), &libc) || !module_of(&giveback_watch, &ours);
    for (int i = 0; i < FUNCTIONS && !odd; i++) {
        giveback_watch.code[i] = functions[i];
        odd = (uintptr_t)functions[i] < libc.begin || (uintptr_t)functions[i] >= libc.end || is_changed(functions[i]);
        if (!odd) memcpy(giveback_watch.head[i], functions[i], HEAD);
    }
#ifdef JUMP_SLOT
    if (!odd) find_slots(&ours);
    for (unsigned i = 0; i < giveback_watch.slots && !odd; i++) {
        giveback_watch.leads_to[i] = atomic_load_explicit(giveback_watch.slot[i], memory_order_relaxed);
        odd = giveback_watch.leads_to[i] != giveback_watch.after_bind[i] &&
              !is_unbound(&ours, giveback_watch.leads_to[i]);
    }
#endif
    giveback_watch.odd = odd;
    atomic_store(&giveback_watch.state, KNOWN);
}

void qy_os_watch_begin(void) {
    if (!is_lock_free()) giveback_note();
}

bool qy_os_is_watched(void) {
    if (atomic_load_explicit(&giveback_watch.state, memory_order_acquire) == UNKNOWN && is_lock_free()) giveback_note();
    if (atomic_load_explicit(&giveback_watch.state, memory_order_acquire) != KNOWN || giveback_watch.odd) return true;
    for (unsigned i = 0; i < giveback_watch.slots; i++) {
        uintptr_t leads_to = atomic_load_explicit(giveback_watch.slot[i], memory_order_relaxed);
        if (leads_to != giveback_watch.leads_to[i] && leads_to != giveback_watch.after_bind[i]) return true;
    }
    for (int i = 0; i < FUNCTIONS; i++) {
        uint64_t now[2], then[2];
        memcpy(now, giveback_watch.code[i], sizeof now);
        memcpy(then, giveback_watch.head[i], sizeof then);
        if ((now[0] ^ then[0]) | (now[1] ^ then[1])) return true;
    }
    return false;
}
