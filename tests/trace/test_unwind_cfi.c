// SPDX-License-Identifier: MIT
// The tables: what each instruction means, and that no bytes, however wrong, lead outside of them.
#include "harness.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include "os/module.h"
#include "os/os.h"
#include "stacks/unwind_cfi.h"

#if defined(__x86_64__)
#define CODE 0x100000u  // where the functions of made tables begin, from the table's address

// A section between two pages that cannot be read.
typedef struct section {
    uint8_t *begin, *end, *at;
} section_t;

static section_t section_new(size_t bytes) {
    size_t page = qy_os_page_size(), room = (bytes + page - 1) & ~(page - 1);
    uint8_t *p = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK_EQ(mprotect(p + page, room, PROT_READ | PROT_WRITE), 0);
    return (section_t){p + page, p + page + room, p + page};
}

static void put(section_t *s, uint64_t value, unsigned bytes) {
    CHECK_LE(s->at + bytes, s->end);
    memcpy(s->at, &value, bytes);
    s->at += bytes;
}

static void put_bytes(section_t *s, const void *bytes, size_t n) {
    CHECK_LE(s->at + n, s->end);
    memcpy(s->at, bytes, n);
    s->at += n;
}

typedef struct frame {
    const char *letters;  // augmentation
    const uint8_t *cie, *fde;
    size_t cie_bytes, fde_bytes;
} frame_t;

// A table with one function of 256 bytes.
static qy_eh_t make(section_t *s, const frame_t *f) {
    s->at = s->begin;
    memset(s->begin, 0, (size_t)(s->end - s->begin));
    uint8_t *hdr = s->at;
    const uint8_t head[4] = {1, 0x1b, 0x03, 0x3b};
    put_bytes(s, head, 4);
    put(s, 20 - 4, 4);
    put(s, 1, 4);
    put(s, CODE, 4);
    uint8_t *fde_field = s->at;
    put(s, 0, 4);
    uint8_t *cie = s->at;
    put(s, 0, 4);
    put(s, 0, 4);
    put(s, 1, 1);
    put_bytes(s, f->letters, strlen(f->letters) + 1);
    put(s, 1, 1);
    put(s, 0x78, 1);  // -8
    put(s, 16, 1);
    if (f->letters[0] == 'z') {
        put(s, 1, 1);
        put(s, 0x1b, 1);
    }
    put_bytes(s, f->cie, f->cie_bytes);
    uint32_t length = (uint32_t)(s->at - cie - 4);
    memcpy(cie, &length, 4);
    uint8_t *fde = s->at;
    put(s, 0, 4);
    put(s, (uint64_t)(s->at - cie), 4);
    if (f->letters[0] == 'z') {
        put(s, (uint64_t)(hdr + CODE - s->at), 4);
        put(s, 256, 4);
        put(s, 0, 1);
    } else {
        put(s, (uint64_t)(uintptr_t)(hdr + CODE), 8);
        put(s, 256, 8);
    }
    put_bytes(s, f->fde, f->fde_bytes);
    length = (uint32_t)(s->at - fde - 4);
    memcpy(fde, &length, 4);
    int32_t offset = (int32_t)(fde - hdr);
    memcpy(fde_field, &offset, 4);
    return (qy_eh_t){s->begin, s->end, hdr};
}

static const uint8_t usual_cie[] = {0x0c, 7, 8, 0x90, 1};  // CFA = sp + 8, ra at CFA - 8
#define FRAME(...) \
    ((frame_t){    \
        "zR", usual_cie, (const uint8_t[]){__VA_ARGS__}, sizeof usual_cie, sizeof((const uint8_t[]){__VA_ARGS__})})

static section_t section;
static qy_rule_t rule_of(const frame_t *f, unsigned offset) {
    if (!section.begin) section = section_new(4096);
    qy_eh_t eh = make(&section, f);
    return qy_cfi_rule(&eh, (uintptr_t)eh.hdr + CODE + offset);
}

