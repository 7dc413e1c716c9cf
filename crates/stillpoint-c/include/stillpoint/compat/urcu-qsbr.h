/* liburcu's QSBR flavour under its short names, for Stillpoint. SPDX: MIT OR Apache-2.0 */
#ifndef URCU_API_MAP
#define URCU_API_MAP
#endif
#include <urcu/urcu-qsbr.h>
