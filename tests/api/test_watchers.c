// SPDX-License-Identifier: MIT
// Communication libraries see that memory goes away: code of libc that was changed as UCX and libfabric do it, entries
// of the library's tables, functions of the program's own, and the real libucm. No page leaves an address without one
// of them being called, no bare thread is there while they listen, and errno stays.
// The program is built twice: with WATCHERS_INTERPOSE it defines the four functions itself.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "harness.h"

// ---- what was told --------------------------------------------------------------------------------------

enum { MOST = 400000 };
static struct {
    uintptr_t begin, end;
} told[MOST];
static _Atomic int tellings;
static _Atomic size_t told_bytes;
static int looked_at = 1;  // errno that hooks leave behind

static void tell(void *addr, size_t bytes) {
    int i = tellings++;
    told_bytes += bytes;
    if (i < MOST) told[i].begin = (uintptr_t)addr, told[i].end = (uintptr_t)addr + bytes;
    errno = looked_at;
}
static bool was_told(uintptr_t page, int from) {
    for (int i = from; i < tellings && i < MOST; i++)
        if (told[i].begin < page + 4096 && page < told[i].end) return true;
    return false;
}

#ifdef WATCHERS_INTERPOSE
#define hook_munmap munmap
#define hook_madvise madvise
#define hook_mremap mremap
#define hook_mmap mmap
#else
#define hook_munmap watched_munmap
#define hook_madvise watched_madvise
#define hook_mremap watched_mremap
#define hook_mmap watched_mmap
#endif
__attribute__((visibility("default"))) int hook_munmap(void *p, size_t n);
__attribute__((visibility("default"))) int hook_munmap(void *p, size_t n) {
    tell(p, n);
    return (int)syscall(SYS_munmap, p, n);
}
__attribute__((visibility("default"))) int hook_madvise(void *p, size_t n, int advice);
__attribute__((visibility("default"))) int hook_madvise(void *p, size_t n, int advice) {
    if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE) tell(p, n);
    return (int)syscall(SYS_madvise, p, n, advice);
}
__attribute__((visibility("default"))) void *hook_mremap(void *p, size_t old, size_t n, int flags, ...);
__attribute__((visibility("default"))) void *hook_mremap(void *p, size_t old, size_t n, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    tell(p, old);
    if (to) tell(to, n);
    return (void *)syscall(SYS_mremap, p, old, n, flags, to);
}
__attribute__((visibility("default"))) void *hook_mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset);
__attribute__((visibility("default"))) void *hook_mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset) {
    if (flags & MAP_FIXED) tell(p, n);
    return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, offset);
}

// ---- ways to be told ------------------------------------------------------------------------------------

#ifndef WATCHERS_INTERPOSE
static void *const hooks[] = {(void *)hook_munmap, (void *)hook_madvise, (void *)hook_mremap, (void *)hook_mmap};
static const char *const names[] = {"munmap", "madvise", "mremap", "mmap"};

static unsigned char before[4][16];
static unsigned char *code_of(int f) { return dlsym(dlopen("libc.so.6", RTLD_NOW), names[f]); }

static void write_code(unsigned char *to, const unsigned char *from, size_t bytes) {
    uintptr_t page = (uintptr_t)to & -4096ul;
    CHECK_EQ(syscall(SYS_mprotect, page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    memcpy(to, from, bytes);
    __builtin___clear_cache((char *)to, (char *)to + bytes);
    CHECK_EQ(syscall(SYS_mprotect, page, 8192, PROT_READ | PROT_EXEC), 0);
}
static void change_code(void) {
    for (int f = 0; f < 4; f++) {
        unsigned char *code = code_of(f);
        CHECK(code);
        memcpy(before[f], code, sizeof before[f]);
#if defined(__x86_64__)
        // As UCX's and libfabric's: movabs to r11, jump there.
        unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
        memcpy(jump + 2, &hooks[f], 8);
#else
        // ldr x17, #8; br x17; address
        unsigned char jump[16] = {0x51, 0, 0, 0x58, 0x20, 0x02, 0x1f, 0xd6};
        memcpy(jump + 8, &hooks[f], 8);
#endif
        write_code(code, jump, sizeof jump);
    }
}
static void put_code_back(void) {
    for (int f = 0; f < 4; f++) write_code(code_of(f), before[f], sizeof before[f]);
}

// All entries by which the drop-in's own calls reach the four functions.
static int change_entries_of(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    if (!strstr(info->dlpi_name, "libquarry-malloc")) return 0;
    const ElfW(Dyn) *d = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Rela) * table[2] = {0};
    size_t bytes[2] = {0};
    for (; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) symbols = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB) strings = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_JMPREL) table[0] = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_PLTRELSZ) bytes[0] = d->d_un.d_val;
        if (d->d_tag == DT_RELA) table[1] = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_RELASZ) bytes[1] = d->d_un.d_val;
    }
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < bytes[t] / sizeof(ElfW(Rela)); i++)
            for (int f = 0; f < 4; f++) {
                if (strcmp(strings + symbols[ELF64_R_SYM(table[t][i].r_info)].st_name, names[f])) continue;
                void **entry = (void **)(info->dlpi_addr + table[t][i].r_offset);
                syscall(SYS_mprotect, (uintptr_t)entry & -4096ul, 4096, PROT_READ | PROT_WRITE);
                *entry = hooks[f];
                ++*(int *)arg;
            }
    return 1;
}
#endif

