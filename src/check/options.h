// SPDX-License-Identifier: MIT
// options.h: the options of quarry check, from the table check.def. They are written once, by qy_check_options_read,
// before there is a second thread that checks.
#ifndef QY_CHECK_OPTIONS_H
#define QY_CHECK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct qy_check_options {
#define X_bool(name) bool name;
#define X_u64(name) uint64_t name;
#define X_str(name) const char *name;
#define X(name, type, def, min, max, doc) X_##type(name)
#include "check/check.def"
#undef X
#undef X_bool
#undef X_u64
#undef X_str
} qy_check_options_t;

extern qy_check_options_t qy_check_options;

// Reads the variable QUARRY_CHECK, not under AT_SECURE. Strings stay as long as the process.
void qy_check_options_read(void);

#endif
