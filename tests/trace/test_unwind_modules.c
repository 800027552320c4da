// SPDX-License-Identifier: MIT
// Modules that come and go: what was learnt of one must not be used for the next at the same place.
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
    CHECK(qy_rules_start());
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

TEST_MAIN()
