/* Makes the short names mean the memb flavour from here on: included by its header, or by a program. SPDX: MIT OR Apache-2.0 */
#include <urcu/urcu-memb.h>

#include <urcu/stillpoint/names.h>
#undef STILLPOINT_MAPPED_
#define STILLPOINT_MAPPED_(name) urcu_memb_##name
