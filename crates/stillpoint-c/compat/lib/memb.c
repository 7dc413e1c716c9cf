/* Instead of liburcu-memb.so.8. SPDX: MIT OR Apache-2.0 */
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MEMB_
#define STILLPOINT_FLAVOUR_(name) urcu_memb_##name
#include "compat.h"

/*
 * The flavour as a structure of functions, which unmodified programs give to the hash table (cds_lfht_new() has its address). It is data, but no
 * state of readers: who uses it calls.
 */
PUBLIC const struct rcu_flavor_struct urcu_memb_flavor = STRUCTURE(urcu_memb_);

__attribute__((constructor)) static void prepare(void)
{
    refuse_company("urcu_memb_gp");
}
