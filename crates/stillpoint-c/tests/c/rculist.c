/* <stillpoint/rculist.h>: what each function does, and readers beside a writer that adds, replaces, moves and takes off. Also compiled as C++. */
#include "check.h"

#include <stillpoint/rculist.h>

struct entry {
    long number, twice;
    struct list_head link;
    struct hlist_node node;
    struct rcu_head rcu;
};

static struct entry *entry(long number)
{
    struct entry *made = STILLPOINT_OF_VOID_(struct entry *, calloc(1, sizeof *made));
    CHECK(made != NULL);
    made->number = number;
    made->twice = 2 * number;
    return made;
}

static LIST_HEAD(list);
static LIST_HEAD(other);
static HLIST_HEAD(chain);

/* The digits of what a list has, in its order. */
static long listed(struct list_head *head)
{
    long digits = 0;
    struct entry *at;
    list_for_each_entry_rcu(at, head, link) {
        digits = 10 * digits + at->number;
    }
    return digits;
}

static long listed_back(struct list_head *head)
{
    long digits = 0;
    for (struct list_head *at = head->prev; at != head; at = at->prev) {
        digits = 10 * digits + STILLPOINT_AROUND_(at, struct entry, link)->number;
    }
    return digits;
}

static long chained(void)
{
    long digits = 0;
    struct entry *at;
    struct hlist_node **place = &chain.first;
    hlist_for_each_entry_rcu(at, &chain, node, 1) {
        digits = 10 * digits + at->number;
        CHECK(at->node.pprev == place);
        place = &at->node.next;
    }
    return digits;
}

static int waits;

static void wait_and_count(void)
{
    waits++;
    CHECK(list_empty(&list));
    synchronize_rcu();
}

static void test_list(void)
{
    struct entry *e[10], *at;
    for (long n = 0; n < 10; n++) {
        e[n] = entry(n);
    }
    CHECK(list_empty(&list) && list_first_or_null_rcu(&list, struct entry, link) == NULL);
    list_add_rcu(&e[2]->link, &list);
    list_add_rcu(&e[1]->link, &list);
    list_add_tail_rcu(&e[3]->link, &list);
    list_add_tail_rcu(&e[4]->link, &e[2]->link); /* before it */
    CHECK(!list_empty(&list) && listed(&list) == 1423 && listed_back(&list) == 3241);
    CHECK(list_first_or_null_rcu(&list, struct entry, link) == e[1]);
    struct list_head *head = &list, *once = head;
    CHECK(list_first_or_null_rcu(once++, struct entry, link) == e[1] && once == head + 1); /* evaluated once */
    CHECK(rcu_dereference(list_next_rcu(head)) == &e[1]->link);
    CHECK(list_next_or_null_rcu(&list, &e[1]->link, struct entry, link) == e[4]);
    CHECK(list_next_or_null_rcu(&list, &e[3]->link, struct entry, link) == NULL);
    list_replace_rcu(&e[4]->link, &e[5]->link);
    CHECK(listed(&list) == 1523 && listed_back(&list) == 3251);
    CHECK(e[4]->link.next == &e[2]->link && e[4]->link.prev == NULL); /* it still leads on */
    list_del_rcu(&e[5]->link);
    CHECK(listed(&list) == 123 && listed_back(&list) == 321);
    CHECK(e[5]->link.next == &e[2]->link && e[5]->link.prev == NULL);
    at = e[1];
    long digits = 0;
    list_for_each_entry_continue_rcu(at, &list, link) {
        digits = 10 * digits + at->number;
    }
    at = e[2];
    list_for_each_entry_from_rcu(at, &list, link) {
        digits = 10 * digits + at->number;
    }
    CHECK(digits == 2323);
    list_add_rcu(&e[9]->link, &other);
    list_splice_init_rcu(&list, &other, wait_and_count);
    CHECK(waits == 1 && list_empty(&list) && listed(&other) == 1239 && listed_back(&other) == 9321);
    list_splice_init_rcu(&list, &other, wait_and_count);
    CHECK(waits == 1);
    while ((at = list_first_or_null_rcu(&other, struct entry, link)) != NULL) {
        list_del_rcu(&at->link);
    }
    CHECK(list_empty(&other));

    CHECK(hlist_empty(&chain) && hlist_unhashed(&e[1]->node));
    hlist_add_head_rcu(&e[2]->node, &chain);
    hlist_add_head_rcu(&e[1]->node, &chain);
    hlist_add_tail_rcu(&e[5]->node, &chain);
    hlist_add_behind_rcu(&e[3]->node, &e[2]->node);
    hlist_add_before_rcu(&e[4]->node, &e[5]->node);
    CHECK(chained() == 12345 && !hlist_empty(&chain));
    hlist_replace_rcu(&e[3]->node, &e[6]->node);
    CHECK(chained() == 12645 && hlist_unhashed(&e[3]->node) && e[3]->node.next == &e[4]->node);
    hlist_del_rcu(&e[1]->node);
    hlist_del_init_rcu(&e[5]->node);
    hlist_del_init_rcu(&e[5]->node);
    CHECK(chained() == 264 && hlist_unhashed(&e[1]->node));
    at = e[2];
    digits = 0;
    hlist_for_each_entry_continue_rcu(at, node) {
        digits = 10 * digits + at->number;
    }
    CHECK(digits == 64);
    INIT_HLIST_HEAD(&chain);
    for (long n = 0; n < 10; n++) {
        free(e[n]);
    }
}

