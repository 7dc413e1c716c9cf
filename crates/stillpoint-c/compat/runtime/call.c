/*
 * liburcu's API: call_rcu() and its workers; fork.c has what becomes of them around a fork, barrier.c rcu_barrier(). SPDX: MIT OR Apache-2.0
 *
 * A head is two words, so there is no room in it for a cookie, and the library's own callbacks do not fit. Here heads are pushed on a worker's
 * stack, which is lock-free and whole at every moment (a fork that comes between two instructions of a pusher leaves nothing half done). The
 * worker takes all at once, reverses them, keeps them for the domain's delay (0 but where a program relies on late callbacks), waits for one
 * grace period, and calls them in their order.
 *
 * [P1] the push (release) pairs with [P2] the take (acquire): the grace period that the worker then starts began after every call_rcu() of
 *      the batch, and so after what that had unlinked.
 * [S1] push, fence, look at `sleeping`, against [S2] set `sleeping`, fence, look at the stack: one of the two sees the other.
 *
 * The lock of a flavour guards who the workers are, and their coming and going between batches. It is held around no callback. From
 * call_rcu_before_fork() to its partner it is held by the thread that forks, and no worker is in the middle of a batch but that thread, if it
 * is one. While a worker waits for readers it is not in the middle: what it has taken lies in its `batch`, for the child to find.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "workers.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REAL_TIME 1ul /* URCU_CALL_RCU_RT */
/* In milliseconds: how soon a worker that keeps a batch notices another delay. */
#define DELAY_POLL 100u

#define FLAVOUR {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}
struct flavour flavours[STILLPOINT_URCU_FLAVOURS_] = {FLAVOUR, FLAVOUR, FLAVOUR, FLAVOUR};

__thread struct call_rcu_data *of_thread[STILLPOINT_URCU_FLAVOURS_] __attribute__((tls_model("initial-exec")));
__thread struct call_rcu_data *self __attribute__((tls_model("initial-exec")));

static void wake_worker(struct call_rcu_data *data)
{
    if (__atomic_load_n(&data->sleeping, __ATOMIC_RELAXED) && __atomic_exchange_n(&data->sleeping, 0, __ATOMIC_RELAXED)) {
        wake(&data->sleeping);
    }
}

void push(struct call_rcu_data *data, struct rcu_head *head)
{
    struct rcu_head *newest = __atomic_load_n(&data->stack, __ATOMIC_RELAXED);
    do {
        if (newest == head) {
            die(data->flavour, "call_rcu() with a head that waits already: each may be queued again when its function has been called");
        }
        head->next = newest;
    } while (!__atomic_compare_exchange_n(&data->stack, &newest, head, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)); /* [P1] */
    if (!(data->flags & REAL_TIME)) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* [S1] */
        wake_worker(data);
    }
}

struct rcu_head *take(struct call_rcu_data *data)
{
    if (!__atomic_load_n(&data->stack, __ATOMIC_RELAXED)) {
        return NULL;
    }
    struct rcu_head *newest = __atomic_exchange_n(&data->stack, NULL, __ATOMIC_ACQUIRE), *taken = NULL; /* [P2] */
    while (newest) {
        struct rcu_head *next = newest->next;
        newest->next = taken;
        taken = newest;
        newest = next;
    }
    return taken;
}

