// SPDX-License-Identifier: MIT
// Tracers find the sampler's probes in the file's notes, and at each sample, and its end, they are hit with what the
// note says.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "heap/draw.h"
#include "heap/samples.h"
#include "heap_test.h"
#include "rt/stats_page.h"

// ---- notes -------------------------------------------------------------------------------------------------

typedef struct probe {
    uint64_t at, base, semaphore;  // as in the file
    char arguments[64];
} probe_t;

static char *file;

static const Elf64_Shdr *section(const char *name) {
    if (!file) {
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        off_t size = lseek(fd, 0, SEEK_END);
        file = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(file != MAP_FAILED);
        close(fd);
    }
    const Elf64_Ehdr *head = (const void *)file;
    const Elf64_Shdr *all = (const void *)(file + head->e_shoff);
    const char *names = file + all[head->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < head->e_shnum; i++)
        if (!strcmp(names + all[i].sh_name, name)) return &all[i];
    return NULL;
}

// The probes of this name: a compiler may make several of one.
static size_t probes(const char *name, probe_t *ret, size_t most) {
    const Elf64_Shdr *notes = section(".note.stapsdt");
    CHECK(notes);
    CHECK_EQ(notes->sh_type, SHT_NOTE);
    size_t n = 0;
    for (uint64_t at = 0; at < notes->sh_size;) {
        const Elf64_Nhdr *note = (const void *)(file + notes->sh_offset + at);
        const char *owner = (const char *)(note + 1), *words = owner + qy_round_up(note->n_namesz, 4);
        const char *provider = words + 24, *called = provider + strlen(provider) + 1;
        CHECK_EQ(note->n_type, 3);
        CHECK(!strcmp(owner, "stapsdt") && !strcmp(provider, "otel_memory"));
        if (!strcmp(called, name) && n < most) {
            memcpy(&ret[n], words, 24);
            snprintf(ret[n++].arguments, sizeof ret->arguments, "%s", called + strlen(called) + 1);
        }
        at += sizeof *note + qy_round_up(note->n_namesz, 4) + qy_round_up(note->n_descsz, 4);
    }
    return n;
}

static int first_object(struct dl_phdr_info *info, size_t size, void *ret) {
    (void)size;
    *(uintptr_t *)ret = info->dlpi_addr;
    return 1;
}
static uintptr_t load_address(void) {
    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    return base;
}

#if defined(__aarch64__)
static const uint8_t nop[] = {0x1f, 0x20, 0x03, 0xd5};
#else
static const uint8_t nop[] = {0x90};
#endif

TEST(notes_name_two_probes) {
    probe_t p[4];
    const Elf64_Shdr *base = section(".stapsdt.base");
    CHECK(base);
    static const struct {
        const char *name;
        int arguments;
    } wanted[] = {{"alloc", 3}, {"free", 1}};
    for (int i = 0; i < 2; i++) {
        size_t n = probes(wanted[i].name, p, 4);
        CHECK_GE(n, 1);
        while (n--) {
            CHECK_EQ(p[n].base, base->sh_addr);
            CHECK_EQ(p[n].semaphore, 0);
            int arguments = 0;
            for (const char *s = p[n].arguments; (s = strstr(s, "8@")); s++) arguments++;
            CHECK_EQ(arguments, wanted[i].arguments);
            CHECK_EQ(memcmp((const void *)(load_address() + p[n].at), nop, sizeof nop), 0);
        }
    }
}

// ---- what a sample stands for --------------------------------------------------------------------------------

TEST(what_a_sample_stands_for) {
    uint64_t r = test_seed;
    for (int i = 0; i < 100000; i++) {
        unsigned rate = (unsigned)(test_random(&r) % 41);
        size_t n = 1 + test_random(&r) % ((size_t)1 << test_random(&r) % 47);
        double right = (double)n / -expm1(-ldexp((double)n, -(int)rate));
        double is = (double)qy_draw_stands_for(rate, n);
        if (fabs(is - right) > 0.5 + 1e-9 * right) TEST_FAIL("%zu at %u: %.3f instead of %.3f", n, rate, is, right);
    }
    CHECK_EQ(qy_draw_stands_for(40, (size_t)1 << 62), (uint64_t)1 << 62);
}

