/* Instead of liburcu-memb.so.8. SPDX: MIT OR Apache-2.0 */
#define FLAVOUR memb
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MEMB_
#include "compat.h"
