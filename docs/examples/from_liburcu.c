/*
 * A program written for liburcu: a table that is replaced under readers, with old tables freed by call_rcu().
 * make -C docs/examples liburcu
 */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <urcu.h>

struct table {
    unsigned version;
    unsigned twice;
    struct rcu_head head;
};

static struct table *current;
static int stop;
static unsigned freed;

static struct table *make(unsigned version)
{
    struct table *table = malloc(sizeof *table);
    if (table == NULL) {
        abort();
    }
    table->version = version;
    table->twice = 2 * version;
    return table;
}

static void reclaim(struct rcu_head *head)
{
    free((char *)head - offsetof(struct table, head));
    __atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
}

static void *reader(void *unused)
{
    (void)unused;
    rcu_register_thread();
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        rcu_read_lock();
        struct table *table = rcu_dereference(current);
        if (table->twice != 2 * table->version) {
            abort(); /* freed or half written: cannot happen */
        }
        rcu_read_unlock();
    }
    rcu_unregister_thread();
    return NULL;
}

int main(void)
{
    pthread_t readers[2];
    rcu_assign_pointer(current, make(0));
    for (int n = 0; n < 2; n++) {
        if (pthread_create(&readers[n], NULL, reader, NULL) != 0) {
            abort();
        }
    }
    for (unsigned version = 1; version <= 10000; version++) {
        struct table *old = rcu_xchg_pointer(&current, make(version));
        call_rcu(&old->head, reclaim);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int n = 0; n < 2; n++) {
        pthread_join(readers[n], NULL);
    }
    rcu_barrier();
    printf("version %u, %u tables freed\n", current->version, freed);
    free(current);
    return freed == 10000 ? 0 : 1;
}
