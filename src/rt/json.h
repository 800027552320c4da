// SPDX-License-Identifier: MIT
// json.h: JSON into a buffer, for traces and reports. What does not fit is left out, and the
// writer says so; nothing allocates.
#ifndef QY_RT_JSON_H
#define QY_RT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qy_json {
    char *begin, *at, *end;  // at < end: room for a NUL is kept
    bool full;               // something was left out
} qy_json_t;

void qy_json_begin(qy_json_t *j, char *buf, size_t bytes);
void qy_json_raw(qy_json_t *j, const char *text);
// In quotes; what is no UTF-8 becomes U+FFFD. `length` bytes, or up to a NUL.
void qy_json_string(qy_json_t *j, const char *text, size_t length);
void qy_json_number(qy_json_t *j, uint64_t n);
// Bytes as hexadecimal digits, in quotes.
void qy_json_hex(qy_json_t *j, const void *bytes, size_t n);
// Is a text what it is after qy_json_string?
bool qy_json_is_utf8(const char *text);
// ,"key":   (without the comma after an opening bracket)
void qy_json_key(qy_json_t *j, const char *key);
static inline size_t qy_json_length(const qy_json_t *j) { return (size_t)(j->at - j->begin); }

#endif
