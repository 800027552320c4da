// SPDX-License-Identifier: MIT
// checker.c: see checker.h. libquarry-check is preloaded, so its table is there from the start or never.
#include "pool/checker.h"

#include <stdatomic.h>

#include "base/compiler.h"
#include "os/loaded.h"

extern const quarry_check_pool_t quarry_check_pool_v1 __attribute__((weak));

static const quarry_check_pool_t no_checker;
static _Atomic(const quarry_check_pool_t *) checker_table;  // NULL: not looked for yet

static QY_COLD const quarry_check_pool_t *checker_find(void) {
    const quarry_check_pool_t *t = &quarry_check_pool_v1;
    if (!t) t = qy_os_symbol_of("libquarry-check", QUARRY_CHECK_POOL_TABLE);
    if (!t || t->bytes < sizeof *t) t = &no_checker;
    atomic_store_explicit(&checker_table, t, memory_order_release);
    return t;
}

const quarry_check_pool_t *qy_checker(void) {
    const quarry_check_pool_t *t = atomic_load_explicit(&checker_table, memory_order_acquire);
    if (QY_UNLIKELY(!t)) t = checker_find();
    return t->bytes ? t : NULL;
}
