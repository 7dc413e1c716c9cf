/* liburcu's API: the operations on pointers as functions. In the library, and in each instead of liburcu's. SPDX: MIT OR Apache-2.0 */
#include <stdbool.h>

#define EXPORTED __attribute__((visibility("default")))

/* By value, as liburcu has it: the caller has loaded it. */
EXPORTED void *rcu_dereference_sym(void *p)
{
    return p;
}

EXPORTED void *rcu_set_pointer_sym(void **p, void *v)
{
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
    return v;
}

EXPORTED void *rcu_xchg_pointer_sym(void **p, void *v)
{
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

EXPORTED void *rcu_cmpxchg_pointer_sym(void **p, void *old, void *v)
{
    (void)__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}
