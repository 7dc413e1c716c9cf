/*
 * Out of memory with much state already: lists that would have to grow past the reserve. No thread blocks for it, with a lock or inside
 * a section: who would have to, is refused, or does without. Each case is in a process of its own.
 */
#include "check.h"
#include "refusing_malloc.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SANITIZED

/* Blocks up to this size fail; 0 for none. */
static size_t largest_that_fails;
static uint64_t refusals;

static bool fails(size_t size)
{
    bool failing = size <= __atomic_load_n(&largest_that_fails, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&refusals, failing, __ATOMIC_SEQ_CST);
    return failing;
}

static uint64_t asked_in_vain(void)
{
    return __atomic_load_n(&refusals, __ATOMIC_SEQ_CST);
}

static void fail(size_t largest)
{
    __atomic_store_n(&largest_that_fails, largest, __ATOMIC_SEQ_CST);
}

struct node {
    long value;
    struct stillpoint_head head;
};

static struct stillpoint_statistics statistics(void)
{
    struct stillpoint_statistics now;
    CHECK(stillpoint_domain_statistics(NULL, &now, sizeof now) == 0);
    return now;
}

/* ---- More threads than the list of them has room for ---- */

enum { EARLY = 1020, LATE = 60 };

static pthread_barrier_t step;
static sem_t turns[LATE], done;

static void retire(void)
{
    exempt++;
    struct node *node = malloc(sizeof *node);
    exempt--;
    CHECK(node != NULL);
    stillpoint_read_lock();
    CHECK(stillpoint_kvfree(node, head) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(!stillpoint_read_lock_held());
}

static void *early(void *unused)
{
    retire();
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return unused;
}

static void *late(void *turn)
{
    sem_wait(turn);
    retire();
    sem_post(&done);
    sem_wait(turn);
    return NULL;
}

static void many_threads(void)
{
    static pthread_t threads[EARLY + LATE];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 256 << 10) == 0);
    CHECK(pthread_barrier_init(&step, NULL, EARLY + 1) == 0 && sem_init(&done, 0, 0) == 0);
    for (int n = 0; n < EARLY + LATE; n++) {
        bool is_late = n >= EARLY;
        CHECK(!is_late || sem_init(&turns[n - EARLY], 0, 0) == 0);
        CHECK(pthread_create(&threads[n], &small, is_late ? late : early, is_late ? &turns[n - EARLY] : NULL) == 0);
    }
    pthread_barrier_wait(&step);
    fail(SIZE_MAX);
    for (int n = 0; n < LATE; n++) {
        sem_post(&turns[n]);
        sem_wait(&done);
    }
    /* All threads are looked at, and what they have left is freed. */
    CHECK(stillpoint_kvfree_barrier() == 0);
    fail(0);
    for (int n = 0; n < LATE; n++) {
        sem_post(&turns[n]);
    }
    pthread_barrier_wait(&step);
    for (int n = 0; n < EARLY + LATE; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
    }
    CHECK(stillpoint_kvfree_barrier() == 0 && statistics().objects_pending == 0);
}

/* ---- More freed areas than the list of them has room for ---- */

enum { AREAS = 4000, BEFORE = 700 };

static void many_areas(void)
{
    static void *areas[AREAS];
    struct stillpoint_arena *arena;
    CHECK(stillpoint_arena_new(NULL, &arena) == 0);
    for (int n = 0; n < AREAS; n++) {
        areas[n] = stillpoint_arena_alloc(arena, 4096, 1, NULL);
        CHECK(areas[n] != NULL);
    }
    int next = 0;
    for (; next < BEFORE; next++) {
        CHECK(stillpoint_arena_free_area(arena, areas[next]) == 0);
    }
    fail(SIZE_MAX);
    int outcome = 0;
    while (next < AREAS && (outcome = stillpoint_arena_free_area(arena, areas[next])) == 0) {
        next++;
    }
    CHECK(outcome == -ENOMEM);
    outcome = stillpoint_arena_drain(arena);
    CHECK(outcome == 0 || outcome == -ENOMEM);
    (void)stillpoint_arena_shrink(arena);
    fail(0);
    /* What was refused has not changed. */
    for (; next < AREAS; next++) {
        CHECK(stillpoint_arena_free_area(arena, areas[next]) == 0);
    }
    CHECK(stillpoint_arena_drain(arena) == 0);
    CHECK(stillpoint_arena_free(arena) == 0);
}

enum { LATE_AREAS = 3 };

