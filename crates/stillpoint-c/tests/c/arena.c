/* The address space: areas are found by any address inside, copies are checked. */
#include "check.h"

#include <pthread.h>
#include <string.h>

static pthread_barrier_t steps;

static void *reads(void *domain)
{
    stillpoint_domain_read_lock(domain);
    pthread_barrier_wait(&steps);
    pthread_barrier_wait(&steps);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    return NULL;
}

static struct stillpoint_arena *of_callback;
static int freed_in_callback;

static void frees(struct stillpoint_head *head)
{
    (void)head;
    freed_in_callback = stillpoint_arena_free(of_callback);
}

/* An arena does not end under readers of its own domain. */
static void test_end(struct stillpoint_arena *arena)
{
    struct stillpoint_domain *domain = stillpoint_arena_domain(arena);
    pthread_t thread;
    CHECK(pthread_barrier_init(&steps, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, reads, domain) == 0);
    pthread_barrier_wait(&steps);
    CHECK(stillpoint_arena_free(arena) == -EBUSY);
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_arena_free(arena) == -EDEADLK);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    pthread_barrier_wait(&steps);
    pthread_join(thread, NULL);
    struct stillpoint_head head;
    of_callback = arena;
    CHECK(stillpoint_domain_call(domain, &head, frees) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(freed_in_callback == -EDEADLK);
    CHECK(stillpoint_arena_free(arena) == 0);
    CHECK(stillpoint_arena_free(NULL) == 0);
}

int main(void)
{
    struct stillpoint_arena *arena;
    struct stillpoint_arena_options options = {0};
    int error = 1;
    options.capacity = 1 << 30;
    CHECK(stillpoint_arena_new(&options, &arena) == 0);
    CHECK(stillpoint_arena_alloc(arena, 0, 1, &error) == NULL && error == -EINVAL);
    CHECK(stillpoint_arena_alloc(arena, 1, 3, &error) == NULL && error == -EINVAL);
    CHECK(stillpoint_arena_alloc(arena, (size_t)1 << 40, 1, &error) == NULL && (error == -E2BIG || error == -ENOMEM));
    char *area = stillpoint_arena_alloc(arena, 10000, 1, &error);
    CHECK(area != NULL && error == 0);

    char bytes[16] = "sixteen bytes..";
    CHECK(stillpoint_arena_copy_in(arena, area + 9984, bytes, 16) == 0);
    CHECK(stillpoint_arena_copy_in(arena, area + 9985, bytes, 16) == -ERANGE);
    CHECK(stillpoint_arena_copy_between(arena, area, area + 9984, 16) == 0);
    memset(bytes, 0, sizeof bytes);
    CHECK(stillpoint_arena_copy_out(arena, bytes, area, 16) == 0);
    CHECK(strcmp(bytes, "sixteen bytes..") == 0);
    CHECK(stillpoint_arena_copy_out(arena, NULL, area, 16) == -EINVAL);
    CHECK(stillpoint_arena_copy_out(arena, NULL, NULL, 0) == 0);
    CHECK(stillpoint_arena_copy_out(arena, bytes, bytes, 16) == -EFAULT);
    CHECK(stillpoint_arena_check(arena, area, SIZE_MAX) == -EOVERFLOW);

    struct stillpoint_domain *domain = stillpoint_arena_domain(arena);
    size_t size = 0;
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_arena_find(arena, area + 5000, &size) == area && size == 10000);
    CHECK(stillpoint_arena_find(arena, area + 10000, &size) == NULL);
    CHECK(stillpoint_arena_check(arena, area, 10000) == 0);
    CHECK(stillpoint_arena_check(arena, area, 10001) == -ERANGE);
    CHECK(stillpoint_arena_check(arena, area, 0) == -EINVAL);
    CHECK(stillpoint_arena_free_area(arena, area + 1) == -EINVAL);
    CHECK(stillpoint_arena_free_area(arena, area) == 0);
    CHECK(area[0] == 's'); /* what was checked stays until the section ends */
    CHECK(stillpoint_arena_check(arena, area, 1) == -EFAULT);
    CHECK(stillpoint_arena_drain(arena) == -EDEADLK);
    CHECK(area[0] == 's');
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_arena_free_area(arena, area) == -EFAULT);
    CHECK(stillpoint_arena_drain(arena) == 0);

    area = stillpoint_arena_alloc(arena, 4096, 4096, NULL);
    CHECK(area != NULL && area[4095] == 0);
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_arena_free_area_rcu(arena, area + 1) == -EINVAL);
    CHECK(stillpoint_arena_free_area_rcu(arena, bytes) == -EFAULT);
    CHECK(stillpoint_arena_free_area_rcu(arena, area) == 0);
    CHECK(stillpoint_arena_check(arena, area, 4096) == 0); /* found as before */
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(stillpoint_arena_check(arena, area, 4096) == -EFAULT);
    CHECK(stillpoint_arena_free_area_rcu(arena, area) == -EFAULT);

    char text[64];
    int length = stillpoint_arena_describe(arena, bytes, text, sizeof text);
    CHECK(length == (int)strlen(text) && strcmp(text, "no address of this arena") == 0);
    CHECK(stillpoint_arena_describe(arena, bytes, text, 3) == length && strcmp(text, "no") == 0);
    CHECK(stillpoint_arena_describe(arena, bytes, NULL, 0) == length);
    struct stillpoint_arena_statistics statistics;
    CHECK(stillpoint_arena_get_statistics(arena, &statistics, sizeof statistics) == 0);
    CHECK(statistics.areas == 0 && statistics.allocated == 2 && statistics.capacity_bytes == 1 << 30);
    CHECK(stillpoint_arena_file(arena) == -ENOENT);
    (void)stillpoint_arena_shrink(arena);
    test_end(arena);

    /* In a domain of the caller's, over a file. */
    domain = stillpoint_domain_new();
    options.domain = domain;
    options.memory_file = true;
    error = stillpoint_arena_new(&options, &arena);
    if (error == 0) { /* a filter may forbid memory files */
        CHECK(stillpoint_arena_file(arena) >= 0);
        area = stillpoint_arena_alloc(arena, 1, 1, NULL);
        CHECK(area != NULL && stillpoint_arena_free_area(arena, area) == 0);
        stillpoint_domain_read_lock(domain); /* which stays, so that there is nothing against it */
        CHECK(stillpoint_arena_free(arena) == 0);
        CHECK(stillpoint_domain_read_unlock(domain) == 0);
    }
    CHECK(stillpoint_domain_destroy(domain) == 0);
    return 0;
}
