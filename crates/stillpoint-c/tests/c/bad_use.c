/* What is wrong is refused with an error, and, where asked for, with a message; nothing is harmed by it. */
#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <stillpoint/rcupdate.h>
#include <unistd.h>

static int log_file;

/* Whether the library has said so since the last question. */
static bool said(const char *what)
{
    static char text[65536];
    ssize_t length = pread(log_file, text, sizeof text - 1, 0);
    CHECK(length >= 0);
    text[length] = 0;
    CHECK(ftruncate(log_file, 0) == 0 && lseek(log_file, 0, SEEK_SET) == 0);
    bool found = strstr(text, what) != NULL;
    if (!found) {
        printf("not said: %s; but: %s\n", what, text);
    }
    return found;
}

static void count(struct stillpoint_head *head)
{
    (void)head;
}

static int barrier_in_callback;
static struct stillpoint_domain *of_callback;
static int destroyed_in_callback;

static void waits(struct stillpoint_head *head)
{
    (void)head;
    barrier_in_callback = stillpoint_barrier();
}

static void destroys(struct stillpoint_head *head)
{
    (void)head;
    destroyed_in_callback = stillpoint_domain_destroy(of_callback);
}

static int stage;
static pthread_barrier_t steps;

static void *holds(void *domain)
{
    stillpoint_domain_read_lock(domain);
    pthread_barrier_wait(&steps);
    pthread_barrier_wait(&steps);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    return NULL;
}

static void *ends_inside(void *unused)
{
    (void)unused;
    stillpoint_read_lock();
    return NULL;
}

static void *ends_online(void *unused)
{
    (void)unused;
    CHECK(stillpoint_qsbr_register() == 0);
    return NULL;
}

static void stalled(const struct stillpoint_stall *stall, void *data)
{
    CHECK(stall->text != NULL && stall->holdouts >= 1);
    __atomic_store_n((int *)data, 1, __ATOMIC_RELEASE);
}

/* In a child, because what it does cannot be undone: the process ends, as it should, by abort(). */
static void aborts(void (*function)(void), const char *message)
{
    pid_t child = fork();
    if (child == 0) {
        function();
        _exit(0);
    }
    int status = end_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(said(message));
}

static void waits_inside(void)
{
    rcu_read_lock();
    synchronize_rcu();
}

static void nests_too_deep(void)
{
    for (int n = 0; n < 70000; n++) {
        stillpoint_read_lock();
    }
}

#ifdef __x86_64__
static void calls_twice(void)
{
    static struct rcu_head head;
    rcu_read_lock();
    call_rcu(&head, count);
    call_rcu(&head, count);
}

/* Two heads of one batch: while the function of the first runs, the second one waits as before. */
static struct stillpoint_head batch[2];
static int own_again = 1, other_again;

static void queues_again(struct stillpoint_head *head)
{
    if (head == &batch[0] && own_again == 1) {
        other_again = stillpoint_domain_call_copied(of_callback, &batch[1], count);
        own_again = stillpoint_domain_call_copied(of_callback, &batch[0], count);
    }
}
#endif

