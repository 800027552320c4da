// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "captured.h"
#include "os/cgroup.h"
#include "os/os.h"

TEST(affinity) {
    cpu_set_t set;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    CHECK_EQ(qy_os_cpu_affinity(), CPU_COUNT(&set));
    CHECK_GE(qy_os_cpu_count(), 1);
    CHECK_LE(qy_os_cpu_count(), qy_os_cpu_affinity());
}

static void on_one_cpu(void *unused) {
    (void)unused;
    cpu_set_t all, one;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &all)) last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(qy_os_cpu_affinity(), 1);
}
TEST(one_cpu) { run_apart(on_one_cpu, NULL); }

// A thread that is bound to one processor works beside others all the same.
static void *bound(void *unused) {
    unsigned all = qy_os_cpu_affinity();
    on_one_cpu(unused);
    CHECK_EQ(qy_os_cpus_together(), all);
    return NULL;
}
TEST(one_cpu_beside_others) {
    pthread_t thread;
    CHECK_EQ(qy_os_cpus_together(), qy_os_cpu_affinity());
    CHECK_EQ(pthread_create(&thread, NULL, bound, NULL), 0);
    pthread_join(thread, NULL);
}

// ---- control groups, in a made-up tree ------------------------------------------------------------

static char root[64];

__attribute__((format(printf, 2, 3))) static void put(const char *file, const char *format, ...) {
    char path[1024], text[4096];
    snprintf(path, sizeof path, "%s%s", root, file);
    for (char *s = path + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        mkdir(path, 0700);
        *s = '/';
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    CHECK_EQ(fwrite(text, 1, (size_t)n, f), n);
    fclose(f);
}

static void clear(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK_EQ(system(command), 0);
}

static void fresh(void) {
    if (*root) clear();
    strcpy(root, "/tmp/quarry-test-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static unsigned quota(void) { return qy_os_cgroup_cpus(root); }

TEST(no_files) {
    fresh();
    CHECK_EQ(quota(), UINT32_MAX);
    put("/proc/self/cgroup", "%s", "");
    CHECK_EQ(quota(), UINT32_MAX);
    put("/proc/self/cgroup", "0::/a/b\n");
    CHECK_EQ(quota(), UINT32_MAX);
    put("/proc/self/cgroup", "nonsense\n:\n::\n0:\n0::\n0::relative\n4:cpu\n\n");
    CHECK_EQ(quota(), UINT32_MAX);
}

TEST(version_2) {
    static const struct {
        const char *text;
        unsigned cpus;
    } cases[] = {
        {"max 100000\n", UINT32_MAX},
        {"100000 100000\n", 1},
        {"100001 100000\n", 2},
        {"50000 100000\n", 1},
        {"1000 100000\n", 1},
        {"800000 100000\n", 8},
        {"350000 100000\n", 4},
        {"300000 50000", 6},
        {"", UINT32_MAX},
        {"0 100000\n", UINT32_MAX},
        {"100000\n", UINT32_MAX},
        {"100000 0\n", UINT32_MAX},
        {"-5 100\n", UINT32_MAX},
        {"99999999999999999999999 1\n", UINT32_MAX},
        {"rubbish", UINT32_MAX},
    };
    fresh();
    put("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("/sys/fs/cgroup/user.slice/app.scope/cpu.max", "%s", cases[i].text);
        CHECK_EQ(quota(), cases[i].cpus);
    }
}

TEST(groups_above) {
    fresh();
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    CHECK_EQ(quota(), 4);
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    CHECK_EQ(quota(), 3);
    put("/sys/fs/cgroup/a/b/c/cpu.max", "200000 100000\n");
    CHECK_EQ(quota(), 2);
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    CHECK_EQ(quota(), 1);
    // A container: the path exists outside only, the mount is the group itself.
    put("/proc/self/cgroup", "0::/../outside/x\n");
    CHECK_EQ(quota(), 1);
    put("/proc/self/cgroup", "0::/\n");
    CHECK_EQ(quota(), 1);
    put("/proc/self/cgroup", "0::///a//b/\n");
    CHECK_EQ(quota(), 1);
}

TEST(version_1) {
    fresh();
    put("/proc/self/cgroup", "9:name=systemd:/\n5:cpuset:/x\n4:cpuacct:/y\n3:memory:/m\n2:cpu,cpuacct:/docker/0a1b\n");
    put("/sys/fs/cgroup/cpu/docker/0a1b/cpu.cfs_quota_us", "250000\n");
    CHECK_EQ(quota(), UINT32_MAX);  // no period
    put("/sys/fs/cgroup/cpu/docker/0a1b/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(quota(), 3);
    put("/sys/fs/cgroup/cpu/docker/0a1b/cpu.cfs_quota_us", "-1\n");
    CHECK_EQ(quota(), UINT32_MAX);
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "500000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(quota(), 5);
    // Only a controller called cpu counts, wherever in the list.
    put("/proc/self/cgroup", "2:cpuset,cpuacct,cpux:/docker/0a1b\n");
    CHECK_EQ(quota(), UINT32_MAX);
    put("/proc/self/cgroup", "2:cpuacct,cpu:/docker/0a1b\n");
    CHECK_EQ(quota(), 5);
    put("/proc/self/cgroup", "2:cpu:/docker/0a1b\n");
    CHECK_EQ(quota(), 5);
}

TEST(both_versions) {
    fresh();
    put("/proc/self/cgroup", "2:cpu:/a\n0::/b\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
    CHECK_EQ(quota(), 2);
}

// Lines and paths longer than we keep are ignored; what comes after them is not.
TEST(long_lines) {
    fresh();
    char deep[2000];
    put("/sys/fs/cgroup/b/cpu.max", "200000 100000\n");
    for (size_t n = 400; n < sizeof deep; n += 7) {
        memset(deep, 'd', n);
        deep[n] = '\0';
        put("/proc/self/cgroup", "7:cpu:/%s\n0::/%s\n0::/b\n", deep, deep);
        CHECK_EQ(quota(), 2);
    }
    clear();
}

TEST_MAIN()
