/*
 * Look-ups in a hash map beside those in liburcu's cds_lfht, in one program, in turn, the median of the rounds: keys that are there, in an order
 * that no cache foresees, one section each. And the time of a change: a node taken out and put in again after a grace period that others share.
 *
 *   make bench && target/release/stillpoint-c/bench/map [ROUNDS [NODES]]
 *
 * bench/map has liburcu under cds_lfht; bench/map-compat has Stillpoint's headers for users of liburcu.
 */
#define _GNU_SOURCE
#define _LGPL_SOURCE
#include "measure.h"

#include <stillpoint/map.h>
#include <urcu/urcu-memb.h>
#include <urcu/rculfhash.h>

enum { LOOKUPS = 2000000 };

struct object {
    unsigned long key, value;
    struct cds_lfht_node theirs;
    struct stillpoint_map_node ours;
};

static unsigned long nodes;
static struct object *objects;
static struct stillpoint_map *map;
static struct cds_lfht *table;
static volatile unsigned long sink;

static unsigned long hash(unsigned long key)
{
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ul;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebul;
    return key ^ (key >> 31);
}

static int is_ours(struct stillpoint_map_node *node, const void *key)
{
    return stillpoint_map_entry(node, struct object, ours)->key == *(const unsigned long *)key;
}

static int is_theirs(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, struct object, theirs)->key == *(const unsigned long *)key;
}

static unsigned long draw(unsigned long *state)
{
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return (hash(*state) >> 32) * nodes >> 32;
}

static double ours(unsigned long seed)
{
    unsigned long sum = 0;
    double start = now();
    for (long n = 0; n < LOOKUPS; n++) {
        unsigned long key = draw(&seed);
        stillpoint_read_lock();
        struct stillpoint_map_node *node = stillpoint_map_lookup(map, hash(key), is_ours, &key);
        sum += stillpoint_map_entry(node, struct object, ours)->value;
        stillpoint_read_unlock();
    }
    double end = now();
    sink = sum;
    return (end - start) / LOOKUPS;
}

static double theirs(unsigned long seed)
{
    unsigned long sum = 0;
    double start = now();
    for (long n = 0; n < LOOKUPS; n++) {
        struct cds_lfht_iter iter;
        unsigned long key = draw(&seed);
        urcu_memb_read_lock();
        cds_lfht_lookup(table, hash(key), is_theirs, &key, &iter);
        sum += caa_container_of(cds_lfht_iter_get_node(&iter), struct object, theirs)->value;
        urcu_memb_read_unlock();
    }
    double end = now();
    sink = sum;
    return (end - start) / LOOKUPS;
}

/* The loop alone. */
static double nothing(unsigned long seed)
{
    unsigned long sum = 0;
    double start = now();
    for (long n = 0; n < LOOKUPS; n++) {
        sum += hash(draw(&seed));
    }
    double end = now();
    sink = sum;
    return (end - start) / LOOKUPS;
}

/* All nodes out, and in again: what a change costs, with the table's resizes. */
static double our_changes(unsigned long unused)
{
    (void)unused;
    double start = now();
    for (unsigned long n = 0; n < nodes; n++) {
        stillpoint_read_lock();
        stillpoint_map_del(map, &objects[n].ours);
        stillpoint_read_unlock();
    }
    stillpoint_synchronize();
    for (unsigned long n = 0; n < nodes; n++) {
        stillpoint_read_lock();
        if (stillpoint_map_add_unique(map, hash(objects[n].key), is_ours, &objects[n].key, &objects[n].ours, NULL) != 0) {
            abort();
        }
        stillpoint_read_unlock();
    }
    return (now() - start) / (2 * (double)nodes);
}

static double their_changes(unsigned long unused)
{
    (void)unused;
    double start = now();
    for (unsigned long n = 0; n < nodes; n++) {
        urcu_memb_read_lock();
        cds_lfht_del(table, &objects[n].theirs);
        urcu_memb_read_unlock();
    }
    urcu_memb_synchronize_rcu();
    for (unsigned long n = 0; n < nodes; n++) {
        urcu_memb_read_lock();
        if (cds_lfht_add_unique(table, hash(objects[n].key), is_theirs, &objects[n].key, &objects[n].theirs) != &objects[n].theirs) {
            abort();
        }
        urcu_memb_read_unlock();
    }
    return (now() - start) / (2 * (double)nodes);
}

