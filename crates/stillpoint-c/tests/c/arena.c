/* The address space: areas are found by any address inside, copies are checked. */
#include "check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

static int late_calls;

static void is_late(struct stillpoint_head *head)
{
    (void)head;
    usleep(100 * 1000);
    late_calls++;
}

/* What waits in an arena's own domain is called when the arena has been freed: the program may unload it then. */
static void test_late_calls(void)
{
    struct stillpoint_arena *arena = NULL;
    struct stillpoint_head head;
    CHECK(stillpoint_arena_new(&(struct stillpoint_arena_options){.capacity = 1 << 30}, &arena) == 0);
    CHECK(stillpoint_domain_call(stillpoint_arena_domain(arena), &head, is_late) == 0);
    CHECK(stillpoint_arena_free(arena) == 0);
    CHECK(late_calls == 1);
}

#define QUESTION "written by the arena's process"
#define ANSWER "written by another process"

/* The second process: knows a descriptor of the arena's file, the capacity, and where an area lies in it. */
static int answer(char **known)
{
    size_t capacity = strtoumax(known[1], NULL, 0);
    char *mapped = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(known[0]), 0);
    CHECK(mapped != MAP_FAILED);
    char *area = mapped + strtoumax(known[2], NULL, 0);
    CHECK(strcmp(area, QUESTION) == 0);
    strcpy(area, ANSWER);
    return 0;
}

/* An area of an arena over a memory file is read and written by another program, which finds it by its offset. */
static void test_second_process(struct stillpoint_arena *arena)
{
    size_t capacity = 0;
    char *first = stillpoint_arena_addresses(arena, &capacity);
    CHECK(first != NULL && stillpoint_arena_addresses(arena, NULL) == first && stillpoint_arena_addresses(NULL, NULL) == NULL);
    void *before = stillpoint_arena_alloc(arena, 10000, 1, NULL); /* so that it is not the first */
    char *area = stillpoint_arena_alloc(arena, sizeof QUESTION, 1, NULL);
    CHECK(before != NULL && area != NULL);
    uint64_t offset = 0;
    CHECK(stillpoint_arena_offset(arena, area, &offset) == 0 && offset == (uint64_t)(area - first) && offset > 0);
    CHECK(stillpoint_arena_offset(arena, area + 1, &offset) == 0 && offset == (uint64_t)(area + 1 - first));
    CHECK(stillpoint_arena_offset(arena, first + capacity - 1, &offset) == 0 && offset == capacity - 1);
    CHECK(stillpoint_arena_offset(arena, first + capacity, &offset) == -EFAULT);
    CHECK(stillpoint_arena_offset(arena, &offset, &offset) == -EFAULT);
    CHECK(stillpoint_arena_offset(arena, area, NULL) == -EINVAL && stillpoint_arena_offset(NULL, area, &offset) == -EINVAL);
    CHECK(stillpoint_arena_offset(arena, area, &offset) == 0);
    strcpy(area, QUESTION);

    char known[3][24];
    int file = dup(stillpoint_arena_file(arena)); /* the copy lives through execve() */
    snprintf(known[0], sizeof known[0], "%d", file);
    snprintf(known[1], sizeof known[1], "%zu", capacity);
    snprintf(known[2], sizeof known[2], "%" PRIu64, offset);
    char self[] = "/proc/self/exe";
    char *arguments[] = {self, known[0], known[1], known[2], NULL};
    pid_t child = fork();
    if (child == 0) {
        execv(self, arguments);
        _exit(127);
    }
    CHECK(end_of(child) == 0);
    CHECK(strcmp(area, ANSWER) == 0);
    CHECK(close(file) == 0);
    CHECK(stillpoint_arena_free_area(arena, before) == 0 && stillpoint_arena_free_area(arena, area) == 0);
}

int main(int count, char **arguments)
{
    if (count == 4) {
        return answer(arguments + 1);
    }
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
    CHECK(statistics.areas == 0 && statistics.allocated == 2 && statistics.capacity_bytes == 1 << 30 && statistics.guards == 1);
    CHECK(stillpoint_arena_file(arena) == -ENOENT);
    (void)stillpoint_arena_shrink(arena);
    test_late_calls();
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
        test_second_process(arena);
        stillpoint_domain_read_lock(domain); /* which stays, so that there is nothing against it */
        CHECK(stillpoint_arena_free(arena) == 0);
        CHECK(stillpoint_domain_read_unlock(domain) == 0);
    }
    CHECK(stillpoint_domain_destroy(domain) == 0);
    return 0;
}
