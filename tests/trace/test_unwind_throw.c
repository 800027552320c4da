// SPDX-License-Identifier: MIT
// The main part of test_unwind_throw.cpp.
#include "unwind_test.h"

void throw_look(void);
void throw_test(uint64_t seed);

static walker_t walker;
static reference_t reference;
static unsigned looks;

__attribute__((noinline)) void throw_look(void) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    reference_take(&reference, here.pc);
    qy_walk_t *w = walk(&walker, &here, true);
    CHECK_SAME_STACK(w, &reference);
    looks++;
}

TEST(exceptions) {
    CHECK(qy_rules_start(false));
    throw_test(test_seed);
    CHECK_GT(looks, 1000);
}

TEST_MAIN()
