/* defer_rcu() is among the functions of each flavour: <urcu/stillpoint/flavour.h>. SPDX: MIT OR Apache-2.0 */
#ifndef _URCU_DEFER_H
#define _URCU_DEFER_H

#include <pthread.h>
#include <stdlib.h>

#endif
