/* liburcu's header of this name: Stillpoint always inlines these operations. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/static.h>

#include <urcu/pointer.h>
