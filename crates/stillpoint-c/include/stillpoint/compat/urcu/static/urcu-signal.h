/* There is no signal flavour: this says so. SPDX: MIT OR Apache-2.0 */
#include <urcu/urcu-signal.h>
