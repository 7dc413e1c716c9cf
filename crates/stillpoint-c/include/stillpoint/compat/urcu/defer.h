/* defer_rcu() is one of each flavour's functions: <urcu/stillpoint/flavour.h>. SPDX: MIT OR Apache-2.0 */
#ifndef _URCU_DEFER_H
#define _URCU_DEFER_H

#include <pthread.h>
#include <stdlib.h>

#endif
