// SPDX-License-Identifier: MIT
// Modules that come and go: what was learnt of one must not be used for the next at the same place.
#include "resident.h"
#include "unwind_test.h"

#include <dlfcn.h>

static walker_t walker;
static reference_t reference;
static uintptr_t module_pc;
static bool expect_wrong;
static unsigned right, wrong;

__attribute__((noinline)) static void look(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    module_pc = here.pc;
    reference_take(&reference, here.pc);
    qy_walk_t *w = walk(&walker, &here, true);
    if (expect_wrong) {
        if (same_frames(w, &reference) == reference.n) right++;
        else wrong++;
        return;
    }
    CHECK_SAME_STACK(w, &reference);
}

static uintptr_t run_module(const char *path) {
    void *m = dlopen(path, RTLD_NOW);
    if (!m) TEST_FAIL("%s", dlerror());
    void (*run)(void (*)(void));
    *(void **)&run = dlsym(m, "module_run");
    CHECK(run != NULL);
    run(look);
    CHECK_EQ(dlclose(m), 0);
    return module_pc;
}

TEST(same_place) {
    CHECK(qy_rules_start(false));
    const char *small = getenv("UNWIND_MODULE_SMALL"), *large = getenv("UNWIND_MODULE_LARGE");
    CHECK(small && large);
    unsigned met = 0;
    for (int i = 0; i < 50; i++) {
        uintptr_t a = run_module(small);
        qy_stacks_modules_changed();
        uintptr_t b = run_module(large);
        qy_stacks_modules_changed();
        met += a == b;
    }
    printf("%u of 50 at the same address\n", met);
    CHECK_GT(met, 0);
    // And that this test can fail: without being told, the walk uses the old rules.
    expect_wrong = true;
    for (int i = 0; i < 10; i++) {
        run_module(small);
        run_module(large);
    }
    expect_wrong = false;
    CHECK_GT(wrong, 0);
}

// Nor after so many flushes that what marks an answer's age is the same again.
TEST(however_many_flushes) {
    CHECK(qy_rules_start(false));
    const char *small = getenv("UNWIND_MODULE_SMALL"), *large = getenv("UNWIND_MODULE_LARGE");
    unsigned met = 0;
    for (unsigned flushes = 1; flushes <= 65; flushes++) {
        uintptr_t a = run_module(flushes % 2 ? small : large);
        for (unsigned i = 0; i < flushes; i++) qy_stacks_modules_changed();
        met += a == run_module(flushes % 2 ? large : small);
        qy_stacks_modules_changed();
    }
    CHECK_GT(met, 10);
}

// The sampler forgets once a second, and at its first sample: a short program shall not have the whole table for that.
TEST(most_flushes_touch_no_table) {
    CHECK(qy_rules_start(false));
    const size_t bytes = sizeof *qy_rules.sets * QY_RULE_SETS;
    unsigned touched = 0, flushes = 60;
    for (unsigned i = 0; i < flushes; i++) {
        CHECK_EQ(madvise(qy_rules.sets, bytes, MADV_DONTNEED), 0);  // all zero: nothing is known
        qy_rules_flush();
        touched += resident_pages(qy_rules.sets, bytes) > 0;
    }
    CHECK_EQ(touched, flushes / 5);
}

TEST_MAIN()
