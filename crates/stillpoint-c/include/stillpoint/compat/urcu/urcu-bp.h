/*
 * The bulletproof flavour: readers need no registration (here, only QSBR readers do), and are safe in signal handlers once their thread has
 * had a section. liburcu's header of this name, for Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined, the short names (rcu_read_lock() ...) mean this flavour; as in liburcu, the last one included wins.
 */
#ifndef _URCU_BP_H
#define _URCU_BP_H

#include <urcu/stillpoint/parts.h>

/* The library's name of the structure, so that a program never gets liburcu's by chance. */
#define urcu_bp_flavor stillpoint_urcu_bp_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_BP_
#define STILLPOINT_FLAVOUR_(name) urcu_bp_##name
#ifndef URCU_NO_COMPAT_IDENTIFIERS
#define STILLPOINT_SUFFIXED_(name) name##_bp
#define STILLPOINT_INFIXED_(name) rcu_bp_##name
#define rcu_flavor_bp urcu_bp_flavor
#define rcu_dereference_bp rcu_dereference
#define rcu_set_pointer_bp rcu_set_pointer
#define rcu_xchg_pointer_bp rcu_xchg_pointer
#define rcu_cmpxchg_pointer_bp rcu_cmpxchg_pointer
#endif
#include <urcu/stillpoint/flavour.h>

/* liburcu's names of its inlined functions. */
#define _urcu_bp_read_lock urcu_bp_read_lock
#define _urcu_bp_read_unlock urcu_bp_read_unlock
#define _urcu_bp_read_ongoing urcu_bp_read_ongoing

/* The flavour's own names of the operations on pointers. */
#define urcu_bp_dereference rcu_dereference
#define urcu_bp_set_pointer rcu_set_pointer
#define urcu_bp_xchg_pointer rcu_xchg_pointer
#define urcu_bp_cmpxchg_pointer rcu_cmpxchg_pointer
#define urcu_bp_dereference_sym rcu_dereference_sym
#define urcu_bp_set_pointer_sym rcu_set_pointer_sym
#define urcu_bp_xchg_pointer_sym rcu_xchg_pointer_sym
#define urcu_bp_cmpxchg_pointer_sym rcu_cmpxchg_pointer_sym

#ifdef URCU_API_MAP
#include <urcu/map/urcu-bp.h>
#endif

#endif
