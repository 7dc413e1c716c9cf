/* Another name of <urcu/urcu-poll.h>. SPDX: MIT OR Apache-2.0 */
#include <urcu/urcu-poll.h>
