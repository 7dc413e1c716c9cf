/* A million call_rcu() by one thread, and a barrier: nanoseconds each, and how much memory the process had at most. */
#include "../../bench/measure.h"

#include <sys/resource.h>
#include <urcu.h>

#define CALLS 1000000L

struct object {
    struct rcu_head rcu;
    char more[48];
};

static void release(struct rcu_head *head)
{
    free(caa_container_of(head, struct object, rcu));
}

int main(void)
{
    rcu_register_thread();
    double start = now();
    for (long n = 0; n < CALLS; n++) {
        struct object *object = malloc(sizeof *object);
        call_rcu(&object->rcu, release);
    }
    rcu_barrier();
    double each = (now() - start) / CALLS;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    rcu_unregister_thread();
    printf("%.3f %ld\n", each, usage.ru_maxrss);
    return 0;
}
