/* The old name of <urcu/pointer.h>. SPDX: MIT OR Apache-2.0 */
#include <urcu/pointer.h>
