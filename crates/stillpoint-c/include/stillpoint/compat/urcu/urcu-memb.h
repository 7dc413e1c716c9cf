/*
 * The memb flavour: readers of the library's global domain, whose grace periods make them fence by membarrier(2). liburcu's header of this
 * name, for Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined, the short names (rcu_read_lock() ...) mean this flavour; as in liburcu, the last one included wins.
 */
#ifndef _URCU_MEMB_H
#define _URCU_MEMB_H

#include <urcu/stillpoint/parts.h>

/* The library's name of the structure, so that a program never gets liburcu's by chance. */
#define urcu_memb_flavor stillpoint_urcu_memb_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MEMB_
#define STILLPOINT_FLAVOUR_(name) urcu_memb_##name
#ifndef URCU_NO_COMPAT_IDENTIFIERS
#define STILLPOINT_SUFFIXED_(name) name##_memb
#define STILLPOINT_INFIXED_(name) rcu_memb_##name
#define rcu_flavor_memb urcu_memb_flavor
#define rcu_dereference_memb rcu_dereference
#define rcu_set_pointer_memb rcu_set_pointer
#define rcu_xchg_pointer_memb rcu_xchg_pointer
#define rcu_cmpxchg_pointer_memb rcu_cmpxchg_pointer
#endif
#include <urcu/stillpoint/flavour.h>

/* liburcu's names of its inlined functions. */
#define _urcu_memb_read_lock urcu_memb_read_lock
#define _urcu_memb_read_unlock urcu_memb_read_unlock
#define _urcu_memb_read_ongoing urcu_memb_read_ongoing

#ifdef URCU_API_MAP
#include <urcu/map/urcu-memb.h>
#endif

#endif
