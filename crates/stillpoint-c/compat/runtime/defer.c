/*
 * liburcu's API: defer_rcu(). SPDX: MIT OR Apache-2.0
 *
 * Each registered thread has a ring that it alone fills and that the holder of the flavour's lock empties: a barrier, or a thread that looks
 * after all of them, a little after something was put in. The lock is held while the functions are called; they must not wait for it.
 *
 * [D1] `filled` is stored by release after the entry, and [D2] loaded by acquire before the grace period starts, so that this began after the
 *      defer_rcu(). [D3] `called`, the other way around: an entry is used again when it has been read.
 * [S3] fill, fence, look at `asleep`, against [S4] set `asleep`, fence, look at the rings.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define ENTRIES 4096u

struct entry {
    void (*function)(void *);
    void *argument;
};

struct ring {
    size_t filled;
    size_t called __attribute__((aligned(64)));
    /* How far the barrier that is under way goes. */
    size_t until;
    bool orphan;
    struct ring *next;
    struct entry entries[ENTRIES];
};

struct deferrer {
    pthread_mutex_t lock;
    struct ring *rings;
    int asleep;
    bool has_thread;
};

#define DEFERRER {.lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP}
static struct deferrer deferrers[STILLPOINT_URCU_FLAVOURS_] = {DEFERRER, DEFERRER, DEFERRER, DEFERRER};
static __thread struct ring *mine[STILLPOINT_URCU_FLAVOURS_];
/* This thread has the flavour's lock: the child of a fork inside a deferred function goes on with it. */
static __thread bool holds[STILLPOINT_URCU_FLAVOURS_];
/* In a thread that looks after rings: whose. */
static __thread struct deferrer *serves;

static void lock(int flavour)
{
    if (pthread_mutex_lock(&deferrers[flavour].lock) == EDEADLK) {
        die(flavour, "a function that was given to defer_rcu() waits for such functions, and so for itself");
    }
    holds[flavour] = true;
}

static void unlock(int flavour)
{
    holds[flavour] = false;
    pthread_mutex_unlock(&deferrers[flavour].lock);
}

static bool is_empty(const struct ring *ring)
{
    return __atomic_load_n(&ring->filled, __ATOMIC_RELAXED) == ring->called;
}

/* Under the lock. */
static void call(struct ring *ring)
{
    while (ring->called != ring->until) {
        struct entry entry = ring->entries[ring->called % ENTRIES];
        __atomic_store_n(&ring->called, ring->called + 1, __ATOMIC_RELEASE); /* [D3] */
        entry.function(entry.argument);
    }
}

/* Under the lock. Whether there is anything to be waited for. */
static bool note(struct ring *ring)
{
    ring->until = __atomic_load_n(&ring->filled, __ATOMIC_ACQUIRE); /* [D2] */
    return ring->until != ring->called;
}

/* Frees the rings of threads that have unregistered. Under the lock, with all of them empty that are orphans. */
static void remove_orphans(struct deferrer *deferrer)
{
    for (struct ring **at = &deferrer->rings; *at;) {
        struct ring *ring = *at;
        if (ring->orphan && is_empty(ring)) {
            *at = ring->next;
            free(ring);
        } else {
            at = &ring->next;
        }
    }
}

static void barrier(int flavour, struct ring *only)
{
    struct deferrer *deferrer = &deferrers[flavour];
    bool due = false;
    /* First: who has the lock may be waiting for this section. */
    check_not_reading(flavour, "a wait for what defer_rcu() has been given");
    struct reader_state state = begin_wait(flavour);
    lock(flavour);
    for (struct ring *ring = deferrer->rings; ring; ring = ring->next) {
        due |= (!only || ring == only) && note(ring);
    }
    if (due) {
        stillpoint_urcu_synchronize(flavour);
        for (struct ring *ring = deferrer->rings; ring; ring = ring->next) {
            if (!only || ring == only) {
                call(ring);
            }
        }
    }
    remove_orphans(deferrer);
    unlock(flavour);
    end_wait(state);
}

static bool any(struct deferrer *deferrer)
{
    bool found = false;
    pthread_mutex_lock(&deferrer->lock);
    for (struct ring *ring = deferrer->rings; ring && !found; ring = ring->next) {
        found = !is_empty(ring);
    }
    pthread_mutex_unlock(&deferrer->lock);
    return found;
}