static void check_rule(qy_rule_t r, unsigned base, int off, unsigned fp_base, int fp_off) {
    CHECK_EQ(r.kind, QY_RULE_FRAME);
    CHECK_EQ(r.cfa_base, base);
    CHECK_EQ(r.cfa_off + r.cfa_add, off);
    CHECK_EQ(r.ra_base, QY_BASE_CFA);
    CHECK_EQ(r.ra_off, -8);
    CHECK_EQ(r.fp_base, fp_base);
    if (fp_base == QY_BASE_CFA) CHECK_EQ(r.fp_off, fp_off);
}

TEST(frame_pointer_function) {
    frame_t f = FRAME(0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x42, 0x0c, 7, 8, 0xc6);
    check_rule(rule_of(&f, 0), QY_BASE_SP, 8, QY_BASE_SAME, 0);
    check_rule(rule_of(&f, 1), QY_BASE_SP, 16, QY_BASE_CFA, -16);
    check_rule(rule_of(&f, 3), QY_BASE_SP, 16, QY_BASE_CFA, -16);
    check_rule(rule_of(&f, 4), QY_BASE_FP, 16, QY_BASE_CFA, -16);
    check_rule(rule_of(&f, 6), QY_BASE_SP, 8, QY_BASE_SAME, 0);
    check_rule(rule_of(&f, 255), QY_BASE_SP, 8, QY_BASE_SAME, 0);
    CHECK_EQ(rule_of(&f, 256).kind, QY_RULE_NOTHING);
    CHECK_EQ(rule_of(&f, -1u).kind, QY_RULE_NOTHING);
}

TEST(remembered_rows) {
    frame_t f = FRAME(0x41, 0x0e, 24, 0x86, 2, 0x41, 0x0a, 0x0e, 8, 0xc6, 0x41, 0x0b, 0x41, 0x0a, 0x0a, 0x0e, 64, 0x0b,
        0x41, 0x0b, 0x02, 1, 0x2e, 8, 0x11, 6, 0x7d);
    check_rule(rule_of(&f, 1), QY_BASE_SP, 24, QY_BASE_CFA, -16);
    check_rule(rule_of(&f, 2), QY_BASE_SP, 8, QY_BASE_SAME, 0);
    check_rule(rule_of(&f, 3), QY_BASE_SP, 24, QY_BASE_CFA, -16);
    check_rule(rule_of(&f, 4), QY_BASE_SP, 24, QY_BASE_CFA, -16);
    check_rule(rule_of(&f, 6), QY_BASE_SP, 24, QY_BASE_CFA, 24);  // -3 times -8
    frame_t empty = FRAME(0x0b);
    CHECK_EQ(rule_of(&empty, 0).kind, QY_RULE_UNKNOWN);
    frame_t many = FRAME(0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a);
    CHECK_EQ(rule_of(&many, 0).kind, QY_RULE_UNKNOWN);
}

TEST(outermost) {
    frame_t f = FRAME(0x07, 16);
    CHECK_EQ(rule_of(&f, 0).kind, QY_RULE_END);
}

