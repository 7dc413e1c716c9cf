/* Programs that start themselves again with a variable in the environment, which the library looks at when it is loaded. */
#ifndef AGAIN_H
#define AGAIN_H

#include "../programs/common.h"

static inline void start_again_with(const char *variable, const char *value, char **arguments)
{
    if (getenv(variable) == NULL) {
        CHECK(setenv(variable, value, 1) == 0);
        execv("/proc/self/exe", arguments);
        CHECK(!"started again");
    }
}

#endif
