/* What the C tests have in common. */
#ifndef STILLPOINT_TESTS_CHECK_H
#define STILLPOINT_TESTS_CHECK_H

#include <errno.h>
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

/* Returns the status of a child that has ended. */
static inline int end_of(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

#endif