TEST(lost_and_unknown) {
    frame_t lost = FRAME(0x07, 6);
    check_rule(rule_of(&lost, 0), QY_BASE_SP, 8, QY_BASE_LOST, 0);
    frame_t in_register = FRAME(0x09, 6, 3);
    check_rule(rule_of(&in_register, 0), QY_BASE_SP, 8, QY_BASE_LOST, 0);
    frame_t others = FRAME(0x83, 5, 0x8c, 4, 0x05, 14, 3, 0xc3, 0x08, 12);  // rbx, r12, r14
    check_rule(rule_of(&others, 0), QY_BASE_SP, 8, QY_BASE_SAME, 0);
    frame_t by_rbx = FRAME(0x0d, 3);
    CHECK_EQ(rule_of(&by_rbx, 0).kind, QY_RULE_UNKNOWN);
    frame_t ra_in_register = FRAME(0x09, 16, 2);
    CHECK_EQ(rule_of(&ra_in_register, 0).kind, QY_RULE_UNKNOWN);
    frame_t no_such = FRAME(0x3f);
    CHECK_EQ(rule_of(&no_such, 0).kind, QY_RULE_UNKNOWN);
    frame_t cut_off = FRAME(0x0e, 0x80);
    CHECK_EQ(rule_of(&cut_off, 0).kind, QY_RULE_UNKNOWN);
    frame_t plain = {"", usual_cie, (const uint8_t[]){0x0e, 32}, sizeof usual_cie, 2};
    check_rule(rule_of(&plain, 7), QY_BASE_SP, 32, QY_BASE_SAME, 0);
    frame_t strange = {"eh", usual_cie, (const uint8_t[]){0x0e, 32}, sizeof usual_cie, 2};
    CHECK_EQ(rule_of(&strange, 7).kind, QY_RULE_UNKNOWN);
}

// The stubs of lazy binding: sp + 8, and 8 more from the 11th byte of each 16 on.
TEST(stub_expression) {
    frame_t f = FRAME(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22);
    for (unsigned i = 0; i < 256; i++) {
        qy_rule_t r = rule_of(&f, i);
        uintptr_t pc = (uintptr_t)section.begin + CODE + i;
        check_rule(r, QY_BASE_SP, (pc & 15) >= 11 ? 16 : 8, QY_BASE_SAME, 0);
    }
}

TEST(words_on_the_stack) {
    frame_t realigned = FRAME(0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0);  // CFA at fp - 8; fp saved at fp
    qy_rule_t r = rule_of(&realigned, 0);
    CHECK_EQ(r.kind, QY_RULE_FRAME);
    CHECK(r.cfa_word);
    CHECK_EQ(r.cfa_base, QY_BASE_FP);
    CHECK_EQ(r.cfa_off, -8);
    CHECK_EQ(r.fp_base, QY_BASE_FP);
    CHECK_EQ(r.fp_off, 0);
    frame_t saved_sp = FRAME(0x0f, 6, 0x77, 0xb8, 0x01, 0x06, 0x23, 8);  // the word at sp + 184, + 8
    r = rule_of(&saved_sp, 0);
    CHECK(r.kind == QY_RULE_FRAME && r.cfa_word && r.cfa_base == QY_BASE_SP && r.cfa_off == 184 && r.cfa_add == 8);
    frame_t from_cfa = FRAME(0x10, 6, 3, 0x23, 16, 0x96);
    check_rule(rule_of(&from_cfa, 0), QY_BASE_SP, 8, QY_BASE_CFA, 16);
    frame_t twice = FRAME(0x0f, 4, 0x77, 0, 0x06, 0x06);
    CHECK_EQ(rule_of(&twice, 0).kind, QY_RULE_UNKNOWN);
    frame_t aligned = FRAME(0x0f, 5, 0x77, 0, 0x09, 0xf0, 0x1a);
    CHECK_EQ(rule_of(&aligned, 0).kind, QY_RULE_UNKNOWN);
}

static int64_t value_of(const uint8_t *code, size_t bytes) {
    qy_value_t v = qy_expr_value((qy_bytes_t){code, code + bytes, false}, 1000, false);
    CHECK(v.known);
    CHECK(!v.based);
    return v.add;
}
#define VALUE(...) value_of((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))
static bool is_unknown(const uint8_t *code, size_t bytes) {
    return !qy_expr_value((qy_bytes_t){code, code + bytes, false}, 0, false).known;
}
#define VALUE_UNKNOWN(...) CHECK(is_unknown((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})))

