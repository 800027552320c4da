// SPDX-License-Identifier: MIT
// options.c: see options.h.
#include "check/options.h"

#include <stddef.h>

#include "rt/opts.h"

#define X(name, type, def, min, max, doc) .name = def,
qy_check_options_t qy_check_options = {
#include "check/check.def"
};
#undef X

void qy_check_options_read(void) {
#define X(name, type, def, min, max, doc) {#name, QY_OPTION_##type, offsetof(qy_check_options_t, name), min, max},
    static const qy_option_t check_options[] = {
#include "check/check.def"
    };
#undef X
    static const qy_option_table_t table = {
        "QUARRY_CHECK", check_options, sizeof check_options / sizeof *check_options};
    static char copy[4096 + 1024];
    qy_options_read(&table, &qy_check_options, copy, sizeof copy);
}
