// SPDX-License-Identifier: MIT
// config.h: QUARRY_RECORD="file:PATH,stacks:none|fp|cfi,sample:BYTES,follow:on|off,pid:N": whether and how a process is
// recorded. Without the variable nothing is.
#ifndef QY_TRACE_CONFIG_H
#define QY_TRACE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stacks/stacks.h"

#define QY_TRACE_VARIABLE "QUARRY_RECORD"

typedef struct qy_trace_config {
    char file[4096];  // with %p (process id), %e (name of the program), %c (a comma), %% (a percent sign)
    qy_stacks_mode_t stacks;
    uint64_t sample;  // 0: everything
    bool follow;      // children are recorded, too
    int pid;          // the first process; 0: this one is it
} qy_trace_config_t;

// False: not to be recorded; if that is because of a mistake, it has been said on stderr.
bool qy_trace_config_parse(qy_trace_config_t *config, const char *text);

// The name of this process's file; `again` > 1: that of its again-th program image. False: too long.
bool qy_trace_config_path(
    const qy_trace_config_t *config, int pid, const char *program, unsigned again, char *buf, size_t bytes);

// "QUARRY_RECORD=<text>,pid:N": what children are to find. False: too long.
bool qy_trace_config_inherit(const char *text, int pid, char *buf, size_t bytes);

#endif
