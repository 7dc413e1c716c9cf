/* fork() with the bulletproof flavour's hooks, by pthread_atfork(), as tracers do. */
#include <urcu-bp.h>

#include "common.h"

static int *shared;
static int stop;

static void *reader(void *unused)
{
    (void)unused;
    while (!uatomic_read(&stop)) {
        rcu_read_lock();
        CHECK(*rcu_dereference(shared) >= 0);
        rcu_read_unlock();
    }
    return NULL;
}

struct node {
    struct rcu_head rcu;
};

static int called;

static void call(struct rcu_head *head)
{
    free(caa_container_of(head, struct node, rcu));
    uatomic_inc(&called);
}

static void add(void)
{
    struct node *node = allocate(sizeof *node);
    call_rcu(&node->rcu, call);
}

static void before(void)
{
    call_rcu_before_fork();
    urcu_bp_before_fork();
}

static void in_parent(void)
{
    urcu_bp_after_fork_parent();
    call_rcu_after_fork_parent();
}

static void in_child(void)
{
    urcu_bp_after_fork_child();
    call_rcu_after_fork_child();
}

static void exchange(void)
{
    int *made = allocate(sizeof *made);
    *made = 1;
    int *old = rcu_xchg_pointer(&shared, made);
    synchronize_rcu();
    *old = -1;
    free(old);
}

int main(void)
{
    shared = calloc(1, sizeof *shared);
    CHECK(pthread_atfork(before, in_parent, in_child) == 0);
    pthread_t readers[2] = {start(reader, NULL), start(reader, NULL)};
    int good = 0;
    for (int n = 0; n < 20; n++) {
        add();
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            /* The other threads' sections are over here. */
            exchange();
            add();
            rcu_barrier();
            _exit(called == n + 2 ? 0 : 1);
        }
        exchange();
        rcu_barrier();
        CHECK(called == n + 1);
        good += exit_of(child) == 0;
    }
    uatomic_set(&stop, 1);
    join(readers[0]);
    join(readers[1]);
    printf("%d children, %d callbacks\n", good, called);
    return 0;
}
