/*
 * liburcu's API: what the functions of its <urcu/futex.h>, inlined into programs, call where a kernel has no futex. There is none: so they fail as
 * the first try has. In the library, and in each instead of liburcu's. A file of its own, because liburcu's static libraries have them too.
 * SPDX: MIT OR Apache-2.0
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int compat_futex_noasync(int32_t *word, int operation, int32_t value, const struct timespec *timeout, int32_t *word2, int32_t value3)
{
    return (int)syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

EXPORTED int compat_futex_async(int32_t *word, int operation, int32_t value, const struct timespec *timeout, int32_t *word2, int32_t value3)
{
    return (int)syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}
