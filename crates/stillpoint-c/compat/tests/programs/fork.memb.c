/* fork() with the three hooks: what waited is done in the parent and in the child. No
 * other thread reads: liburcu's child would wait for it for ever. */
#include <urcu.h>

#include "common.h"

#define JOBS 200

struct job {
    struct rcu_head rcu;
};

static int done;

static void count(struct rcu_head *head)
{
    free(caa_container_of(head, struct job, rcu));
    uatomic_inc(&done);
}

static void add(int jobs)
{
    while (jobs-- > 0) {
        struct job *job = allocate(sizeof *job);
        call_rcu(&job->rcu, count);
    }
}

static int begun, ended;

static void take_time(struct rcu_head *head)
{
    (void)head;
    uatomic_set(&begun, 1);
    usleep(50000);
    uatomic_set(&ended, 1);
}

/* The hook waits for the callback that is running, so the child finds none half done. */
static void fork_meanwhile(void)
{
    static struct rcu_head head;
    call_rcu(&head, take_time);
    while (!uatomic_read(&begun)) {
        usleep(100);
    }
    call_rcu_before_fork();
    pid_t child = fork();
    if (child == 0) {
        call_rcu_after_fork_child();
        rcu_barrier();
        _exit(uatomic_read(&ended) ? 0 : 1);
    }
    call_rcu_after_fork_parent();
    CHECK(exit_of(child) == 0);
}

/* Forks; the child's number of jobs done. */
static int generation(int depth, struct call_rcu_data *other)
{
    add(JOBS);
    set_thread_call_rcu_data(other);
    add(JOBS);
    set_thread_call_rcu_data(NULL);
    fflush(stdout);
    call_rcu_before_fork();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        call_rcu_after_fork_child();
        add(JOBS);
        rcu_barrier();
        CHECK(done >= 3 * JOBS);
        rcu_read_lock();
        rcu_read_unlock();
        synchronize_rcu();
        if (depth > 0) {
            struct call_rcu_data *again = create_call_rcu_data(0, -1);
            CHECK(generation(depth - 1, again) == 0);
            call_rcu_data_free(again);
        }
        _exit(done % (3 * JOBS) % 100 == 0 ? 0 : 1);
    }
    call_rcu_after_fork_parent();
    add(JOBS);
    rcu_barrier();
    return exit_of(child);
}

int main(void)
{
    rcu_register_thread();
    fork_meanwhile();
    struct call_rcu_data *other = create_call_rcu_data(0, -1);
    for (int n = 0; n < 10; n++) {
        CHECK(generation(2, other) == 0);
    }
    call_rcu_data_free(other);
    printf("the parent's %d jobs are done\n", done);
    rcu_unregister_thread();
    return 0;
}
