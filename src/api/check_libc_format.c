// SPDX-License-Identifier: MIT
// check_libc_format.c: see check_libc.h. printf and scanf.
#include <stdarg.h>
#include <wchar.h>

#include "api/check_libc.h"
#include "api/check_libc_args.h"

// Not <stdio.h>, which gives the scanf functions other names.
typedef struct _IO_FILE FILE;

#define TABLE "api/check_libc_format.def"
#define TABLE_FIND qy_libc_find_format
#include "api/check_libc_define.h"
