/*
 * Out of memory, and out of threads: whichever allocation fails, one or all from one on, and if no thread can be started, every function either does
 * its work or returns -ENOMEM; nothing ends the process, nothing hangs, and afterwards everything works.
 *
 * `memory FIRST LAST THREADS FIFO` is one case. Each is in a process of its own, where all first uses are still to come: of domains, of threads, of the service threads.
 */
#include "check.h"
#include "refusing_malloc.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stillpoint/map.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SANITIZED

/* ---- The allocator, and the maker of threads, that fail ---- */

static long asked;
static long first_that_fails, last_that_fails;
static bool no_threads;

static bool fails(size_t size)
{
    (void)size;
    if (__atomic_load_n(&first_that_fails, __ATOMIC_RELAXED) == 0) {
        return false;
    }
    long number = __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
    return number >= first_that_fails && number <= __atomic_load_n(&last_that_fails, __ATOMIC_RELAXED);
}

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static create_thread *real;
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    }
    return !exempt && __atomic_load_n(&no_threads, __ATOMIC_RELAXED) ? EAGAIN : real(thread, attributes, run, argument);
}

static void disarm(void)
{
    __atomic_store_n(&first_that_fails, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&no_threads, false, __ATOMIC_RELAXED);
}

/* ---- What is done ---- */

static bool strict;

/* Whether it was done; -ENOMEM (or, for a thread, -EAGAIN) is the only other thing that may be said. */
static bool done(int outcome, int line)
{
    bool refused = outcome == -ENOMEM || outcome == -EAGAIN;
    if (outcome < 0 && (strict || !refused)) {
        exempt++;
        printf("%s:%d: %d, allocations from %ld to %ld\n", __FILE__, line, outcome, first_that_fails, last_that_fails);
        fflush(stdout);
        abort();
    }
    return outcome >= 0;
}
#define DONE(call) done((call), __LINE__)
#define MADE(pointer) done((pointer) ? 0 : -ENOMEM, __LINE__)

struct node {
    long value;
    struct stillpoint_head head;
};

static long called, queued;

static void count_call(struct stillpoint_head *head)
{
    (void)head;
    __atomic_add_fetch(&called, 1, __ATOMIC_RELAXED);
}

static struct node *node(void)
{
    exempt++;
    struct node *made = calloc(1, sizeof *made);
    exempt--;
    CHECK(made != NULL);
    return made;
}

static void call(struct stillpoint_domain *domain)
{
    static struct stillpoint_head heads[64];
    struct stillpoint_head *head = &heads[__atomic_fetch_add(&queued, 1, __ATOMIC_RELAXED)];
    CHECK(head < heads + 64);
    CHECK(stillpoint_domain_call(domain, head, count_call) == 0);
}

static void retire(struct stillpoint_domain *domain)
{
    struct node *one = node(), *two = node();
    CHECK(stillpoint_domain_kvfree_head(domain, one, &one->head) == 0);
    if (!DONE(stillpoint_domain_kvfree(domain, two))) {
        free(two);
    }
    /* Inside a section there is no waiting; with a head it is never refused. */
    stillpoint_domain_read_lock(domain);
    one = node(), two = node();
    CHECK(stillpoint_domain_kvfree_head(domain, one, &one->head) == 0);
    bool taken = DONE(stillpoint_domain_kvfree(domain, two));
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    if (!taken) {
        free(two);
    }
}

static void read_twice(void)
{
    stillpoint_read_lock();
    stillpoint_read_lock();
    CHECK(stillpoint_read_lock_held());
    CHECK(stillpoint_synchronize() == -EDEADLK);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_read_lock_held());
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(!stillpoint_read_lock_held());
    stillpoint_trace_read_lock();
    CHECK(stillpoint_trace_read_unlock() == 0);
}

static void use_qsbr(void)
{
    if (DONE(stillpoint_qsbr_register())) {
        stillpoint_qsbr_quiescent_state();
        CHECK(stillpoint_qsbr_offline() == 0 && stillpoint_qsbr_online() == 0);
        CHECK(stillpoint_qsbr_synchronize() == 0);
        CHECK(stillpoint_qsbr_unregister() == 0);
    }
}

