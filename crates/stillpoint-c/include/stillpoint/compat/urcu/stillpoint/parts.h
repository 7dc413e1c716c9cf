/* Included by each flavour's header. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/runtime.h>
#ifdef _LGPL_SOURCE
#include <urcu/stillpoint/static.h>
#endif

#include <urcu/pointer.h>

#include <urcu/call-rcu.h>
#include <urcu/defer.h>
#include <urcu/flavor.h>
