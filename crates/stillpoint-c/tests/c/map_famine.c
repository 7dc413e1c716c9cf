/* A map without memory: what needs some is refused and changes nothing, the rest goes on, and nothing is lost; then it goes on as before. */
#include "check.h"
#include "refusing_malloc.h"

#include <stillpoint/map.h>
#include <time.h>
#include <unistd.h>

#ifndef SANITIZED

enum { NODES = 20000, FEW = 1000, SAME = 300 };

static int failing;

static bool fails(size_t size)
{
    (void)size;
    return __atomic_load_n(&failing, __ATOMIC_SEQ_CST) != 0;
}

static void fail(int all)
{
    __atomic_store_n(&failing, all, __ATOMIC_SEQ_CST);
}

static struct item {
    unsigned long key;
    struct stillpoint_map_node node;
} items[NODES], same[SAME];

static unsigned long hash(unsigned long key)
{
    return (key + 1) * 0x9e3779b97f4a7c15ul >> 7;
}

static int is(struct stillpoint_map_node *node, const void *key)
{
    return stillpoint_map_entry(node, struct item, node)->key == *(const unsigned long *)key;
}

static bool has(struct stillpoint_map *map, unsigned long key)
{
    struct stillpoint_map_node *node = stillpoint_map_lookup(map, hash(key), is, &key);
    CHECK(node == NULL || node == &items[key].node);
    return node != NULL;
}

static bool add(struct stillpoint_map *map, unsigned long key)
{
    struct stillpoint_map_node *old = NULL;
    int outcome;
    switch (key % 3) {
    case 0:
        outcome = stillpoint_map_add(map, hash(key), &items[key].node);
        break;
    case 1:
        outcome = stillpoint_map_add_unique(map, hash(key), is, &key, &items[key].node, NULL);
        break;
    default:
        outcome = stillpoint_map_add_replace(map, hash(key), is, &key, &items[key].node, &old);
    }
    CHECK((outcome == 0 || outcome == -ENOMEM) && old == NULL);
    return outcome == 0;
}

int main(void)
{
    struct stillpoint_map *map, *none = NULL;
    alarm(100);
    CHECK(stillpoint_map_new(NULL, 0, 0, &map) == 0);
    stillpoint_read_lock();
    for (unsigned long key = 0; key < NODES; key++) {
        items[key].key = key;
        CHECK(key >= FEW || add(map, key));
    }
    CHECK(stillpoint_read_unlock() == 0);
    fail(1);
    CHECK(stillpoint_map_new(NULL, 0, 0, &none) == -ENOMEM && none == NULL);
    CHECK(stillpoint_map_new(NULL, NODES, 0, &none) == -ENOMEM && none == NULL);
    size_t added = FEW, refused = 0;
    for (unsigned long key = FEW; key < NODES; key++) {
        stillpoint_read_lock();
        bool is_in = add(map, key);
        CHECK(has(map, key) == is_in && stillpoint_map_count(map) == added + is_in);
        added += is_in;
        refused += !is_in;
        CHECK(stillpoint_read_unlock() == 0);
    }
    CHECK(refused > NODES / 2);
    stillpoint_read_lock();
    CHECK(stillpoint_map_reserve(map, 100 * NODES) == -ENOMEM);
    /* What is there is found, visited, replaced by itself's like, and taken out. */
    struct stillpoint_map_iter iter;
    struct item *at;
    size_t visited = 0;
    stillpoint_map_for_each_entry(map, &iter, at, node) {
        visited++;
    }
    CHECK(visited == added);
    CHECK(stillpoint_read_unlock() == 0);
    for (unsigned long key = 0; key < FEW; key++) {
        stillpoint_read_lock();
        CHECK(has(map, key) && stillpoint_map_del(map, &items[key].node) == 0 && !has(map, key));
        CHECK(stillpoint_read_unlock() == 0);
    }
    fail(0);
    /* Those that were taken out may go in again after a grace period. */
    CHECK(stillpoint_synchronize() == 0);
    for (unsigned long key = 0; key < NODES; key++) {
        stillpoint_read_lock();
        CHECK(has(map, key) || add(map, key));
        CHECK(stillpoint_read_unlock() == 0);
    }
    CHECK(stillpoint_map_count(map) == NODES);
    /* Nodes with one hash need chains, and get none. */
    stillpoint_read_lock();
    fail(1);
    size_t many = 0;
    for (int n = 0; n < SAME; n++) {
        int outcome = stillpoint_map_add(map, hash(5), &same[n].node);
        CHECK(outcome == 0 || outcome == -ENOMEM);
        many += outcome == 0;
    }
    fail(0);
    CHECK(many < 14 && stillpoint_map_count(map) == NODES + many);
    stillpoint_map_for_each_entry(map, &iter, at, node) {
        CHECK(stillpoint_map_del(map, &at->node) == 0);
    }
    CHECK(stillpoint_map_count(map) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    size_t capacity;
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        stillpoint_read_lock();
        capacity = stillpoint_map_capacity(map);
        CHECK(stillpoint_read_unlock() == 0);
    } while (capacity > 100);
    CHECK(stillpoint_map_destroy(map, NULL, NULL) == 0);
    CHECK(stillpoint_barrier() == 0);
    return 0;
}
#endif
