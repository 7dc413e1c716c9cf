/* Registration thread by thread, in the mb flavour under its long names: hundreds of threads, some of which register more than once in turn. */
#include <urcu/urcu-mb.h>

#include "common.h"

static int *shared;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static long updates;

static void *visit(void *of)
{
    long number = (long)of;
    for (int time = 0; time < 2; time++) {
        urcu_mb_register_thread();
        for (int n = 0; n < 50; n++) {
            urcu_mb_read_lock();
            int *seen = rcu_dereference(shared);
            CHECK(*seen >= 0);
            urcu_mb_read_unlock();
        }
        if (number % 4 == time) {
            int *made = allocate(sizeof *made);
            *made = (int)number;
            pthread_mutex_lock(&turn);
            int *old = rcu_xchg_pointer(&shared, made);
            updates++;
            pthread_mutex_unlock(&turn);
            urcu_mb_synchronize_rcu();
            *old = -1;
            free(old);
        }
        urcu_mb_quiescent_state();
        urcu_mb_thread_offline();
        urcu_mb_thread_online();
        urcu_mb_unregister_thread();
    }
    return NULL;
}

int main(void)
{
    shared = allocate(sizeof *shared);
    *shared = 0;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[16];
        for (long n = 0; n < 16; n++) {
            threads[n] = start(visit, (void *)n);
        }
        for (int n = 0; n < 16; n++) {
            join(threads[n]);
        }
    }
    printf("%ld updates\n", updates);
    free(shared);
    return 0;
}
