/* The default flavour, memb, or mb with RCU_MB; with short names if URCU_API_MAP is defined. SPDX: MIT OR Apache-2.0 */
#ifndef _URCU_H
#define _URCU_H

#if defined(RCU_MB)
#include <urcu/urcu-mb.h>
#elif defined(RCU_SIGNAL)
#include <urcu/urcu-signal.h>
#else
#ifndef RCU_MEMBARRIER
#define RCU_MEMBARRIER
#endif
#include <urcu/urcu-memb.h>
#endif

#endif