int main(int count_of_arguments, char **arguments)
{
    /* The library has looked at the environment when it was loaded. */
    (void)count_of_arguments;
    if (getenv("STILLPOINT_DEBUG") == NULL) {
        CHECK(setenv("STILLPOINT_DEBUG", "1", 1) == 0);
        execv("/proc/self/exe", arguments);
        CHECK(false);
    }
    FILE *file = tmpfile();
    CHECK(file != NULL);
    log_file = fileno(file);
    CHECK(dup2(log_file, 2) == 2);

    /* Null. */
    CHECK(stillpoint_call(NULL, count) == -EINVAL && said("null head"));
    struct stillpoint_head head = STILLPOINT_HEAD_INIT;
    CHECK(stillpoint_call(&head, NULL) == -EINVAL && said("null head or function"));
    CHECK(stillpoint_domain_statistics(NULL, NULL, 8) == -EINVAL && said("null output pointer"));
    CHECK(stillpoint_kvfree(NULL) == 0);
    CHECK(stillpoint_domain_destroy(NULL) == 0);
    CHECK(stillpoint_domain_reader_init(NULL, NULL) == -EINVAL && said("null output pointer"));
    CHECK(stillpoint_guard_end(NULL) == 0 && stillpoint_guard_name(NULL, "x") == -EINVAL && said("null guard"));
    CHECK(stillpoint_lru_add(NULL, NULL, NULL) == -EINVAL && said("null handle"));
    CHECK(stillpoint_hierarchy_new(NULL) == -EINVAL && said("null output pointer"));
    CHECK(stillpoint_arena_alloc(NULL, 1, 1, NULL) == NULL && said("null handle"));
    void *block = malloc(8192);
    CHECK(stillpoint_domain_kvfree_head(NULL, block, (struct stillpoint_head *)((char *)block + 4096)) == -EINVAL && said("first 4096 bytes"));
    free(block);

    /* Unregistered, registered twice. */
    CHECK(stillpoint_qsbr_unregister() == -EPERM && said("not a QSBR reader"));
    CHECK(stillpoint_qsbr_online() == -EPERM && said("not a QSBR reader"));
    stillpoint_qsbr_quiescent_state(); /* nothing */
    CHECK(stillpoint_qsbr_register() == 0);
    CHECK(stillpoint_qsbr_register() == -EEXIST && said("registered"));
    CHECK(stillpoint_domain_synchronize(stillpoint_qsbr_global()) == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_qsbr_synchronize() == 0 && stillpoint_qsbr_is_online());
    CHECK(stillpoint_qsbr_unregister() == 0);
    stillpoint_domain_register_thread(NULL);
    CHECK(stillpoint_domain_register_thread(NULL) == -EEXIST);

    /* Unlock without lock. */
    CHECK(stillpoint_read_unlock() == -EPERM && said("without a lock"));
    CHECK(stillpoint_trace_read_unlock() == -EPERM && said("without a lock"));
    struct stillpoint_domain *domain = stillpoint_domain_new();
    CHECK(domain != NULL);
    CHECK(stillpoint_domain_read_unlock(domain) == -EPERM && said("without a lock"));
    struct stillpoint_domain_reader reader;
    CHECK(stillpoint_domain_reader_init(domain, &reader) == 0);
    CHECK(stillpoint_domain_reader_unlock(&reader) == -EPERM && said("without a lock"));
    stillpoint_domain_reader_lock(&reader);
    CHECK(stillpoint_domain_synchronize(domain) == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_domain_destroy(domain) == -EDEADLK && said("inside a section or a callback"));
    CHECK(stillpoint_domain_reader_unlock(&reader) == 0);
    CHECK(stillpoint_synchronize() == 0); /* no harm done */

    /* Waiting inside a section, or a callback. */
    stillpoint_read_lock();
    CHECK(stillpoint_synchronize() == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_synchronize_expedited() == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_cond_synchronize(stillpoint_get_state()) == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_call(&head, waits) == 0);
    CHECK(stillpoint_barrier() == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_kvfree(malloc(8)) == 0);
    CHECK(stillpoint_kvfree_barrier() == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_kvfree_barrier_nested() == -EDEADLK && said("wait for itself"));
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_barrier() == 0);
    CHECK(barrier_in_callback == -EDEADLK && said("wait for itself"));
    aborts(waits_inside, "synchronize_rcu() was refused");
    aborts(nests_too_deep, "nested more than");

    /* Where nothing can be said, the error is the same. */
    int full = open("/dev/full", O_WRONLY);
    CHECK(full >= 0 && dup2(full, 2) == 2);
    CHECK(stillpoint_read_unlock() == -EPERM);
    CHECK(dup2(log_file, 2) == 2);
    close(full);

    /* A head that is queued; a copy of one is not. */
    stillpoint_read_lock();
    CHECK(stillpoint_call(&head, count) == 0);
