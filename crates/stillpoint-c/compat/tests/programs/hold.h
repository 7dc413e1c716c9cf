/* A section that is held: nothing that waits for it may come about before it ends. The body of hold.*.c, each of which has a flavour's short names. */
#include "common.h"

/* 1: the section has begun. 2: it may end. 3: it is about to. */
static int step, called, deferred, waited;

static void *reader(void *unused)
{
    (void)unused;
    rcu_register_thread();
    /* The first may be registered in another way than all others. */
    rcu_read_lock();
    rcu_read_lock();
    rcu_read_unlock();
    rcu_read_unlock();
    rcu_read_lock();
    uatomic_set(&step, 1);
    while (uatomic_read(&step) != 2) {
        usleep(1000);
    }
    CHECK(uatomic_read(&called) == 0);
    CHECK(uatomic_read(&deferred) == 0);
    CHECK(uatomic_read(&waited) == 0);
    uatomic_set(&step, 3);
    rcu_read_unlock();
    rcu_quiescent_state();
    rcu_unregister_thread();
    return NULL;
}

static void call(struct rcu_head *head)
{
    (void)head;
    CHECK(uatomic_read(&step) == 3);
    uatomic_inc(&called);
}

static void defer(void *argument)
{
    (void)argument;
    CHECK(uatomic_read(&step) == 3);
    uatomic_inc(&deferred);
}

static void *wait_for_it(void *unused)
{
    (void)unused;
    synchronize_rcu();
    CHECK(uatomic_read(&step) == 3);
    uatomic_inc(&waited);
    return NULL;
}

int main(void)
{
    static struct rcu_head heads[3];
    CHECK(rcu_defer_register_thread() == 0);
    for (int round = 0; round < 3; round++) {
        step = called = deferred = waited = 0;
        pthread_t held = start(reader, NULL);
        while (uatomic_read(&step) != 1) {
            usleep(1000);
        }
        call_rcu(&heads[0], call);
        defer_rcu(defer, NULL);
        pthread_t waits = start(wait_for_it, NULL);
        struct call_rcu_data *own = create_call_rcu_data(0, -1);
        set_thread_call_rcu_data(own);
        call_rcu(&heads[1], call);
        set_thread_call_rcu_data(NULL);
        /* Time enough for what must not happen; if it is too short nothing is found, and nothing fails. */
        usleep(150000);
        call_rcu(&heads[2], call);
        uatomic_set(&step, 2);
        join(held);
        join(waits);
        rcu_barrier();
        rcu_defer_barrier_thread();
        call_rcu_data_free(own);
        printf("called %d, deferred %d, waited %d\n", called, deferred, waited);
    }
    rcu_defer_unregister_thread();
    return 0;
}
