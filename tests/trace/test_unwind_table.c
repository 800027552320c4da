// SPDX-License-Identifier: MIT
// The table of rules, small as the sampler has it: each answer is that of its address, however many share a set.
#include <stdlib.h>

#include "harness.h"
#include "os/module.h"
#include "stacks/unwind_rules.h"

#define STAMP 0xf0u

static qy_rules_few_t few;  // makes the same answers, and keeps them by the whole address

TEST(addresses_are_told_apart) {
    CHECK(qy_rules_start(true));
    CHECK(qy_rules_few_start(&few));
    qy_os_module_t libc;
    CHECK(qy_os_module_at((uintptr_t)&qsort, &libc));
    uintptr_t bytes = libc.end - libc.begin, pcs = 0, frames = 0;
    for (unsigned round = 0; round < 2; round++) {
        for (uintptr_t pc = libc.begin + round; pc < libc.end; pc += bytes / 20000 | 1, pcs++) {
            uint32_t want = qy_rules_few_find(&few, pc) & ~STAMP;
            for (unsigned look = 0; look < 2; look++)  // made, and found
                if ((qy_rules_find(pc) & ~STAMP) != want)
                    TEST_FAIL("%#lx of %#lx: %#x, not %#x", (unsigned long)(pc - libc.begin), (unsigned long)bytes,
                        qy_rules_find(pc) & ~STAMP, want);
            frames += qy_code_kind(want) <= QY_CODE_ODD;
        }
        qy_rules_flush();
    }
    printf("%lu addresses, %lu of frames\n", (unsigned long)pcs, (unsigned long)frames);
    CHECK_GT(frames, 1000);
    CHECK_GT(pcs, 4 * 2 * QY_RULE_SETS_SMALL);
}

TEST_MAIN()
