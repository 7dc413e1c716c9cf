/* Instead of liburcu-mb.so.8. SPDX: MIT OR Apache-2.0 */
#define FLAVOUR mb
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MB_
#include "compat.h"
