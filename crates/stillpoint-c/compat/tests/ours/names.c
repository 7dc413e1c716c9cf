/* Names that programs with liburcu's readers inlined use, and what comes along with urcu.h there. */
#define _LGPL_SOURCE
#include <urcu.h>

#include <urcu/urcu-mb.h>
#include <urcu/urcu-qsbr.h>
#include <urcu/urcu-bp.h>

#include <urcu/static/pointer.h>
#include <urcu/static/urcu-memb.h>

/* <unistd.h> is there, which nothing before this includes by itself. */
static long page_size(void)
{
    return sysconf(_SC_PAGESIZE);
}

#include "../programs/common.h"

#if __has_include(<urcu/list.h>)
static void comes_along(void)
{
    CDS_LIST_HEAD(head);
    CHECK(cds_list_empty(&head));
    int32_t word = 1;
    errno = 0;
    CHECK(futex_async(&word, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EWOULDBLOCK);
    CHECK(compat_futex_async(&word, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EWOULDBLOCK);
    CHECK(compat_futex_noasync(&word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
}
#else
static void comes_along(void)
{
}
#endif

static void pointers(void)
{
    int one = 1, two = 2;
    int *shared = NULL;
    void **place = (void **)&shared;
    CHECK(rcu_set_pointer_sym(place, &one) == &one && rcu_dereference_sym(shared) == &one);
    CHECK(rcu_xchg_pointer_sym(place, &two) == &one && shared == &two);
    CHECK(rcu_cmpxchg_pointer_sym(place, &one, NULL) == &two && shared == &two);
    CHECK(rcu_cmpxchg_pointer_sym(place, &two, &one) == &two && shared == &one);
    CHECK(urcu_bp_set_pointer_sym(place, &two) == &two && urcu_bp_dereference_sym(shared) == &two);
    _rcu_set_pointer(&shared, &one);
    CHECK(_rcu_dereference(shared) == &one);
    _rcu_assign_pointer(shared, &two);
    CHECK(_rcu_xchg_pointer(&shared, &one) == &two);
    CHECK(_rcu_cmpxchg_pointer(&shared, &one, &two) == &one);
    CHECK(cmm_ptr_eq(shared, &two) && !cmm_ptr_eq(shared, &one));
}

#define SECTION(flavour)                         \
    do {                                         \
        _urcu_##flavour##_read_lock();           \
        CHECK(urcu_##flavour##_read_ongoing());  \
        _rcu_read_lock_##flavour();              \
        _rcu_read_unlock_##flavour();            \
        CHECK(_urcu_##flavour##_read_ongoing()); \
        _urcu_##flavour##_read_unlock();         \
        CHECK(!_rcu_read_ongoing_##flavour());   \
    } while (0)

static void sections(void)
{
    SECTION(memb);
    SECTION(mb);
    SECTION(bp);
    urcu_qsbr_register_thread();
    _urcu_qsbr_read_lock();
    _urcu_qsbr_quiescent_state();
    _urcu_qsbr_read_unlock();
    _urcu_qsbr_thread_offline();
    CHECK(!_urcu_qsbr_read_ongoing());
    _urcu_qsbr_thread_online();
    CHECK(_urcu_qsbr_read_ongoing());
    urcu_qsbr_unregister_thread();
}

/* The short names mean the flavour whose map was included last. */
#include <urcu/map/clear.h>
#ifdef _rcu_read_lock
#error "clear.h does not clear"
#endif
#include <urcu/map/urcu-memb.h>
static void mapped(void)
{
    _rcu_read_lock();
    CHECK(_rcu_read_ongoing() && urcu_memb_read_ongoing() && !urcu_bp_read_ongoing());
    _rcu_read_unlock();
    _rcu_quiescent_state();
}

#include <urcu/map/clear.h>
#include <urcu/map/urcu-bp.h>
static void mapped_anew(void)
{
    _rcu_read_lock();
    CHECK(rcu_read_ongoing() && urcu_bp_read_ongoing() && !urcu_memb_read_ongoing());
    _rcu_read_unlock();
}

int main(void)
{
    CHECK(page_size() > 0);
    comes_along();
    pointers();
    sections();
    mapped();
    mapped_anew();
    puts("all names are there");
    return 0;
}
