// SPDX-License-Identifier: MIT
// pinpoint.c: see pinpoint.h.
#include "check/pinpoint.h"

#include <stdatomic.h>
#include <string.h>

#include "base/num.h"
#include "check/check.h"
#include "check/frames.h"
#include "check/options.h"
#include "os/file.h"
#include "rt/opts.h"

#define SITES 256u
#define FILE_BYTES 16384u
#define KNOWN 16384u  // stacks of which it is remembered whether they are a site: one word each

static struct {
    unsigned count;
    qy_pinpoint_site_t site[SITES];
    _Atomic uint64_t known[KNOWN];  // stack << 16 | number of its site + 1, 0: none; 0: nothing
} pinpoint;

// ---- the file -------------------------------------------------------------------------------------------------------

typedef struct sites_text {
    const char *at, *end;
} sites_text_t;

static void skip_blanks(sites_text_t *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t')) t->at++;
}

static bool read_number(sites_text_t *t, unsigned base, uint64_t *ret) {
    skip_blanks(t);
    const char *begin = t->at;
    for (*ret = 0; t->at < t->end; t->at++) {
        unsigned digit = (unsigned)*t->at - '0';
        if (digit > 9) digit = (unsigned)(*t->at | 0x20) - 'a' + 10;
        if (digit >= base || *ret > (UINT64_MAX - digit) / base) break;
        *ret = *ret * base + digit;
    }
    return t->at > begin;
}

static bool read_text(sites_text_t *t, const char *word) {
    skip_blanks(t);
    size_t n = strlen(word);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0) return false;
    t->at += n;
    return true;
}

static bool read_site(sites_text_t *t, qy_pinpoint_site_t *ret) {
    uint64_t offset;
    if (!read_number(t, 16, &ret->number) || !read_number(t, 10, &ret->ordinal)) return false;
    bool minus = read_text(t, "-");
    if (!read_number(t, 10, &offset) || offset > INT64_MAX) return false;
    ret->offset = minus ? -(int64_t)offset : (int64_t)offset;
    bool before = read_text(t, "before");
    ret->side = before ? QY_GUARD_BEFORE : QY_GUARD_BEHIND;
    return before || read_text(t, "behind");
}

static void read_sites(const char *text, size_t bytes) {
    for (const char *end = text + bytes; text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        sites_text_t line = {text, newline ? newline : end};
        text = line.end + 1;
        skip_blanks(&line);
        if (line.at == line.end || *line.at == '#') continue;
        if (pinpoint.count < SITES && read_site(&line, &pinpoint.site[pinpoint.count])) pinpoint.count++;
        else qy_check_note("option sites: a line is not understood, or the file has more than 256; see docs/check.md");
    }
}

bool qy_pinpoint_begin(void) {
    static char text[FILE_BYTES];
    char path[4096];
    if (!qy_opts_str(qy_check_options.sites, path, sizeof path)) return false;
    size_t n = qy_os_read_small(path, text, sizeof text);
    if (!n) qy_check_note("option sites: the file cannot be read, or is empty; no block is guarded");
    read_sites(text, n);
    return true;
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    for (const unsigned char *b = bytes; n; n--) hash = (hash ^ *b++) * UINT64_C(0x100000001B3);
    return hash;
}

// *ret_whole: the files of all frames are known.
static uint64_t site_number(uint32_t stack, bool *ret_whole) {
    *ret_whole = true;
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (unsigned i = 0; i < QY_PINPOINT_FRAMES && stack; i++) {
        qy_check_frame_t frame;
        stack = qy_check_frame(stack, &frame);
        const qy_check_module_t *m = frame.module;
        if (m && m->id_bytes) hash = hash_bytes(hash, m->build_id, m->id_bytes);
        else if (m) hash = hash_bytes(hash, m->path, strlen(m->path));
        if (!m) *ret_whole = false;
        uint64_t at = m ? frame.pc - m->bias : 0;
        unsigned char bytes[8];
        for (unsigned b = 0; b < 8; b++) bytes[b] = (unsigned char)(at >> 8 * b);
        hash = hash_bytes(hash, bytes, sizeof bytes);
    }
    return hash;
}

const qy_pinpoint_site_t *qy_pinpoint_find(uint32_t stack) {
    if (!pinpoint.count || !stack) return NULL;
    _Atomic uint64_t *known = &pinpoint.known[stack % KNOWN];
    uint64_t word = atomic_load_explicit(known, memory_order_relaxed);
    if (word >> 16 != stack) {
        bool whole;
        uint64_t number = site_number(stack, &whole);
        if (!whole) {
            qy_check_frames_look();
            number = site_number(stack, &whole);
        }
        unsigned i = 0;
        while (i < pinpoint.count && pinpoint.site[i].number != number) i++;
        word = (uint64_t)stack << 16 | (i < pinpoint.count ? i + 1 : 0);
        atomic_store_explicit(known, word, memory_order_relaxed);
    }
    return word & 0xffff ? &pinpoint.site[(word & 0xffff) - 1] : NULL;
}

bool qy_pinpoint_is_near(const qy_pinpoint_site_t *site, uint64_t ordinal) {
    for (unsigned i = 0; i < pinpoint.count; i++) {
        uint64_t named = pinpoint.site[i].ordinal, apart = ordinal > named ? ordinal - named : named - ordinal;
        if (pinpoint.site[i].number == site->number && apart <= QY_PINPOINT_NEAR) return true;
    }
    return false;
}

size_t qy_pinpoint_align(const qy_pinpoint_site_t *site, size_t align, size_t n) {
    while (align > 1 && site->offset >= (int64_t)n && (int64_t)qy_round_up(n, align) > site->offset) align /= 2;
    return align;
}
