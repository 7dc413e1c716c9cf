/* The short names for the default flavour: see <urcu/urcu.h>. SPDX: MIT OR Apache-2.0 */
#if defined(RCU_MB)
#include <urcu/map/urcu-mb.h>
#elif defined(RCU_SIGNAL)
#include <urcu/urcu-signal.h>
#else
#include <urcu/map/urcu-memb.h>
#endif