static void *thread(void *domain)
{
    read_twice();
    use_qsbr();
    retire(NULL);
    if (domain) {
        struct stillpoint_domain_reader reader;
        if (DONE(stillpoint_domain_reader_init(domain, &reader))) {
            stillpoint_domain_reader_lock(&reader);
            stillpoint_domain_read_lock(domain);
            CHECK(stillpoint_domain_reader_unlock(&reader) == 0);
            CHECK(stillpoint_domain_synchronize(domain) == -EDEADLK);
            CHECK(stillpoint_domain_reader_unlock(&reader) == 0);
            CHECK(stillpoint_domain_reader_unlock(&reader) == -EPERM);
        }
        retire(domain);
        call(domain);
    }
    return NULL;
}

static void use_threads(struct stillpoint_domain *domain)
{
    pthread_t threads[3];
    int started = 0;
    exempt++;
    while (started < 3 && pthread_create(&threads[started], NULL, thread, domain) == 0) {
        started++;
    }
    exempt--;
    CHECK(started == 3);
    for (int n = 0; n < started; n++) {
        pthread_join(threads[n], NULL);
    }
}

static void stalled(const struct stillpoint_stall *stall, void *data)
{
    (void)stall;
    (void)data;
}

enum { MAPPED = 60 };

static int is_one(struct stillpoint_map_node *node, const void *one)
{
    return node == one;
}

/* A map that grows, shrinks and has chains. */
static void use_map(struct stillpoint_domain *domain)
{
    struct stillpoint_map *map;
    struct stillpoint_map_node nodes[MAPPED], *existing;
    struct stillpoint_map_iter iter;
    bool added[MAPPED];
    size_t count = 0, visited = 0;
    if (!DONE(stillpoint_map_new(domain, 0, 0, &map))) {
        return;
    }
    stillpoint_domain_read_lock(domain);
    for (uint64_t n = 0; n < MAPPED; n++) {
        added[n] = DONE(stillpoint_map_add_unique(map, n / 9, is_one, &nodes[n], &nodes[n], &existing));
        count += added[n];
        CHECK(stillpoint_map_count(map) == count);
    }
    (void)DONE(stillpoint_map_reserve(map, 1000));
    CHECK(stillpoint_map_shrink(map) == 0);
    for (uint64_t n = 0; n < MAPPED; n++) {
        CHECK((stillpoint_map_lookup(map, n / 9, is_one, &nodes[n]) == &nodes[n]) == added[n]);
    }
    stillpoint_map_for_each(map, &iter, existing) {
        visited++;
        CHECK(stillpoint_map_del(map, existing) == 0);
    }
    CHECK(visited == count && stillpoint_map_count(map) == 0);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_map_destroy(map, NULL, NULL) == 0);
}

static void use_domain(struct stillpoint_domain *domain)
{
    stillpoint_domain_on_stall(domain, stalled, NULL);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    CHECK(stillpoint_domain_synchronize_expedited(domain) == 0);
    CHECK(stillpoint_domain_cond_synchronize(domain, stillpoint_domain_start_poll(domain)) == 0);
    call(domain);
    retire(domain);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    use_map(domain);
    CHECK(stillpoint_domain_kvfree_barrier(domain) == 0 && stillpoint_domain_kvfree_barrier_nested(domain) == 0);
    struct stillpoint_guard *guard = stillpoint_domain_guard(domain);
    if (MADE(guard)) {
        (void)DONE(stillpoint_guard_name(guard, "task"));
        CHECK(stillpoint_guard_end(guard) == 0);
    }
}

static long released, made;

static void release(void *object)
{
    (void)object;
    released++;
}

static size_t count_objects(const struct stillpoint_scope *scope, void *data)
{
    return stillpoint_lru_count_one(data, scope->tenant, scope->node);
}

static int isolate(struct stillpoint_entry *entry, void *object, void *data)
{
    (void)entry, (void)object, (void)data;
    return STILLPOINT_LRU_STATUS_REMOVED;
}

static int64_t scan(const struct stillpoint_scope *scope, size_t objects, void *data)
{
    return (int64_t)stillpoint_lru_walk(data, scope->tenant, scope->node, objects, isolate, NULL);
}

static char fifo[64];

