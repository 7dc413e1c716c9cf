/* The old name of <urcu/flavor.h>. SPDX: MIT OR Apache-2.0 */
#include <urcu/flavor.h>