// ---- hits -------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
static const struct {
    const char *name;
    int number;
} registers[] = {{"rax", REG_RAX}, {"rbx", REG_RBX}, {"rcx", REG_RCX}, {"rdx", REG_RDX}, {"rsi", REG_RSI},
    {"rdi", REG_RDI}, {"rbp", REG_RBP}, {"r8", REG_R8}, {"r9", REG_R9}, {"r10", REG_R10}, {"r11", REG_R11},
    {"r12", REG_R12}, {"r13", REG_R13}, {"r14", REG_R14}, {"r15", REG_R15}};

typedef struct hit {
    bool birth;
    uint64_t argument[3];
} hit_t;
static hit_t hits[16];
static unsigned count;
static probe_t listened[8];
static size_t births, all;

// As a tracer: where the note says, a trap; there, the registers that it names.
static void trapped(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    const ucontext_t *c = context;
    uintptr_t at = (uintptr_t)c->uc_mcontext.gregs[REG_RIP] - 1 - load_address();
    for (size_t i = 0; i < all; i++) {
        if (listened[i].at != at || count == sizeof hits / sizeof *hits) continue;
        hit_t *h = &hits[count++];
        h->birth = i < births;
        const char *s = listened[i].arguments;
        for (int k = 0; k < 3 && s && (s = strstr(s, "8@%")); k++) {
            s += 3;
            size_t length = strcspn(s, " ");
            for (size_t g = 0; g < sizeof registers / sizeof *registers; g++)
                if (strlen(registers[g].name) == length && !strncmp(registers[g].name, s, length))
                    h->argument[k] = (uint64_t)c->uc_mcontext.gregs[registers[g].number];
        }
    }
}

static void listen_to_both(void) {
    births = probes("alloc", listened, 4);
    all = births + probes("free", listened + births, 4);
    struct sigaction act = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGTRAP, &act, NULL), 0);
    for (size_t i = 0; i < all; i++) {
        uint8_t *code = (uint8_t *)(load_address() + listened[i].at), trap = 0xCC;
        void *page = (void *)qy_round_down((uintptr_t)code, 4096);
        if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) TEST_SKIP("code may not be written to");
        memcpy(code, &trap, 1);
    }
}

TEST(samples_hit_them) {
    listen_to_both();
    static const size_t sizes[] = {100, 5000, 300000};
    void *p[3];
    // Not while it is off.
    for (int i = 0; i < 3; i++) quarry_free(p[i] = quarry_malloc(sizes[i]));
    CHECK_EQ(count, 0);
    // At this rate it is certain.
    __atomic_store_n(&qy_stats_sampler.control, QY_DRAW_ON | 1 << 8, __ATOMIC_RELAXED);
    qy_draw_look(qy_thread_get());
    for (int i = 0; i < 3; i++) CHECK((p[i] = quarry_malloc(sizes[i])));
    __atomic_store_n(&qy_stats_sampler.control, 0, __ATOMIC_RELAXED);
    qy_draw_look(qy_thread_get());
    void *other = quarry_malloc(100);
    CHECK_EQ(count, 3);
    quarry_free(other);
    for (int i = 0; i < 3; i++) quarry_free(p[i]);
    CHECK_EQ(count, 6);
    for (int i = 0; i < 3; i++) {
        CHECK(hits[i].birth && !hits[3 + i].birth);
        CHECK_EQ(hits[i].argument[0], (uintptr_t)p[i]);
        CHECK_EQ(hits[i].argument[1], sizes[i]);
        CHECK_EQ(hits[i].argument[2], sizes[i]);
        CHECK_EQ(hits[3 + i].argument[0], (uintptr_t)p[i]);
    }
}
#endif

TEST_MAIN()
