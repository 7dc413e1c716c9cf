/* What the measurements have in common. */
#ifndef STILLPOINT_BENCH_MEASURE_H
#define STILLPOINT_BENCH_MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LARGEST = 101 };

/* Returns the time in nanoseconds. */
static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *times, int rounds)
{
    qsort(times, (size_t)rounds, sizeof *times, ascending);
    return times[rounds / 2];
}

/* Returns the number of rounds that the first argument says. */
static inline int rounds_of(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    if (rounds < 1 || rounds > LARGEST) {
        fprintf(stderr, "%s: ROUNDS is 1 to %d\n", argv[0], LARGEST);
        exit(2);
    }
    return rounds;
}

#endif
