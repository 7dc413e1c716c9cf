/* A barrier at exit, and barriers of many threads at once: nothing that was queued is left out. */
#include <urcu.h>

#include "common.h"

static int called, queued;

static void call(struct rcu_head *head)
{
    free(head);
    uatomic_inc(&called);
}

static void *queue(void *of)
{
    long number = (long)of;
    rcu_register_thread();
    struct call_rcu_data *own = number % 2 ? create_call_rcu_data(0, -1) : NULL;
    set_thread_call_rcu_data(own);
    for (int n = 0; n < 1000; n++) {
        call_rcu(allocate(sizeof(struct rcu_head)), call);
        uatomic_inc(&queued);
        if (n % 100 == 99) {
            int before = uatomic_read(&queued) - 8;
            rcu_barrier();
            CHECK(uatomic_read(&called) >= before);
        }
    }
    call_rcu(allocate(sizeof(struct rcu_head)), call);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);
    rcu_unregister_thread();
    return NULL;
}

static void at_exit(void)
{
    rcu_barrier();
    printf("at exit %d have been called\n", called);
}

int main(void)
{
    atexit(at_exit);
    pthread_t threads[8];
    for (long n = 0; n < 8; n++) {
        threads[n] = start(queue, (void *)n);
    }
    for (int n = 0; n < 8; n++) {
        join(threads[n]);
    }
    return 0;
}
