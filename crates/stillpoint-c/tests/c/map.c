/* <stillpoint/map.h>: each function, duplicates, walks, a model, threads, idle shrinking, misuse, a fork. */
#include "check.h"

#include <malloc.h>
#include <stillpoint/map.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct item {
    unsigned long key, value;
    struct stillpoint_map_node node;
    struct stillpoint_head head;
};

static unsigned long hash(unsigned long key)
{
    return (key + 1) * 0x9e3779b97f4a7c15ul >> 7;
}

static int is(struct stillpoint_map_node *node, const void *key)
{
    return stillpoint_map_entry(node, struct item, node)->key == *(const unsigned long *)key;
}

/* The node itself is known without it. */
static int is_not(struct stillpoint_map_node *node, const void *key)
{
    (void)node;
    (void)key;
    return 0;
}

static struct item *make(unsigned long key, unsigned long value)
{
    struct item *item = malloc(sizeof *item);
    CHECK(item != NULL);
    /* The map needs nothing that was written before. */
    memset(item, 0xa5, sizeof *item);
    item->key = key;
    item->value = value;
    return item;
}

static struct item *item_of(struct stillpoint_map_node *node)
{
    return node ? stillpoint_map_entry(node, struct item, node) : NULL;
}

static struct item *find(struct stillpoint_map *map, unsigned long key)
{
    return item_of(stillpoint_map_lookup(map, hash(key), is, &key));
}

static void release(struct stillpoint_head *head)
{
    struct item *item = STILLPOINT_AROUND_(head, struct item, head);
    item->key = item->value = ~0ul;
    free(item);
}

static void release_at_once(struct stillpoint_map_node *node, void *count)
{
    ++*(unsigned long *)count;
    free(item_of(node));
}

static struct stillpoint_map *new_map(struct stillpoint_domain *domain, size_t capacity)
{
    struct stillpoint_map *map;
    CHECK(stillpoint_map_new(domain, capacity, 0, &map) == 0);
    return map;
}

static void pause_for_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000 * 1000}, NULL);
}

/* ---- Each function ---- */

static void test_functions(struct stillpoint_domain *domain)
{
    struct stillpoint_map *map = new_map(domain, 0);
    struct stillpoint_map_node *other;
    struct stillpoint_map_iter iter;
    unsigned long key = 7;
    struct item *first = make(7, 1), *second = make(7, 2), *third = make(7, 3);

    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_map_first(map, &iter) == NULL && stillpoint_map_next(&iter) == NULL && iter.node == NULL);
    CHECK(find(map, 7) == NULL && stillpoint_map_count(map) == 0);
    CHECK(stillpoint_map_add_unique(map, hash(7), is, &key, &first->node, &other) == 0);
    CHECK(find(map, 7) == first && stillpoint_map_has(map, &first->node) && stillpoint_map_count(map) == 1);
    CHECK(stillpoint_map_add_unique(map, hash(7), is, &key, &second->node, &other) == -EEXIST && other == &first->node);
    CHECK(stillpoint_map_add_unique(map, hash(7), is, &key, &second->node, NULL) == -EEXIST);
    /* It is there itself. */
    other = &third->node;
    CHECK(stillpoint_map_add_unique(map, hash(7), is, &key, &first->node, &other) == -EBUSY && other == &third->node);
    CHECK(stillpoint_map_add_replace(map, hash(7), is, &key, &first->node, &other) == -EBUSY && other == &third->node);
    CHECK(stillpoint_map_add_unique(map, hash(7), is_not, &key, &first->node, &other) == -EBUSY && other == &third->node);
    CHECK(stillpoint_map_replace(map, &first->node, &first->node) == -EBUSY);
    CHECK(stillpoint_map_add_replace(map, hash(7), is, &key, &second->node, &other) == 0 && other == &first->node);
    CHECK(find(map, 7) == second && !stillpoint_map_has(map, &first->node) && stillpoint_map_count(map) == 1);
    CHECK(stillpoint_map_replace(map, &first->node, &third->node) == -ENOENT);
    CHECK(stillpoint_map_replace(map, &second->node, &third->node) == 0 && find(map, 7) == third);
    CHECK(stillpoint_map_del(map, &second->node) == -ENOENT);
    CHECK(stillpoint_map_first(map, &iter) == &third->node && iter.node == &third->node);
    CHECK(stillpoint_map_next(&iter) == NULL && stillpoint_map_next(&iter) == NULL && iter.node == NULL);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_map_destroy(map, NULL, NULL) == -ENOTEMPTY);
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_map_del(map, &third->node) == 0 && stillpoint_map_del(map, &third->node) == -ENOENT);
    CHECK(find(map, 7) == NULL && stillpoint_map_count(map) == 0);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    /* A node goes in again. */
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_map_add_replace(map, hash(7), is, &key, &third->node, &other) == 0 && other == NULL);
    CHECK(find(map, 7) == third && stillpoint_map_del(map, &third->node) == 0);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_map_destroy(map, NULL, NULL) == 0);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    free(first);
    free(second);
    free(third);
}