/* Areas whose grace period ends while there is no memory to remember them by are freed once there is some. */
static void areas_freed_later(void)
{
    struct stillpoint_arena *arena;
    struct stillpoint_arena_statistics now;
    CHECK(stillpoint_arena_new(NULL, &arena) == 0);
    struct stillpoint_domain *domain = stillpoint_arena_domain(arena);
    stillpoint_domain_read_lock(domain);
    void *areas[LATE_AREAS];
    for (int n = 0; n < LATE_AREAS; n++) {
        areas[n] = stillpoint_arena_alloc(arena, 4096, 1, NULL);
        CHECK(areas[n] != NULL && stillpoint_arena_free_area_rcu(arena, areas[n]) == 0);
    }
    fail(SIZE_MAX);
    uint64_t before = asked_in_vain();
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    while (asked_in_vain() < before + 3 * LATE_AREAS) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    for (int n = 0; n < LATE_AREAS; n++) {
        CHECK(stillpoint_arena_find(arena, areas[n], NULL) == areas[n]);
    }
    fail(0);
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        CHECK(stillpoint_arena_get_statistics(arena, &now, sizeof now) == 0);
    } while (now.areas != 0);
    CHECK(stillpoint_arena_free(arena) == 0);
}

/* ---- More lists than there are callbacks for, deleted inside a section ---- */

enum { LISTS = 400 };

static int nothing;

static void many_lists(void)
{
    struct stillpoint_hierarchy *hierarchy;
    struct stillpoint_tenant *tenants[3]; /* the last one is the root */
    static struct stillpoint_lru *lists[LISTS];
    CHECK(stillpoint_hierarchy_new(&hierarchy) == 0 && stillpoint_hierarchy_root(hierarchy, &tenants[2]) == 0);
    for (int n = 0; n < 2; n++) {
        CHECK(stillpoint_tenant_create(tenants[2], &tenants[n]) == 0);
    }
    for (int n = 0; n < LISTS; n++) {
        CHECK(stillpoint_lru_new(hierarchy, &lists[n]) == 0);
        for (int of = 0; of < 3; of++) {
            struct stillpoint_entry *entry = stillpoint_entry_new(&nothing, NULL);
            CHECK(entry != NULL && stillpoint_lru_add(lists[n], tenants[of], entry) >= 0);
            stillpoint_entry_put(entry);
        }
    }
    stillpoint_read_lock();
    fail(SIZE_MAX);
    CHECK(stillpoint_tenant_delete(tenants[0]) == -ENOMEM);
    /* Large blocks can be had, small ones and pages not: then some may be lost, but no thread blocks. */
    fail(8192);
    CHECK(stillpoint_tenant_delete(tenants[1]) == 0);
    fail(0);
    CHECK(stillpoint_tenant_delete(tenants[0]) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_kvfree_barrier() == 0 && statistics().objects_pending == 0);
    for (int n = 0; n < LISTS; n++) {
        CHECK(stillpoint_lru_count(lists[n]) == 3); /* all are the root's */
        stillpoint_lru_free(lists[n]);
    }
    for (int n = 0; n < 3; n++) {
        stillpoint_tenant_free(tenants[n]);
    }
    stillpoint_hierarchy_free(hierarchy);
}

/* ---- A thread that must be registered, when half of the reserve is used up ---- */

void stillpoint_urcu_register_thread(int flavour); /* <urcu-qsbr.h>'s */
void stillpoint_urcu_unregister_thread(int flavour);
enum { URCU_QSBR = 1, DOMAINS = 40 };

static void *registers(void *unused)
{
    CHECK(stillpoint_qsbr_register() == -ENOMEM);
    sem_post(&done);
    stillpoint_urcu_register_thread(URCU_QSBR);
    CHECK(stillpoint_qsbr_is_online());
    stillpoint_urcu_unregister_thread(URCU_QSBR);
    CHECK(!stillpoint_qsbr_is_online());
    return unused;
}

static void late_registration(void)
{
    struct stillpoint_domain *domains[DOMAINS];
    pthread_t thread;
    CHECK(sem_init(&done, 0, 0) == 0);
    for (int n = 0; n < DOMAINS; n++) {
        domains[n] = stillpoint_domain_new();
        CHECK(domains[n] != NULL);
    }
    exempt++;
    fail(SIZE_MAX);
    exempt--;
    for (int n = 0; n < DOMAINS; n++) {
        stillpoint_domain_read_lock(domains[n]);
        CHECK(stillpoint_domain_read_unlock(domains[n]) == 0);
    }
    exempt++;
    CHECK(pthread_create(&thread, NULL, registers, NULL) == 0);
    exempt--;
    sem_wait(&done);
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    fail(0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int n = 0; n < DOMAINS; n++) {
        CHECK(stillpoint_domain_destroy(domains[n]) == 0);
    }
}

int main(void)
{
    void (*const cases[])(void) = {many_threads, many_areas, areas_freed_later, many_lists, late_registration};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(100);
            cases[n]();
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status != 0) {
            printf("case %zu: status %x\n", n, (unsigned)status);
            return 1;
        }
    }
    return 0;
}
#endif
