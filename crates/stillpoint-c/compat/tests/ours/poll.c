/* Polled cookies, which liburcu has since 0.14: this program is as for that, in each flavour. */
#include <urcu/urcu-bp.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-memb.h>
#include <urcu/urcu-qsbr.h>

#include "../programs/common.h"

#define POLLED(flavour)                                                                          \
    static void flavour(void)                                                                    \
    {                                                                                            \
        struct urcu_gp_poll_state inside, outside;                                               \
        urcu_##flavour##_register_thread();                                                      \
        urcu_##flavour##_read_lock();                                                            \
        CHECK(urcu_##flavour##_read_ongoing());                                                  \
        inside = urcu_##flavour##_start_poll_synchronize_rcu();                                  \
        for (int n = 0; n < 100; n++) {                                                          \
            CHECK(!urcu_##flavour##_poll_state_synchronize_rcu(inside));                         \
        }                                                                                        \
        urcu_##flavour##_read_unlock();                                                          \
        urcu_##flavour##_quiescent_state();                                                      \
        outside = urcu_##flavour##_start_poll_synchronize_rcu();                                 \
        urcu_##flavour##_thread_offline();                                                       \
        /* It ends by itself. */                                                                 \
        while (!urcu_##flavour##_poll_state_synchronize_rcu(outside)) {                          \
            usleep(100);                                                                         \
        }                                                                                        \
        CHECK(urcu_##flavour##_poll_state_synchronize_rcu(inside));                              \
        urcu_##flavour##_thread_online();                                                        \
        urcu_##flavour##_unregister_thread();                                                    \
    }

POLLED(memb)
POLLED(mb)
POLLED(bp)
POLLED(qsbr)

int main(void)
{
    memb();
    mb();
    bp();
    qsbr();
    return 0;
}
