/* Three flavours in one program: a section of the one delays no grace period of another. liburcu's headers declare call_rcu() of the first only. */
#include <urcu/urcu-bp.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-memb.h>

#include "common.h"

static int step;

static void *other(void *unused)
{
    (void)unused;
    urcu_bp_read_lock();
    uatomic_set(&step, 1);
    while (uatomic_read(&step) != 2) {
        usleep(100);
    }
    urcu_bp_read_unlock();
    return NULL;
}

static void call(struct rcu_head *head)
{
    (void)head;
    uatomic_inc(&step);
}

int main(void)
{
    pthread_t thread = start(other, NULL);
    while (uatomic_read(&step) != 1) {
        usleep(100);
    }
    urcu_memb_register_thread();
    urcu_bp_read_lock();
    urcu_memb_synchronize_rcu();
    urcu_bp_read_unlock();
    uatomic_set(&step, 2);
    urcu_memb_read_lock();
    urcu_bp_synchronize_rcu();
    urcu_memb_read_unlock();
    urcu_mb_register_thread();
    urcu_mb_read_lock();
    urcu_bp_synchronize_rcu();
    urcu_memb_synchronize_rcu();
    urcu_bp_read_lock();
    urcu_mb_read_unlock();
    urcu_mb_synchronize_rcu();
    urcu_bp_read_unlock();
    urcu_mb_unregister_thread();
    join(thread);
    static struct rcu_head head;
    urcu_bp_call_rcu(&head, call);
    urcu_bp_barrier();
    printf("step %d\n", step);
    urcu_memb_unregister_thread();
    return 0;
}
