/* Event loops: threads that read at all times, and say at the end of each turn that they use nothing. */
#include <urcu-qsbr.h>

#include "common.h"

struct route {
    int to, check;
    struct rcu_head rcu;
};

static struct route *route;
static int stop, released;

static struct route *make(int to)
{
    struct route *made = allocate(sizeof *made);
    made->to = to;
    made->check = ~to;
    return made;
}

static void release(struct rcu_head *head)
{
    struct route *old = caa_container_of(head, struct route, rcu);
    old->to = old->check = 0;
    free(old);
    released++;
}

static void *loop(void *of)
{
    long number = (long)of;
    rcu_register_thread();
    CHECK(rcu_read_ongoing());
    for (long turn = 0; !uatomic_read(&stop); turn++) {
        rcu_read_lock();
        struct route *seen = rcu_dereference(route);
        CHECK(seen->check == ~seen->to);
        rcu_read_unlock();
        CHECK(seen->check == ~seen->to);
        rcu_quiescent_state();
        if (turn % 64 == number) {
            rcu_thread_offline();
            usleep(100);
            rcu_thread_online();
        }
    }
    rcu_unregister_thread();
    return NULL;
}

int main(void)
{
    pthread_t loops[3];
    rcu_register_thread();
    route = make(0);
    for (long n = 0; n < 3; n++) {
        loops[n] = start(loop, (void *)n);
    }
    int freed = 0;
    for (int to = 1; to <= 300; to++) {
        struct route *old = rcu_xchg_pointer(&route, make(to));
        if (to % 2) {
            /* The caller is a reader, and offline meanwhile. */
            synchronize_rcu();
            old->check = 0;
            free(old);
            freed++;
        } else {
            call_rcu(&old->rcu, release);
        }
    }
    rcu_barrier();
    printf("%d freed, %d released, the route leads to %d\n", freed, released, route->to);
    CHECK(rcu_read_ongoing());
    uatomic_set(&stop, 1);
    rcu_thread_offline();
    for (int n = 0; n < 3; n++) {
        join(loops[n]);
    }
    rcu_thread_online();
    free(route);
    rcu_unregister_thread();
    return 0;
}
