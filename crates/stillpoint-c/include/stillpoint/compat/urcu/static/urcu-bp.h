/* The bp flavour for those who have its readers inlined: here all have. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/static.h>

#include <urcu/urcu-bp.h>
