/* What call.c, barrier.c and fork.c know of each other: workers, and the flavours that have them. */
#ifndef STILLPOINT_COMPAT_WORKERS_H
#define STILLPOINT_COMPAT_WORKERS_H

#include "runtime.h"

#define flavours stillpoint_urcu_flavours_
#define of_thread stillpoint_urcu_of_thread_
#define self stillpoint_urcu_self_
#define push stillpoint_urcu_push_
#define take stillpoint_urcu_take_
#define set_running stillpoint_urcu_set_running_
#define default_worker stillpoint_urcu_default_worker_
#define barrier_callback stillpoint_urcu_barrier_callback_

struct call_rcu_data {
    /* Newest first. Pushed to by any thread, taken by the worker. */
    struct rcu_head *stack __attribute__((aligned(64)));
    int sleeping;
    /* Oldest first. The worker's while `running`, else under the lock. */
    struct rcu_head *batch __attribute__((aligned(64)));
    bool running, stop;
    int flavour, cpu;
    unsigned long flags;
    pthread_t thread;
    struct call_rcu_data *next;
};

struct flavour {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct call_rcu_data *workers, *default_worker;
    /* NULL until a processor is given a worker; then as long as the process. */
    struct call_rcu_data **of_cpu;
    /* How long that is. */
    long processors;
    bool paused;
    /* How many wait in rcu_barrier(): while there are any, no batch is delayed. */
    unsigned barriers;
    /* Changed, under the lock, by what ends a delay: one more of those, or a worker's `stop`. */
    int delays_ended;
    /* The second, from before_fork() to its partner: that whose partner is due, even if threads register or unregister meanwhile. */
    struct urcu_atfork *atfork, *forking;
    unsigned atfork_users;
};

HIDDEN extern struct flavour flavours[STILLPOINT_URCU_FLAVOURS_];

HIDDEN extern __thread struct call_rcu_data *of_thread[STILLPOINT_URCU_FLAVOURS_] __attribute__((tls_model("initial-exec")));
/* In a worker: itself. */
HIDDEN extern __thread struct call_rcu_data *self __attribute__((tls_model("initial-exec")));

static inline struct flavour *locked(int number)
{
    struct flavour *flavour = &flavours[number];
    pthread_mutex_lock(&flavour->lock);
    return flavour;
}

static inline void unlock(struct flavour *flavour)
{
    pthread_mutex_unlock(&flavour->lock);
}

HIDDEN void push(struct call_rcu_data *data, struct rcu_head *head);

/* Everything that is on the stack, oldest first. */
HIDDEN struct rcu_head *take(struct call_rcu_data *data);

/* Under the lock. */
HIDDEN void set_running(struct flavour *flavour, struct call_rcu_data *data, bool running);

/* Under the lock: the worker of threads that have chosen none, started if need be. */
HIDDEN struct call_rcu_data *default_worker(struct flavour *flavour, int number);

/* Under the lock: workers that delay a batch look again. */
static inline void end_delays(struct flavour *flavour)
{
    __atomic_store_n(&flavour->delays_ended, (int)(1u + (unsigned)flavour->delays_ended), __ATOMIC_RELAXED);
    wake_all(&flavour->delays_ended);
}

/* The function of a barrier's markers. */
HIDDEN void barrier_callback(struct rcu_head *head);

#endif
