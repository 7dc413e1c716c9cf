/* liburcu's hash table, which grows and shrinks by itself, and knows its flavour by a structure of functions; and a fork with it. */
#include <urcu.h>
#include <urcu/rculfhash.h>

#include "common.h"

struct entry {
    unsigned long key, value;
    struct cds_lfht_node node;
    struct rcu_head rcu;
};

static struct cds_lfht *table;
static int stop;

static unsigned long hash(unsigned long key)
{
    return (key + 1) * 0x9e3779b97f4a7c15ul >> 16;
}

static int is(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, struct entry, node)->key == *(const unsigned long *)key;
}

static struct entry *find(unsigned long key)
{
    struct cds_lfht_iter at;
    cds_lfht_lookup(table, hash(key), is, &key, &at);
    struct cds_lfht_node *node = cds_lfht_iter_get_node(&at);
    return node ? caa_container_of(node, struct entry, node) : NULL;
}

static void release(struct rcu_head *head)
{
    struct entry *entry = caa_container_of(head, struct entry, rcu);
    entry->value = 0;
    free(entry);
}

static void put(unsigned long key)
{
    struct entry *entry = allocate(sizeof *entry);
    entry->key = key;
    entry->value = ~key;
    cds_lfht_node_init(&entry->node);
    rcu_read_lock();
    struct cds_lfht_node *old = cds_lfht_add_replace(table, hash(key), is, &entry->key, &entry->node);
    rcu_read_unlock();
    if (old) {
        call_rcu(&caa_container_of(old, struct entry, node)->rcu, release);
    }
}

static int take(unsigned long key)
{
    rcu_read_lock();
    struct entry *entry = find(key);
    int taken = entry && cds_lfht_del(table, &entry->node) == 0;
    rcu_read_unlock();
    if (taken) {
        call_rcu(&entry->rcu, release);
    }
    return taken;
}

static void *look(void *unused)
{
    (void)unused;
    rcu_register_thread();
    for (unsigned long key = 0; !uatomic_read(&stop); key = (key + 7) % 3000) {
        rcu_read_lock();
        struct entry *entry = find(key);
        CHECK(!entry || (entry->key == key && entry->value == ~key));
        rcu_read_unlock();
    }
    rcu_unregister_thread();
    return NULL;
}

static unsigned long count(void)
{
    long before, after;
    unsigned long all;
    rcu_read_lock();
    cds_lfht_count_nodes(table, &before, &all, &after);
    rcu_read_unlock();
    return all;
}

int main(void)
{
    table = cds_lfht_new(1, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, NULL);
    CHECK(table != NULL);
    rcu_register_thread();
    pthread_t lookers[2] = {start(look, NULL), start(look, NULL)};
    for (int round = 0; round < 3; round++) {
        for (unsigned long key = 0; key < 3000; key++) {
            put(key);
        }
        printf("%lu entries\n", count());
        int taken = 0;
        for (unsigned long key = 0; key < 3000; key++) {
            taken += key % 3 != 0 && take(key);
        }
        printf("%d taken, %lu left\n", taken, count());
    }
    uatomic_set(&stop, 1);
    join(lookers[0]);
    join(lookers[1]);
    fflush(stdout);
    call_rcu_before_fork();
    pid_t child = fork();
    if (child == 0) {
        call_rcu_after_fork_child();
        for (unsigned long key = 0; key < 3000; key++) {
            put(key);
        }
        rcu_barrier();
        _exit(count() == 3000 ? 0 : 1);
    }
    call_rcu_after_fork_parent();
    printf("the child's status is %d\n", exit_of(child));
    for (unsigned long key = 0; key < 3000; key += 3) {
        CHECK(take(key));
    }
    rcu_barrier();
    rcu_unregister_thread();
    CHECK(cds_lfht_destroy(table, NULL) == 0);
    return 0;
}