TEST(arithmetic) {
    CHECK_EQ(VALUE(0x35, 0x33, 0x1c), 2);
    CHECK_EQ(VALUE(0x35, 0x33, 0x1e), 15);
    CHECK_EQ(VALUE(0x35, 0x33, 0x21), 7);
    CHECK_EQ(VALUE(0x35, 0x33, 0x27), 6);
    CHECK_EQ(VALUE(0x35, 0x33, 0x24), 40);
    CHECK_EQ(VALUE(0x48, 0x33, 0x25), 3);
    CHECK_EQ(VALUE(0x35, 0x33, 0x29), 0);
    CHECK_EQ(VALUE(0x35, 0x33, 0x2b), 1);
    CHECK_EQ(VALUE(0x35, 0x33, 0x2c), 0);
    CHECK_EQ(VALUE(0x35, 0x33, 0x2d), 0);
    CHECK_EQ(VALUE(0x35, 0x33, 0x2e), 1);
    CHECK_EQ(VALUE(0x09, 0xff, 0x33, 0x2d), 1);  // signed
    CHECK_EQ(VALUE(0x35, 0x33, 0x16), 5);
    CHECK_EQ(VALUE(0x35, 0x33, 0x14), 5);
    CHECK_EQ(VALUE(0x35, 0x33, 0x13), 5);
    CHECK_EQ(VALUE(0x35, 0x12, 0x22), 10);
    CHECK_EQ(VALUE(0x08, 0xff), 255);
    CHECK_EQ(VALUE(0x09, 0xff), -1);
    CHECK_EQ(VALUE(0x0a, 0xff, 0xff), 65535);
    CHECK_EQ(VALUE(0x0b, 0xff, 0xff), -1);
    CHECK_EQ(VALUE(0x0c, 1, 0, 0, 0x80), 0x80000001);
    CHECK_EQ(VALUE(0x0d, 1, 0, 0, 0x80), (int32_t)0x80000001);
    CHECK_EQ(VALUE(0x0e, 1, 0, 0, 0, 1, 0, 0, 0), 0x100000001);
    CHECK_EQ(VALUE(0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), -1);
    CHECK_EQ(VALUE(0x10, 0x80, 0x01), 128);
    CHECK_EQ(VALUE(0x11, 0x7f), -1);
    CHECK_EQ(VALUE(0x80, 5), 1005);
    VALUE_UNKNOWN(0x22);
    VALUE_UNKNOWN(0x06);
    VALUE_UNKNOWN(0x35, 0x06);
    VALUE_UNKNOWN(0x73, 0);
    VALUE_UNKNOWN(0x2f, 0, 0);
    VALUE_UNKNOWN(0x0e, 1, 2);
    VALUE_UNKNOWN(0x31, 0x31, 0x31, 0x31, 0x31, 0x31, 0x31, 0x31, 0x31);
}

// ---- bytes that are wrong ------------------------------------------------------------------------------

// Looked up everywhere: a read outside of the section is a fault.
static unsigned look_up(const qy_eh_t *eh, uintptr_t code, size_t bytes, uint64_t *rng) {
    unsigned frames = 0;
    for (int i = 0; i < 24; i++)
        frames += qy_cfi_rule(eh, code + test_random(rng) % (bytes + 64)).kind == QY_RULE_FRAME;
    return frames;
}

static void mutate(uint8_t *at, size_t bytes, uint64_t *rng) {
    static const uint8_t hostile[] = {
        0, 1, 0x7f, 0x80, 0xff, 0xfe, 0x0a, 0x0b, 0x0f, 0x10, 0x16, 0x02, 0x04, 0x3b, 0x1b};
    for (uint64_t n = 1 + test_random(rng) % 6; n > 0; n--) {
        uint64_t r = test_random(rng);
        size_t where = r % bytes;
        if (r >> 60 < 6) at[where] = hostile[(r >> 40) % sizeof hostile];
        else if (r >> 60 < 12) at[where] ^= (uint8_t)(1u << (r >> 40 & 7));
        else if (where + 4 <= bytes) memset(at + where, r >> 50 & 1 ? 0xff : 0, 4);
    }
}

