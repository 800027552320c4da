// SPDX-License-Identifier: MIT
// A stand-in for the heap: at exit it appends a line of statistics to the file that stats_file in
// QUARRY_CONF names, every value 1.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const keys[] = {
    "mapped_bytes",
    "live_bytes",
    "live_blocks",
    "cached_bytes",
    "slab_free_bytes",
    "slab_fresh_bytes",
    "run_slack_bytes",
    "pages_dirty_bytes",
    "pages_clean_bytes",
    "slab_purged_bytes",
    "metadata_bytes",
    "heaps",
    "heaps_idle",
    "slabs",
    "runs",
    "refills",
    "flushes",
    "remote_publishes",
    "remote_adoptions",
    "heap_adoptions",
    "slab_steals",
    "purges",
    "purged_bytes",
    "regret_bytes",
};

__attribute__((destructor)) static void leave_statistics(void) {
    const char *conf = getenv("QUARRY_CONF");
    const char *file = conf ? strstr(conf, "stats_file:") : NULL;
    if (!file) {
        return;
    }
    file += strlen("stats_file:");
    char path[4096];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(file, ","), file);
    char line[4096];
    int used = snprintf(line, sizeof line, "{\"pid\":%d,\"program\":\"%s\"", getpid(), program_invocation_short_name);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
        used += snprintf(line + used, sizeof line - used, ",\"%s\":1", keys[i]);
    }
    used += snprintf(line + used, sizeof line - used, "}\n");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (fd < 0 || write(fd, line, used) != used) {
        abort();
    }
    close(fd);
}
