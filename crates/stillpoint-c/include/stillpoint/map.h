/*
 * Hash maps of nodes that a program embeds in its objects. Readers take no lock and write nothing. SPDX: MIT OR Apache-2.0
 *
 *   struct flow {
 *       uint32_t port;
 *       struct stillpoint_map_node node;
 *   };
 *
 *   static int is_port(struct stillpoint_map_node *node, const void *port)
 *   {
 *       return stillpoint_map_entry(node, struct flow, node)->port == *(const uint32_t *)port;
 *   }
 *
 *   stillpoint_read_lock();
 *   struct stillpoint_map_node *node = stillpoint_map_lookup(flows, port, is_port, &port);
 *   if (node) {
 *       use(stillpoint_map_entry(node, struct flow, node));
 *   }
 *   stillpoint_read_unlock();
 *
 * functions.h documents the functions, their cost and their results. The program supplies a hash of each key, whose bits the map mixes, and a
 * function that tells whether a node has a key. It owns the objects: readers may still hold one that was taken out or replaced, so free that after a
 * grace period (stillpoint_kvfree(), stillpoint_call()).
 *
 * Call all functions except stillpoint_map_new(), stillpoint_map_destroy() and stillpoint_map_count() inside a read-side critical section of the
 * map's domain, also for changes: a node that was found is valid only until the section ends. With STILLPOINT_DEBUG=on, or in a debug build of the
 * library, a call outside a section is reported and refused if it is detected.
 *
 * A look-up touches one cache line of the table, and the node. When a table grows or shrinks, each change moves a few buckets and the domain's
 * service thread moves others: no change pays for a whole table, and a map that shrinks from millions of nodes to ten returns its memory even if
 * idle. A node takes 8 bytes in the object and 10 to 64 in the table. A forked child has the map as it was, even if another thread was changing it.
 *
 * liburcu's names, and the differences:
 *
 *   cds_lfht_new, _new_flavor       stillpoint_map_new: takes a domain, but no size limits, resize flag or thread attributes
 *   cds_lfht_destroy                stillpoint_map_destroy: takes a function for the nodes that are left, or NULL
 *   cds_lfht_node_init              not needed
 *   cds_lfht_lookup                 stillpoint_map_lookup returns the node; stillpoint_map_first_duplicate also takes an iterator
 *   cds_lfht_next_duplicate         stillpoint_map_next_duplicate
 *   cds_lfht_first, _next           stillpoint_map_first, stillpoint_map_next: find each node that stays once, even while the table is resized
 *   cds_lfht_iter_get_node          the result of these, and iter.node
 *   cds_lfht_add                    stillpoint_map_add
 *   cds_lfht_add_unique             stillpoint_map_add_unique: returns -EEXIST and the existing node
 *   cds_lfht_add_replace            stillpoint_map_add_replace
 *   cds_lfht_replace                stillpoint_map_replace: takes the old node; calls no function
 *   cds_lfht_del                    stillpoint_map_del
 *   cds_lfht_is_node_deleted        !stillpoint_map_has: takes the map; costs a look-up
 *   cds_lfht_count_nodes            stillpoint_map_count: without a walk
 *   cds_lfht_resize                 stillpoint_map_reserve, stillpoint_map_shrink
 *   cds_lfht_for_each, _entry       stillpoint_map_for_each, stillpoint_map_for_each_entry
 *   cds_lfht_for_each_duplicate     stillpoint_map_for_each_duplicate
 *   cds_lfht_for_each_entry_duplicate   stillpoint_map_for_each_entry_duplicate
 */
#ifndef STILLPOINT_MAP_H
#define STILLPOINT_MAP_H

#include <stillpoint/stillpoint.h>

/* The object that contains `node`, which must not be NULL. */
#define stillpoint_map_entry(node, type, member) STILLPOINT_AROUND_(node, type, member)

/* Visits all nodes: `iter` is a struct stillpoint_map_iter *, `at` a struct stillpoint_map_node *. */
#define stillpoint_map_for_each(map, iter, at)                                                        \
    for ((at) = stillpoint_map_first((map), (iter)); (at); (at) = stillpoint_map_next(iter))

/* The same for the objects that contain the nodes. */
#define stillpoint_map_for_each_entry(map, iter, at, member)                                          \
    for (stillpoint_map_first((map), (iter)); STILLPOINT_ITER_ENTRY_(iter, at, member); stillpoint_map_next(iter))

/* Visits the nodes with one key. */
#define stillpoint_map_for_each_duplicate(map, hash, match, key, iter, at)                            \
    for ((at) = stillpoint_map_first_duplicate((map), (hash), (match), (key), (iter)); (at);          \
         (at) = stillpoint_map_next_duplicate((iter), (match), (key)))

/* The same for the objects that contain the nodes. */
#define stillpoint_map_for_each_entry_duplicate(map, hash, match, key, iter, at, member)              \
    for (stillpoint_map_first_duplicate((map), (hash), (match), (key), (iter));                       \
         STILLPOINT_ITER_ENTRY_(iter, at, member); stillpoint_map_next_duplicate((iter), (match), (key)))

#define STILLPOINT_ITER_ENTRY_(iter, at, member)                                                      \
    ((iter)->node && ((at) = STILLPOINT_AROUND_((iter)->node, __typeof__(*(at)), member), 1))

#endif
