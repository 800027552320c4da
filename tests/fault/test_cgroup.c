// SPDX-License-Identifier: MIT
// test_cgroup.c: a limit on the memory of a control group, beyond which the kernel ends processes
// without asking malloc; and systems whose /sys or /proc is absent or cannot be written to.
//
// The limit needs a control group of one's own. Where there is one depends on who runs the machine, so
// it is asked for and never guessed: QUARRY_TEST_CGROUP names a directory of version 2 (with the memory
// controller enabled for its children) or of the memory hierarchy of version 1, in which groups may be
// made. tests/torture/machine.py has one.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "fault/rss.h"
#include "stress/shadow.h"
#include "threads/rerun.h"

#define MIB ((size_t)1 << 20)

// ---- a group of our own -----------------------------------------------------------------------------------

static char group[400];

static int put(const char *file, const char *text) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s", group, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n > 0;
}

// The number that follows `key` in one of the group's files; -1: there is none.
static long get(const char *file, const char *key) {
    char path[500], text[4096];
    snprintf(path, sizeof path, "%s/%s", group, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (char *at = text; (at = strstr(at, key)); at++) {
        if ((at == text || at[-1] == '\n') && at[strlen(key)] == ' ') return atol(at + strlen(key));
    }
    return -1;
}
static long killed(void) {
    long n = get("memory.events", "oom_kill");
    return n >= 0 ? n : get("memory.oom_control", "oom_kill");
}

// Runs body in a process of the group with this limit; its end as of waitpid.
static int in_group(size_t limit, void (*body)(size_t limit)) {
    char text[30];
    snprintf(text, sizeof text, "%zu", limit);
    CHECK(put("memory.max", text) || put("memory.limit_in_bytes", text));
    if (!put("memory.swap.max", "0")) put("memory.memsw.limit_in_bytes", text);  // absent without swap
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        if (!put("cgroup.procs", "0")) _exit(3);
        body(limit);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

static int make_group(void) {
    const char *parent = getenv("QUARRY_TEST_CGROUP");
    if (!parent) return 0;
    snprintf(group, sizeof group, "%s/quarry-test-%d", parent, (int)getpid());
    if (mkdir(group, 0755)) TEST_FAIL("QUARRY_TEST_CGROUP: cannot make %s: %s", group, strerror(errno));
    if (killed() < 0) {
        rmdir(group);
        TEST_FAIL("QUARRY_TEST_CGROUP: %s has no memory controller", parent);
    }
    return 1;
}
static void remove_group(void) {
    for (int i = 0; i < TEST_PATIENCE * 100 && rmdir(group) && errno == EBUSY; i++) usleep(10000);
}

// ---- three quarters of the limit alive, in blocks of one size after the other ------------------------------

enum { BLOCKS = 1 << 20 };
static char *block[BLOCKS];

static void fill(size_t size, size_t bytes) {
    for (size_t k = 0, had = 0; k < BLOCKS && had < bytes; k++, had += size) {
        CHECK((block[k] = m.malloc(size)) != NULL);
        memset(block[k], 1, size);
    }
}
static void give_back(void) {
    for (size_t k = 0; k < BLOCKS && block[k]; k++) {
        m.free(block[k]);
        block[k] = NULL;
    }
}

// What a size has given back serves the next one at once, when both are cut from the same pages.
static void one_after_the_other(size_t limit) {
    static const size_t sizes[] = {200, 3000, 40000, 70000, 300000, 900000, 64, 20000, 500};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(sizes[i], limit / 4 * 3);
        give_back();
    }
}

// Between those pages and mappings of their own, memory goes back first; a program that sleeps gives it.
static void with_a_rest(size_t limit) {
    static const size_t sizes[] = {200, 5000000, 40000, 20000000, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(sizes[i], limit / 4 * 3);
        give_back();
        TEST_AWAIT(statm_mib(1) <= 40);
    }
}
static void with_trim(size_t limit) {
    static const size_t sizes[] = {200, 5000000, 40000, 20000000, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(sizes[i], limit / 4 * 3);
        give_back();
        m.trim(0);
        CHECK_LT(statm_mib(1), 40);
    }
}
// That the limit is one: more than it is too much.
static void too_much(size_t limit) { fill(100000, 2 * limit); }

TEST(memory_limit) {
    if (!make_group())
        TEST_SKIP("needs QUARRY_TEST_CGROUP: a control group to make others in, as in tests/torture/machine.py");
    static const struct {
        const char *name;
        void (*body)(size_t);
    } cases[] = {{"one after the other", one_after_the_other}, {"with a rest", with_a_rest}, {"with trim", with_trim}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = in_group(200 * MIB, cases[i].body);
        long kills = killed();
        if (status || kills) remove_group();
        if (status || kills) TEST_FAIL("%s: ended with 0x%x, %ld killed", cases[i].name, (unsigned)status, kills);
    }
    int status = in_group(100 * MIB, too_much);
    long kills = killed();
    remove_group();
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_EQ(kills, 1);
}

// ---- odd systems --------------------------------------------------------------------------------------------

static void work(void) {
    static shadow_t s[200];
    uint64_t random = 1;
    for (int i = 0; i < 20000; i++) {
        shadow_free(&s[i % 200], &random);
        shadow_make(&s[i % 200], &random);
    }
    m.trim(0);
    for (int i = 0; i < 200; i++) shadow_free(&s[i], &random);
}

// Mounts of our own, then this program once more, among them.
static void among_mounts(const char *which) {
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK_GT(n, 0);
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) _exit(77);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) _exit(77);
    if (!strcmp(which, "absent")) {
        CHECK_EQ(mount("none", "/sys", "tmpfs", 0, NULL), 0);
        CHECK_EQ(mount("none", "/proc", "tmpfs", 0, NULL), 0);
        CHECK_EQ(access("/proc/self/cgroup", F_OK), -1);
    } else {
        CHECK_EQ(mount("/sys", "/sys", NULL, MS_BIND | MS_REC, NULL), 0);
        CHECK_EQ(mount(NULL, "/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
        CHECK_EQ(mount("/proc", "/proc", NULL, MS_BIND | MS_REC, NULL), 0);
        CHECK_EQ(mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
        CHECK_EQ(open("/proc/self/comm", O_WRONLY | O_CLOEXEC), -1);
    }
    execl(path, path, "work", "x", (char *)NULL);
    _exit(126);
}

static void expect_good(const char *which) {
    char *argv[] = {NULL, (char *)"mounts", (char *)(uintptr_t)which, NULL};
    rerun_t r = rerun(argv, 0);
    if (WIFEXITED(r.status) && WEXITSTATUS(r.status) == 77)
        TEST_SKIP("needs the right to mount: root, or user namespaces");
    if (r.status) TEST_FAIL("%s: %s %.300s", which, rerun_end(&r), r.text);
}
TEST(no_proc_and_no_sys) { expect_good("absent"); }
TEST(proc_and_sys_read_only) { expect_good("read-only"); }

int main(int argc, char **argv) {
    if (argc != 3) return test_main(argc, argv);
    if (!strcmp(argv[1], "mounts")) among_mounts(argv[2]);
    else if (!strcmp(argv[1], "work")) work();
    else return 2;
    return 0;
}
