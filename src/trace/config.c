// SPDX-License-Identifier: MIT
// config.c: see config.h.
#include "trace/config.h"

#include <string.h>

#include "rt/diag.h"

static bool is(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

// Digits, and a suffix k, m or g for multiples of 1024.
static bool config_number(const char *text, size_t length, uint64_t *ret) {
    uint64_t n = 0;
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(text[i] - '0'), &n))
            return false;
    if (i == 0) return false;
    unsigned shift = 0;
    if (i + 1 == length) {
        char c = (char)(text[i] | 0x20);
        shift = c == 'k' ? 10 : c == 'm' ? 20
                            : c == 'g'   ? 30
                                         : 0;
        i += shift ? 1 : 0;
    }
    *ret = n << shift;
    return i == length && *ret >> shift == n;
}

static bool set_file(qy_trace_config_t *c, const char *value, size_t length) {
    if (length == 0 || length >= sizeof c->file) return false;
    memcpy(c->file, value, length);
    c->file[length] = '\0';
    return true;
}

static bool set_stacks(qy_trace_config_t *c, const char *value, size_t length) {
    static const char *const words[] = {[QY_STACKS_NONE] = "none", [QY_STACKS_FP] = "fp", [QY_STACKS_CFI] = "cfi"};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!is(value, length, words[i])) continue;
        c->stacks = (qy_stacks_mode_t)i;
        return true;
    }
    return false;
}

static bool config_set(qy_trace_config_t *c, const char *key, size_t key_length, const char *value, size_t length) {
    uint64_t n;
    if (is(key, key_length, "file")) return set_file(c, value, length);
    if (is(key, key_length, "stacks")) return set_stacks(c, value, length);
    if (is(key, key_length, "sample")) return config_number(value, length, &c->sample) && c->sample <= INT64_MAX / 64;
    if (is(key, key_length, "follow")) {
        c->follow = is(value, length, "on");
        return c->follow || is(value, length, "off");
    }
    if (is(key, key_length, "pid") && config_number(value, length, &n) && n <= INT32_MAX) {
        c->pid = (int)n;
        return true;
    }
    return false;
}

bool qy_trace_config_parse(qy_trace_config_t *config, const char *text) {
    memset(config, 0, sizeof *config);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ","), key = strcspn(at, ":,");
        if (length && (key == length || !config_set(config, at, key, at + key + 1, length - key - 1))) {
            char item[64];
            size_t n = length < sizeof item ? length : sizeof item - 1;
            memcpy(item, at, n);
            item[n] = '\0';
            qy_warn("%s: what is %s? Nothing is recorded", QY_TRACE_VARIABLE, item);
            return false;
        }
        at += length + (at[length] == ',');
    }
    if (!config->file[0]) {
        qy_warn("%s: no file:PATH in it. Nothing is recorded", QY_TRACE_VARIABLE);
        return false;
    }
    if (config->follow && !strstr(config->file, "%p")) {
        qy_warn("%s: follow:on needs %%p (the process id) in the file's name. Nothing is recorded", QY_TRACE_VARIABLE);
        return false;
    }
    return true;
}

static bool config_append(char *buf, size_t bytes, size_t *length, const char *text) {
    size_t n = strlen(text);
    if (n >= bytes - *length) return false;
    memcpy(buf + *length, text, n + 1);
    *length += n;
    return true;
}

bool qy_trace_config_path(
    const qy_trace_config_t *config, int pid, const char *program, unsigned again, char *buf, size_t bytes) {
    size_t length = 0;
    bool fits = true;
    char part[16];
    buf[0] = '\0';
    for (const char *at = config->file; *at && fits; at++) {
        part[0] = *at;
        part[1] = '\0';
        const char *text = part;
        if (*at == '%' && at[1]) {
            at++;
            if (*at == 'p') qy_format(part, sizeof part, "%d", pid);
            else if (*at == 'e') text = program;
            else part[0] = (char)(*at == 'c' ? ',' : *at);
        }
        fits = config_append(buf, bytes, &length, text);
    }
    if (again > 1) {
        qy_format(part, sizeof part, ".%u", again);
        fits = fits && config_append(buf, bytes, &length, part);
    }
    return fits;
}

bool qy_trace_config_inherit(const char *text, int pid, char *buf, size_t bytes) {
    size_t length = 0;
    char part[24];
    qy_format(part, sizeof part, ",pid:%d", pid);
    return config_append(buf, bytes, &length, QY_TRACE_VARIABLE "=") && config_append(buf, bytes, &length, text) &&
           config_append(buf, bytes, &length, part);
}
