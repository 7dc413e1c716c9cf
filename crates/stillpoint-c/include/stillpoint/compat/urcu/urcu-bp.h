/*
 * The bulletproof flavour: readers need no registration (here no flavour's do, but QSBR's), and are safe in signal handlers
 * once a thread has had its first section.
 * liburcu's header of this name, for Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined the short names (rcu_read_lock() ...) mean this flavour; of several, as with liburcu, the last.
 */
#ifndef _URCU_BP_H
#define _URCU_BP_H

#include <urcu/stillpoint/runtime.h>

#include <urcu/pointer.h>

#include <urcu/call-rcu.h>
#include <urcu/defer.h>
#include <urcu/flavor.h>

/* The library's name of the structure; liburcu's must not be meant by chance. */
#define urcu_bp_flavor stillpoint_urcu_bp_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_BP_
#define STILLPOINT_FLAVOUR_(name) urcu_bp_##name
#include <urcu/stillpoint/flavour.h>
#undef STILLPOINT_FLAVOUR_
#undef STILLPOINT_FLAVOUR_NUMBER_

/* The flavour's own names of the operations on pointers. */
#define urcu_bp_dereference rcu_dereference
#define urcu_bp_set_pointer rcu_set_pointer
#define urcu_bp_xchg_pointer rcu_xchg_pointer
#define urcu_bp_cmpxchg_pointer rcu_cmpxchg_pointer

#ifndef URCU_NO_COMPAT_IDENTIFIERS
#include <urcu/stillpoint/suffixed-bp.h>
#endif

#ifdef URCU_API_MAP
#undef STILLPOINT_MAPPED_
#define STILLPOINT_MAPPED_(name) urcu_bp_##name
#include <urcu/stillpoint/names.h>
#endif

#endif
