// SPDX-License-Identifier: MIT
// check_libc_args.h: the memory that the arguments of printf and scanf point to, as their format says.
#ifndef QY_API_CHECK_LIBC_ARGS_H
#define QY_API_CHECK_LIBC_ARGS_H

#include <stdarg.h>
#include <stdbool.h>

// Before printf: the format, the strings of %s, and where %n writes. Of a format with numbered arguments ("%2$s"), or
// with a conversion that the C standard does not have, nothing is looked at from there on.
void qy_libc_printf_args(const void *format, bool is_wide, va_list args, const char *function);
// After scanf, which has assigned `done` arguments: those.
void qy_libc_scanf_args(const void *format, bool is_wide, va_list args, int done, const char *function);

#endif
