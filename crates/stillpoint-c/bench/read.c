/*
 * The read pair, inlined: Stillpoint's beside liburcu's memb flavour, in one program, in turn, the median of the rounds.
 *
 *   make bench && target/release/stillpoint-c/bench/read [ROUNDS]
 */
#define _GNU_SOURCE
#define _LGPL_SOURCE
#include "measure.h"

#include <stillpoint/stillpoint.h>
#include <urcu/urcu-memb.h>

enum { PAIRS = 20000000 };

static long value = 1;
static long *shared = &value;
static volatile long sink;

/* Each finds an object by a pointer and reads it, as every reader does. */
#define MEASURE(name, lock, unlock)                                 \
    static __attribute__((noinline)) double name(void)              \
    {                                                               \
        long sum = 0;                                               \
        double start = now();                                       \
        for (long n = 0; n < PAIRS; n++) {                          \
            lock;                                                   \
            sum += *__atomic_load_n(&shared, __ATOMIC_CONSUME);     \
            unlock;                                                 \
        }                                                           \
        double end = now();                                         \
        sink = sum;                                                 \
        return (end - start) / PAIRS;                               \
    }

MEASURE(stillpoint, stillpoint_read_lock(), stillpoint_read_unlock())
MEASURE(stillpoint_trace, stillpoint_trace_read_lock(), stillpoint_trace_read_unlock())
MEASURE(stillpoint_qsbr, stillpoint_qsbr_read_lock(), stillpoint_qsbr_read_unlock())
MEASURE(stillpoint_domain, stillpoint_domain_read_lock(NULL), stillpoint_domain_read_unlock(NULL))
static struct stillpoint_domain *own;
static struct stillpoint_domain_reader reader;
MEASURE(stillpoint_own, stillpoint_domain_read_lock(own), stillpoint_domain_read_unlock(own))
MEASURE(stillpoint_reader, stillpoint_domain_reader_lock(&reader), stillpoint_domain_reader_unlock(&reader))
MEASURE(liburcu_memb, urcu_memb_read_lock(), urcu_memb_read_unlock())
MEASURE(nothing, (void)0, (void)0)

static const struct subject {
    const char *name;
    double (*measure)(void);
} subjects[] = {
    {"stillpoint", stillpoint},
    {"stillpoint-trace", stillpoint_trace},
    {"stillpoint-qsbr", stillpoint_qsbr},
    {"stillpoint-domain (a call)", stillpoint_domain},
    {"liburcu-memb", liburcu_memb},
    {"a private domain, a call", stillpoint_own},
    {"a private domain, inlined", stillpoint_reader},
    {"limit", nothing},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

int main(int argc, char **argv)
{
    static double times[SUBJECTS][LARGEST];
    int rounds = rounds_of(argc, argv);
    urcu_memb_register_thread();
    stillpoint_qsbr_register();
    own = stillpoint_domain_new();
    if (!own || stillpoint_domain_reader_init(own, &reader) != 0) {
        fputs("read: no domain\n", stderr);
        return 1;
    }
    for (int round = 0; round < rounds; round++) {
        for (int n = 0; n < SUBJECTS; n++) {
            times[n][round] = subjects[n].measure();
        }
    }
    for (int n = 0; n < SUBJECTS; n++) {
        printf("%-30s %6.3f ns a pair\n", subjects[n].name, median(times[n], rounds));
    }
    printf("stillpoint / liburcu-memb      %6.3f\n", times[0][rounds / 2] / times[4][rounds / 2]);
    stillpoint_qsbr_unregister();
    stillpoint_domain_destroy(own);
    urcu_memb_unregister_thread();
    return 0;
}
