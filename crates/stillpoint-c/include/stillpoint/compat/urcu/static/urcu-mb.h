/* The mb flavour with inlined readers: here they always are. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/static.h>

#include <urcu/urcu-mb.h>
