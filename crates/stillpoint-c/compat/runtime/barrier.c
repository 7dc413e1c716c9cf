/* liburcu's API: rcu_barrier(). It queues a head on each worker. SPDX: MIT OR Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "workers.h"

#include <unistd.h>

/* How rcu_barrier() finds its way back from a head. */
struct marker {
    struct rcu_head head;
    struct barrier_wait *wait;
};

/* On the heap, not on the stack of the thread that waits: in the child of a fork that is another's. */
struct barrier_wait {
    size_t left;
    int flavour;
    struct marker markers[];
};

void barrier_callback(struct rcu_head *head)
{
    struct barrier_wait *wait = ((struct marker *)head)->wait;
    struct flavour *flavour = locked(wait->flavour);
    wait->left--;
    pthread_cond_broadcast(&flavour->changed);
    unlock(flavour);
}

void stillpoint_urcu_barrier(int number)
{
    if (self && self->flavour == number) {
        die(number, "rcu_barrier() inside a callback would wait for itself");
    }
    struct reader_state state = begin_wait(number);
    if (stillpoint_urcu_read_ongoing(number)) {
        static const char text[] = "stillpoint: rcu_barrier() inside a read-side critical section waits for nothing: leave the section first\n";
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        end_wait(state);
        return;
    }
    struct flavour *flavour = locked(number);
    size_t all = 0;
    for (struct call_rcu_data *data = flavour->workers; data; data = data->next) {
        all++;
    }
    struct barrier_wait *wait = malloc(sizeof *wait + all * sizeof *wait->markers);
    if (!wait) {
        die(number, "rcu_barrier(): no memory");
    }
    *wait = (struct barrier_wait){.left = all, .flavour = number};
    struct marker *marker = wait->markers;
    for (struct call_rcu_data *data = flavour->workers; data; data = data->next, marker++) {
        *marker = (struct marker){.head.func = barrier_callback, .wait = wait};
        push(data, &marker->head);
    }
    flavour->barriers++;
    end_delays(flavour);
    while (wait->left > 0) {
        pthread_cond_wait(&flavour->changed, &flavour->lock);
    }
    flavour->barriers--;
    unlock(flavour);
    free(wait);
    end_wait(state);
}