static void use_tenants(void)
{
    struct stillpoint_hierarchy *hierarchy;
    if (!DONE(stillpoint_hierarchy_new(&hierarchy))) {
        return;
    }
    struct stillpoint_tenant *root = NULL, *tenant = NULL;
    struct stillpoint_lru *lru = NULL, *plain = NULL;
    struct stillpoint_shrinker *shrinker = NULL;
    struct stillpoint_pressure *pressure = NULL;
    struct stillpoint_charge charge = STILLPOINT_CHARGE_INIT;
    (void)DONE(stillpoint_lru_new(NULL, &plain));
    if (DONE(stillpoint_lru_new(hierarchy, &lru)) && DONE(stillpoint_hierarchy_root(hierarchy, &root))
        && DONE(stillpoint_tenant_create(root, &tenant))) {
        (void)DONE(stillpoint_tenant_set_limit(tenant, STILLPOINT_LIMIT_HIGH, 1 << 20));
        struct stillpoint_shrinker_ops ops = {.count = count_objects, .scan = scan, .data = lru};
        if (DONE(stillpoint_shrinker_register(hierarchy, &ops, &shrinker))) {
            (void)DONE(stillpoint_shrinker_covers(shrinker, lru));
        }
        for (int n = 0; n < 40; n++) {
            struct stillpoint_entry *entry = stillpoint_entry_new(&made, release);
            if (MADE(entry)) {
                made++;
                (void)DONE(stillpoint_lru_add(lru, n % 2 ? tenant : root, entry));
                stillpoint_entry_put(entry);
            }
        }
        if (DONE(stillpoint_tenant_charge(tenant, 4096, &charge))) {
            (void)DONE(stillpoint_charge_resize(&charge, 8192));
            stillpoint_uncharge(&charge);
        }
        struct stillpoint_pressure_options options = {.path = fifo};
        (void)DONE(stillpoint_pressure_watch(hierarchy, &options, &pressure));
        (void)DONE(stillpoint_hierarchy_relieve(hierarchy, 1, NULL));
        (void)stillpoint_tenant_reclaim(tenant, 1);
        (void)DONE(stillpoint_tenant_delete(tenant));
        (void)stillpoint_lru_walk(lru, NULL, STILLPOINT_ALL_NODES, SIZE_MAX, isolate, NULL);
    }
    stillpoint_pressure_free(pressure);
    stillpoint_shrinker_free(shrinker);
    stillpoint_tenant_free(tenant);
    stillpoint_tenant_free(root);
    stillpoint_lru_free(lru);
    stillpoint_lru_free(plain);
    stillpoint_hierarchy_free(hierarchy);
}

static void use_arena(void)
{
    struct stillpoint_arena *arena;
    if (!DONE(stillpoint_arena_new(NULL, &arena))) {
        return;
    }
    void *areas[20];
    for (int n = 0; n < 20; n++) {
        int error;
        areas[n] = stillpoint_arena_alloc(arena, 5000 * (size_t)(n + 1), 1, &error);
        (void)done(error, __LINE__);
    }
    char text[256];
    (void)DONE(stillpoint_arena_describe(arena, areas[0], text, sizeof text));
    for (int n = 0; n < 20; n++) {
        if (areas[n] && DONE(n % 2 ? stillpoint_arena_free_area(arena, areas[n]) : stillpoint_arena_free_area_rcu(arena, areas[n]))) {
            areas[n] = NULL;
        }
    }
    (void)DONE(stillpoint_arena_drain(arena));
    (void)stillpoint_arena_shrink(arena);
    exempt++;
    for (int n = 0; n < 20; n++) {
        if (areas[n]) {
            disarm(); /* nothing was lost: it can be freed later */
            CHECK(stillpoint_arena_free_area(arena, areas[n]) == 0);
        }
    }
    exempt--;
    CHECK(stillpoint_arena_free(arena) == 0);
}

/* More domains than the reserve is enough for: at some point they are refused, and those that exist go on working. */
static void use_many_domains(void)
{
    static struct stillpoint_domain *domains[100];
    for (int n = 0; n < 100; n++) {
        domains[n] = stillpoint_domain_new();
        if (MADE(domains[n])) {
            (void)DONE(stillpoint_domain_register_thread(domains[n]));
            stillpoint_domain_read_lock(domains[n]);
            CHECK(stillpoint_domain_read_lock_held(domains[n]));
            CHECK(stillpoint_domain_read_unlock(domains[n]) == 0);
        }
    }
    read_twice();
    for (int n = 0; n < 100; n++) {
        CHECK(stillpoint_domain_destroy(domains[n]) == 0);
    }
}

