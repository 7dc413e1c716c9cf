/* Without any memory, a thread that has used a domain before calls and frees by heads; and what can report -ENOMEM does. */
#include "check.h"
#include "refusing_malloc.h"

#include <stillpoint/map.h>
#include <string.h>

#ifndef SANITIZED

static bool is_short;

static bool fails(size_t size)
{
    (void)size;
    return __atomic_load_n(&is_short, __ATOMIC_SEQ_CST);
}

static void set_short(bool now)
{
    __atomic_store_n(&is_short, now, __ATOMIC_SEQ_CST);
}

struct node {
    long value;
    struct stillpoint_head head;
};

enum { SOME = 1000 };

static long called;

static void count_call(struct stillpoint_head *head)
{
    (void)head;
    __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
}

static void by_heads(struct stillpoint_domain *domain)
{
    static struct stillpoint_head heads[SOME];
    struct node *nodes[SOME];
    for (int i = 0; i < SOME; i++) {
        nodes[i] = calloc(1, sizeof *nodes[i]);
        CHECK(nodes[i] != NULL);
    }
    memset(heads, 0, sizeof heads);
    long before = __atomic_load_n(&called, __ATOMIC_SEQ_CST);
    /* All first uses: the thread's, and the service thread's. */
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_domain_call(domain, &heads[0], count_call) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    set_short(true);
    for (int i = 1; i < SOME; i++) {
        CHECK(stillpoint_domain_call(domain, &heads[i], count_call) == 0);
        CHECK(stillpoint_domain_kvfree_head(domain, nodes[i], &nodes[i]->head) == 0);
    }
    /* Also where no wait is possible. */
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_domain_kvfree_head(domain, nodes[0], &nodes[0]->head) == 0);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    set_short(false);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == before + SOME);
    struct stillpoint_statistics statistics;
    do {
        CHECK(stillpoint_domain_kvfree_barrier(domain) == 0);
        CHECK(stillpoint_domain_statistics(domain, &statistics, sizeof statistics) == 0);
    } while (statistics.objects_pending != 0);
}

static void reserve(void)
{
    struct stillpoint_map *map;
    CHECK(stillpoint_map_new(NULL, 0, 0, &map) == 0);
    stillpoint_read_lock();
    set_short(true);
    CHECK(stillpoint_map_reserve(map, 100000) == -ENOMEM);
    set_short(false);
    CHECK(stillpoint_map_reserve(map, 100000) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_map_destroy(map, NULL, NULL) == 0);
}

int main(void)
{
    struct stillpoint_domain *domain = stillpoint_domain_new();
    CHECK(domain != NULL);
    by_heads(NULL);
    by_heads(domain);
    CHECK(stillpoint_domain_destroy(domain) == 0);
    reserve();
    return 0;
}
#endif
