// SPDX-License-Identifier: MIT
// newfile.h: a file that gets its name when its contents can be read.
//
// A process may be killed at any moment, and who finds a file of the wanted name must be able to use it. So it is begun
// without a name, and gets it last; killed before, it is gone. Where a file system (or a missing /proc) does not allow
// that, it is begun under a name of its own beside the wanted one, and that is what a killed process leaves there.
//
// Functions that return int return 0 or -errno; none touches errno. Threads: one at a time for each file.
#ifndef QY_OS_NEWFILE_H
#define QY_OS_NEWFILE_H

#include "os/os.h"

typedef struct qy_new_file {
    int fd;           // to read and to write, out of the way of the program's
    int folder;       // of the name it has meanwhile; -1: it has none
    uint64_t number;  // in that name
} qy_new_file_t;

// Begin a file that is to be at `path` (mode 0600). `named`: under a name of its own. -EOPNOTSUPP, only if not `named`:
// it must be.
int qy_os_new_file(const char *path, bool named, qy_new_file_t *ret_file);
// Give it its name; the descriptor stays open, and is the caller's from now on. -EEXIST: there is a file of that name,
// which is never replaced. -EOPNOTSUPP as above. After an error the file can only be abandoned.
int qy_os_new_file_finish(qy_new_file_t *file, const char *path);
// It goes, with its descriptor.
void qy_os_new_file_abandon(qy_new_file_t *file);

// Is there anything of this name, even a link to nowhere?
bool qy_os_file_exists(const char *path);

#endif