static void test_bad_use(struct stillpoint_domain *domain)
{
    struct stillpoint_map *map, *none = NULL;
    struct stillpoint_map_node *other;
    struct stillpoint_map_iter iter;
    unsigned long key = 1;
    struct item *item = make(1, 1);
    struct stillpoint_map_node *askew = (struct stillpoint_map_node *)(void *)((char *)&item->node + 4);
    CHECK(stillpoint_map_new(domain, 0, 2, &map) == -EINVAL && stillpoint_map_new(domain, 0, 0, NULL) == -EINVAL);
    CHECK(stillpoint_map_new(domain, SIZE_MAX, 0, &map) == -ENOMEM);
    CHECK(stillpoint_map_destroy(none, NULL, NULL) == 0);
    map = new_map(domain, 0);
    if (stillpoint_reports_misuse()) {
        /* No thread is in a section. */
        CHECK(stillpoint_map_add(map, hash(1), &item->node) == -EPERM && stillpoint_map_del(map, &item->node) == -EPERM);
        CHECK(find(map, 1) == NULL && stillpoint_map_first(map, &iter) == NULL && stillpoint_map_reserve(map, 1) == -EPERM);
        /* A section of another domain is none of this one's. */
        struct stillpoint_domain *elsewhere = stillpoint_domain_new();
        stillpoint_domain_read_lock(elsewhere);
        CHECK(stillpoint_map_add(map, hash(1), &item->node) == -EPERM);
        CHECK(stillpoint_domain_read_unlock(elsewhere) == 0 && stillpoint_domain_destroy(elsewhere) == 0);
        CHECK(stillpoint_map_count(map) == 0);
    }
    /* A guard's section is no thread's. */
    struct stillpoint_guard *guard = stillpoint_domain_guard(domain);
    CHECK(guard != NULL);
    CHECK(stillpoint_map_add(map, hash(1), &item->node) == 0 && find(map, 1) == item && stillpoint_map_del(map, &item->node) == 0);
    CHECK(stillpoint_guard_end(guard) == 0);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_map_lookup(none, 0, is, &key) == NULL && stillpoint_map_lookup(map, 0, NULL, &key) == NULL);
    CHECK(stillpoint_map_first(none, &iter) == NULL && stillpoint_map_next(&iter) == NULL);
    CHECK(stillpoint_map_first_duplicate(none, 0, is, &key, &iter) == NULL && stillpoint_map_next_duplicate(&iter, is, &key) == NULL);
    CHECK(stillpoint_map_add(none, 0, &item->node) == -EINVAL && stillpoint_map_add(map, 0, NULL) == -EINVAL);
    CHECK(stillpoint_map_add(map, 0, askew) == -EINVAL);
    CHECK(stillpoint_map_add_unique(map, 0, NULL, &key, &item->node, NULL) == -EINVAL);
    CHECK(stillpoint_map_add_replace(map, 0, is, &key, &item->node, NULL) == -EINVAL);
    CHECK(stillpoint_map_add_replace(map, 0, NULL, &key, &item->node, &other) == -EINVAL);
    CHECK(stillpoint_map_replace(map, NULL, &item->node) == -EINVAL && stillpoint_map_replace(map, &item->node, NULL) == -EINVAL);
    CHECK(stillpoint_map_del(map, NULL) == -EINVAL && stillpoint_map_del(none, &item->node) == -EINVAL);
    CHECK(!stillpoint_map_has(map, NULL) && !stillpoint_map_has(none, &item->node));
    CHECK(stillpoint_map_count(none) == 0 && stillpoint_map_capacity(none) == 0);
    CHECK(stillpoint_map_reserve(none, 1) == -EINVAL && stillpoint_map_shrink(none) == -EINVAL);
    CHECK(stillpoint_map_reserve(map, SIZE_MAX) == -ENOMEM);
    CHECK(stillpoint_map_add(map, hash(1), &item->node) == 0);
    if (stillpoint_reports_misuse()) {
        CHECK(stillpoint_map_add(map, hash(1), &item->node) == -EBUSY && stillpoint_map_count(map) == 1);
    }
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    unsigned long left = 0;
    CHECK(stillpoint_map_destroy(map, release_at_once, &left) == 0 && left == 1);
}

