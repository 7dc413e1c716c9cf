/* liburcu's API: the hooks around fork, and what a child has of the workers. call.c has what they rely on. SPDX: MIT OR Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "workers.h"

#include <stdlib.h>

/*
 * Held by the thread that forks. One at a time, whatever the flavours, because the functions of the hash table that call_rcu_before_fork() calls count
 * with no lock. A thread that waits for it holds nothing, and is not waited for.
 */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool taken;
} fork_lock = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
/* For how many flavours this thread holds it. */
static __thread unsigned fork_depth;

/* Between stillpoint_urcu_before_fork() and its partner: this thread has the lock. */
static __thread bool forks[STILLPOINT_URCU_FLAVOURS_];

static bool others_run(const struct flavour *flavour)
{
    for (const struct call_rcu_data *data = flavour->workers; data; data = data->next) {
        if (data->running && data != self) {
            return true;
        }
    }
    return false;
}

/* In a callback, under no lock: whether its worker counts as running. What waits for the fork lock must not be waited for. */
static void count_self(bool running)
{
    if (self) {
        struct flavour *flavour = locked(self->flavour);
        set_running(flavour, self, running);
        unlock(flavour);
    }
}

static void lock_forks(void)
{
    if (fork_depth++ > 0) {
        return;
    }
    count_self(false);
    pthread_mutex_lock(&fork_lock.lock);
    while (fork_lock.taken) {
        pthread_cond_wait(&fork_lock.ended, &fork_lock.lock);
    }
    fork_lock.taken = true;
    pthread_mutex_unlock(&fork_lock.lock);
    count_self(true);
}

static void unlock_forks(void)
{
    if (--fork_depth == 0) {
        pthread_mutex_lock(&fork_lock.lock);
        fork_lock.taken = false;
        pthread_cond_signal(&fork_lock.ended);
        pthread_mutex_unlock(&fork_lock.lock);
    }
}

void stillpoint_urcu_before_fork(int number)
{
    if (forks[number]) {
        warn_misuse(number, "call_rcu_before_fork() for the second time, without its partner between, does nothing");
        return;
    }
    /* The callback that is waited for below may itself wait for readers. */
    struct reader_state state = begin_wait(number);
    lock_forks();
    struct flavour *flavour = locked(number);
    struct urcu_atfork *atfork = flavour->forking = flavour->atfork;
    unlock(flavour);
    /* Without the lock: it waits for a thread that may be about to take it. */
    if (atfork) {
        atfork->before_fork(atfork->priv);
    }
    pthread_mutex_lock(&flavour->lock);
    __atomic_store_n(&flavour->paused, true, __ATOMIC_RELAXED);
    while (others_run(flavour)) {
        pthread_cond_wait(&flavour->changed, &flavour->lock);
    }
    forks[number] = true;
    end_wait(state);
}

/* The partners' way in. NULL where there is nothing to be undone: programs call them in every child, and what they want is so already. */
static struct flavour *end_fork(int number, const char *function)
{
    if (!forks[number]) {
        warn_misuse(number, "%s() without call_rcu_before_fork() on the same thread does nothing", function);
        return NULL;
    }
    forks[number] = false;
    return &flavours[number];
}

void stillpoint_urcu_after_fork_parent(int number)
{
    struct flavour *flavour = end_fork(number, "call_rcu_after_fork_parent");
    if (!flavour) {
        return;
    }
    struct urcu_atfork *atfork = flavour->forking;
    __atomic_store_n(&flavour->paused, false, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&flavour->changed);
    unlock(flavour);
    if (atfork) {
        atfork->after_fork_parent(atfork->priv);
    }
    unlock_forks();
}

/* All workers but the calling thread are gone. What they had, oldest first; but not the markers of threads that have vanished too. */
static struct rcu_head *adopt_callbacks(struct flavour *flavour)
{
    struct rcu_head *first = NULL, **last = &first;
    struct call_rcu_data *mine = NULL;
    for (struct call_rcu_data *data = flavour->workers, *next; data; data = next) {
        next = data->next;
        if (data == self) {
            mine = data;
            continue;
        }
        struct rcu_head *had[] = {data->batch, take(data)};
        for (int n = 0; n < 2; n++) {
            for (struct rcu_head *head = had[n], *after; head; head = after) {
                after = head->next;
                if (head->func != barrier_callback) {
                    head->next = NULL;
                    *last = head;
                    last = &head->next;
                }
            }
        }
        free(data);
    }
    if (mine) {
        mine->next = NULL;
        mine->stop = false;
    }
    flavour->workers = mine;
    return first;
}

/* What there is of a flavour in the child, besides its workers. Other threads' waits are over, whatever they had done to the condition. */
static void reinit_flavour(int number)
{
    struct flavour *flavour = &flavours[number];
    pthread_cond_init(&flavour->changed, NULL);
    flavour->paused = false;
    flavour->barriers = 0;
    if (flavour->default_worker != self) {
        flavour->default_worker = NULL;
    }
    for (long cpu = 0; flavour->of_cpu && cpu < flavour->processors; cpu++) {
        if (flavour->of_cpu[cpu] != self) {
            flavour->of_cpu[cpu] = NULL;
        }
    }
    if (of_thread[number] != self) {
        of_thread[number] = NULL;
    }
}

void stillpoint_urcu_after_fork_child(int number)
{
    struct flavour *flavour = end_fork(number, "call_rcu_after_fork_child");
    if (!flavour) {
        return;
    }
    struct urcu_atfork *atfork = flavour->forking;
    reinit_flavour(number);
    struct rcu_head *pending = adopt_callbacks(flavour);
    if (pending) {
        struct call_rcu_data *data = default_worker(flavour, number);
        for (struct rcu_head *next; pending; pending = next) {
            next = pending->next;
            push(data, pending);
        }
    }
    unlock(flavour);
    if (atfork) {
        atfork->after_fork_child(atfork->priv);
    }
    unlock_forks();
}

void stillpoint_urcu_register_atfork(int number, struct urcu_atfork *atfork)
{
    struct flavour *flavour = locked(number);
    if (flavour->atfork_users++ == 0) {
        flavour->atfork = atfork;
    }
    unlock(flavour);
}

void stillpoint_urcu_unregister_atfork(int number, struct urcu_atfork *atfork)
{
    struct flavour *flavour = locked(number);
    (void)atfork;
    if (flavour->atfork_users > 0 && --flavour->atfork_users == 0) {
        flavour->atfork = NULL;
    }
    unlock(flavour);
}

/* In the child of every fork. Between a program's own calls of the three it does nothing; else what waited is the parent's. */
static void reset_in_child(void)
{
    pthread_mutex_init(&fork_lock.lock, NULL);
    pthread_cond_init(&fork_lock.ended, NULL);
    fork_lock.taken = fork_depth > 0;
    for (int number = 0; number < STILLPOINT_URCU_FLAVOURS_; number++) {
        struct flavour *flavour = &flavours[number];
        if (forks[number]) {
            continue;
        }
        pthread_mutex_init(&flavour->lock, NULL);
        reinit_flavour(number);
        flavour->workers = self && self->flavour == number ? self : NULL;
        if (flavour->workers) {
            self->next = NULL;
            self->stop = false;
        }
    }
    defer_reset_in_child();
}

/*
 * Early, so that these come before a program's own fork handlers in the child (which are called in the order of their registration): first the
 * library's, which making a domain registers, then the one above, then those that call the three.
 */
__attribute__((constructor)) static void prepare(void)
{
    (void)stillpoint_urcu_domain(STILLPOINT_URCU_MEMB_);
    (void)pthread_atfork(NULL, NULL, reset_in_child);
}
