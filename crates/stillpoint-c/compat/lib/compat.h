/*
 * A library in place of one of liburcu's: the functions that it exports, by liburcu's names, over libstillpoint. Each flavour's file includes
 * this with its name and number. SPDX: MIT OR Apache-2.0
 *
 * What is not here: the data that liburcu's inlined readers use (urcu_*_gp, urcu_*_reader, urcu_*_has_sys_membarrier). A program that was
 * compiled with _LGPL_SOURCE needs these, and so is refused by the loader, in place of reading unseen by our grace periods.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <urcu/flavor.h>

#include <urcu/stillpoint/runtime.h>

#include "../runtime/structure.h"

#define PUBLIC __attribute__((visibility("default")))
#define STILLPOINT_FLAVOUR_API_ PUBLIC
#include <urcu/stillpoint/flavour.h>

/* ---- What each of liburcu's libraries has besides ---- */

/* Operations on pointers for those who do not inline them. That which sets gives back the value. */
PUBLIC void *rcu_dereference_sym(void *p)
{
    return p;
}

PUBLIC void *rcu_set_pointer_sym(void **p, void *v)
{
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
    return v;
}

PUBLIC void *rcu_xchg_pointer_sym(void **p, void *v)
{
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

PUBLIC void *rcu_cmpxchg_pointer_sym(void **p, void *old, void *v)
{
    (void)__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}

/* What the functions of <urcu/futex.h>, inlined into programs, fall back on where a kernel has no futex: there is none. */
PUBLIC int compat_futex_noasync(int32_t *word, int operation, int32_t value, const struct timespec *timeout, int32_t *word2, int32_t value3)
{
    return (int)syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

PUBLIC int compat_futex_async(int32_t *word, int operation, int32_t value, const struct timespec *timeout, int32_t *word2, int32_t value3)
{
    return (int)syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

/*
 * With LD_PRELOAD liburcu's own library of this flavour may be loaded as well, under another file name than this one's (liburcu.so.8 for
 * liburcu-memb.so.8). Then a program with inlined readers would find its data there, and be unprotected.
 */
static void refuse_company(const char *data)
{
    if (dlsym(RTLD_DEFAULT, data)) {
        fprintf(stderr, "stillpoint: %s is there, so liburcu's own library of this flavour is loaded beside Stillpoint's: use LD_LIBRARY_PATH "
                        "with the directory of Stillpoint's in place of LD_PRELOAD\n", data);
        abort();
    }
}
