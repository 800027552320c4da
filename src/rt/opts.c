// SPDX-License-Identifier: MIT
// opts.c: the options, read from the table.
//
//   conf:  key:value , key:value , ...      the value is cut at ',', the key at the first ':'
#include "rt/opts.h"

#include "base/num.h"
#include "os/os.h"
#include "rt/diag.h"

// ---- the table ------------------------------------------------------------------------------------

#define X(name, type, def, min, max, doc) {#name, QY_OPTION_##type, offsetof(qy_opts_t, name), min, max},
static const qy_option_t options[] = {
#include "rt/opts.def"
};
#undef X
static const qy_option_table_t opts_table = {"QUARRY_CONF", options, sizeof options / sizeof *options};

#define X(name, type, def, min, max, doc) .name = def,
qy_opts_t qy_opts = {
#include "rt/opts.def"
};
#undef X

// ---- pieces of text -------------------------------------------------------------------------------

// A piece of the string that is parsed; not terminated.
typedef struct text {
    const char *at;
    size_t length;
} text_t;

#define QUOTE_BYTES 48
typedef struct quote {
    char text[QUOTE_BYTES];
} quote_t;

// A copy to print, cut to a bearable length.
static const char *quoted(text_t t, quote_t *q) {
    size_t n = qy_min(t.length, QUOTE_BYTES - 1);
    for (size_t i = 0; i < n; i++) q->text[i] = t.at[i];
    q->text[n] = '\0';
    if (t.length > n) q->text[n - 1] = q->text[n - 2] = q->text[n - 3] = '.';
    return q->text;
}

static bool equal(text_t t, const char *s) {
    size_t i = 0;
    while (i < t.length && s[i] && t.at[i] == s[i]) i++;
    return i == t.length && !s[i];
}

static text_t text_until(const char *at, const char *end, char stop) {
    text_t t = {at, 0};
    while (at + t.length < end && at[t.length] != stop) t.length++;
    return t;
}

// Edit distance between a key and an option's name, or `limit` + 1 when it is more than that.
static unsigned option_distance(text_t t, const char *name, unsigned limit) {
    unsigned row[24];  // row[j]: distance of the key's first i characters to the name's first j
    size_t n = 0;
    while (name[n]) n++;
    if (n >= sizeof row / sizeof *row || t.length > n + limit) return limit + 1;
    for (size_t j = 0; j <= n; j++) row[j] = (unsigned)j;
    for (size_t i = 0; i < t.length; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 1; j <= n; j++) {
            unsigned change = diagonal + (t.at[i] != name[j - 1]);
            diagonal = row[j];
            unsigned insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < insert ? change : insert;
        }
    }
    return row[n] <= limit ? row[n] : limit + 1;
}

// ---- values -----------------------------------------------------------------------------------------

static bool parse_bool(text_t t, bool *ret) {
    static const char *const yes[] = {"on", "1", "true", "yes"}, *const no[] = {"off", "0", "false", "no"};
    for (int i = 0; i < 4; i++) {
        if (equal(t, yes[i])) return *ret = true, true;
        if (equal(t, no[i])) return *ret = false, true;
    }
    return false;
}

// Digits and at most one suffix. UINT64_MAX stands for all that is larger.
static bool parse_u64(text_t t, uint64_t *ret) {
    unsigned shift = 0;
    if (t.length) {
        switch (t.at[t.length - 1] | 0x20) {  // lower case
        case 'k': shift = 10; break;
        case 'm': shift = 20; break;
        case 'g': shift = 30; break;
        }
    }
    if (shift) t.length--;
    if (!t.length) return false;
    uint64_t n = 0;
    bool large = false;
    for (size_t i = 0; i < t.length; i++) {
        if (t.at[i] < '0' || t.at[i] > '9') return false;
        large |= __builtin_mul_overflow(n, 10, &n);
        large |= __builtin_add_overflow(n, (uint64_t)(t.at[i] - '0'), &n);
    }
    large |= __builtin_mul_overflow(n, 1ull << shift, &n);
    *ret = large ? UINT64_MAX : n;
    return true;
}

// ---- problems ---------------------------------------------------------------------------------------

#define WARNINGS_MAX 8

