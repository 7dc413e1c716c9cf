/* What the C tests have in common. */
#ifndef STILLPOINT_TESTS_CHECK_H
#define STILLPOINT_TESTS_CHECK_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/stillpoint.h>
#include <sys/wait.h>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
            fflush(stdout);                                                                       \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

static inline void start_all(pthread_t *threads, int count, void *(*run)(void *), void *argument)
{
    for (int n = 0; n < count; n++) {
        CHECK(pthread_create(&threads[n], NULL, run, argument) == 0);
    }
}

static inline void join_all(const pthread_t *threads, int count)
{
    for (int n = 0; n < count; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
    }
}

/* Runs a thread to its end. */
static inline void run_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    start_all(&thread, 1, run, argument);
    join_all(&thread, 1);
}

/* A sanitizer's own locks may be held by a thread that the child does not have. An emulator (-DNO_FORK) may have the same fault. */
#ifdef __SANITIZE_ADDRESS__
#define NO_FORK
#endif

/* Returns the status of a child that has ended. */
static inline int end_of(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

#endif
