/*
 * The mb flavour. liburcu's readers fence; these do not: they are the memb flavour's, in a separate domain. So a wait issues a membarrier,
 * which interrupts running threads, if another thread is registered as a reader; otherwise it only fences. liburcu's header of this name,
 * for Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined, the short names (rcu_read_lock() ...) mean this flavour; as in liburcu, the last one included wins.
 */
#ifndef _URCU_MB_H
#define _URCU_MB_H

#include <urcu/stillpoint/parts.h>

/* The library's name of the structure, so that a program never gets liburcu's by chance. */
#define urcu_mb_flavor stillpoint_urcu_mb_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MB_
#define STILLPOINT_FLAVOUR_(name) urcu_mb_##name
#ifndef URCU_NO_COMPAT_IDENTIFIERS
#define STILLPOINT_SUFFIXED_(name) name##_mb
#define STILLPOINT_INFIXED_(name) rcu_mb_##name
#define rcu_flavor_mb urcu_mb_flavor
#define rcu_dereference_mb rcu_dereference
#define rcu_set_pointer_mb rcu_set_pointer
#define rcu_xchg_pointer_mb rcu_xchg_pointer
#define rcu_cmpxchg_pointer_mb rcu_cmpxchg_pointer
#endif
#include <urcu/stillpoint/flavour.h>

/* liburcu's names of its inlined functions. */
#define _urcu_mb_read_lock urcu_mb_read_lock
#define _urcu_mb_read_unlock urcu_mb_read_unlock
#define _urcu_mb_read_ongoing urcu_mb_read_ongoing

#ifdef URCU_API_MAP
#include <urcu/map/urcu-mb.h>
#endif

#endif