static void do_all(void)
{
    struct stillpoint_domain *domain = stillpoint_domain_new(), *fencing = stillpoint_domain_new_fencing(),
                             *named = stillpoint_domain_new_named("named");
    (void)MADE(domain);
    if (MADE(named)) {
        CHECK(stillpoint_domain_destroy(named) == 0);
    }
    (void)MADE(fencing);
    read_twice();
    use_threads(domain);
    use_domain(NULL);
    if (domain) {
        (void)DONE(stillpoint_domain_register_thread(domain));
        use_domain(domain);
        CHECK(stillpoint_domain_destroy(domain) == 0);
    }
    if (fencing) {
        use_domain(fencing);
        CHECK(stillpoint_domain_destroy(fencing) == 0);
    }
    struct stillpoint_guard *guard = stillpoint_trace_guard();
    if (MADE(guard)) {
        CHECK(stillpoint_guard_end(guard) == 0);
    }
    use_qsbr();
    use_tenants();
    use_arena();
}

/* ---- The cases ---- */

enum { PASSED = 0, NOT_REACHED = 3 };

/* In a process of its own: whether as many allocations were made that one failed. */
static int child(long first, long last, bool threads)
{
    exempt = 0;
    asked = 0;
    first_that_fails = first;
    last_that_fails = last;
    no_threads = !threads;
    do_all();
    if (last == LONG_MAX) {
        use_many_domains();
    }
    long all = asked;
    disarm();
    strict = true;
    do_all();
    /* Nothing of before was lost either. */
    CHECK(stillpoint_barrier() == 0);
    CHECK(called == queued);
    CHECK(released == made);
    struct stillpoint_statistics statistics;
    do { /* What is freed may defer the next free, and the barriers' own callbacks count until they have returned. */
        CHECK(stillpoint_kvfree_barrier() == 0);
        CHECK(stillpoint_domain_statistics(NULL, &statistics, sizeof statistics) == 0);
        /* Nothing is lost: else this is for ever. */
    } while (statistics.objects_pending != 0 || statistics.callbacks_pending != 0);
    return first != 0 && all < first ? NOT_REACHED : PASSED;
}

static int run(long first, long last, bool threads)
{
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char from[32], to[32];
        snprintf(from, sizeof from, "%ld", first);
        snprintf(to, sizeof to, "%ld", last);
        execl("/proc/self/exe", "memory", from, to, threads ? "1" : "0", fifo, (char *)NULL);
        _exit(127);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != PASSED && WEXITSTATUS(status) != NOT_REACHED)) {
        printf("allocations from %ld to %ld failed, %s threads: status %x\n", first, last, threads ? "with" : "without", (unsigned)status);
        exit(1);
    }
    return WEXITSTATUS(status);
}

int main(int count, char **arguments)
{
    exempt = 1;
    if (count == 5) {
        alarm(120);
        /* A library that is built for debugging tells of every refusal. */
        CHECK(getenv("STILLPOINT_DEBUG") != NULL || freopen("/dev/null", "w", stderr) != NULL);
        snprintf(fifo, sizeof fifo, "%s", arguments[4]);
        _exit(child(atol(arguments[1]), atol(arguments[2]), atoi(arguments[3])));
    }
    char place[] = "/tmp/stillpoint-memory-XXXXXX";
    CHECK(mkdtemp(place) != NULL);
    snprintf(fifo, sizeof fifo, "%s/pressure", place);
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK(run(0, 0, false) == PASSED);
    long all = 0;
    while (run(all + 1, all + 1, true) == PASSED) {
        all++;
    }
    CHECK(all > 50);
    /* All from one on: every one of the first, where domains and threads begin, then fewer and fewer. */
    for (long first = 1; first <= all; first += 1 + first / 8) {
        CHECK(run(first, LONG_MAX, true) == PASSED);
        CHECK(run(first, first + 20, false) == PASSED);
    }
    CHECK(unlink(fifo) == 0 && rmdir(place) == 0);
    printf("%ld allocations\n", all);
    return 0;
}
#endif
