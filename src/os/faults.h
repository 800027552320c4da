// SPDX-License-Identifier: MIT
// faults.h: accesses to memory that has no access, before the program hears of them (SIGSEGV).
//
// The library is asked first. What is none of its business goes on to the action that the program chose, as if that
// had been called by the kernel: with the same context, its mask, and its flags. The default action ends the process
// at the instruction that did it, so a core file shows that one.
#ifndef QY_OS_FAULTS_H
#define QY_OS_FAULTS_H

#include "os/action.h"

typedef struct qy_os_fault {
    uintptr_t address;
    uintptr_t pc, sp, fp;  // of the instruction
    bool is_write;
    bool is_known;  // whether it is a write
} qy_os_fault_t;

// Called on the thread that did it, in the handler, on the alternate stack of signals if it has one. True: the
// instruction may be tried again; it is not if it lies at the address itself, for there is no right to run it.
typedef bool qy_os_on_fault_t(const qy_os_fault_t *f);

// From now on `fn` is asked, of which there is one in a process. False: denied; the program's action stays.
bool qy_os_faults_begin(qy_os_on_fault_t *fn);
// The program's action at SIGSEGV, while the library's is in force. False: it is not.
bool qy_os_faults_program(const qy_os_action_t *next, qy_os_action_t *ret_before);

#endif
