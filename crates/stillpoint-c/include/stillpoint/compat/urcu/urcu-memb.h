/*
 * The memb flavour: readers of the library's global domain, whose fences its grace periods have done by membarrier(2).
 * liburcu's header of this name, for Stillpoint. SPDX: MIT OR Apache-2.0
 *
 * With URCU_API_MAP defined the short names (rcu_read_lock() ...) mean this flavour; of several, as with liburcu, the last.
 */
#ifndef _URCU_MEMB_H
#define _URCU_MEMB_H

#include <urcu/stillpoint/runtime.h>

#include <urcu/pointer.h>

#include <urcu/call-rcu.h>
#include <urcu/defer.h>
#include <urcu/flavor.h>

/* The library's name of the structure; liburcu's must not be meant by chance. */
#define urcu_memb_flavor stillpoint_urcu_memb_flavor

#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MEMB_
#define STILLPOINT_FLAVOUR_(name) urcu_memb_##name
#include <urcu/stillpoint/flavour.h>
#undef STILLPOINT_FLAVOUR_
#undef STILLPOINT_FLAVOUR_NUMBER_

#ifndef URCU_NO_COMPAT_IDENTIFIERS
#include <urcu/stillpoint/suffixed-memb.h>
#endif

#ifdef URCU_API_MAP
#undef STILLPOINT_MAPPED_
#define STILLPOINT_MAPPED_(name) urcu_memb_##name
#include <urcu/stillpoint/names.h>
#endif

#endif