/* ---- Duplicates ---- */

enum { KEYS = 10, COPIES = 100 };

static void test_duplicates(void)
{
    struct stillpoint_map *map = new_map(NULL, 0);
    struct stillpoint_map_iter iter;
    struct stillpoint_map_node *at;
    struct item *item;
    static bool seen[KEYS][COPIES];

    stillpoint_read_lock();
    for (unsigned long n = 0; n < KEYS * COPIES; n++) {
        /* Keys of two share a hash: only the function tells them apart. */
        CHECK(stillpoint_map_add(map, hash(n % KEYS / 2), &make(n % KEYS, n / KEYS)->node) == 0);
    }
    CHECK(stillpoint_map_count(map) == KEYS * COPIES);
    for (unsigned long key = 0; key < KEYS; key++) {
        unsigned long found = 0;
        stillpoint_map_for_each_entry_duplicate(map, hash(key / 2), is, &key, &iter, item, node) {
            CHECK(item->key == key && item->value < COPIES && !seen[key][item->value]);
            seen[key][item->value] = true;
            found++;
        }
        CHECK(found == COPIES && iter.node == NULL);
        /* A walk has no hash, and a walk over a hash no end of keys. */
        CHECK(stillpoint_map_first(map, &iter) != NULL && stillpoint_map_next_duplicate(&iter, is, &key) == NULL);
    }
    /* All of one key go while they are visited. */
    unsigned long key = 4, taken = 0;
    stillpoint_map_for_each_duplicate(map, hash(key / 2), is, &key, &iter, at) {
        CHECK(stillpoint_map_del(map, at) == 0 && stillpoint_kvfree(item_of(at), head) == 0);
        taken++;
    }
    CHECK(taken == COPIES && stillpoint_map_count(map) == (KEYS - 1) * COPIES);
    CHECK(stillpoint_map_lookup(map, hash(key / 2), is, &key) == NULL);
    key = 5;
    CHECK(stillpoint_map_lookup(map, hash(key / 2), is, &key) != NULL);
    CHECK(stillpoint_read_unlock() == 0);
    unsigned long left = 0;
    CHECK(stillpoint_map_destroy(map, release_at_once, &left) == 0 && left == (KEYS - 1) * COPIES);
    CHECK(stillpoint_kvfree_barrier() == 0);
}

/* ---- A model: an array of what each key has ---- */

enum { MODEL_KEYS = 400, STEPS = 60000 };

