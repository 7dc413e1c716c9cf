/* Tenants, charges, LRU lists, shrinkers, memory pressure. */
#include "check.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long released;

static void release(void *object)
{
    released++;
    free(object);
}

struct cache {
    struct stillpoint_lru *lru;
    long counts, scans;
};

static size_t count(const struct stillpoint_scope *scope, void *data)
{
    struct cache *cache = data;
    cache->counts++;
    return stillpoint_lru_count_one(cache->lru, scope->tenant, scope->node);
}

/* What an entry stands for: bytes that are charged as long as it lives. */
struct page {
    struct stillpoint_charge charge;
    bool used;
};

static void release_page(void *object)
{
    struct page *page = object;
    stillpoint_uncharge(&page->charge);
    release(page);
}

static int isolate(struct stillpoint_entry *entry, void *object, void *data)
{
    struct page *page = object;
    CHECK(stillpoint_entry_object(entry) == object);
    if (page->used) {
        page->used = false;
        return STILLPOINT_LRU_STATUS_ROTATE;
    }
    ++*(long *)data;
    return STILLPOINT_LRU_STATUS_REMOVED;
}

static int64_t scan(const struct stillpoint_scope *scope, size_t objects, void *data)
{
    struct cache *cache = data;
    long freed = 0;
    cache->scans++;
    size_t removed = stillpoint_lru_walk(cache->lru, scope->tenant, scope->node, objects, isolate, &freed);
    CHECK((long)removed == freed);
    return freed;
}

static int stop_at_once(struct stillpoint_entry *entry, void *object, void *data)
{
    (void)entry;
    (void)object;
    ++*(long *)data;
    return STILLPOINT_LRU_STATUS_STOP;
}

static void relieved(const struct stillpoint_relieved *relieved, void *data)
{
    __atomic_store_n((uint64_t *)data, relieved->objects + 1, __ATOMIC_RELEASE);
}

/* Adds an entry of `bytes` bytes to the tenant's list, which holds the only reference to it. */
static int add(struct stillpoint_lru *lru, struct stillpoint_tenant *tenant, size_t bytes, bool used)
{
    struct page *page = malloc(sizeof *page);
    CHECK(page != NULL);
    page->used = used;
    int error = stillpoint_tenant_charge(tenant, bytes, &page->charge);
    if (error != 0) {
        free(page);
        return error;
    }
    struct stillpoint_entry *entry = stillpoint_entry_new(page, release_page);
    CHECK(entry != NULL);
    CHECK(stillpoint_lru_add(lru, tenant, entry) == 0);
    CHECK(stillpoint_lru_add(lru, tenant, entry) == -EEXIST);
    stillpoint_entry_put(entry);
    return 0;
}

static void test_lists_without_tenants(void)
{
    struct stillpoint_lru *lru;
    CHECK(stillpoint_lru_new(NULL, &lru) == 0);
    struct stillpoint_entry *entries[10];
    for (int n = 0; n < 10; n++) {
        entries[n] = stillpoint_entry_new(malloc(16), release);
        CHECK(stillpoint_lru_add(lru, NULL, entries[n]) == 0);
    }
    CHECK(stillpoint_lru_count(lru) == 10);
    CHECK(stillpoint_lru_count_one(lru, NULL, stillpoint_nodes()) == 0);
    CHECK(stillpoint_lru_del(lru, entries[3]) == 0);
    CHECK(stillpoint_lru_del(lru, entries[3]) == -ENOENT);
    CHECK(stillpoint_lru_count(lru) == 9);
    long asked = 0;
    CHECK(stillpoint_lru_walk(lru, NULL, STILLPOINT_ALL_NODES, 100, stop_at_once, &asked) == 0);
    CHECK(asked >= 1);
    CHECK(released == 0);
    for (int n = 0; n < 5; n++) {
        stillpoint_entry_put(entries[n]);
    }
    CHECK(released == 1); /* that which is on no list */
    stillpoint_lru_free(lru);
    CHECK(released == 5); /* those that the caller has no reference to */
    for (int n = 5; n < 10; n++) {
        stillpoint_entry_put(stillpoint_entry_get(entries[n]));
        stillpoint_entry_put(entries[n]);
    }
    CHECK(released == 10);
}

