/* A list that is walked while elements come and go, freed by call_rcu(). */
#include <urcu.h>
#include <urcu/rculist.h>

#include "common.h"

struct element {
    int key, alive;
    struct cds_list_head link;
    struct rcu_head rcu;
};

static CDS_LIST_HEAD(list);
static int stop;
static long freed;

static void release(struct rcu_head *head)
{
    struct element *element = caa_container_of(head, struct element, rcu);
    element->alive = 0;
    free(element);
    freed++;
}

static void *walk(void *unused)
{
    long walks = 0;
    (void)unused;
    rcu_register_thread();
    do {
        struct element *element;
        int last = 1 << 30;
        rcu_read_lock();
        cds_list_for_each_entry_rcu(element, &list, link) {
            CHECK(element->alive == 1 && element->key < last);
            last = element->key;
        }
        rcu_read_unlock();
        walks++;
    } while (!uatomic_read(&stop));
    rcu_unregister_thread();
    return (void *)walks;
}

int main(void)
{
    pthread_t walkers[3];
    for (int n = 0; n < 3; n++) {
        walkers[n] = start(walk, NULL);
    }
    rcu_register_thread();
    for (int key = 0; key < 3000; key++) {
        struct element *element = allocate(sizeof *element);
        element->key = key;
        element->alive = 1;
        cds_list_add_rcu(&element->link, &list);
        if (key >= 20) {
            struct element *oldest = cds_list_entry(list.prev, struct element, link);
            cds_list_del_rcu(&oldest->link);
            call_rcu(&oldest->rcu, release);
        }
    }
    uatomic_set(&stop, 1);
    for (int n = 0; n < 3; n++) {
        CHECK(join(walkers[n]) != NULL);
    }
    rcu_barrier();
    printf("freed %ld\n", freed);
    int left = 0;
    struct element *element, *next;
    cds_list_for_each_entry_safe(element, next, &list, link) {
        cds_list_del(&element->link);
        free(element);
        left++;
    }
    printf("left %d\n", left);
    rcu_unregister_thread();
    return 0;
}