TEST(mutated_made_tables) {
    uint64_t rng = test_seed;
    section_t s = section_new(1);
    const frame_t frames[] = {
        FRAME(0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x42, 0x0c, 7, 8, 0xc6),
        FRAME(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22),
        FRAME(0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0),
        FRAME(0x41, 0x0a, 0x0e, 8, 0xc6, 0x41, 0x0b, 0x01, 0, 0, 0, 0, 0x16, 6, 1, 0x30),
    };
    for (int i = 0; i < (QY_TSAN || QY_ASAN ? 30000 : 200000); i++) {
        qy_eh_t eh = make(&s, &frames[i % 4]);
        size_t used = (size_t)(s.at - s.begin);
        // The section ends where its last byte is: moved against the page that cannot be read.
        memmove(s.end - used, s.begin, used);
        eh.hdr = eh.readable = s.end - used;
        mutate(s.end - used, used, &rng);
        look_up(&eh, (uintptr_t)eh.hdr + CODE, 256, &rng);
    }
}

// The C library's own tables, copied, with random damage.
TEST(mutated_real_tables) {
    uint64_t rng = test_seed;
    qy_os_module_t m;
    CHECK(qy_os_module_at((uintptr_t)dlsym(RTLD_DEFAULT, "lfind"), &m));
    size_t bytes = (size_t)(m.readable_end - m.eh_frame_hdr);
    CHECK_GT(bytes, 1000);
    section_t s = section_new(bytes);
    uint8_t *copy = s.end - bytes;
    qy_eh_t eh = {copy, s.end, copy};
    uintptr_t code = (uintptr_t)copy - ((uintptr_t)m.eh_frame_hdr - m.begin);
    memcpy(copy, m.eh_frame_hdr, bytes);
    unsigned good = 0;
    for (int i = 0; i < 200; i++) good += look_up(&eh, code, m.end - m.begin, &rng);
    CHECK_GT(good, 500);
    for (int i = 0; i < (QY_TSAN || QY_ASAN ? 300 : 1500); i++) {
        size_t where = i % 4 ? test_random(&rng) % (bytes - 4096) : 0;
        uint8_t saved[4096];
        memcpy(saved, copy + where, sizeof saved);
        for (int j = 0; j < 40; j++) mutate(copy + where, sizeof saved, &rng);
        for (int j = 0; j < 8; j++) look_up(&eh, code, m.end - m.begin, &rng);
        memcpy(copy + where, saved, sizeof saved);
    }
}

// Cut off at each byte.
TEST(truncated) {
    uint64_t rng = test_seed;
    section_t s = section_new(1);
    frame_t f = FRAME(0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0f, 3, 0x76, 0x78, 0x06);
    make(&s, &f);
    size_t used = (size_t)(s.at - s.begin);
    uint8_t whole[256];
    memcpy(whole, s.begin, used);
    for (size_t n = 0; n <= used; n++) {
        memcpy(s.end - n, whole, n);
        qy_eh_t eh = {s.end - n, s.end, s.end - n};
        unsigned frames = look_up(&eh, (uintptr_t)eh.hdr + CODE, 256, &rng);
        CHECK_EQ(frames > 0, n == used);
    }
}

TEST(modules) {
    qy_os_module_t m;
    CHECK(qy_os_module_at((uintptr_t)&look_up, &m));
    CHECK(m.main);
    CHECK((uintptr_t)&look_up - m.begin < m.end - m.begin);
    CHECK(m.eh_frame_hdr >= m.readable && m.eh_frame_hdr < m.readable_end);
    CHECK(qy_os_module_at((uintptr_t)dlsym(RTLD_DEFAULT, "lfind"), &m));
    CHECK(!m.main);
    CHECK(!qy_os_module_at((uintptr_t)section_new(1).begin, &m));
    CHECK(!qy_os_module_at(0, &m));
    CHECK(!qy_os_module_at(~(uintptr_t)0, &m));
}
#else
TEST(nothing) { TEST_SKIP("needs x86-64: the made tables are of it"); }
#endif

TEST_MAIN()
