/* Hash chains under the bulletproof flavour: threads come and go, and none registers. */
#include <urcu-bp.h>
#include <urcu/rcuhlist.h>

#include "common.h"

#define CHAINS 16

struct entry {
    unsigned key;
    int value;
    struct cds_hlist_node node;
    struct rcu_head rcu;
};

static struct cds_hlist_head chains[CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int released;

static struct entry *find(unsigned key)
{
    struct entry *entry;
    cds_hlist_for_each_entry_rcu_2(entry, &chains[key % CHAINS], node) {
        if (entry->key == key) {
            return entry;
        }
    }
    return NULL;
}

static void release(struct rcu_head *head)
{
    struct entry *entry = caa_container_of(head, struct entry, rcu);
    entry->value = -1;
    free(entry);
    uatomic_inc(&released);
}

static void put(unsigned key, int value)
{
    struct entry *entry = allocate(sizeof *entry);
    entry->key = key;
    entry->value = value;
    pthread_mutex_lock(&lock);
    struct entry *old = find(key);
    cds_hlist_add_head_rcu(&entry->node, &chains[key % CHAINS]);
    if (old) {
        cds_hlist_del_rcu(&old->node);
    }
    pthread_mutex_unlock(&lock);
    if (old) {
        call_rcu(&old->rcu, release);
    }
}

static void *visit(void *of)
{
    long number = (long)of;
    for (unsigned n = 0; n < 400; n++) {
        unsigned key = (unsigned)(number * 7 + n) % 64;
        rcu_read_lock();
        struct entry *entry = find(key);
        /* A reader that is past the head when the new one comes may find neither. */
        CHECK(!entry || (entry->key == key && entry->value >= 0));
        rcu_read_unlock();
        if (n % 8 == 0) {
            put(key, (int)n);
        }
    }
    return NULL;
}

int main(void)
{
    for (unsigned key = 0; key < 64; key++) {
        put(key, 0);
    }
    for (int round = 0; round < 10; round++) {
        pthread_t visitors[6];
        for (long n = 0; n < 6; n++) {
            visitors[n] = start(visit, (void *)n);
        }
        for (int n = 0; n < 6; n++) {
            join(visitors[n]);
        }
    }
    rcu_barrier();
    int left = 0;
    for (unsigned key = 0; key < 64; key++) {
        rcu_read_lock();
        left += find(key) != NULL;
        rcu_read_unlock();
    }
    printf("released %d, left %d\n", released, left);
    synchronize_rcu();
    return 0;
}
