// SPDX-License-Identifier: MIT
// opts.h: run-time options, QUARRY_CONF="key:value,key:value". One table (opts.def) is the source
// for parsing, ranges, help text and documentation. Unknown keys and bad values warn once, by
// name, and are otherwise ignored. Values are read once, at start; the API may override later.
#ifndef QY_RT_OPTS_H
#define QY_RT_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// X(name, type, default, min, max, "doc")      type: bool (on/off/1/0/true/false), u64 (with
// suffixes k m g, IEC), or str (NULL by default)
typedef struct qy_opts {
#define X_bool(name) bool name;
#define X_u64(name) uint64_t name;
#define X_str(name) const char *name;
#define X(name, type, def, min, max, doc) X_##type(name)
#include "rt/opts.def"
#undef X
#undef X_bool
#undef X_u64
#undef X_str
} qy_opts_t;

extern qy_opts_t qy_opts;  // defaults before qy_opts_read, so valid from the first instruction

// Read QUARRY_CONF (not under AT_SECURE). Allocates nothing. For constructors; only the first call reads.
void qy_opts_read(void);

// Parse one "key:value,..." string into *opts; returns the number of problems, each reported by
// qy_warn. For qy_opts_read and for tests. Strings point into `conf`, unterminated at ',' :
// str values reach to the next ',' or the end (use qy_opts_str to copy).
int qy_opts_parse(qy_opts_t *opts, const char *conf);

// The same for another table: of another variable, whose fields lie in a structure of another type.
typedef enum qy_option_type { QY_OPTION_bool,
    QY_OPTION_u64,
    QY_OPTION_str } qy_option_type_t;
typedef struct qy_option {
    const char *name;
    qy_option_type_t type;
    size_t offset;  // of the field
    uint64_t min, max;
} qy_option_t;
typedef struct qy_option_table {
    const char *variable;
    const qy_option_t *options;
    size_t count;
} qy_option_table_t;
int qy_options_parse(const qy_option_table_t *table, void *fields, const char *conf);
// Read the variable, not under AT_SECURE. `copy` is where the strings lie from then on.
void qy_options_read(const qy_option_table_t *table, void *fields, char *copy, size_t bytes);

// Copy a str option into buf, cut to fit, NUL-terminated. False if unset.
bool qy_opts_str(const char *value, char *buf, size_t bytes);

#endif
