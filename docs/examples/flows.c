/* A hash map of flows: nodes embedded in objects, look-ups in sections. The manual's chapter "C and C++". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/map.h>

struct flow {
    uint32_t port;
    unsigned packets;
    struct stillpoint_map_node node; /* 8 bytes; needs no initialisation */
    struct stillpoint_head head;
};

static int is_port(struct stillpoint_map_node *node, const void *port)
{
    return stillpoint_map_entry(node, struct flow, node)->port == *(const uint32_t *)port;
}

static void count(struct stillpoint_map *flows, uint32_t port)
{
    stillpoint_read_lock();
    struct stillpoint_map_node *node = stillpoint_map_lookup(flows, port, is_port, &port);
    if (node != NULL) {
        __atomic_add_fetch(&stillpoint_map_entry(node, struct flow, node)->packets, 1, __ATOMIC_RELAXED);
    }
    stillpoint_read_unlock();
}

static int open_flow(struct stillpoint_map *flows, uint32_t port)
{
    struct flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL) {
        return -1;
    }
    flow->port = port;
    stillpoint_read_lock();
    int outcome = stillpoint_map_add_unique(flows, port, is_port, &port, &flow->node, NULL);
    stillpoint_read_unlock();
    if (outcome != 0) {
        free(flow); /* no reader has found it */
    }
    return outcome; /* -EEXIST, -ENOMEM */
}

static void close_flow(struct stillpoint_map *flows, uint32_t port)
{
    stillpoint_read_lock();
    struct stillpoint_map_node *node = stillpoint_map_lookup(flows, port, is_port, &port);
    if (node != NULL && stillpoint_map_del(flows, node) == 0) {
        stillpoint_kvfree(stillpoint_map_entry(node, struct flow, node), head);
    }
    stillpoint_read_unlock();
}

static void free_flow(struct stillpoint_map_node *node, void *unused)
{
    (void)unused;
    free(stillpoint_map_entry(node, struct flow, node));
}

int main(void)
{
    struct stillpoint_map *flows;
    struct stillpoint_map_iter iter;
    struct flow *flow;
    if (stillpoint_map_new(NULL, 0, 0, &flows) != 0 || open_flow(flows, 80) != 0 || open_flow(flows, 443) != 0) {
        return 1;
    }
    count(flows, 443);
    close_flow(flows, 80);
    stillpoint_read_lock();
    stillpoint_map_for_each_entry(flows, &iter, flow, node) {
        printf("port %u: %u packets\n", flow->port, flow->packets);
    }
    stillpoint_read_unlock();
    return stillpoint_map_destroy(flows, free_flow, NULL);
}
