/* Threads that wait in a destructor of a POSIX key, or go offline and online there, and read afterwards: they stay registered. */
#include <urcu-qsbr.h>
#include <urcu-call-rcu.h>

#include "common.h"

static pthread_key_t key;
static struct rcu_head head;
static int called;

static void note(struct rcu_head *unused)
{
    (void)unused;
    uatomic_inc(&called);
}

static void goes_off_and_on(void)
{
    rcu_thread_offline();
    CHECK(!rcu_read_ongoing());
    rcu_thread_online();
}

static void (*const ways[])(void) = {goes_off_and_on, rcu_barrier, synchronize_rcu};

static void reads_after(void *way)
{
    (*(void (*const *)(void))way)();
    CHECK(rcu_read_ongoing());
    rcu_read_lock();
    call_rcu(&head, note);
    usleep(20000);
    CHECK(uatomic_read(&called) == 0);
    rcu_read_unlock();
    rcu_unregister_thread();
}

static void *ends(void *way)
{
    rcu_register_thread();
    CHECK(pthread_setspecific(key, way) == 0);
    return NULL;
}

int main(void)
{
    /* First, so that what the library does at a thread's end comes before the key's destructor. */
    rcu_register_thread();
    CHECK(pthread_key_create(&key, reads_after) == 0);
    rcu_thread_offline();
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        join(start(ends, (void *)&ways[way]));
        rcu_barrier();
        CHECK(uatomic_read(&called) == 1);
        uatomic_set(&called, 0);
        printf("way %u\n", way);
    }
    rcu_unregister_thread();
    return 0;
}
