// <stillpoint/map.h> in C++, as a class has it; compiled with the headers' warnings, and run.
#include "clause.hpp" // What is known of ThreadSanitizer: the library frees tables on its own thread.

#include <stillpoint/map.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

struct flow {
    std::uint32_t port;
    stillpoint_map_node node;
};

int is_port(stillpoint_map_node *node, const void *port)
{
    return stillpoint_map_entry(node, flow, node)->port == *static_cast<const std::uint32_t *>(port);
}

void release(stillpoint_map_node *node, void *)
{
    delete stillpoint_map_entry(node, flow, node);
}

void check(bool condition, int line)
{
    if (!condition) {
        std::printf("map.cpp:%d\n", line);
        std::abort();
    }
}

} // namespace

int main()
{
    stillpoint_map *map;
    stillpoint_map_iter iter;
    stillpoint_map_node *at, *existing;
    flow *entry;
    unsigned sum = 0, both = 0;
    check(stillpoint_map_new(nullptr, 0, STILLPOINT_MAP_KEEP_CAPACITY, &map) == 0, __LINE__);
    stillpoint_read_lock();
    for (std::uint32_t port = 1; port <= 100; port++) {
        flow *one = new flow{port, {}};
        check(stillpoint_map_add_unique(map, port, is_port, &port, &one->node, &existing) == 0, __LINE__);
    }
    const std::uint32_t seven = 7;
    flow *second = new flow{seven, {}};
    check(stillpoint_map_add(map, seven, &second->node) == 0, __LINE__);
    stillpoint_map_for_each(map, &iter, at) {
        sum += stillpoint_map_entry(at, flow, node)->port;
    }
    stillpoint_map_for_each_entry(map, &iter, entry, node) {
        sum += entry->port;
    }
    stillpoint_map_for_each_duplicate(map, seven, is_port, &seven, &iter, at) {
        both++;
    }
    stillpoint_map_for_each_entry_duplicate(map, seven, is_port, &seven, &iter, entry, node) {
        both += entry->port == seven ? 1u : 0u;
    }
    check(sum == 2 * (5050 + 7) && both == 4, __LINE__);
    check(stillpoint_read_unlock() == 0, __LINE__);
    check(stillpoint_map_destroy(map, release, nullptr) == 0, __LINE__);
    return 0;
}
