/* The old name of <urcu/call-rcu.h>. SPDX: MIT OR Apache-2.0 */
#include <urcu/call-rcu.h>
