/* Without any memory, a thread calls and frees by heads, also one that has never used the domain; and what can report -ENOMEM does. */
#include "check.h"
#include "refusing_malloc.h"

#include <stillpoint/map.h>
#include <string.h>
#include <unistd.h>

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

/* The first uses of the domain: this thread's, and the service thread's. */
static void use(struct stillpoint_domain *domain)
{
    static struct stillpoint_head head;
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_domain_call(domain, &head, count_call) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0);
}

static void by_heads(struct stillpoint_domain *domain, bool is_used)
{
    static struct stillpoint_head heads[SOME];
    struct node *nodes[SOME];
    for (int i = 0; i < SOME; i++) {
        nodes[i] = calloc(1, sizeof *nodes[i]);
        CHECK(nodes[i] != NULL);
    }
    memset(heads, 0, sizeof heads);
    long before = __atomic_load_n(&called, __ATOMIC_SEQ_CST);
    set_short(true);
    for (int i = 1; i < SOME; i++) {
        CHECK(stillpoint_domain_call(domain, &heads[i], count_call) == 0);
        CHECK(stillpoint_domain_kvfree_head(domain, nodes[i], &nodes[i]->head) == 0);
    }
    if (is_used) {
        /* Also where no wait is possible. */
        stillpoint_domain_read_lock(domain);
        CHECK(stillpoint_domain_kvfree_head(domain, nodes[0], &nodes[0]->head) == 0);
        CHECK(stillpoint_domain_read_unlock(domain) == 0);
    } else {
        CHECK(stillpoint_domain_kvfree_head(domain, nodes[0], &nodes[0]->head) == 0);
    }
    set_short(false);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == before + SOME - 1);
    struct stillpoint_statistics statistics;
    do {
        CHECK(stillpoint_domain_kvfree_barrier(domain) == 0);
        CHECK(stillpoint_domain_statistics(domain, &statistics, sizeof statistics) == 0);
    } while (statistics.objects_pending != 0);
}

static void *in_a_new_thread(void *domain)
{
    by_heads(domain, false);
    return NULL;
}

/* While the service thread runs, and after it has ended: which it does after a second without work. */
static void with_and_without_service(struct stillpoint_domain *domain)
{
    use(domain);
    by_heads(domain, true);
    sleep(2);
    by_heads(domain, true);
    sleep(2);
    run_thread(in_a_new_thread, domain);
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

static void *registers(void *domain)
{
    struct stillpoint_domain_reader reader;
    set_short(true);
    CHECK(stillpoint_domain_register_thread(domain) == -ENOMEM);
    CHECK(stillpoint_domain_reader_init(domain, &reader) == -ENOMEM);
    CHECK(stillpoint_qsbr_register() == -ENOMEM);
    set_short(false);
    CHECK(stillpoint_domain_register_thread(domain) == 0);
    CHECK(stillpoint_domain_reader_init(domain, &reader) == 0);
    CHECK(stillpoint_qsbr_register() == 0);
    CHECK(stillpoint_qsbr_unregister() == 0);
    return NULL;
}

static void handles(void)
{
    struct stillpoint_hierarchy *hierarchy, *other;
    struct stillpoint_tenant *root, *tenant;
    struct stillpoint_lru *lru;
    CHECK(stillpoint_hierarchy_new(&hierarchy) == 0);
    set_short(true);
    /* This needs memory for the handle alone. */
    CHECK(stillpoint_hierarchy_root(hierarchy, &root) == -ENOMEM);
    CHECK(stillpoint_hierarchy_new(&other) == -ENOMEM);
    CHECK(stillpoint_lru_new(hierarchy, &lru) == -ENOMEM);
    set_short(false);
    CHECK(stillpoint_hierarchy_root(hierarchy, &root) == 0);
    set_short(true);
    CHECK(stillpoint_tenant_create(root, &tenant) == -ENOMEM);
    set_short(false);
    CHECK(stillpoint_tenant_create(root, &tenant) == 0);
    stillpoint_tenant_free(tenant);
    stillpoint_tenant_free(root);
    stillpoint_hierarchy_free(hierarchy);
}

int main(void)
{
    struct stillpoint_domain *domain = stillpoint_domain_new();
    CHECK(domain != NULL);
    with_and_without_service(NULL);
    with_and_without_service(domain);
    run_thread(registers, NULL);
    run_thread(registers, domain);
    CHECK(stillpoint_domain_destroy(domain) == 0);
    reserve();
    handles();
    return 0;
}
#endif
