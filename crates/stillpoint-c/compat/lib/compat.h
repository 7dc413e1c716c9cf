/*
 * A library instead of one of liburcu's: the functions that it exports, by liburcu's names, over libstillpoint. Each flavour's file includes
 * this with its name and number. What all of them have besides is in ../runtime/pointer.c and futex.c. SPDX: MIT OR Apache-2.0
 *
 * What is not here: the data that liburcu's inlined readers use (urcu_*_gp, urcu_*_reader, urcu_*_has_sys_membarrier). A program that was
 * compiled with _LGPL_SOURCE needs these, and so is refused by the loader, instead of reading unseen by our grace periods.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <urcu/flavor.h>

#include <urcu/stillpoint/runtime.h>

#define PUBLIC __attribute__((visibility("default")))
#define PASTE_(flavour, name) urcu_##flavour##_##name
#define NAME(flavour, name) PASTE_(flavour, name)
#define QUOTED_(name) #name
#define QUOTED(name) QUOTED_(name)

#define STILLPOINT_FLAVOUR_API_ PUBLIC
#define STILLPOINT_FLAVOUR_(name) NAME(FLAVOUR, name)
#include <urcu/stillpoint/flavour.h>

/*
 * The flavour as a structure of functions, which unmodified programs give to the hash table (cds_lfht_new() has its address). It is data, but no
 * state of readers: who uses it calls.
 */
#define OURS(name) NAME(FLAVOUR, name)
PUBLIC const struct rcu_flavor_struct OURS(flavor) = STILLPOINT_STRUCTURE_(OURS);

/*
 * With LD_PRELOAD liburcu's own library of this flavour may be loaded as well, under another file name than this one's (liburcu.so.8 for
 * liburcu-memb.so.8). Then a program with inlined readers would find its data there, and be unprotected.
 */
__attribute__((constructor)) static void refuse_company(void)
{
    const char *data = QUOTED(OURS(gp));
    if (dlsym(RTLD_DEFAULT, data)) {
        fprintf(stderr, "stillpoint: %s is there, so liburcu's own library of this flavour is loaded beside Stillpoint's: use LD_LIBRARY_PATH "
                        "with the directory of Stillpoint's instead of LD_PRELOAD\n", data);
        abort();
    }
}
