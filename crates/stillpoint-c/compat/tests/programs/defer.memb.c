/* defer_rcu(): no head in the object, a queue for each thread. */
#include <urcu.h>

#include "common.h"

static int *shared;
static int stop, freed;

static void *reader(void *unused)
{
    (void)unused;
    rcu_register_thread();
    while (!uatomic_read(&stop)) {
        rcu_read_lock();
        CHECK(*rcu_dereference(shared) >= 0);
        rcu_read_unlock();
    }
    rcu_unregister_thread();
    return NULL;
}

static void release(void *of)
{
    int *old = of;
    *old = -1;
    free(old);
    uatomic_inc(&freed);
}

static void append(void *of)
{
    static long last;
    CHECK((long)of == last + 1);
    last = (long)of;
}

static void *update(void *of)
{
    long number = (long)of;
    CHECK(rcu_defer_register_thread() == 0);
    for (int n = 0; n < 6000; n++) {
        int *made = allocate(sizeof *made);
        *made = n;
        int *old = rcu_xchg_pointer(&shared, made);
        defer_rcu(release, old);
        if (n % 2000 == 1999 && number == 0) {
            rcu_defer_barrier_thread();
        }
    }
    if (number == 1) {
        rcu_defer_barrier();
    }
    rcu_defer_unregister_thread();
    return NULL;
}

int main(void)
{
    shared = calloc(1, sizeof *shared);
    rcu_register_thread();
    pthread_t readers[2] = {start(reader, NULL), start(reader, NULL)};
    pthread_t writers[2] = {start(update, (void *)0), start(update, (void *)1)};
    join(writers[0]);
    join(writers[1]);
    printf("freed %d\n", freed);
    CHECK(rcu_defer_register_thread() == 0);
    for (long n = 1; n <= 1000; n++) {
        defer_rcu(append, (void *)n);
    }
    rcu_defer_barrier_thread();
    defer_rcu(append, (void *)1001);
    rcu_defer_unregister_thread();
    uatomic_set(&stop, 1);
    join(readers[0]);
    join(readers[1]);
    free(shared);
    rcu_unregister_thread();
    return 0;
}
