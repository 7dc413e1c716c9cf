/* Instead of liburcu-qsbr.so.8. SPDX: MIT OR Apache-2.0 */
#define FLAVOUR qsbr
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_QSBR_
#include "compat.h"
