/* What the C tests have in common. */
#ifndef STILLPOINT_TESTS_CHECK_H
#define STILLPOINT_TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/stillpoint.h>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
            fflush(stdout);                                                                       \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

#endif
