// SPDX-License-Identifier: MIT
// module.h: which file of the program is mapped where.
#ifndef QY_OS_MODULE_H
#define QY_OS_MODULE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct qy_os_module {
    uintptr_t begin, end;         // of its mapping
    const uint8_t *eh_frame_hdr;  // the table for unwinding
    const uint8_t *readable;      // the segment in which that lies: may be read as long as the module
    const uint8_t *readable_end;  // is loaded
    bool main;                    // the program itself
    uintptr_t base;               // what is added to the addresses in the file
    const char *path;             // as the dynamic linker has it; "" for the program itself
} qy_os_module_t;

// The module that has code at pc, if it has a table for unwinding. Without locks where the C library
// offers that (glibc from 2.35 on); else under the dynamic linker's lock for its list, which it takes again
// if the thread has it already. The answer holds until the module is unloaded.
bool qy_os_module_at(uintptr_t pc, qy_os_module_t *ret);

// May it be asked at any time, also while the dynamic linker itself calls malloc? Not where that holds a lock then
// which the question takes.
bool qy_os_module_may_be_asked(void);

#endif
