/*
 * The read pair under one of liburcu's names, as a program would have it: inlined or by a call, as the compiler and the library say. Prints
 * nanoseconds a pair, the least of five times. One process a measurement: `run` compares them in turn.
 */
#include "../../bench/measure.h"

#if defined(FLAVOUR_BP)
#include <urcu-bp.h>
#elif defined(FLAVOUR_QSBR)
#include <urcu-qsbr.h>
#else
#include <urcu.h>
#endif

#define PAIRS 10000000L

int main(void)
{
    static int value, *shared = &value;
    double least = 1e9;
    rcu_register_thread();
    for (int time = 0; time < 5; time++) {
        double start = now();
        for (long n = 0; n < PAIRS; n++) {
            rcu_read_lock();
            __asm__ volatile("" ::"r"(rcu_dereference(shared)) : "memory");
            rcu_read_unlock();
        }
        double each = (now() - start) / PAIRS;
        least = each < least ? each : least;
    }
    rcu_unregister_thread();
    printf("%.3f\n", least);
    return 0;
}
