/* The names of before 0.11, which programs go on using, and a flavour structure of the program's own. */
#define URCU_API_MAP
#include <urcu-bp.h>
#include <urcu/flavor.h>

#include "common.h"

DEFINE_RCU_FLAVOR(own);

static int *shared, called;

static void count(struct rcu_head *unused)
{
    (void)unused;
    called++;
}

static void release(void *of)
{
    free(of);
    called++;
}

int main(void)
{
    static struct rcu_head heads[3];
    rcu_init_bp();
    rcu_register_thread_bp();
    rcu_set_pointer_bp(&shared, calloc(1, sizeof *shared));
    rcu_read_lock_bp();
    CHECK(rcu_read_ongoing_bp() && *rcu_dereference_bp(shared) == 0);
    rcu_read_unlock_bp();
    CHECK(!rcu_read_ongoing_bp());

    struct call_rcu_data *worker = create_call_rcu_data_bp(0, -1);
    set_thread_call_rcu_data_bp(worker);
    CHECK(get_thread_call_rcu_data_bp() == worker && get_call_rcu_data_bp() == worker);
    call_rcu_bp(&heads[0], count);
    rcu_barrier_bp();
    set_thread_call_rcu_data_bp(NULL);
    call_rcu_data_free_bp(worker);
    CHECK(called == 1);

    CHECK(rcu_defer_register_thread_bp() == 0);
    defer_rcu_bp(release, rcu_xchg_pointer_bp(&shared, NULL));
    rcu_defer_barrier_thread_bp();
    rcu_defer_unregister_thread_bp();
    CHECK(called == 2);

    call_rcu_before_fork_bp();
    rcu_bp_before_fork();
    pid_t child = fork();
    if (child == 0) {
        rcu_bp_after_fork_child();
        call_rcu_after_fork_child_bp();
        call_rcu_bp(&heads[1], count);
        rcu_barrier_bp();
        _exit(called);
    }
    rcu_bp_after_fork_parent();
    call_rcu_after_fork_parent_bp();
    CHECK(exit_of(child) == 3);

    own.read_lock();
    CHECK(rcu_read_ongoing() && rcu_flavor_bp.read_ongoing() && own.read_ongoing());
    own.read_unlock();
    own.update_call_rcu(&heads[2], count);
    own.barrier();
    own.update_synchronize_rcu();
    synchronize_rcu_bp();
    printf("%d called\n", called);
    return 0;
}