int main(void)
{
    test_lists_without_tenants();

    struct stillpoint_hierarchy *hierarchy, *other;
    struct stillpoint_tenant *root, *alice, *stranger;
    struct cache cache = {NULL, 0, 0};
    CHECK(stillpoint_hierarchy_new(&hierarchy) == 0 && stillpoint_hierarchy_new(&other) == 0);
    CHECK(stillpoint_hierarchy_root(hierarchy, &root) == 0 && stillpoint_hierarchy_root(other, &stranger) == 0);
    CHECK(stillpoint_tenant_create(root, &alice) == 0);
    CHECK(stillpoint_lru_new(hierarchy, &cache.lru) == 0);
    struct stillpoint_shrinker_ops ops = {count, scan, &cache, 0, 1, false};
    struct stillpoint_shrinker *shrinker;
    CHECK(stillpoint_shrinker_register(hierarchy, &ops, &shrinker) == 0);
    CHECK(stillpoint_shrinker_covers(shrinker, cache.lru) == 0);

    struct stillpoint_lru *foreign;
    CHECK(stillpoint_lru_new(other, &foreign) == 0);
    CHECK(stillpoint_shrinker_covers(shrinker, foreign) == -EXDEV);
    struct stillpoint_entry *entry = stillpoint_entry_new(NULL, NULL);
    CHECK(stillpoint_lru_add(cache.lru, stranger, entry) == -EXDEV);
    CHECK(stillpoint_lru_count_one(cache.lru, stranger, 0) == 0);
    stillpoint_entry_put(entry);
    stillpoint_lru_free(foreign);

    /* Up to the max; then the least recently used go, but for those that have been used. */
    CHECK(stillpoint_tenant_set_limit(alice, STILLPOINT_LIMIT_MAX, 100 * 4096) == 0);
    CHECK(stillpoint_tenant_set_limit(alice, 9, 0) == -EINVAL);
    released = 0;
    for (int n = 0; n < 1000; n++) {
        CHECK(add(cache.lru, alice, 4096, n % 8 == 0) == 0);
    }
    CHECK(stillpoint_tenant_usage(alice) <= 100 * 4096);
    CHECK(stillpoint_lru_count(cache.lru) == stillpoint_tenant_usage(alice) / 4096);
    CHECK(released == 1000 - (long)stillpoint_lru_count(cache.lru));
    CHECK(cache.counts > 0 && cache.scans > 0);
    CHECK(add(cache.lru, alice, 101 * 4096, false) == -ENOMEM);
    stillpoint_read_lock();
    CHECK(add(cache.lru, alice, 100 * 4096, false) == -EDEADLK);
    CHECK(add(cache.lru, alice, 101 * 4096, false) == -ENOMEM);
    CHECK(stillpoint_read_unlock() == 0);

    struct stillpoint_tenant_statistics statistics;
    CHECK(stillpoint_tenant_get_statistics(alice, &statistics, sizeof statistics) == 0);
    CHECK(statistics.max == 100 * 4096 && statistics.max_events > 0 && statistics.failed_charges >= 1);
    struct stillpoint_charge charge;
    CHECK(stillpoint_tenant_charge(root, 100, &charge) == 0);
    CHECK(stillpoint_charge_resize(&charge, 200) == 0);
    CHECK(stillpoint_tenant_usage(root) >= 200);
    stillpoint_uncharge(&charge);
    stillpoint_uncharge(&charge);
    memset(&charge, 0xff, sizeof charge);
    CHECK(stillpoint_tenant_charge(alice, 101 * 4096, &charge) == -ENOMEM);
    CHECK(charge.opaque[0] == 0 && charge.opaque[1] == 0);
    stillpoint_uncharge(&charge); /* as cleanup code that ignores the error does */
    CHECK(stillpoint_charge_resize(&charge, 1) == -EINVAL);

    /* By hand, and by what the system says: here a FIFO. */
    struct stillpoint_relieved done;
    CHECK(stillpoint_hierarchy_relieve(hierarchy, 50 * 4096, &done) == 0);
    CHECK(done.objects > 0 && stillpoint_tenant_usage(alice) <= 50 * 4096);
    uint64_t before = stillpoint_tenant_usage(alice);
    uint64_t reclaimed = stillpoint_tenant_reclaim(alice, 10 * 4096); /* bytes, and not objects */
    CHECK(reclaimed >= 10 * 4096 && reclaimed == before - stillpoint_tenant_usage(alice));
    CHECK(stillpoint_tenant_reclaim(NULL, 4096) == 0);
    char path[] = "/tmp/stillpoint-pressure-XXXXXX";
    CHECK(mkdtemp(path) != NULL);
    char fifo[64];
    snprintf(fifo, sizeof fifo, "%s/fifo", path);
    CHECK(mkfifo(fifo, 0600) == 0);
    uint64_t objects = 0;
    struct stillpoint_pressure_options options = {fifo, false, NULL, 0, 4096, relieved, &objects};
    struct stillpoint_pressure *pressure;
    CHECK(stillpoint_pressure_watch(hierarchy, &options, &pressure) == 0);
    CHECK(stillpoint_pressure_is_watching(pressure));
    FILE *file = fopen(fifo, "w");
    CHECK(file != NULL && fputc('!', file) != EOF && fclose(file) == 0);
    while (__atomic_load_n(&objects, __ATOMIC_ACQUIRE) == 0) {
        usleep(1000);
    }
    while (stillpoint_pressure_events(pressure) == 0) { /* counted when the function above has returned */
        usleep(1000);
    }
    CHECK(stillpoint_pressure_objects(pressure) > 0);
    CHECK(stillpoint_pressure_panics(pressure) == 0);
    CHECK(stillpoint_tenant_usage(alice) <= 4096);
    /* Said again and again, soon after a pass: on a busy machine it may come late, in a second pass. */
    while (stillpoint_pressure_coalesced(pressure) == 0) {
        uint64_t passes = stillpoint_pressure_events(pressure);
        file = fopen(fifo, "w");
        CHECK(file != NULL && fputc('!', file) != EOF && fclose(file) == 0);
        while (stillpoint_pressure_events(pressure) == passes) {
            usleep(1000);
        }
    }
    CHECK(stillpoint_pressure_events(NULL) == 0 && stillpoint_pressure_coalesced(NULL) == 0);
    CHECK(stillpoint_pressure_objects(NULL) == 0 && stillpoint_pressure_panics(NULL) == 0);
    stillpoint_pressure_free(pressure);
    unlink(fifo);
    rmdir(path);
    options.path = "/nonexistent";
    CHECK(stillpoint_pressure_watch(hierarchy, &options, &pressure) == -ENOENT);
    unsetenv("MEMORY_PRESSURE_WATCH");
    CHECK(stillpoint_pressure_watch(hierarchy, NULL, &pressure) == -ENODATA);
    setenv("MEMORY_PRESSURE_WATCH", "", 1);
    CHECK(stillpoint_pressure_watch(hierarchy, NULL, &pressure) == -ENODATA);
    /* Told not to watch, which is not the same as nothing: not even the system, then. */
    setenv("MEMORY_PRESSURE_WATCH", "/dev/null", 1);
    struct stillpoint_pressure_options or_system = {.or_system = true};
    const struct stillpoint_pressure_options *ways[] = {NULL, &or_system};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        CHECK(stillpoint_pressure_watch(hierarchy, ways[way], &pressure) == 0);
        CHECK(!stillpoint_pressure_is_watching(pressure));
        stillpoint_pressure_free(pressure);
    }
    unsetenv("MEMORY_PRESSURE_WATCH");

    /* A deleted tenant's entries are its parent's. */
    CHECK(add(cache.lru, alice, 4096, false) == 0);
    size_t there = stillpoint_lru_count(cache.lru);
    CHECK(stillpoint_tenant_delete(root) == -EINVAL);
    CHECK(stillpoint_tenant_delete(alice) == 0);
    CHECK(stillpoint_lru_count(cache.lru) == there);
    CHECK(stillpoint_tenant_create(alice, &stranger) == -ENOENT);
    stillpoint_tenant_free(alice);
    stillpoint_shrinker_free(shrinker);
    stillpoint_lru_free(cache.lru);
    stillpoint_barrier();
    stillpoint_kvfree_barrier();
    CHECK(released == 1001);
    CHECK(stillpoint_tenant_usage(root) == 0);
    stillpoint_tenant_free(root);
    stillpoint_hierarchy_free(hierarchy);
    stillpoint_hierarchy_free(other);
    return 0;
}