#ifdef __x86_64__
    CHECK(stillpoint_call(&head, count) == -EBUSY && said("head that is queued"));
    CHECK(stillpoint_domain_call(domain, &head, count) == -EBUSY && said("head that is queued"));
    CHECK(stillpoint_domain_kvfree_head(NULL, &head, &head) == -EBUSY && said("head that is queued"));
    aborts(calls_twice, "call_rcu() was refused");
    of_callback = domain;
    stillpoint_domain_read_lock(domain);
    for (int n = 0; n < 2; n++) {
        CHECK(stillpoint_domain_call_copied(domain, &batch[n], queues_again) == 0);
    }
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0 && stillpoint_domain_barrier(domain) == 0);
    CHECK(other_again == -EBUSY && own_again == 0 && said("a head that is queued"));
#endif
    struct stillpoint_head copy = head;
    CHECK(stillpoint_call(&copy, count) == 0);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_barrier() == 0);
    CHECK(stillpoint_call(&head, count) == 0);
    CHECK(stillpoint_barrier() == 0);

    /* A domain that is used is not destroyed. */
    pthread_t thread;
    CHECK(pthread_barrier_init(&steps, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, holds, domain) == 0);
    pthread_barrier_wait(&steps);
    CHECK(stillpoint_domain_destroy(domain) == -EBUSY && said("while a thread is inside"));
    pthread_barrier_wait(&steps);
    pthread_join(thread, NULL);
    of_callback = domain;
    CHECK(stillpoint_domain_call(domain, &head, destroys) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(destroyed_in_callback == -EDEADLK && said("inside a section or a callback"));
    CHECK(stillpoint_domain_destroy(domain) == 0);
    CHECK(stillpoint_domain_destroy(stillpoint_global()) == -EINVAL && said("global domain"));
    CHECK(stillpoint_domain_destroy(stillpoint_qsbr_global()) == -EINVAL && said("global domain"));

    /* Threads that end while they read: said, and reported as stalls. They are never taken for having left. */
    run_thread(ends_online, NULL);
    stillpoint_cookie cookie = stillpoint_domain_start_poll(stillpoint_qsbr_global());
    CHECK(!stillpoint_domain_poll(stillpoint_qsbr_global(), cookie));
    CHECK(said("while it is an online QSBR reader"));
    stillpoint_domain_set_stall_timeout(NULL, 1);
    stillpoint_domain_on_stall(NULL, stalled, &stage);
    run_thread(ends_inside, NULL);
    CHECK(said("ends inside a read-side critical section"));
    cookie = stillpoint_start_poll();
    CHECK(!stillpoint_poll(cookie));
    while (!__atomic_load_n(&stage, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    CHECK(!stillpoint_poll(cookie));
    stillpoint_domain_on_stall(NULL, NULL, NULL);

    /* Without a function a stall is said on stderr; with no time-out there is none. */
    struct stillpoint_domain *stuck = stillpoint_domain_new();
    CHECK(stuck != NULL);
    struct stillpoint_statistics statistics = {0};
    for (int timeout = 0; timeout <= 1; timeout++) {
        stillpoint_domain_set_stall_timeout(stuck, (uint64_t)timeout);
        stillpoint_domain_on_stall(stuck, stalled, &stage);
        stillpoint_domain_on_stall(stuck, NULL, NULL);
        struct stillpoint_guard *guard = stillpoint_domain_guard(stuck);
        (void)stillpoint_domain_start_poll(stuck);
        for (int looks = 0; looks < (timeout ? 10000 : 100) && statistics.stalls == 0; looks++) {
            usleep(1000);
            CHECK(stillpoint_domain_statistics(stuck, &statistics, sizeof statistics) == 0);
        }
        CHECK(statistics.stalls == (uint64_t)timeout);
        CHECK(stillpoint_guard_end(guard) == 0);
    }
    /* The line may come after the count. */
    CHECK(stillpoint_domain_destroy(stuck) == 0);
    CHECK(said(" stalled for "));
    return 0;
}
