/* Names a grace period: see start_poll_synchronize_rcu(). May be copied. SPDX: MIT OR Apache-2.0 */
#ifndef _URCU_POLL_H
#define _URCU_POLL_H

struct urcu_gp_poll_state {
    unsigned long grace_period_id;
};

#endif
