/*
 * Kernel code in user space: a list that is searched under RCU and changed under a mutex, with entries freed by kfree_rcu(); and readers that sleep,
 * under SRCU. make -C docs/examples kernel
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/rcupdate.h>

struct route {
    struct route __rcu *next;
    unsigned network;
    unsigned hop;
    struct rcu_head rcu;
};

static struct route __rcu *routes;
static pthread_mutex_t routes_lock = PTHREAD_MUTEX_INITIALIZER;

/* For readers, as in the kernel. The caller is in a section. */
static struct route *route_find(unsigned network)
{
    struct route *route = rcu_dereference(routes);

    while (route != NULL && route->network != network) {
        route = rcu_dereference(route->next);
    }
    return route;
}

/* Returns the link to a route, or the last link. The caller holds the lock. */
static struct route **route_place(unsigned network)
{
    struct route **place = &routes;

    while (*place != NULL && (*place)->network != network) {
        place = &(*place)->next;
    }
    return place;
}

static void route_set(unsigned network, unsigned hop)
{
    struct route *fresh = malloc(sizeof *fresh); /* kmalloc(sizeof *fresh, GFP_KERNEL) */
    if (fresh == NULL) {
        abort();
    }
    fresh->network = network;
    fresh->hop = hop;
    pthread_mutex_lock(&routes_lock);
    struct route **place = route_place(network);
    struct route *old = rcu_dereference_protected(*place, true);
    RCU_INIT_POINTER(fresh->next, old != NULL ? old->next : NULL);
    rcu_assign_pointer(*place, fresh);
    pthread_mutex_unlock(&routes_lock);
    if (old != NULL) {
        kfree_rcu(old, rcu);
    }
}

static void route_remove(unsigned network)
{
    pthread_mutex_lock(&routes_lock);
    struct route **place = route_place(network);
    struct route *old = rcu_dereference_protected(*place, true);
    if (old != NULL) {
        rcu_assign_pointer(*place, old->next);
    }
    pthread_mutex_unlock(&routes_lock);
    if (old != NULL) {
        kfree_rcu(old, rcu);
    }
}

/* Readers that sleep: a separate domain. */
DEFINE_STATIC_SRCU(notifier_srcu);

struct notifier {
    int (*call)(int event);
};

static int twice(int event)
{
    return 2 * event;
}

static struct notifier first = {twice};
static struct notifier __rcu *notifier = &first;

static int notify(int event)
{
    int index = srcu_read_lock(&notifier_srcu);
    struct notifier *found = srcu_dereference(notifier, &notifier_srcu);
    int result = found != NULL ? found->call(event) : 0; /* may sleep */
    srcu_read_unlock(&notifier_srcu, index);
    return result;
}

static int done;

static void *forward(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
        rcu_read_lock();
        struct route *route = route_find(7);
        if (route == NULL || route->hop < 70) {
            abort(); /* network 7 is only replaced, never removed */
        }
        rcu_read_unlock();
    }
    return NULL;
}

int main(void)
{
    pthread_t reader;
    for (unsigned network = 0; network < 16; network++) {
        route_set(network, 10 * network);
    }
    if (pthread_create(&reader, NULL, forward, NULL) != 0) {
        abort();
    }
    for (unsigned hop = 70; hop < 10000; hop++) {
        route_set(7, hop);
        route_remove(hop % 7);
        route_set(hop % 7, hop);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    pthread_join(reader, NULL);

    int answer = notify(21);
    rcu_assign_pointer(notifier, NULL);
    synchronize_srcu(&notifier_srcu); /* no thread is still in the old notifier */
    cleanup_srcu_struct(&notifier_srcu);

    rcu_read_lock();
    printf("network 7 by hop %u; notified: %d, then %d\n", route_find(7)->hop, answer, notifier == NULL ? 0 : 1);
    rcu_read_unlock();
    for (unsigned network = 0; network < 16; network++) {
        route_remove(network);
    }
    kvfree_rcu_barrier();
    return routes == NULL && answer == 42 ? 0 : 1;
}
