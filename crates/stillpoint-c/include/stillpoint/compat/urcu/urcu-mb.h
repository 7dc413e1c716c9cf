/*
 * The mb flavour. liburcu's readers fence; these do not, and are the memb flavour's in a domain of their own. So a wait is a membarrier where
 * another thread is registered as a reader, and interrupts those that run; where none is, it is a fence.
 * liburcu's header of this name, for Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined the short names (rcu_read_lock() ...) mean this flavour; of several, as with liburcu, the last.
 */
#ifndef _URCU_MB_H
#define _URCU_MB_H

#include <urcu/stillpoint/runtime.h>

#include <urcu/pointer.h>

#include <urcu/call-rcu.h>
#include <urcu/defer.h>
#include <urcu/flavor.h>

/* The library's name of the structure; liburcu's must not be meant by chance. */
#define urcu_mb_flavor stillpoint_urcu_mb_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MB_
#define STILLPOINT_FLAVOUR_(name) urcu_mb_##name
#include <urcu/stillpoint/flavour.h>
#undef STILLPOINT_FLAVOUR_
#undef STILLPOINT_FLAVOUR_NUMBER_

#ifndef URCU_NO_COMPAT_IDENTIFIERS
#include <urcu/stillpoint/suffixed-mb.h>
#endif

#ifdef URCU_API_MAP
#undef STILLPOINT_MAPPED_
#define STILLPOINT_MAPPED_(name) urcu_mb_##name
#include <urcu/stillpoint/names.h>
#endif

#endif
