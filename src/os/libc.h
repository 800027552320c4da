// SPDX-License-Identifier: MIT
// libc.h: functions of the C library itself, whoever else has their names. Unlike dlsym() this takes no lock and
// allocates nothing, so that the heap may ask in any call.
#ifndef QY_OS_LIBC_H
#define QY_OS_LIBC_H

#include <stdbool.h>

// Can that be asked here? It takes glibc 2.35.
bool qy_os_libc_is_known(void);
// An address in the C library: of a function that nobody replaces, and that is looked for at each start anyway.
const void *qy_os_libc_inside(void);
// NULL: there is no such function, or it cannot be asked.
void *qy_os_libc_function(const char *name);
// The address that the program's parts have for a variable of the C library: a program that was linked to lie at a
// fixed address has a copy, which is the one that counts. NULL: as above.
void *qy_os_libc_variable(const char *name);

#endif
