/* STILLPOINT_CALLBACK_DELAY_MS: callbacks are kept, but not when a barrier asks for them. */
#include <time.h>

#include <urcu/urcu-bp.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-memb.h>
#include <urcu/urcu-qsbr.h>

#include "again.h"

/* In milliseconds; longer than any test. */
#define LONG 86400000u

static int called;

static void call(struct rcu_head *head)
{
    (void)head;
    __atomic_add_fetch(&called, 1, __ATOMIC_RELAXED);
}

static void wait_for(int calls)
{
    while (__atomic_load_n(&called, __ATOMIC_RELAXED) < calls) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
}

/* Nothing comes, however long one waits; without the delay it would come in this time, and in a child none is left to come. */
static void kept(int calls)
{
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    CHECK(__atomic_load_n(&called, __ATOMIC_RELAXED) == calls);
}

#define DELAYED(flavour, number)                                                         \
    static void flavour(void)                                                            \
    {                                                                                    \
        static struct rcu_head heads[6];                                                 \
        struct stillpoint_domain *domain = stillpoint_urcu_domain(number);               \
        CHECK(stillpoint_domain_callback_delay(domain) == LONG);                         \
        called = 0;                                                                      \
        urcu_##flavour##_call_rcu(&heads[0], call);                                      \
        kept(0);                                                                         \
        urcu_##flavour##_call_rcu(&heads[1], call);                                      \
        urcu_##flavour##_barrier();                                                      \
        CHECK(called == 2);                                                              \
        urcu_##flavour##_barrier();                                                      \
                                                                                         \
        struct call_rcu_data *worker = urcu_##flavour##_create_call_rcu_data(0, -1);     \
        urcu_##flavour##_set_thread_call_rcu_data(worker);                               \
        urcu_##flavour##_call_rcu(&heads[2], call);                                      \
        urcu_##flavour##_set_thread_call_rcu_data(NULL);                                 \
        kept(2);                                                                         \
        urcu_##flavour##_call_rcu_data_free(worker);                                     \
        CHECK(called == 3);                                                              \
                                                                                         \
        urcu_##flavour##_call_rcu(&heads[3], call);                                      \
        kept(3);                                                                         \
        urcu_##flavour##_call_rcu_before_fork();                                         \
        pid_t child = fork();                                                            \
        if (child == 0) {                                                                \
            urcu_##flavour##_call_rcu_after_fork_child();                                \
            urcu_##flavour##_call_rcu(&heads[4], call);                                  \
            kept(3);                                                                     \
            urcu_##flavour##_barrier();                                                  \
            _exit(called);                                                               \
        }                                                                                \
        urcu_##flavour##_call_rcu_after_fork_parent();                                   \
        CHECK(exit_of(child) == 5);                                                      \
                                                                                         \
        urcu_##flavour##_call_rcu(&heads[4], call);                                      \
        kept(3);                                                                         \
        stillpoint_domain_set_callback_delay(domain, 1);                                 \
        wait_for(5);                                                                     \
        stillpoint_domain_set_callback_delay(domain, 0);                                 \
        urcu_##flavour##_call_rcu(&heads[5], call);                                      \
        wait_for(6);                                                                     \
    }

DELAYED(memb, STILLPOINT_URCU_MEMB_)
DELAYED(mb, STILLPOINT_URCU_MB_)
DELAYED(qsbr, STILLPOINT_URCU_QSBR_)
DELAYED(bp, STILLPOINT_URCU_BP_)

static void *barrier(void *unused)
{
    (void)unused;
    urcu_memb_barrier();
    return NULL;
}

/* A barrier that waits in the parent ends no delay in the child. */
static void child_without_the_barrier(void)
{
    static struct rcu_head heads[2];
    stillpoint_domain_set_callback_delay(stillpoint_urcu_domain(STILLPOINT_URCU_MEMB_), LONG);
    called = 0;
    urcu_memb_read_lock();
    urcu_memb_call_rcu(&heads[0], call);
    pthread_t waits = start(barrier, NULL);
    kept(0);
    urcu_memb_call_rcu_before_fork();
    pid_t child = fork();
    if (child == 0) {
        urcu_memb_call_rcu_after_fork_child();
        urcu_memb_read_unlock();
        urcu_memb_call_rcu(&heads[1], call);
        kept(0);
        urcu_memb_barrier();
        _exit(called);
    }
    urcu_memb_call_rcu_after_fork_parent();
    CHECK(exit_of(child) == 2);
    urcu_memb_read_unlock();
    join(waits);
    CHECK(called == 1);
}

int main(int argc, char **argv)
{
    (void)argc;
    start_again_with("STILLPOINT_CALLBACK_DELAY_MS", "86400000", argv);
    memb();
    mb();
    qsbr();
    bp();
    child_without_the_barrier();
    puts("kept");
    return 0;
}