static unsigned long draw(void)
{
    static unsigned long state = 88172645463325252ul;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void compare(struct stillpoint_map *map, struct item *const *model)
{
    struct stillpoint_map_iter iter;
    struct item *item;
    size_t visited = 0, expected = 0;
    stillpoint_map_for_each_entry(map, &iter, item, node) {
        CHECK(item->key < MODEL_KEYS && model[item->key] == item);
        visited++;
    }
    for (unsigned long key = 0; key < MODEL_KEYS; key++) {
        CHECK(find(map, key) == model[key]);
        expected += model[key] != NULL;
    }
    CHECK(visited == expected && stillpoint_map_count(map) == expected);
}

static void test_model(void)
{
    static struct item *model[MODEL_KEYS];
    struct stillpoint_map *map = new_map(NULL, 0);
    struct stillpoint_map_node *other;
    for (int step = 0; step < STEPS; step++) {
        /* Tides: the table grows and shrinks. */
        bool rises = step / 5000 % 2 == 0;
        unsigned long key = draw() % MODEL_KEYS, what = draw() % 8;
        struct item *old = model[key], *item = make(key, draw());
        bool used = false;
        stillpoint_read_lock();
        if (what < 2) {
            int outcome = stillpoint_map_add_unique(map, hash(key), is, &key, &item->node, &other);
            CHECK(old ? outcome == -EEXIST && item_of(other) == old : outcome == 0);
            used = !old;
        } else if (what == 2 || (what < 6 && rises)) {
            CHECK(stillpoint_map_add_replace(map, hash(key), is, &key, &item->node, &other) == 0 && item_of(other) == old);
            used = true;
        } else if (what == 6 && old) {
            CHECK(stillpoint_map_replace(map, &old->node, &item->node) == 0);
            used = true;
        } else if (old) {
            CHECK(stillpoint_map_del(map, &old->node) == 0);
            model[key] = NULL;
        }
        if (used) {
            model[key] = item;
        } else {
            free(item);
        }
        CHECK(find(map, key) == model[key]);
        if (old && old != model[key]) {
            CHECK(!stillpoint_map_has(map, &old->node));
            CHECK(step % 2 ? stillpoint_call(&old->head, release) == 0 : stillpoint_kvfree(old, head) == 0);
        }
        if (step % 997 == 0) {
            compare(map, model);
        }
        CHECK(stillpoint_read_unlock() == 0);
    }
    stillpoint_read_lock();
    compare(map, model);
    size_t count = stillpoint_map_count(map);
    CHECK(stillpoint_read_unlock() == 0);
    unsigned long left = 0;
    CHECK(stillpoint_map_destroy(map, release_at_once, &left) == 0 && left == count);
    CHECK(stillpoint_barrier() == 0 && stillpoint_kvfree_barrier() == 0);
}

/* ---- A table grows, shrinks while no thread uses it, and keeps what it is told to keep ---- */

enum { MANY = 100000 };

static size_t capacity_of(struct stillpoint_map *map)
{
    stillpoint_read_lock();
    size_t capacity = stillpoint_map_capacity(map);
    CHECK(stillpoint_read_unlock() == 0);
    return capacity;
}

static void wait_for_capacity(struct stillpoint_map *map, size_t least, size_t most)
{
    size_t capacity;
    for (int tries = 0; (capacity = capacity_of(map)) < least || capacity > most; tries++) {
        CHECK(tries < 30000);
        pause_for_a_moment();
    }
}

static void test_sizes(void)
{
    struct stillpoint_map *map = new_map(NULL, 0), *kept;
    struct item **items = malloc(MANY * sizeof *items);
    CHECK(items != NULL && stillpoint_map_new(NULL, 1000, STILLPOINT_MAP_KEEP_CAPACITY, &kept) == 0);
    for (unsigned long n = 0; n < MANY; n++) {
        items[n] = make(n, n);
        stillpoint_read_lock();
        CHECK(stillpoint_map_add(map, hash(n), &items[n]->node) == 0);
        CHECK(stillpoint_read_unlock() == 0);
    }
    wait_for_capacity(map, MANY, SIZE_MAX);
    for (unsigned long n = 0; n < MANY; n++) {
        stillpoint_read_lock();
        CHECK(find(map, n) == items[n] && stillpoint_map_del(map, &items[n]->node) == 0);
        CHECK(stillpoint_kvfree(items[n], head) == 0);
        CHECK(stillpoint_read_unlock() == 0);
    }
    /* The service thread alone goes on with it. */
    wait_for_capacity(map, 0, 100);
    stillpoint_read_lock();
    CHECK(stillpoint_map_reserve(map, 5000) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    wait_for_capacity(map, 5000, SIZE_MAX);
    stillpoint_read_lock();
    CHECK(stillpoint_map_shrink(map) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    wait_for_capacity(map, 0, 100);
    CHECK(capacity_of(kept) >= 1000);
    for (unsigned long n = 0; n < 50; n++) {
        items[n] = make(n, n);
        stillpoint_read_lock();
        CHECK(stillpoint_map_add(kept, hash(n), &items[n]->node) == 0);
        CHECK(stillpoint_map_del(kept, &items[n]->node) == 0 && stillpoint_kvfree(items[n], head) == 0);
        CHECK(stillpoint_read_unlock() == 0);
    }
    CHECK(capacity_of(kept) >= 1000);
    CHECK(stillpoint_map_destroy(map, NULL, NULL) == 0 && stillpoint_map_destroy(kept, NULL, NULL) == 0);
    CHECK(stillpoint_kvfree_barrier() == 0);
    free(items);
}

/* ---- Threads: keys that stay are always found and visited once; of those that come and go, whole nodes ---- */

enum { STAYS = 500, CHURN = 3000, WRITERS = 3, READERS = 2, ROUNDS = 6 };

static struct stillpoint_map *shared;
static struct stillpoint_domain *shared_domain;
static int writers_left;
static unsigned long put_in, taken_out;

static void *writes(void *number)
{
    unsigned long seed = (unsigned long)(size_t)number, put = 0, taken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        bool fills = round % 2 == 0;
        for (unsigned long n = 0; n < CHURN; n++) {
            unsigned long key = STAYS + (n * 7919 + seed * 31) % CHURN;
            struct stillpoint_map_node *old = NULL;
            stillpoint_domain_read_lock(shared_domain);
            if (fills && n % 3 == 0) {
                struct item *item = make(key, ~key);
                CHECK(stillpoint_map_add_replace(shared, hash(key), is, &key, &item->node, &old) == 0);
                put++;
            } else if (fills) {
                struct item *item = make(key, ~key);
                /* Beside what is there. */
                CHECK(stillpoint_map_add(shared, hash(key), &item->node) == 0);
                put++;
            } else {
                old = stillpoint_map_lookup(shared, hash(key), is, &key);
                if (old && stillpoint_map_del(shared, old) != 0) {
                    old = NULL; /* another thread's now */
                }
            }
            if (old) {
                CHECK(stillpoint_domain_call(shared_domain, &item_of(old)->head, release) == 0);
                taken++;
            }
            CHECK(stillpoint_domain_read_unlock(shared_domain) == 0);
        }
    }
    __atomic_add_fetch(&put_in, put, __ATOMIC_RELAXED);
    __atomic_add_fetch(&taken_out, taken, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&writers_left, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *reads(void *unused)
{
    while (__atomic_load_n(&writers_left, __ATOMIC_ACQUIRE) != 0) {
        struct stillpoint_map_iter iter;
        struct item *item;
        unsigned char visits[STAYS] = {0};
        for (unsigned long key = 0; key < STAYS + CHURN; key += 3) {
            stillpoint_domain_read_lock(shared_domain);
            struct item *found = find(shared, key);
            CHECK(found ? found->key == key && found->value == ~key : key >= STAYS);
            stillpoint_map_for_each_entry_duplicate(shared, hash(key), is, &key, &iter, item, node) {
                CHECK(item->key == key && item->value == ~key);
            }
            CHECK(stillpoint_domain_read_unlock(shared_domain) == 0);
        }
        stillpoint_domain_read_lock(shared_domain);
        stillpoint_map_for_each_entry(shared, &iter, item, node) {
            CHECK(item->value == ~item->key);
            if (item->key < STAYS) {
                visits[item->key]++;
            }
        }
        CHECK(stillpoint_domain_read_unlock(shared_domain) == 0);
        for (int key = 0; key < STAYS; key++) {
            CHECK(visits[key] == 1);
        }
    }
    return unused;
}

/* In the child of a fork in the middle of it all, the map is whole. */
static void check_in_a_child(void)
{
#ifndef NO_FORK
    pid_t child = fork();
    if (child == 0) {
        struct stillpoint_map_iter iter;
        struct item *item;
        alarm(60);
        for (unsigned long key = 0; key < STAYS + CHURN; key++) {
            stillpoint_domain_read_lock(shared_domain);
            struct item *found = find(shared, key);
            CHECK(found ? found->value == ~key : key >= STAYS);
            if (found) {
                CHECK(stillpoint_map_del(shared, &found->node) == 0);
                CHECK(stillpoint_domain_call(shared_domain, &found->head, release) == 0);
            }
            CHECK(stillpoint_map_add(shared, hash(key), &make(key, ~key)->node) == 0);
            CHECK(stillpoint_domain_read_unlock(shared_domain) == 0);
        }
        unsigned char visits[STAYS] = {0};
        stillpoint_domain_read_lock(shared_domain);
        stillpoint_map_for_each_entry(shared, &iter, item, node) {
            visits[item->key < STAYS ? item->key : 0] += item->key < STAYS;
        }
        CHECK(stillpoint_domain_read_unlock(shared_domain) == 0);
        for (int key = 0; key < STAYS; key++) {
            CHECK(visits[key] == 1);
        }
        CHECK(stillpoint_domain_barrier(shared_domain) == 0);
        unsigned long left = 0;
        CHECK(stillpoint_map_destroy(shared, release_at_once, &left) == 0 && left >= STAYS + CHURN);
        _exit(0);
    }
    CHECK(end_of(child) == 0);
#endif
}

static void test_threads(struct stillpoint_domain *domain)
{
    pthread_t threads[WRITERS + READERS];
    shared_domain = domain;
    shared = new_map(domain, 0);
    put_in = taken_out = 0;
    writers_left = WRITERS;
    stillpoint_domain_read_lock(domain);
    for (unsigned long key = 0; key < STAYS; key++) {
        CHECK(stillpoint_map_add(shared, hash(key), &make(key, ~key)->node) == 0);
    }
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    for (size_t n = 0; n < WRITERS + READERS; n++) {
        CHECK(pthread_create(&threads[n], NULL, n < WRITERS ? writes : reads, (void *)n) == 0);
    }
    for (int n = 0; n < 3; n++) {
        pause_for_a_moment();
        check_in_a_child();
    }
    join_all(threads, WRITERS + READERS);
    CHECK(stillpoint_map_count(shared) == STAYS + put_in - taken_out);
    unsigned long left = 0;
    CHECK(stillpoint_map_destroy(shared, release_at_once, &left) == 0 && left == STAYS + put_in - taken_out);
    CHECK(stillpoint_domain_barrier(domain) == 0);
}

/* ---- Of several threads that put the same key in, or take the same node out, one does ---- */

enum { RACERS = 3, RACES = 2000 };

static pthread_barrier_t start_of_race;
static unsigned long won[2];

static void *races(void *unused)
{
    for (unsigned long key = 0; key < RACES; key++) {
        struct item *item = make(key, ~key);
        struct stillpoint_map_node *there = &item->node;
        pthread_barrier_wait(&start_of_race);
        stillpoint_read_lock();
        int outcome = stillpoint_map_add_unique(shared, hash(key), is, &key, &item->node, &there);
        CHECK(outcome == 0 || outcome == -EEXIST);
        CHECK(item_of(there)->key == key && (outcome == 0) == (there == &item->node));
        __atomic_add_fetch(&won[0], outcome == 0, __ATOMIC_RELAXED);
        if (outcome != 0) {
            free(item);
        }
        pthread_barrier_wait(&start_of_race);
        if (key % 2 == 0 && stillpoint_map_del(shared, there) == 0) {
            __atomic_add_fetch(&won[1], 1, __ATOMIC_RELAXED);
            CHECK(stillpoint_kvfree(item_of(there), head) == 0);
        }
        CHECK(stillpoint_read_unlock() == 0);
    }
    return unused;
}

static void test_races(void)
{
    pthread_t threads[RACERS];
    shared = new_map(NULL, 0);
    CHECK(pthread_barrier_init(&start_of_race, NULL, RACERS) == 0);
    start_all(threads, RACERS, races, NULL);
    join_all(threads, RACERS);
    CHECK(won[0] == RACES && won[1] == RACES / 2 && stillpoint_map_count(shared) == RACES / 2);
    unsigned long left = 0;
    CHECK(stillpoint_map_destroy(shared, release_at_once, &left) == 0 && left == RACES / 2);
    CHECK(stillpoint_kvfree_barrier() == 0);
}

int main(void)
{
    struct stillpoint_domain *domain = stillpoint_domain_new(), *fencing = stillpoint_domain_new_fencing();
    CHECK(domain != NULL && fencing != NULL);
    test_functions(NULL);
    test_functions(domain);
    test_bad_use(domain);
    test_duplicates();
    test_model();
    test_sizes();
    test_races();
    test_threads(domain);
    test_threads(fencing);
    test_threads(NULL);
    /* A map keeps its domain. */
    struct stillpoint_map *last = new_map(fencing, 0);
    CHECK(stillpoint_domain_destroy(domain) == 0 && stillpoint_domain_destroy(fencing) == 0);
    CHECK(stillpoint_map_count(last) == 0 && stillpoint_map_destroy(last, NULL, NULL) == 0);
    return 0;
}
