/* Threads that are cancelled while they wait: the wait goes on to its end, as liburcu's does, and nothing stays locked. */
#include <time.h>

#include <urcu/urcu-memb.h>
#include <urcu/urcu-qsbr.h>

#include "../programs/common.h"

static int cancelled, waited, called;

static void call(struct rcu_head *head)
{
    (void)head;
    __atomic_add_fetch(&called, 1, __ATOMIC_RELAXED);
}

static struct call_rcu_data *worker;

static void barrier(void)
{
    urcu_memb_barrier();
}

static void barrier_of_qsbr(void)
{
    urcu_qsbr_barrier();
}

static void free_worker(void)
{
    urcu_memb_call_rcu_data_free(worker);
}

static void fork_hooks(void)
{
    urcu_memb_call_rcu_before_fork();
    urcu_memb_call_rcu_after_fork_parent();
}

static void *waits(void *wait)
{
    while (!__atomic_load_n(&cancelled, __ATOMIC_ACQUIRE)) {
    }
    (*(void (**)(void))wait)();
    __atomic_store_n(&waited, 1, __ATOMIC_RELAXED);
    pthread_testcancel();
    return NULL;
}

/* The request is there before the wait, and so acts at its first cancellation point. */
static void is_cancelled(void (*wait)(void), void (*begin)(void), void (*end)(void))
{
    cancelled = waited = 0;
    begin();
    pthread_t thread = start(waits, &wait);
    CHECK(pthread_cancel(thread) == 0);
    __atomic_store_n(&cancelled, 1, __ATOMIC_RELEASE);
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL); /* so that it has something to wait for */
    end();
    CHECK(join(thread) == PTHREAD_CANCELED && waited);
}

static struct rcu_head heads[3];

static void read_and_queue(void)
{
    urcu_memb_read_lock();
    urcu_memb_call_rcu(&heads[0], call);
}

static void read_on(void)
{
    urcu_memb_read_unlock();
    urcu_memb_barrier();
}

static void qsbr_read_and_queue(void)
{
    urcu_qsbr_register_thread();
    urcu_qsbr_call_rcu(&heads[1], call);
}

static void qsbr_read_on(void)
{
    urcu_qsbr_thread_offline();
    urcu_qsbr_barrier();
    urcu_qsbr_unregister_thread();
}

static void queue_on_a_worker(void)
{
    worker = urcu_memb_create_call_rcu_data(0, -1);
    urcu_memb_set_thread_call_rcu_data(worker);
    urcu_memb_read_lock();
    urcu_memb_call_rcu(&heads[2], call);
    urcu_memb_set_thread_call_rcu_data(NULL);
}

static void stay_in_a_callback(struct rcu_head *head)
{
    call(head);
    nanosleep(&(struct timespec){.tv_nsec = 60 * 1000 * 1000}, NULL);
}

static void run_a_callback(void)
{
    urcu_memb_call_rcu(&heads[0], stay_in_a_callback);
    while (__atomic_load_n(&called, __ATOMIC_RELAXED) < 4) {
    }
}

static void run_on(void)
{
    urcu_memb_barrier();
}

int main(void)
{
    alarm(50);
    is_cancelled(barrier, read_and_queue, read_on);
    is_cancelled(barrier_of_qsbr, qsbr_read_and_queue, qsbr_read_on);
    is_cancelled(free_worker, queue_on_a_worker, read_on);
    CHECK(called == 3);
    is_cancelled(fork_hooks, run_a_callback, run_on);
    CHECK(called == 4);
    puts("waited to the end");
    return 0;
}