// ---- a registration cache -------------------------------------------------------------------------------

static int pagemap;
static bool is_present(uintptr_t page) {
    uint64_t entry = 0;
    CHECK_EQ(pread(pagemap, &entry, 8, (off_t)(page / 4096 * 8)), 8);
    return entry >> 63;
}

enum { BLOCKS = 40 };
static unsigned char *block[BLOCKS];
static uintptr_t was_at[BLOCKS];

static long pages_lost_unseen(size_t bytes, int count, int from) {
    long lost = 0;
    for (int i = 0; i < count; i++)
        for (uintptr_t page = (was_at[i] + 4095) & -4096ul; page + 4096 <= was_at[i] + bytes; page += 4096)
            lost += !is_present(page) && !was_told(page, from);
    return lost;
}
static int tasks(void) {
    int n = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void use(size_t bytes, const char *how) {
    int count = bytes > 4 << 20 ? 4 : BLOCKS, from = tellings;
    for (int i = 0; i < count; i++) {
        CHECK((block[i] = malloc(bytes)));
        memset(block[i], i + 1, bytes);
        was_at[i] = (uintptr_t)block[i];
    }
    for (int i = 0; !strcmp(how, "realloc") && i < count; i++) CHECK((block[i] = realloc(block[i], 4 * bytes)));
    errno = 77;
    for (int i = 0; i < count; i++) free(block[i]);
    CHECK_EQ(errno, 77);
    if (!strcmp(how, "trim")) malloc_trim(0);
    if (!strcmp(how, "wait")) usleep(300000);  // purge_delay:10
    // Who allocates gives back, too, where no thread does.
    for (int i = 0; i < 20000; i++) free(malloc((size_t)16 << i % 16));
    long lost = pages_lost_unseen(bytes, count, from);
    if (lost)
        TEST_FAIL("%zu bytes, %s: %ld pages have gone unseen (%d calls were seen)", bytes, how, lost, tellings - from);
}
static void use_all(void) {
    static const size_t sizes[] = {5000, 70000, 300000, 2000000, 9000000, 40000000};
    static const char *const ways[] = {"free", "trim", "wait", "realloc"};
    TEST_AWAIT(tasks() == 1);  // a bare thread that was there sees it in its next round, and ends
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t w = 0; w < 4; w++) use(sizes[s], ways[w]);
    CHECK_EQ(tasks(), 1);
    CHECK_GT(tellings, 0);
    CHECK_LT(tellings, MOST);
}
static void begin(void) {
    pagemap = open("/proc/self/pagemap", O_RDONLY);
    CHECK_GE(pagemap, 0);
    tellings = 0;
}

#ifdef WATCHERS_INTERPOSE
TEST(functions_of_the_program_are_called) {
    begin();
    use_all();
}
#else
// So that there is a bare thread when they come.
static void work_before(void) {
    for (int i = 0; i < 5; i++) free(memset(malloc(20 << 20), 1, 20 << 20));
    for (int i = 0; i < 100; i++) block[i % BLOCKS] = memset(malloc(200000), 1, 200000), free(block[i % BLOCKS]);
}

TEST(code_that_was_changed_is_called) {
    begin();
    work_before();
    change_code();
    use_all();
    put_code_back();
    // And when they have gone, the thread may come again. It goes when it has nothing to do.
    bool came = false;
    for (int i = 0; i < TEST_PATIENCE * 10 && !came; i++) {
        for (int k = 0; k < BLOCKS; k++) block[k] = memset(malloc(400000), 1, 400000);
        for (int k = 0; k < BLOCKS; k++) free(block[k]);
        for (int k = 0; k < 20 && !came; k++) {
            free(malloc(400000));
            came = tasks() == 2;
            usleep(1000);
        }
    }
    CHECK(came);
}

TEST(entries_that_were_changed_are_followed) {
    begin();
    work_before();
    int changed = 0;
    dl_iterate_phdr(change_entries_of, &changed);
    if (!changed) TEST_SKIP("needs a library with entries for the four functions");
    use_all();
}

// The real one. Its own test of itself calls libc, so it installs itself in any case.
typedef struct ucm_event {
    void *address;
    size_t bytes;
} ucm_event_t;
static void unmapped(int type, ucm_event_t *event, void *arg) {
    (void)type, (void)arg;
    tell(event->address, event->bytes);
}
TEST(libucm_hears_of_it) {
    dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);  // libucm uses it and does not say so
    void *ucm = dlopen("libucm.so.0", RTLD_NOW);
    if (!ucm) TEST_SKIP("needs the package libucx0: %s", dlerror());
    int (*set)(int, int, void (*)(int, ucm_event_t *, void *), void *) =
        (int (*)(int, int, void (*)(int, ucm_event_t *, void *), void *))(uintptr_t)dlsym(ucm, "ucm_set_event_handler");
    CHECK(set);
    begin();
    work_before();
    enum { VM_UNMAPPED = 1 << 17,
        BYTES = 300 << 20 };
    CHECK_EQ(set(VM_UNMAPPED, 1000, unmapped, NULL), 0);
    told_bytes = 0;
    free(memset(malloc(BYTES), 1, BYTES));
    malloc_trim(0);
    CHECK_GE(told_bytes, BYTES);
    use_all();
}
#endif

TEST_MAIN()
