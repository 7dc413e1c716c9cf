/* liburcu's header of this name: here pointers are inlined in any case. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/static.h>

#include <urcu/pointer.h>
