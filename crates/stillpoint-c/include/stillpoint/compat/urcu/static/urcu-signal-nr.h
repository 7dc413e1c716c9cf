/* There is no signal flavour: including this is an error. SPDX: MIT OR Apache-2.0 */
#include <urcu/urcu-signal.h>
