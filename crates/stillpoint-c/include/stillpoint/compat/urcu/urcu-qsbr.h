/*
 * The QSBR flavour: threads that always read, except when they say otherwise. They have to register. liburcu's header of this name, for
 * Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined, the short names (rcu_read_lock() ...) mean this flavour; as in liburcu, the last one included wins.
 */
#ifndef _URCU_QSBR_H
#define _URCU_QSBR_H

#include <urcu/stillpoint/parts.h>

/* The library's name of the structure, so that a program never gets liburcu's by chance. */
#define urcu_qsbr_flavor stillpoint_urcu_qsbr_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_QSBR_
#define STILLPOINT_FLAVOUR_(name) urcu_qsbr_##name
#ifndef URCU_NO_COMPAT_IDENTIFIERS
#define STILLPOINT_SUFFIXED_(name) name##_qsbr
#define STILLPOINT_INFIXED_(name) rcu_qsbr_##name
#define rcu_flavor_qsbr urcu_qsbr_flavor
#define rcu_dereference_qsbr rcu_dereference
#define rcu_set_pointer_qsbr rcu_set_pointer
#define rcu_xchg_pointer_qsbr rcu_xchg_pointer
#define rcu_cmpxchg_pointer_qsbr rcu_cmpxchg_pointer
#endif
#include <urcu/stillpoint/flavour.h>

/* liburcu's names of its inlined functions. */
#define _urcu_qsbr_read_lock urcu_qsbr_read_lock
#define _urcu_qsbr_read_unlock urcu_qsbr_read_unlock
#define _urcu_qsbr_read_ongoing urcu_qsbr_read_ongoing
#define _urcu_qsbr_quiescent_state urcu_qsbr_quiescent_state
#define _urcu_qsbr_thread_offline urcu_qsbr_thread_offline
#define _urcu_qsbr_thread_online urcu_qsbr_thread_online

#ifdef URCU_API_MAP
#include <urcu/map/urcu-qsbr.h>
#endif

#endif
