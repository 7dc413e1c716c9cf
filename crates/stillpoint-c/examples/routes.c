/*
 * A table that is read all the time and replaced now and then: readers find it without a lock, the old one is freed when none of them is
 * left. In the kernel's spelling.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/rcupdate.h>

struct routes {
    unsigned version;
    unsigned hops[16];
    struct rcu_head rcu;
};

static struct routes __rcu *current;
static int done;

static struct routes *make(unsigned version)
{
    struct routes *routes = malloc(sizeof *routes);
    if (routes == NULL) {
        abort();
    }
    routes->version = version;
    for (unsigned n = 0; n < 16; n++) {
        routes->hops[n] = version + n;
    }
    return routes;
}

static void *forward(void *unused)
{
    unsigned long packets = 0;
    (void)unused;
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
        rcu_read_lock();
        struct routes *routes = rcu_dereference(current);
        unsigned n = (unsigned)packets % 16;
        if (routes->hops[n] != routes->version + n) {
            abort(); /* freed or half written: it cannot happen */
        }
        rcu_read_unlock();
        packets++;
    }
    return (void *)packets;
}

int main(void)
{
    pthread_t readers[2];
    unsigned long packets = 0;
    RCU_INIT_POINTER(current, make(0));
    for (int n = 0; n < 2; n++) {
        if (pthread_create(&readers[n], NULL, forward, NULL) != 0) {
            abort();
        }
    }
    for (unsigned version = 1; version <= 10000; version++) {
        struct routes *old = rcu_replace_pointer(current, make(version), true);
        kvfree_rcu(old, rcu);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    for (int n = 0; n < 2; n++) {
        void *forwarded;
        pthread_join(readers[n], &forwarded);
        packets += (unsigned long)forwarded;
    }
    kvfree_rcu_barrier();
    free(current);
    printf("10000 updates%s\n", packets > 0 ? " under readers" : "");
    return 0;
}
