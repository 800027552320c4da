// SPDX-License-Identifier: MIT
// rebind.h: functions of a loaded file get other addresses, for whoever looks for them there from now on.
//
// The dynamic linker finds a function by the table in the file's first pages, which are mapped privately. Where it says
// something else, every later look-up finds that: by the linker for a file that is loaded, or by dlsym. What is bound
// already stays.
#ifndef QY_OS_REBIND_H
#define QY_OS_REBIND_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#define QY_REBIND_MAX 64

typedef struct qy_os_rebind {
    const void *inside;  // the file is the one that has this address
    bool found;          // it is here, and has a table
    uintptr_t begin, end;
    int protection;  // of its pages
    unsigned count;
    struct {
        ElfW(Addr) * word;  // an address in the table, counted from the file's base, ...
        ElfW(Addr) value;   // ... and what it is to be
    } entry[QY_REBIND_MAX];
} qy_os_rebind_t;

// Note down that the functions of this name (in all versions) are to be at `function`. Nothing is changed, and nothing
// is noted of what the file does not define or has there already. Under the dynamic linker's lock for its list, as in
// loaded.h.
void qy_os_rebind_add(qy_os_rebind_t *r, const char *name, const void *function);
// Change it, with two system calls. False: the kernel refuses, and nothing is changed. Not by two threads at once.
bool qy_os_rebind(const qy_os_rebind_t *r);

#endif
