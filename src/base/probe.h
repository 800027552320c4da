// SPDX-License-Identifier: MIT
// probe.h: places at which tracers may stop a program (USDT, version 3 of SystemTap's notes).
//
// A probe is a nop. A note in the file says where it is, and in which registers its arguments are there. perf,
// bpftrace, bcc, systemtap and gdb read the note, and put a breakpoint there while they listen. A probe has no
// semaphore: it stands only where a nop more, and the work for its arguments, is nothing. Notes are not loaded into
// memory. One byte is (the section .stapsdt.base): by its place readers see whether the file was moved by prelinking.
#ifndef QY_BASE_PROBE_H
#define QY_BASE_PROBE_H

#include <stdint.h>

// `arguments`: a string of "8@%N" for each operand, as 8 unsigned bytes.
#define QY_PROBE_NOTE(provider, name, arguments)                            \
    "990: nop\n"                                                            \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                            \
    ".balign 4\n"                                                           \
    ".4byte 992f-991f, 994f-993f, 3\n"                                      \
    "991: .asciz \"stapsdt\"\n"                                             \
    "992: .balign 4\n"                                                      \
    "993: .8byte 990b\n"                                                    \
    ".8byte _.stapsdt.base\n"                                               \
    ".8byte 0\n"                                                            \
    ".asciz \"" provider "\"\n"                                             \
    ".asciz \"" name "\"\n"                                                 \
    ".asciz \"" arguments "\"\n"                                            \
    "994: .balign 4\n"                                                      \
    ".popsection\n"                                                         \
    ".ifndef _.stapsdt.base\n"                                              \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
    ".weak _.stapsdt.base\n"                                                \
    ".hidden _.stapsdt.base\n"                                              \
    "_.stapsdt.base: .space 1\n"                                            \
    ".size _.stapsdt.base, 1\n"                                             \
    ".popsection\n"                                                         \
    ".endif\n"

#if UINTPTR_MAX == UINT64_MAX
#define QY_PROBE1(provider, name, a) \
    __asm__ volatile(QY_PROBE_NOTE(provider, name, "8@%0")::"r"((uint64_t)(a)))
#define QY_PROBE3(provider, name, a, b, c)                                                \
    __asm__ volatile(QY_PROBE_NOTE(provider, name, "8@%0 8@%1 8@%2")::"r"((uint64_t)(a)), \
        "r"((uint64_t)(b)), "r"((uint64_t)(c)))
#else
#define QY_PROBE1(provider, name, a) ((void)(a))
#define QY_PROBE3(provider, name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
