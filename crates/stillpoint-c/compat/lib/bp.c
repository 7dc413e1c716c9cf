/* Instead of liburcu-bp.so.8. SPDX: MIT OR Apache-2.0 */
#define FLAVOUR bp
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_BP_
#include "compat.h"

#include <urcu/pointer.h>

/* The flavour has its own names of these, and one of registering. */
PUBLIC void *urcu_bp_dereference_sym(void *p)
{
    return rcu_dereference_sym(p);
}

PUBLIC void *urcu_bp_set_pointer_sym(void **p, void *v)
{
    return rcu_set_pointer_sym(p, v);
}

PUBLIC void *urcu_bp_xchg_pointer_sym(void **p, void *v)
{
    return rcu_xchg_pointer_sym(p, v);
}

PUBLIC void *urcu_bp_cmpxchg_pointer_sym(void **p, void *old, void *v)
{
    return rcu_cmpxchg_pointer_sym(p, old, v);
}

PUBLIC void urcu_bp_register(void)
{
    urcu_bp_register_thread();
}
