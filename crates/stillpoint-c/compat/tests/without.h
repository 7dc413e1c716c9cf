/* What the programs use of liburcu's atomics and macros, where liburcu-dev is not installed. */
#ifndef WITHOUT_H
#define WITHOUT_H

#include <stddef.h>

#define uatomic_read(at) __atomic_load_n(at, __ATOMIC_RELAXED)
#define uatomic_set(at, value) __atomic_store_n(at, value, __ATOMIC_RELAXED)
#define uatomic_inc(at) ((void)__atomic_fetch_add(at, 1, __ATOMIC_RELAXED))
#define caa_container_of(at, type, member) ((type *)((char *)(at) - offsetof(type, member)))

#endif