/* ---- Readers beside a writer ---- */

enum { ENTRIES = 16, ROUNDS = 20000 };

static int stop;
static pthread_barrier_t begin;

/* All that is found is whole, and no walk lasts for ever: each entry of those that stay is found once. */
static void *read_all(void *unused)
{
    long walks = 0;
    (void)unused;
    pthread_barrier_wait(&begin);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) || walks < 100) {
        struct entry *at;
        long stay = 0;
        rcu_read_lock();
        list_for_each_entry_rcu(at, &list, link) {
            CHECK(at->twice == 2 * at->number);
            stay += at->number == 0;
        }
        CHECK(stay == 2);
        hlist_for_each_entry_rcu(at, &chain, node) {
            CHECK(at->twice == 2 * at->number);
        }
        rcu_read_unlock();
        walks++;
    }
    return NULL;
}

static void test_readers(void)
{
    pthread_t threads[2];
    struct entry *first = entry(0), *last = entry(0), *e[ENTRIES];
    list_add_rcu(&first->link, &list);
    list_add_tail_rcu(&last->link, &list);
    for (long n = 0; n < ENTRIES; n++) {
        e[n] = entry(n + 1);
        list_add_rcu(&e[n]->link, n % 2 ? &first->link : &list);
        hlist_add_head_rcu(&e[n]->node, &chain);
    }
    CHECK(pthread_barrier_init(&begin, NULL, 3) == 0);
    start_all(threads, 2, read_all, NULL);
    pthread_barrier_wait(&begin);
    unsigned long random = 1;
    for (long round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        struct entry **at = &e[random >> 33 & (ENTRIES - 1)], *old = *at, *added = entry(round + 1);
        if (random >> 60 & 1) {
            list_replace_rcu(&old->link, &added->link);
            hlist_replace_rcu(&old->node, &added->node);
        } else {
            list_del_rcu(&old->link);
            hlist_del_rcu(&old->node);
            list_add_tail_rcu(&added->link, random >> 59 & 1 ? &last->link : &first->link);
            hlist_add_tail_rcu(&added->node, &chain);
        }
        *at = added;
        kvfree_rcu(old, rcu);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join_all(threads, 2);
    kvfree_rcu_barrier();
    for (long n = 0; n < ENTRIES; n++) {
        free(e[n]);
    }
    free(first);
    free(last);
}

int main(void)
{
    test_list();
    test_readers();
    return 0;
}
