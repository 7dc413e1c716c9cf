/* Threads that end, handlers that read, processes that fork. */
#include "check.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static pthread_key_t key;
static int late_reads;

/* After the library's own end of the thread: a section gets a new record, and one that was left open is left here. */
static void late(void *open)
{
    bool was_open = *(int *)open;
    CHECK(stillpoint_read_lock_held() == was_open);
    stillpoint_read_lock();
    stillpoint_read_lock();
    CHECK(stillpoint_read_lock_held());
    CHECK(stillpoint_synchronize() == -EDEADLK);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_read_unlock() == 0);
    CHECK(stillpoint_read_lock_held() == was_open);
    if (was_open) {
        CHECK(stillpoint_read_unlock() == 0);
    }
    CHECK(!stillpoint_read_lock_held());
    CHECK(stillpoint_read_unlock() == -EPERM);
    CHECK(stillpoint_kvfree(malloc(16)) == 0);
    __atomic_fetch_add(&late_reads, 1, __ATOMIC_RELAXED);
}

static void *ends(void *open)
{
    CHECK(pthread_setspecific(key, open) == 0);
    stillpoint_read_lock();
    CHECK(stillpoint_kvfree(malloc(16)) == 0);
    if (!*(int *)open) {
        CHECK(stillpoint_read_unlock() == 0);
    }
    return NULL;
}

/* Another thread has the record that this one gave back, and reads through it: this one's last sections are none of that one's. (One of many
 * has: records that have never been used come first.) */
enum { SUCCESSORS = 64 };
static pthread_barrier_t steps;

static void *successor(void *unused)
{
    (void)unused;
    stillpoint_read_lock();
    pthread_barrier_wait(&steps);
    pthread_barrier_wait(&steps);
    CHECK(stillpoint_read_lock_held());
    CHECK(stillpoint_read_unlock() == 0);
    return NULL;
}

static void late_beside_its_successor(void *unused)
{
    pthread_t threads[SUCCESSORS];
    (void)unused;
    start_all(threads, SUCCESSORS, successor, NULL);
    pthread_barrier_wait(&steps);
    stillpoint_cookie cookie = stillpoint_get_state();
    for (int n = 0; n < 3; n++) {
        stillpoint_read_lock();
        CHECK(stillpoint_read_unlock() == 0);
    }
    CHECK(!stillpoint_poll(cookie));
    pthread_barrier_wait(&steps);
    join_all(threads, SUCCESSORS);
    CHECK(stillpoint_poll(cookie));
}

static void *ends_before_its_successor(void *key_of_that)
{
    CHECK(pthread_setspecific(*(pthread_key_t *)key_of_that, &steps) == 0);
    stillpoint_read_lock();
    CHECK(stillpoint_read_unlock() == 0);
    return NULL;
}

/* The record that a thread gave back is not written through what its successor has remembered. */
static void *reads_once(void *unused)
{
    (void)unused;
    stillpoint_read_lock();
    CHECK(stillpoint_read_unlock() == 0);
    return NULL;
}

/* QSBR readers that say at the very end, when the library's own end of the thread is over, that they are none any more. */
enum how { UNREGISTERS, GOES_OFFLINE, SYNCHRONIZES };

static void leaves_late(void *how)
{
    CHECK(stillpoint_qsbr_is_online());
    CHECK(stillpoint_qsbr_register() == -EEXIST);
    stillpoint_qsbr_quiescent_state();
    if (*(enum how *)how == SYNCHRONIZES) {
        CHECK(stillpoint_qsbr_synchronize() == 0);
        CHECK(stillpoint_qsbr_is_online());
    }
    CHECK((*(enum how *)how == GOES_OFFLINE ? stillpoint_qsbr_offline() : stillpoint_qsbr_unregister()) == 0);
    CHECK(!stillpoint_qsbr_is_online());
    CHECK(stillpoint_qsbr_unregister() == -EPERM);
    CHECK(stillpoint_qsbr_register() == -ESRCH);
    stillpoint_qsbr_quiescent_state();
}

static pthread_key_t qsbr_key;

static void *ends_online(void *how)
{
    CHECK(pthread_setspecific(qsbr_key, how) == 0);
    CHECK(stillpoint_qsbr_register() == 0);
    return NULL;
}

static void test_qsbr_ends(void)
{
    struct stillpoint_statistics before, after;
    CHECK(pthread_key_create(&qsbr_key, leaves_late) == 0);
    for (int n = 0; n < 99; n++) {
        enum how how = (enum how)(n % 3);
        run_thread(ends_online, &how);
        CHECK(stillpoint_domain_synchronize(stillpoint_qsbr_global()) == 0);
        CHECK(stillpoint_domain_statistics(stillpoint_qsbr_global(), n == 0 ? &before : &after, sizeof before) == 0);
    }
    CHECK(after.records == before.records); /* used again */
}

static volatile sig_atomic_t signals;
static long *shared;

static void handler(int number)
{
    (void)number;
    stillpoint_read_lock();
    CHECK(*__atomic_load_n(&shared, __ATOMIC_ACQUIRE) == 7);
    CHECK(stillpoint_read_unlock() == 0);
    signals = signals + 1;
}

static int stop;

