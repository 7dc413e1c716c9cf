/* Makes the short names mean the bp flavour from here on: included by its header, or by a program. SPDX: MIT OR Apache-2.0 */
#include <urcu/urcu-bp.h>

#include <urcu/stillpoint/names.h>
#undef STILLPOINT_MAPPED_
#define STILLPOINT_MAPPED_(name) urcu_bp_##name