static bool may_warn(int *problems) { return (*problems)++ < WARNINGS_MAX; }

static void unknown_key(const qy_option_table_t *table, text_t key, int *problems) {
    if (!may_warn(problems)) return;
    quote_t k;
    const char *nearest = NULL;
    unsigned best = 3;
    for (size_t i = 0; i < table->count; i++) {
        unsigned d = option_distance(key, table->options[i].name, 2);
        if (d < best) best = d, nearest = table->options[i].name;
    }
    if (nearest) qy_warn("%s: unknown option '%s', did you mean '%s'?", table->variable, quoted(key, &k), nearest);
    else qy_warn("%s: unknown option '%s'", table->variable, quoted(key, &k));
}

static void option_set(
    const qy_option_table_t *table, void *fields, const qy_option_t *o, text_t value, int *problems) {
    void *field = (char *)fields + o->offset;
    quote_t v;
    uint64_t n;
    switch (o->type) {
    case QY_OPTION_bool:
        if (!parse_bool(value, field) && may_warn(problems))
            qy_warn("%s: %s: '%s' is neither on nor off", table->variable, o->name, quoted(value, &v));
        break;
    case QY_OPTION_u64:
        if (!parse_u64(value, &n)) {
            if (may_warn(problems))
                qy_warn("%s: %s: '%s' is not a number", table->variable, o->name, quoted(value, &v));
        } else if (n < o->min || n > o->max) {
            if (may_warn(problems))
                qy_warn("%s: %s: '%s' is not within %l and %l", table->variable, o->name, quoted(value, &v), o->min,
                    o->max);
        } else {
            *(uint64_t *)field = n;
        }
        break;
    case QY_OPTION_str:
        *(const char **)field = value.length ? value.at : NULL;
        break;
    }
}

// One "key:value".
static void parse_item(const qy_option_table_t *table, void *fields, text_t item, int *problems) {
    text_t key = text_until(item.at, item.at + item.length, ':');
    const qy_option_t *o = NULL;
    for (size_t i = 0; i < table->count && !o; i++) {
        if (equal(key, table->options[i].name)) o = &table->options[i];
    }
    if (!o) {
        unknown_key(table, key, problems);
    } else if (key.length == item.length) {
        if (may_warn(problems)) qy_warn("%s: %s: no value, write %s:VALUE", table->variable, o->name, o->name);
    } else {
        option_set(table, fields, o, (text_t){key.at + key.length + 1, item.length - key.length - 1}, problems);
    }
}

int qy_options_parse(const qy_option_table_t *table, void *fields, const char *conf) {
    const char *end = conf;
    while (*end) end++;
    int problems = 0;
    for (const char *at = conf; at < end;) {
        text_t item = text_until(at, end, ',');
        if (item.length) parse_item(table, fields, item, &problems);
        at += item.length + 1;
    }
    if (problems > WARNINGS_MAX) qy_warn("%s: and %d more", table->variable, problems - WARNINGS_MAX);
    return problems;
}

int qy_opts_parse(qy_opts_t *opts, const char *conf) { return qy_options_parse(&opts_table, opts, conf); }

void qy_options_read(const qy_option_table_t *table, void *fields, char *copy, size_t bytes) {
    const char *conf = qy_os_getenv(table->variable);
    if (!conf) return;
    if (qy_format(copy, bytes, "%s", conf) == bytes - 1) {
        qy_warn("%s is longer than %z characters and is ignored", table->variable, bytes - 2);
        return;
    }
    qy_options_parse(table, fields, copy);
}

void qy_opts_read(void) {
    // A copy: programs overwrite their environment to set the title that ps shows, and strings are
    // looked at again when the process ends. Apart: few processes have any.
    static char copy[4096] __attribute__((section(".bss.rare")));
    static bool done;
    if (done) return;
    done = true;
    qy_options_read(&opts_table, &qy_opts, copy, sizeof copy);
}

bool qy_opts_str(const char *value, char *buf, size_t bytes) {
    if (!value || !bytes) return false;
    size_t n = 0;
    while (n < bytes - 1 && value[n] && value[n] != ',') buf[n] = value[n], n++;
    buf[n] = '\0';
    return true;
}