static void *serve(void *of)
{
    struct deferrer *deferrer = of;
    serves = deferrer;
    pthread_setname_np(pthread_self(), "defer_rcu");
    for (;;) {
        __atomic_store_n(&deferrer->asleep, 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* [S4] */
        if (!any(deferrer)) {
            while (__atomic_load_n(&deferrer->asleep, __ATOMIC_RELAXED)) {
                sleep_while(&deferrer->asleep, 1);
            }
        }
        __atomic_store_n(&deferrer->asleep, 0, __ATOMIC_RELAXED);
        /* One grace period for all that comes in this time. */
        struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
        barrier((int)(deferrer - deferrers), NULL);
    }
    return NULL;
}

/* Under the lock. 0 or an errno. */
static int ensure_thread(struct deferrer *deferrer)
{
    if (deferrer->has_thread) {
        return 0;
    }
    pthread_t thread;
    int failed = start_thread(&thread, serve, deferrer);
    if (!failed) {
        pthread_detach(thread);
        deferrer->has_thread = true;
    }
    return failed;
}

int stillpoint_urcu_defer_register(int flavour)
{
    struct deferrer *deferrer = &deferrers[flavour];
    if (mine[flavour]) {
        return 0;
    }
    void *memory;
    int failed = posix_memalign(&memory, 64, sizeof(struct ring));
    if (failed) {
        return -failed;
    }
    struct ring *ring = memset(memory, 0, offsetof(struct ring, entries));
    /* As in barrier(): who has the lock may be waiting for this thread. */
    check_not_reading(flavour, "rcu_defer_register_thread()");
    struct reader_state state = begin_wait(flavour);
    lock(flavour);
    failed = ensure_thread(deferrer);
    if (!failed) {
        ring->next = deferrer->rings;
        deferrer->rings = ring;
        mine[flavour] = ring;
    }
    unlock(flavour);
    end_wait(state);
    if (failed) {
        free(ring);
    }
    return -failed;
}

static struct ring *registered(int flavour, const char *function)
{
    if (!mine[flavour]) {
        die(flavour, "%s by a thread that is not registered: call rcu_defer_register_thread() first", function);
    }
    return mine[flavour];
}

void stillpoint_urcu_defer(int flavour, void (*function)(void *), void *argument)
{
    struct ring *ring = registered(flavour, "defer_rcu()");
    struct deferrer *deferrer = &deferrers[flavour];
    if (!function) {
        die(flavour, "defer_rcu() with a null function");
    }
    if (ring->filled - __atomic_load_n(&ring->called, __ATOMIC_ACQUIRE) == ENTRIES) { /* [D3] */
        barrier(flavour, ring);
    }
    ring->entries[ring->filled % ENTRIES] = (struct entry){function, argument};
    __atomic_store_n(&ring->filled, ring->filled + 1, __ATOMIC_RELEASE); /* [D1] */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);                             /* [S3] */
    if (__atomic_load_n(&deferrer->asleep, __ATOMIC_RELAXED) && __atomic_exchange_n(&deferrer->asleep, 0, __ATOMIC_RELAXED)) {
        wake(&deferrer->asleep);
    }
}

void stillpoint_urcu_defer_unregister(int flavour)
{
    struct ring *ring = registered(flavour, "rcu_defer_unregister_thread()");
    barrier(flavour, ring);
    /* One of its functions may have deferred another. The next barrier frees it. */
    struct reader_state state = begin_wait(flavour);
    lock(flavour);
    mine[flavour] = NULL;
    ring->orphan = true;
    remove_orphans(&deferrers[flavour]);
    unlock(flavour);
    end_wait(state);
}

void stillpoint_urcu_defer_barrier(int flavour)
{
    barrier(flavour, NULL);
}

void stillpoint_urcu_defer_barrier_thread(int flavour)
{
    barrier(flavour, registered(flavour, "rcu_defer_barrier_thread()"));
}

/* The rings of threads that have vanished, in the midst of a barrier that this thread makes: empty, for the barrier to remove. */
static void abandon_others(struct deferrer *deferrer, const struct ring *own)
{
    for (struct ring *ring = deferrer->rings; ring; ring = ring->next) {
        if (ring != own) {
            ring->called = ring->until = ring->filled;
            ring->orphan = true;
        }
    }
}

/* What the forking thread had deferred is its own in the child as well; what others had is not. */
void defer_reset_in_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    for (int flavour = 0; flavour < STILLPOINT_URCU_FLAVOURS_; flavour++) {
        struct deferrer *deferrer = &deferrers[flavour];
        deferrer->lock = fresh;
        deferrer->asleep = 0;
        deferrer->has_thread = serves == deferrer;
        if (holds[flavour]) {
            pthread_mutex_lock(&deferrer->lock);
            abandon_others(deferrer, mine[flavour]);
        } else {
            deferrer->rings = mine[flavour];
            if (deferrer->rings) {
                deferrer->rings->next = NULL;
            }
        }
        if (mine[flavour]) {
            (void)ensure_thread(deferrer);
        }
    }
}