static void sleep_until_pushed(struct call_rcu_data *data)
{
    if (data->flags & REAL_TIME) {
        struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
        return;
    }
    __atomic_store_n(&data->sleeping, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* [S2] */
    if (__atomic_load_n(&data->stack, __ATOMIC_RELAXED) || __atomic_load_n(&data->stop, __ATOMIC_RELAXED)) {
        __atomic_store_n(&data->sleeping, 0, __ATOMIC_RELAXED);
        return;
    }
    while (__atomic_load_n(&data->sleeping, __ATOMIC_RELAXED)) {
        sleep_while(&data->sleeping, 1);
    }
}

/* Under the lock, with the worker not running: until it may go on. */
static void wait_while_paused(struct flavour *flavour)
{
    while (flavour->paused) {
        pthread_cond_wait(&flavour->changed, &flavour->lock);
    }
}

void set_running(struct flavour *flavour, struct call_rcu_data *data, bool running)
{
    data->running = running;
    if (!running && flavour->paused) {
        pthread_cond_broadcast(&flavour->changed);
    }
}

/* Takes a worker of QSBR on line for its callbacks, and off; for others there is nothing to do. */
static void set_online(int flavour, bool online)
{
    if (flavour == STILLPOINT_URCU_QSBR_) {
        (void)(online ? stillpoint_qsbr_online() : stillpoint_qsbr_offline());
    }
}

/* Calls the batch. Between two callbacks a fork may come. */
static void run(struct flavour *flavour, struct call_rcu_data *data)
{
    while (data->batch) {
        struct rcu_head *head = data->batch;
        data->batch = head->next;
        head->func(head);
        if (__builtin_expect(__atomic_load_n(&flavour->paused, __ATOMIC_RELAXED), 0)) {
            set_online(data->flavour, false);
            pthread_mutex_lock(&flavour->lock);
            set_running(flavour, data, false);
            wait_while_paused(flavour);
            set_running(flavour, data, true);
            unlock(flavour);
            set_online(data->flavour, true);
        }
    }
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/*
 * Under the lock, with a batch that has just been taken, and the worker not running: keeps it as long as the domain's callbacks are to be. Counted
 * from here on, since heads have no word for a time; so it is never too short. Barriers end it, and the worker's end.
 */
static void delay_batch(struct flavour *flavour, struct call_rcu_data *data)
{
    uint64_t began = 0, milliseconds;
    while (!flavour->barriers && !data->stop &&
           (milliseconds = stillpoint_domain_callback_delay(stillpoint_urcu_domain(data->flavour))) > 0) {
        uint64_t present = now();
        began = began ? began : present;
        if ((present - began) / 1000000u >= milliseconds) {
            return;
        }
        /* It may be set anew meanwhile. */
        uint64_t left = milliseconds - (present - began) / 1000000u;
        left = left < DELAY_POLL ? left : DELAY_POLL;
        int delays_ended = flavour->delays_ended;
        unlock(flavour);
        sleep_while_for(&flavour->delays_ended, delays_ended, left * 1000000u);
        pthread_mutex_lock(&flavour->lock);
        wait_while_paused(flavour);
    }
}

static void set_up_worker(struct call_rcu_data *data)
{
    self = data;
    /* What a callback queues stays with its worker. */
    of_thread[data->flavour] = data;
    pthread_setname_np(pthread_self(), "call_rcu");
    if (data->cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(data->cpu, &one);
        /* That processor may be off, or not for this process: then anywhere. */
        (void)sched_setaffinity(0, sizeof one, &one);
    }
    if (data->flavour == STILLPOINT_URCU_QSBR_) {
        register_qsbr();
        set_online(data->flavour, false);
    }
}

static void *worker_main(void *of)
{
    struct call_rcu_data *data = of;
    set_up_worker(data);
    struct flavour *flavour = locked(data->flavour);
    for (;;) {
        wait_while_paused(flavour);
        if (!data->batch) {
            data->batch = take(data);
            if (data->batch) {
                delay_batch(flavour, data);
            }
        }
        bool waits = data->batch != NULL, last = data->stop;
        if (!waits && last) {
            break;
        }
        unlock(flavour);
        if (!waits) {
            sleep_until_pushed(data);
            pthread_mutex_lock(&flavour->lock);
            continue;
        }
        stillpoint_urcu_synchronize(data->flavour);
        pthread_mutex_lock(&flavour->lock);
        wait_while_paused(flavour);
        set_running(flavour, data, true);
        unlock(flavour);
        set_online(data->flavour, true);
        run(flavour, data);
        set_online(data->flavour, false);
        pthread_mutex_lock(&flavour->lock);
        set_running(flavour, data, false);
        /* Also if there is more: callbacks that queue themselves would keep it for ever. Not in a child, where no thread waits for that. */
        if (last && data->stop) {
            break;
        }
    }
    unlock(flavour);
    stillpoint_urcu_unregister_thread(data->flavour);
    return NULL;
}

/* ---- Workers ---- */

/* Under the lock. NULL and errno. */
static struct call_rcu_data *create(struct flavour *flavour, int number, unsigned long flags, int cpu)
{
    void *memory;
    int failed = posix_memalign(&memory, 64, sizeof(struct call_rcu_data));
    if (!failed) {
        struct call_rcu_data *data = memory;
        *data = (struct call_rcu_data){.flavour = number, .cpu = cpu < CPU_SETSIZE ? cpu : -1, .flags = flags};
        failed = start_thread(&data->thread, worker_main, data);
        if (!failed) {
            data->next = flavour->workers;
            flavour->workers = data;
            return data;
        }
        free(data);
    }
    errno = failed;
    return NULL;
}

struct call_rcu_data *stillpoint_urcu_create(int number, unsigned long flags, int cpu)
{
    struct flavour *flavour = locked(number);
    struct call_rcu_data *data = create(flavour, number, flags, cpu);
    unlock(flavour);
    return data;
}

struct call_rcu_data *default_worker(struct flavour *flavour, int number)
{
    if (!flavour->default_worker) {
        struct call_rcu_data *data = create(flavour, number, 0, -1);
        if (!data) {
            die(number, "call_rcu() cannot start its worker thread: %s", strerror(errno));
        }
        __atomic_store_n(&flavour->default_worker, data, __ATOMIC_RELEASE);
    }
    return flavour->default_worker;
}

struct call_rcu_data *stillpoint_urcu_default(int number)
{
    struct call_rcu_data *data = __atomic_load_n(&flavours[number].default_worker, __ATOMIC_ACQUIRE);
    if (!data) {
        struct flavour *flavour = locked(number);
        data = default_worker(flavour, number);
        unlock(flavour);
    }
    return data;
}

struct call_rcu_data *stillpoint_urcu_of_cpu(int number, int cpu)
{
    struct call_rcu_data **of_cpu = __atomic_load_n(&flavours[number].of_cpu, __ATOMIC_ACQUIRE);
    if (!of_cpu || cpu < 0 || cpu >= flavours[number].processors) {
        return NULL;
    }
    return __atomic_load_n(&of_cpu[cpu], __ATOMIC_ACQUIRE);
}

struct call_rcu_data *stillpoint_urcu_of_thread(int number)
{
    return of_thread[number];
}

void stillpoint_urcu_set_of_thread(int number, struct call_rcu_data *data)
{
    of_thread[number] = data;
}

struct call_rcu_data *stillpoint_urcu_current(int number)
{
    struct call_rcu_data *data = of_thread[number];
    if (!data && __atomic_load_n(&flavours[number].of_cpu, __ATOMIC_RELAXED)) {
        data = stillpoint_urcu_of_cpu(number, sched_getcpu());
    }
    return data ? data : stillpoint_urcu_default(number);
}

pthread_t stillpoint_urcu_worker(struct call_rcu_data *data)
{
    return data->thread;
}

/* Under the lock: 0 or an errno. */
static int ensure_of_cpu(struct flavour *flavour)
{
    if (!flavour->of_cpu) {
        long all = sysconf(_SC_NPROCESSORS_CONF);
        struct call_rcu_data **of_cpu = calloc((size_t)all, sizeof *of_cpu);
        if (!of_cpu) {
            return ENOMEM;
        }
        flavour->processors = all;
        __atomic_store_n(&flavour->of_cpu, of_cpu, __ATOMIC_RELEASE);
    }
    return 0;
}

/* Under the lock. */
static int set_of_cpu(struct flavour *flavour, int cpu, struct call_rcu_data *data)
{
    int failed = ensure_of_cpu(flavour);
    if (failed) {
        return failed;
    }
    if (cpu < 0 || cpu >= flavour->processors) {
        return EINVAL;
    }
    if (data && flavour->of_cpu[cpu]) {
        return EEXIST;
    }
    __atomic_store_n(&flavour->of_cpu[cpu], data, __ATOMIC_RELEASE);
    return 0;
}

static int outcome(int failed)
{
    if (failed) {
        errno = failed;
    }
    return -failed;
}

int stillpoint_urcu_set_of_cpu(int number, int cpu, struct call_rcu_data *data)
{
    struct flavour *flavour = locked(number);
    int failed = set_of_cpu(flavour, cpu, data);
    unlock(flavour);
    return outcome(failed);
}

int stillpoint_urcu_create_all(int number, unsigned long flags)
{
    struct flavour *flavour = locked(number);
    int failed = ensure_of_cpu(flavour);
    for (int cpu = 0; !failed && cpu < flavour->processors; cpu++) {
        if (flavour->of_cpu[cpu]) {
            continue;
        }
        struct call_rcu_data *data = create(flavour, number, flags, cpu);
        failed = data ? set_of_cpu(flavour, cpu, data) : errno;
    }
    unlock(flavour);
    return outcome(failed);
}

/* Under the lock. */
static struct call_rcu_data **find(struct flavour *flavour, int number, struct call_rcu_data *data)
{
    for (struct call_rcu_data **at = &flavour->workers; *at; at = &(*at)->next) {
        if (*at == data) {
            return at;
        }
    }
    die(number, "call_rcu_data_free() of what is no worker of this flavour, or no longer");
}

void stillpoint_urcu_free(int number, struct call_rcu_data *data)
{
    if (!data || data == __atomic_load_n(&flavours[number].default_worker, __ATOMIC_RELAXED)) {
        return;
    }
    check_not_reading(number, "call_rcu_data_free()");
    if (data == self) {
        die(number, "call_rcu_data_free() by a callback of that worker would wait for itself");
    }
    struct reader_state state = begin_wait(number);
    struct flavour *flavour = locked(number);
    (void)find(flavour, number, data);
    __atomic_store_n(&data->stop, true, __ATOMIC_RELAXED);
    end_delays(flavour);
    unlock(flavour);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* [S1] */
    wake_worker(data);
    /* Known to barriers until it has done all that it has. */
    pthread_join(data->thread, NULL);
    pthread_mutex_lock(&flavour->lock);
    *find(flavour, number, data) = data->next;
    /*
     * What came after the worker's last look: of its last callbacks, of a barrier, or of a thread that should not have used it any more. In
     * one go with the above, so that there is no barrier between.
     */
    for (struct rcu_head *head = take(data), *next; head; head = next) {
        next = head->next;
        push(default_worker(flavour, number), head);
    }
    unlock(flavour);
    free(data);
    end_wait(state);
}

void stillpoint_urcu_free_all(int number)
{
    check_not_reading(number, "free_all_cpu_call_rcu_data()");
    struct call_rcu_data **of_cpu = __atomic_load_n(&flavours[number].of_cpu, __ATOMIC_ACQUIRE);
    struct call_rcu_data **freed = of_cpu ? calloc((size_t)flavours[number].processors, sizeof *freed) : NULL;
    if (!freed) {
        if (of_cpu) {
            die(number, "free_all_cpu_call_rcu_data(): no memory");
        }
        return;
    }
    struct flavour *flavour = locked(number);
    for (long cpu = 0; cpu < flavour->processors; cpu++) {
        freed[cpu] = of_cpu[cpu];
        __atomic_store_n(&of_cpu[cpu], NULL, __ATOMIC_RELEASE);
    }
    unlock(flavour);
    /* Wait for the threads that are inside call_rcu() with one of them. */
    stillpoint_urcu_synchronize(number);
    for (long cpu = 0; cpu < flavour->processors; cpu++) {
        stillpoint_urcu_free(number, freed[cpu]);
    }
    free(freed);
}

/* ---- Callbacks ---- */

void stillpoint_urcu_call(int number, struct rcu_head *head, stillpoint_urcu_function function)
{
    if (!head || !function) {
        die(number, "call_rcu() with a null head or function");
    }
    head->func = function;
    struct call_rcu_data *data = of_thread[number];
    if (data) {
        push(data, head);
    } else if (__atomic_load_n(&flavours[number].of_cpu, __ATOMIC_RELAXED)) {
        /* A processor's worker is there until the section ends: see stillpoint_urcu_free_all(). QSBR callers are online, as documented. */
        stillpoint_urcu_lock_(number);
        push(stillpoint_urcu_current(number), head);
        stillpoint_urcu_unlock_(number);
    } else {
        push(stillpoint_urcu_default(number), head);
    }
}