static const struct subject {
    const char *name;
    double (*measure)(unsigned long seed);
} subjects[] = {
    {"stillpoint_map_lookup", ours},
    {"cds_lfht_lookup", theirs},
    {"limit (the loop)", nothing},
    {"stillpoint_map changes", our_changes},
    {"cds_lfht changes", their_changes},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, LOOKUP_SUBJECTS = 3 };

static void fill(void)
{
    objects = calloc(nodes, sizeof *objects);
    table = cds_lfht_new_flavor(1, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, &urcu_memb_flavor, NULL);
    if (!objects || !table || stillpoint_map_new(NULL, 0, 0, &map) != 0) {
        fputs("map: no memory\n", stderr);
        exit(1);
    }
    /* Objects lie where chance has put them, as in a program that has run for a while. */
    unsigned long seed = 1;
    for (unsigned long n = 0; n < nodes; n++) {
        objects[n].key = n;
    }
    for (unsigned long n = nodes; n > 1; n--) {
        unsigned long other = draw(&seed) % n, key = objects[other].key;
        objects[other].key = objects[n - 1].key;
        objects[n - 1].key = key;
    }
    for (unsigned long n = 0; n < nodes; n++) {
        struct object *object = &objects[n];
        object->value = ~object->key;
        cds_lfht_node_init(&object->theirs);
        urcu_memb_read_lock();
        cds_lfht_add(table, hash(object->key), &object->theirs);
        urcu_memb_read_unlock();
        stillpoint_read_lock();
        if (stillpoint_map_add(map, hash(object->key), &object->ours) != 0) {
            abort();
        }
        stillpoint_read_unlock();
    }
    /* Its worker may be late; this waits for the size that it is to have. */
    unsigned long size = 1;
    while (size < nodes) {
        size *= 2;
    }
    cds_lfht_resize(table, size);
}

static void empty(struct stillpoint_map_node *node, void *unused)
{
    (void)node;
    (void)unused;
}

static void measure(int rounds)
{
    static double times[SUBJECTS][LARGEST];
    fill();
    /* Look-ups first: changes leave tables that are on their way to another size. */
    for (int first = 0, end = LOOKUP_SUBJECTS; first < SUBJECTS; first = end, end = SUBJECTS) {
        for (int round = 0; round < rounds; round++) {
            for (int n = first; n < end; n++) {
                times[n][round] = subjects[n].measure((unsigned long)round);
            }
        }
    }
    for (int n = 0; n < SUBJECTS; n++) {
        printf("%9lu nodes  %-24s %8.2f ns\n", nodes, subjects[n].name, median(times[n], rounds));
    }
    printf("%9lu nodes  %-24s %8.3f\n", nodes, "look-ups, cds_lfht / map", times[1][rounds / 2] / times[0][rounds / 2]);
    printf("%9lu nodes  %-24s %8.3f\n", nodes, "changes, cds_lfht / map", times[4][rounds / 2] / times[3][rounds / 2]);
    for (unsigned long n = 0; n < nodes; n++) {
        urcu_memb_read_lock();
        cds_lfht_del(table, &objects[n].theirs);
        urcu_memb_read_unlock();
    }
    if (cds_lfht_destroy(table, NULL) != 0 || stillpoint_map_destroy(map, empty, NULL) != 0) {
        abort();
    }
    urcu_memb_synchronize_rcu();
    free(objects);
}

int main(int argc, char **argv)
{
    static const unsigned long sizes[] = {100, 1000, 10000, 1000000};
    int rounds = rounds_of(argc, argv);
    nodes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    urcu_memb_register_thread();
    if (nodes) {
        measure(rounds);
    } else {
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            nodes = sizes[n];
            measure(rounds);
        }
    }
    urcu_memb_unregister_thread();
    return 0;
}
