/* The old name of <urcu/defer.h>. SPDX: MIT OR Apache-2.0 */
#include <urcu/defer.h>
