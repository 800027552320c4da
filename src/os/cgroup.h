// SPDX-License-Identifier: MIT
// cgroup.h: the CPU quota of this process's control group.
#ifndef QY_OS_CGROUP_H
#define QY_OS_CGROUP_H

// CPUs' worth of time the group may use, rounded up, at least 1; UINT32_MAX if there is no quota or
// it cannot be read. `root` is put before every path: "" or, in tests, the root of a made-up tree.
unsigned qy_os_cgroup_cpus(const char *root);

#endif
