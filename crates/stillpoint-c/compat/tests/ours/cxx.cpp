/* All flavours in one C++ program, under both kinds of names. */
#include <urcu/urcu-bp.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-qsbr.h>

#include <urcu.h>

#include <urcu-pointer.h>

#include "../programs/common.h"

namespace {

struct node {
    int value;
    rcu_head rcu;
};

node *shared;
int called;

void call(rcu_head *head)
{
    delete reinterpret_cast<node *>(reinterpret_cast<char *>(head) - offsetof(node, rcu));
    called++;
}

} // namespace

int main()
{
    rcu_register_thread();
    for (int n = 0; n < 100; n++) {
        node *made = new node{n, {}};
        node *old = rcu_xchg_pointer(&shared, made);
        rcu_read_lock();
        CHECK(rcu_dereference(shared)->value == n);
        rcu_read_unlock();
        if (old) {
            call_rcu(&old->rcu, call);
        }
    }
    rcu_barrier();
    CHECK(called == 99);
    call_rcu(&shared->rcu, call);
    rcu_barrier();
    rcu_assign_pointer(shared, static_cast<node *>(nullptr));
    urcu_bp_read_lock();
    synchronize_rcu();
    urcu_bp_read_unlock();
    urcu_mb_synchronize_rcu();
    CHECK(rcu_flavor.update_synchronize_rcu != urcu_bp_flavor.update_synchronize_rcu);
    rcu_flavor.update_synchronize_rcu();
    urcu_gp_poll_state state = start_poll_synchronize_rcu();
    synchronize_rcu();
    CHECK(poll_state_synchronize_rcu(state));
    urcu_qsbr_register_thread();
    urcu_qsbr_quiescent_state();
    urcu_qsbr_synchronize_rcu();
    urcu_qsbr_unregister_thread();
    rcu_unregister_thread();
    return 0;
}
