// SPDX-License-Identifier: MIT
// loaded.h: all files that are mapped as parts of the program, for whoever wants to name addresses later.
//
// Under the dynamic linker's lock for its list, which a thread that has it takes again: so a caller may be within
// dlopen, and must hold no lock that others take within it.
#ifndef QY_OS_LOADED_H
#define QY_OS_LOADED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qy_os_segment {
    uint64_t address, bytes;  // as the file says: to be added to `base`
    unsigned flags;           // 1 executable, 2 writable, 4 readable
} qy_os_segment_t;

#define QY_LOADED_SEGMENTS 16
#define QY_LOADED_ID_BYTES 32

typedef struct qy_os_loaded {
    uintptr_t base;    // what is added to the addresses in the file
    const char *path;  // "" for the program itself
    unsigned segments, id_bytes;
    qy_os_segment_t segment[QY_LOADED_SEGMENTS];
    uint8_t id[QY_LOADED_ID_BYTES];  // build id
} qy_os_loaded_t;

// Call fn for each. Nothing that it is given outlives its call.
void qy_os_each_loaded(void (*fn)(const qy_os_loaded_t *loaded, void *arg), void *arg);
// dlsym, or NULL where there is no dynamic linker. What is next is so behind this library. One that has a dlsym itself
// has this one, too (api/dropin_dlopen.c), so that the loader need not look for the name at each start.
void *qy_os_dlsym(void *scope, const char *name);
// The address of `name` in the program, if a file whose name (without its folder) begins with `file` is a part of it;
// else NULL. Such a file has the name, so that the dynamic linker has no reason for a message that dlerror() would give
// to others.
void *qy_os_symbol_of(const char *file, const char *name);
// What the program's parts find by `name`; NULL: nothing, or there is no dynamic linker.
void *qy_os_symbol(const char *name);
// What `name` is in the files that come after this library in the program's order; NULL: nothing, or there is no
// dynamic linker.
void *qy_os_symbol_next(const char *name);
// The address of the function `name` in the file of exactly this name (without its folder), if that is a part of the
// program and defines it; else NULL. Unlike dlsym() it does without the lock that is held while constructors run, and
// leaves no message.
void *qy_os_function_in(const char *file, const char *name);
// Does the file that has this address define the function `name` there? False: the address is a stub of a program that
// takes the function's address, and leads to another file. True also where that cannot be told.
bool qy_os_defines(uintptr_t address, const char *name);
// How often files were loaded and unloaded so far. 50 ns.
void qy_os_loaded_changes(uint64_t *ret_loads, uint64_t *ret_unloads);

#endif