static void *updates(void *unused)
{
    sigset_t all;
    (void)unused;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        long *fresh = malloc(sizeof *fresh);
        CHECK(fresh != NULL);
        *fresh = 7;
        long *old = __atomic_exchange_n(&shared, fresh, __ATOMIC_ACQ_REL);
        CHECK(stillpoint_synchronize() == 0);
        *old = 0;
        free(old);
    }
    return NULL;
}

static void test_signals(void)
{
    struct sigaction action;
    struct itimerval timer = {{0, 100}, {0, 100}}, off = {{0, 0}, {0, 0}};
    pthread_t updater;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    shared = malloc(sizeof *shared);
    CHECK(shared != NULL);
    *shared = 7;
    stillpoint_domain_register_thread(NULL);
    CHECK(stillpoint_domain_is_registered(NULL));
    CHECK(pthread_create(&updater, NULL, updates, NULL) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    while (signals < 200) {
        stillpoint_read_lock();
        long *seen = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
        for (int n = 0; n < 50; n++) {
            stillpoint_read_lock();
            CHECK(*seen == 7);
            CHECK(stillpoint_read_unlock() == 0);
        }
        CHECK(stillpoint_read_unlock() == 0);
    }
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(updater, NULL);
    free(shared);
}

static void reclaim(struct stillpoint_head *head)
{
    free(head);
}

static void work(void)
{
    struct stillpoint_head *head = malloc(sizeof *head);
    CHECK(head != NULL);
    CHECK(stillpoint_call(head, reclaim) == 0);
    CHECK(stillpoint_kvfree(malloc(32)) == 0);
    CHECK(stillpoint_synchronize() == 0);
    CHECK(stillpoint_barrier() == 0);
    CHECK(stillpoint_kvfree_barrier() == 0);
}

static pthread_barrier_t fork_steps;

static void *reads_at_the_fork(void *unused)
{
    (void)unused;
    stillpoint_read_lock();
    CHECK(stillpoint_qsbr_register() == 0);
    pthread_barrier_wait(&fork_steps);
    pthread_barrier_wait(&fork_steps);
    CHECK(stillpoint_qsbr_unregister() == 0);
    CHECK(stillpoint_read_unlock() == 0);
    return NULL;
}

static int called;

static void count(struct stillpoint_head *head)
{
    (void)head;
    __atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
}

/* The child's section is open and its registration there as before; those of another thread, which would hold all up, are over, and what was
 * pending is the parent's. All goes on in both. */
static void test_fork(void)
{
    static struct stillpoint_head pending[2];
    struct stillpoint_domain *qsbr = stillpoint_qsbr_global();
    pthread_t thread;
    CHECK(pthread_barrier_init(&fork_steps, NULL, 2) == 0);
    work();
    CHECK(pthread_create(&thread, NULL, reads_at_the_fork, NULL) == 0);
    pthread_barrier_wait(&fork_steps);
    CHECK(stillpoint_qsbr_register() == 0);
    CHECK(stillpoint_call(&pending[0], count) == 0);
    CHECK(stillpoint_domain_call(qsbr, &pending[1], count) == 0);
    stillpoint_read_lock();
    CHECK(stillpoint_kvfree(malloc(32)) == 0);
    pid_t child = fork();
    if (child != 0) {
        CHECK(end_of(child) == 0);
        CHECK(called == 0);
        pthread_barrier_wait(&fork_steps);
        pthread_join(thread, NULL);
    }
    CHECK(stillpoint_read_lock_held());
    CHECK(stillpoint_synchronize() == -EDEADLK);
    CHECK(stillpoint_read_unlock() == 0);
    work();
    CHECK(stillpoint_qsbr_is_online());
    CHECK(stillpoint_qsbr_register() == -EEXIST);
    CHECK(stillpoint_domain_synchronize(qsbr) == -EDEADLK);
    stillpoint_qsbr_quiescent_state();
    CHECK(stillpoint_qsbr_synchronize() == 0);
    CHECK(stillpoint_qsbr_unregister() == 0);
    CHECK(stillpoint_domain_synchronize(qsbr) == 0);
    CHECK(stillpoint_domain_barrier(qsbr) == 0);
    CHECK(called == (child == 0 ? 0 : 2));
    if (child == 0) {
        _exit(0);
    }
}

int main(void)
{
    CHECK(pthread_key_create(&key, late) == 0);
    for (int n = 0; n < 8; n++) {
        int open = n % 2;
        run_thread(ends, &open);
        CHECK(stillpoint_synchronize() == 0);
    }
    CHECK(late_reads == 8);
    for (int n = 0; n < 200; n++) {
        run_thread(reads_once, NULL);
    }
    pthread_key_t other;
    CHECK(pthread_key_create(&other, late_beside_its_successor) == 0);
    CHECK(pthread_barrier_init(&steps, NULL, SUCCESSORS + 1) == 0);
    run_thread(ends_before_its_successor, &other);
    struct stillpoint_statistics statistics;
    CHECK(stillpoint_domain_statistics(NULL, &statistics, sizeof statistics) == 0);
    CHECK(statistics.records < SUCCESSORS + 100); /* records are used again */
    test_qsbr_ends();
    test_signals();
#ifdef NO_FORK
    (void)test_fork;
#else
    test_fork();
#endif
    return 0;
}
