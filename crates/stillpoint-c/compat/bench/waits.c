/*
 * Waits for grace periods under one of liburcu's names, as `rcutorture uperf` has them: threads that do nothing but wait, for a while, beside
 * readers that read, that sleep, or that are not there. Prints nanoseconds of a thread a wait, of the processors (user and system) a wait,
 * and the number of waits.
 *
 *   waits UPDATERS registered|bare READERS busy|asleep MILLISECONDS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#if defined(FLAVOUR_BP)
#include <urcu-bp.h>
#elif defined(FLAVOUR_QSBR)
#include <urcu-qsbr.h>
#elif defined(FLAVOUR_MB)
#define URCU_API_MAP
#include <urcu/urcu-mb.h>
#else
#include <urcu.h>
#endif

enum { MOST = 64 };

static int value, *shared = &value;
static int go, stop, ready, registered, busy;
static unsigned long waits[MOST][16];

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static double spent(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1e9 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e3 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void begin(void)
{
    __atomic_fetch_add(&ready, 1, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&go, __ATOMIC_RELAXED)) {
        usleep(100);
    }
}

static void *update(void *argument)
{
    unsigned long *mine = argument, done = 0;
    if (registered) {
        rcu_register_thread();
    }
    begin();
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        synchronize_rcu();
        done++;
    }
    *mine = done;
    if (registered) {
        rcu_unregister_thread();
    }
    return NULL;
}

static void *reads(void *unused)
{
    (void)unused;
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_unlock();
#ifdef FLAVOUR_QSBR
    rcu_thread_offline();
#endif
    begin();
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        if (!busy) {
            usleep(1000);
            continue;
        }
#ifdef FLAVOUR_QSBR
        rcu_thread_online();
#endif
        for (int n = 0; n < 1000; n++) {
            rcu_read_lock();
            __asm__ volatile("" ::"r"(rcu_dereference(shared)) : "memory");
            rcu_read_unlock();
#ifdef FLAVOUR_QSBR
            rcu_quiescent_state();
#endif
        }
#ifdef FLAVOUR_QSBR
        rcu_thread_offline();
#endif
    }
    rcu_unregister_thread();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("waits UPDATERS registered|bare READERS busy|asleep MILLISECONDS\n", stderr);
        return 2;
    }
    int updaters = atoi(argv[1]), readers = atoi(argv[3]);
    registered = !strcmp(argv[2], "registered");
    busy = !strcmp(argv[4], "busy");
    if (updaters < 1 || readers < 0 || updaters + readers > MOST) {
        fprintf(stderr, "waits: 1 to %d threads\n", MOST);
        return 2;
    }
    pthread_t threads[MOST];
    for (int n = 0; n < updaters + readers; n++) {
        if (pthread_create(&threads[n], NULL, n < updaters ? update : reads, waits[n]) != 0) {
            return 1;
        }
    }
    while (__atomic_load_n(&ready, __ATOMIC_RELAXED) < updaters + readers) {
        usleep(100);
    }
    double start = now(), before = spent();
    __atomic_store_n(&go, 1, __ATOMIC_RELAXED);
    usleep((useconds_t)(atof(argv[5]) * 1000));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    unsigned long all = 0;
    for (int n = 0; n < updaters + readers; n++) {
        pthread_join(threads[n], NULL);
        all += n < updaters ? waits[n][0] : 0;
    }
    double took = now() - start, used = spent() - before;
    printf("%.1f %.1f %lu\n", took * updaters / (double)all, used / (double)all, all);
    return 0;
}
