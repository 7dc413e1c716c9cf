/* call_rcu() from callbacks, and the family that says which worker does it. */
#include <urcu.h>

#include "common.h"

struct job {
    int left;
    long *steps;
    struct rcu_head rcu;
};

static pthread_t ran_on;
static long synchronized;

static void again(struct rcu_head *head)
{
    struct job *job = caa_container_of(head, struct job, rcu);
    ran_on = pthread_self();
    ++*job->steps;
    rcu_read_lock();
    rcu_read_unlock();
    if (job->left % 16 == 0) {
        synchronize_rcu();
        synchronized++;
    }
    if (job->left-- > 0) {
        call_rcu(&job->rcu, again);
    } else {
        free(job);
    }
}

static void run(int left, long *steps)
{
    struct job *job = allocate(sizeof *job);
    job->left = left;
    job->steps = steps;
    call_rcu(&job->rcu, again);
}

int main(void)
{
    long steps = 0;
    rcu_register_thread();
    CHECK(get_thread_call_rcu_data() == NULL);
    CHECK(get_cpu_call_rcu_data(0) == NULL);

    run(40, &steps);
    for (int n = 0; n <= 40; n++) {
        rcu_barrier();
    }
    printf("%ld steps on the default worker, %ld waited\n", steps, synchronized);
    CHECK(pthread_equal(ran_on, get_call_rcu_thread(get_default_call_rcu_data())));
    CHECK(get_call_rcu_data() == get_default_call_rcu_data());

    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL && own != get_default_call_rcu_data());
    set_thread_call_rcu_data(own);
    CHECK(get_thread_call_rcu_data() == own && get_call_rcu_data() == own);
    run(0, &steps);
    rcu_barrier();
    CHECK(pthread_equal(ran_on, get_call_rcu_thread(own)));
    printf("%ld steps, the last on its own worker\n", steps);

    /* And what its callbacks queue stays there. */
    run(10, &steps);
    for (int n = 0; n <= 10; n++) {
        rcu_barrier();
        CHECK(pthread_equal(ran_on, get_call_rcu_thread(own)));
    }
    printf("%ld steps, the last from callbacks of its own worker\n", steps);
    set_thread_call_rcu_data(NULL);

    /* What waits in a worker that is ended is done all the same. */
    set_thread_call_rcu_data(own);
    run(0, &steps);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);
    rcu_barrier();
    printf("%ld steps, the last left by a worker that ended\n", steps);

    struct call_rcu_data *real_time = create_call_rcu_data(URCU_CALL_RCU_RT, 0);
    CHECK(set_cpu_call_rcu_data(0, real_time) == 0);
    CHECK(get_cpu_call_rcu_data(0) == real_time);
    CHECK(set_cpu_call_rcu_data(0, real_time) != 0);
    CHECK(set_cpu_call_rcu_data(-1, real_time) != 0);
    CHECK(create_all_cpu_call_rcu_data(0) == 0);
    CHECK(get_cpu_call_rcu_data(0) == real_time);
    for (int n = 0; n < 100; n++) {
        run(0, &steps);
    }
    rcu_barrier();
    CHECK(!pthread_equal(ran_on, get_call_rcu_thread(get_default_call_rcu_data())));
    printf("%ld steps, the last by processors' workers\n", steps);
    free_all_cpu_call_rcu_data();
    CHECK(get_cpu_call_rcu_data(0) == NULL);
    call_rcu_data_free(get_default_call_rcu_data());
    run(0, &steps);
    rcu_barrier();
    printf("%ld steps\n", steps);
    rcu_unregister_thread();
    return 0;
}
