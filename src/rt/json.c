// SPDX-License-Identifier: MIT
// json.c: see json.h.
#include "rt/json.h"

#include <string.h>

#include "rt/diag.h"

void qy_json_begin(qy_json_t *j, char *buf, size_t bytes) {
    *j = (qy_json_t){.begin = buf, .at = buf, .end = buf + bytes - 1};
}

// All of it or nothing, so that no character is cut in two.
static void put(qy_json_t *j, const char *text, size_t n) {
    if (j->end - j->at < (ptrdiff_t)n) {  // who keeps room for later may have moved the end in front of it
        j->full = true;
        return;
    }
    memcpy(j->at, text, n);
    j->at += n;
    *j->at = '\0';
}

void qy_json_raw(qy_json_t *j, const char *text) { put(j, text, strlen(text)); }

void qy_json_number(qy_json_t *j, uint64_t n) {
    char digits[24];
    put(j, digits, qy_format(digits, sizeof digits, "%l", n));
}

void qy_json_key(qy_json_t *j, const char *key) {
    if (j->at > j->begin && j->at[-1] != '{') qy_json_raw(j, ",");
    qy_json_string(j, key, SIZE_MAX);
    qy_json_raw(j, ":");
}

// Bytes of the UTF-8 character that begins here; 0: none does.
static size_t utf8_length(const unsigned char *s, size_t left) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2
                             : s[0] >> 4 == 14  ? 3
                             : s[0] >> 3 == 30  ? 4
                                                : 0;
    if (n <= 1 || n > left) return n > left ? 0 : n;
    uint32_t c = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

bool qy_json_is_utf8(const char *text) {
    for (size_t n; *text; text += n)
        if (!(n = utf8_length((const unsigned char *)text, strnlen(text, 4)))) return false;
    return true;
}

void qy_json_hex(qy_json_t *j, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    qy_json_raw(j, "\"");
    for (size_t i = 0; i < n; i++) {
        char hex[2] = {"0123456789abcdef"[b[i] >> 4], "0123456789abcdef"[b[i] & 15]};
        put(j, hex, 2);
    }
    qy_json_raw(j, "\"");
}

void qy_json_string(qy_json_t *j, const char *text, size_t length) {
    const unsigned char *s = (const unsigned char *)text;
    char *keep = j->end;
    if (j->end - j->at < 2) {
        j->full = true;
        return;
    }
    qy_json_raw(j, "\"");
    j->end--;  // the closing quote always fits
    bool was_full = j->full;
    j->full = false;
    for (size_t i = 0, n; i < length && s[i] && !j->full; i += n) {
        n = utf8_length(s + i, strnlen(text + i, length - i > 4 ? 4 : length - i));
        if (!n) {
            put(j, "\xef\xbf\xbd", 3);
            n = 1;
        } else if (s[i] == '"' || s[i] == '\\') {
            char escaped[2] = {'\\', (char)s[i]};
            put(j, escaped, 2);
        } else if (s[i] < ' ' || s[i] == 0x7f) {
            char escaped[8] = {'\\', 'u', '0', '0', "01234567"[s[i] >> 4], "0123456789abcdef"[s[i] & 15]};
            put(j, escaped, 6);
        } else put(j, text + i, n);
    }
    j->full |= was_full;
    j->end = keep;
    put(j, "\"", 1);
}
