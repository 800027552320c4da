// SPDX-License-Identifier: MIT
// test_maps.c: which file is mapped at an address, by what path, also where that is odd or the file has lost its name.
#include "harness.h"

#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "os/fake.h"
#include "os/loaded.h"
#include "os/maps.h"

static char path[4096];

static bool find(const void *address, qy_os_mapped_t *ret) {
    qy_os_maps_t maps = qy_os_maps_read();
    CHECK(maps.text && maps.bytes);
    bool found = qy_os_maps_find(&maps, (uintptr_t)address, path, sizeof path, ret);
    qy_os_maps_free(&maps);
    CHECK(!maps.text);
    return found;
}

TEST(this_program) {
    char own[4096];
    struct stat st;
    qy_os_mapped_t mapped;
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    CHECK(n > 0);
    own[n] = '\0';
    CHECK(find((const void *)(uintptr_t)&find, &mapped));
    CHECK_STR_EQ(path, own);
    CHECK_EQ(mapped.length, (size_t)n);
    CHECK_EQ(stat(own, &st), 0);
    CHECK_EQ(mapped.bytes, (uint64_t)st.st_size);
    CHECK_EQ(mapped.modified_ns, (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
}

TEST(what_is_no_file) {
    qy_os_mapped_t mapped;
    int on_the_stack = 0;
    CHECK(!find(&on_the_stack, &mapped));  // [stack]
    CHECK(!find(NULL, &mapped));
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK(!find(p, &mapped));
    munmap(p, 4096);
    qy_os_maps_t none = {0};
    CHECK(!qy_os_maps_find(&none, (uintptr_t)&find, path, sizeof path, &mapped));
    quarry_os_fault(1, true, 1u << QY_OS_OPEN);
    qy_os_maps_t denied = qy_os_maps_read();
    quarry_os_fault(0, false, 0);
    CHECK(!denied.text);
    qy_os_maps_free(&denied);
}

// The text may end anywhere, and be anything.
TEST(damaged_text) {
    char text[] = "1000-2000 r-xp 00000000 fe:00 12   /a b\n2000-3000 r-xp 0 0 0 /c\n5000-6000";
    for (size_t n = 0; n <= sizeof text - 1; n++) {
        qy_os_maps_t maps = {.text = text, .bytes = n};
        qy_os_mapped_t mapped;
        bool found = qy_os_maps_find(&maps, 0x1fff, path, sizeof path, &mapped);
        CHECK_EQ(found, n >= 40);
        if (found) CHECK_STR_EQ(path, "/a b");
        CHECK(!qy_os_maps_find(&maps, 0x5500, path, sizeof path, &mapped));
        CHECK(!qy_os_maps_find(&maps, 0x1fff, path, 4, &mapped));  // no room
    }
}

static void at_path(const char *name, const char *wanted, bool gone) {
    char file[256];
    qy_os_mapped_t mapped;
    snprintf(file, sizeof file, "/tmp/test_maps.%d%s", (int)getpid(), name);
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, 4096), 0);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED);
    if (gone) unlink(file);
    CHECK(find(p, &mapped));
    CHECK(strlen(path) >= strlen(wanted) && strcmp(path + strlen(path) - strlen(wanted), wanted) == 0);
    CHECK_EQ(mapped.bytes, gone ? 0u : 4096u);
    munmap(p, 4096);
    close(fd);
    unlink(file);
}

TEST(odd_paths) {
    at_path(" with blanks  ", " with blanks  ", false);
    at_path("new\nline", "new\nline", false);
    at_path(" (deleted)", " (deleted)", false);
    at_path(".so", ".so", true);
    at_path(" (deleted)", " (deleted)", true);
    at_path("\xff", "\xff", false);
}

// ---- what the loader has mapped ---------------------------------------------------------------------------------

static void see_program(const qy_os_loaded_t *l, void *found) {
    if (!*l->path) *(bool *)found = l->segments > 0;
}
TEST(loaded_files) {
    bool found = false;
    qy_os_each_loaded(see_program, &found);
    CHECK(found);
}

// A copy of this program whose note, with the build id, is said to lie where nothing is.
static bool copy_without_note(const char *to) {
    struct stat st;
    int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
    CHECK(in >= 0 && out >= 0 && fstat(in, &st) == 0);
    size_t bytes = (size_t)st.st_size;
    char *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, in, 0);
    CHECK(file != MAP_FAILED);
    const ElfW(Ehdr) *head = (const void *)file;
    ElfW(Phdr) *h = (void *)(file + head->e_phoff);
    bool any = false;
    for (unsigned i = 0; i < head->e_phnum; i++) {
        // What is aligned to 8 the loader reads itself.
        if (h[i].p_type != PT_NOTE || h[i].p_align != 4) continue;
        h[i].p_vaddr = (ElfW(Addr))1 << 46;
        any = true;
    }
    CHECK_EQ(write(out, file, bytes), (ssize_t)bytes);
    munmap(file, bytes);
    close(in);
    close(out);
    return any;
}
TEST(a_note_that_is_not_mapped) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they read such notes themselves");
    char copy[64];
    int status = -1;
    snprintf(copy, sizeof copy, "/tmp/test_maps.%d", (int)getpid());
    bool any = copy_without_note(copy);
    fflush(stdout);
    pid_t pid = any ? fork() : -1;
    if (pid == 0) {
        execl(copy, copy, "loaded_files", (char *)NULL);
        _exit(9);
    }
    bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    unlink(copy);
    if (!any) TEST_SKIP("needs a program with a build id");
    CHECK(ended);
    CHECK_EQ(status, 0);
}

TEST_MAIN()
