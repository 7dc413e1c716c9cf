/*
 * The kernel's names for the RCU functions, for porting kernel code. SPDX: MIT OR Apache-2.0
 *
 * Differences from the kernel:
 *  - Every thread may read without registering.
 *  - rcu_read_unlock() without a lock does nothing (debug builds report it).
 *  - A wait inside one's own section, where the kernel would hang, ends the process with a message: a caller that went on would free memory
 *    that it still uses. call_rcu() with a queued head does so, too. The native functions return -EDEADLK and -EBUSY.
 *  - kvfree_rcu() and kfree_rcu() free blocks of malloc() and return 0. With one argument, -ENOMEM in a section or callback if memory is
 *    short; with two, -EINVAL if the head lies beyond the block's first 4,096 bytes.
 *  - struct rcu_head is a macro for struct stillpoint_head (four words).
 *  - A reader leaves an srcu_struct on the thread that entered it; one that cannot uses stillpoint_domain_guard().
 */
#ifndef STILLPOINT_RCUPDATE_H
#define STILLPOINT_RCUPDATE_H

#include <stillpoint/stillpoint.h>

#ifdef __cplusplus
extern "C++" {
#endif

#define rcu_head stillpoint_head
#define callback_head stillpoint_head
typedef stillpoint_function rcu_callback_t;

/* A head needs no initialisation. */
STILLPOINT_INLINE_ void init_rcu_head(struct rcu_head *head)
{
    (void)head;
}

#define destroy_rcu_head init_rcu_head
#define init_rcu_head_on_stack init_rcu_head
#define destroy_rcu_head_on_stack init_rcu_head

/* ---- Pointers ---- */

#ifndef __rcu
#define __rcu
#endif

/* Casts the value to the pointer's type. */
#ifdef __cplusplus
#define STILLPOINT_AS_(pointer, value) static_cast<__typeof__(pointer)>(value)
#else
#define STILLPOINT_AS_(pointer, value) ((__typeof__(pointer))(value))
#endif

#define RCU_INITIALIZER(value) (value)
#define rcu_dereference(pointer) __atomic_load_n(&(pointer), __ATOMIC_CONSUME)
#define rcu_dereference_raw(pointer) rcu_dereference(pointer)
#define rcu_dereference_check(pointer, condition) ((void)(condition), rcu_dereference(pointer))
#define rcu_dereference_protected(pointer, condition) ((void)(condition), __atomic_load_n(&(pointer), __ATOMIC_RELAXED))
#define rcu_access_pointer(pointer) __atomic_load_n(&(pointer), __ATOMIC_RELAXED)
#define rcu_pointer_handoff(pointer) (pointer)
#define rcu_assign_pointer(pointer, value) __atomic_store_n(&(pointer), STILLPOINT_AS_(pointer, value), __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(pointer, value) __atomic_store_n(&(pointer), STILLPOINT_AS_(pointer, value), __ATOMIC_RELAXED)
/* There is only one updater; the exchange merely avoids a temporary. */
#define rcu_replace_pointer(pointer, value, condition) \
    ((void)(condition), __atomic_exchange_n(&(pointer), STILLPOINT_AS_(pointer, value), __ATOMIC_ACQ_REL))
#define unrcu_pointer(pointer) (pointer)

/* ---- Readers ---- */

STILLPOINT_INLINE_ __attribute__((always_inline)) void rcu_read_lock(void)
{
    stillpoint_read_lock();
}

STILLPOINT_INLINE_ __attribute__((always_inline)) void rcu_read_unlock(void)
{
    (void)stillpoint_read_unlock();
}

#define rcu_read_lock_held stillpoint_read_lock_held
#define rcu_read_lock_any_held stillpoint_read_lock_held

/* ---- Grace periods ---- */

/* Aborts if the call was refused. */
STILLPOINT_INLINE_ void stillpoint_done_(int outcome, const char *what)
{
    if (outcome != 0) {
        stillpoint_abort(outcome, what);
    }
}

STILLPOINT_INLINE_ void synchronize_rcu(void)
{
    stillpoint_done_(stillpoint_synchronize(), "synchronize_rcu()");
}

STILLPOINT_INLINE_ void synchronize_rcu_expedited(void)
{
    stillpoint_done_(stillpoint_synchronize_expedited(), "synchronize_rcu_expedited()");
}

#define synchronize_net synchronize_rcu
#define get_state_synchronize_rcu stillpoint_get_state
#define start_poll_synchronize_rcu stillpoint_start_poll
#define start_poll_synchronize_rcu_expedited stillpoint_start_poll
#define poll_state_synchronize_rcu stillpoint_poll

STILLPOINT_INLINE_ void cond_synchronize_rcu(stillpoint_cookie cookie)
{
    stillpoint_done_(stillpoint_cond_synchronize(cookie), "cond_synchronize_rcu()");
}

STILLPOINT_INLINE_ void cond_synchronize_rcu_expedited(stillpoint_cookie cookie)
{
    stillpoint_done_(stillpoint_domain_cond_synchronize_expedited(STILLPOINT_NULL_, cookie), "cond_synchronize_rcu_expedited()");
}

STILLPOINT_INLINE_ void call_rcu(struct rcu_head *head, rcu_callback_t function)
{
    stillpoint_done_(stillpoint_call(head, function), "call_rcu()");
}

#define call_rcu_hurry call_rcu

STILLPOINT_INLINE_ void rcu_barrier(void)
{
    stillpoint_done_(stillpoint_barrier(), "rcu_barrier()");
}

#define kvfree_rcu(...) stillpoint_kvfree(__VA_ARGS__)
#define kfree_rcu(...) stillpoint_kvfree(__VA_ARGS__)
#define kvfree_rcu_mightsleep(block) stillpoint_kvfree(block)
#define kfree_rcu_mightsleep(block) stillpoint_kvfree(block)

STILLPOINT_INLINE_ void kvfree_rcu_barrier(void)
{
    stillpoint_done_(stillpoint_kvfree_barrier(), "kvfree_rcu_barrier()");
}

/* ---- Readers that sleep ---- */

#define rcu_read_lock_trace stillpoint_trace_read_lock

STILLPOINT_INLINE_ __attribute__((always_inline)) void rcu_read_unlock_trace(void)
{
    (void)stillpoint_trace_read_unlock();
}

#define rcu_read_lock_trace_held stillpoint_trace_read_lock_held

STILLPOINT_INLINE_ void synchronize_rcu_tasks_trace(void)
{
    stillpoint_done_(stillpoint_domain_synchronize(stillpoint_trace_global()), "synchronize_rcu_tasks_trace()");
}

STILLPOINT_INLINE_ void call_rcu_tasks_trace(struct rcu_head *head, rcu_callback_t function)
{
    stillpoint_done_(stillpoint_domain_call(stillpoint_trace_global(), head, function), "call_rcu_tasks_trace()");
}

STILLPOINT_INLINE_ void rcu_barrier_tasks_trace(void)
{
    stillpoint_done_(stillpoint_domain_barrier(stillpoint_trace_global()), "rcu_barrier_tasks_trace()");
}

/* ---- SRCU: separate domains ---- */

struct srcu_struct {
    struct stillpoint_domain *domain;
};

#define DEFINE_SRCU(name) struct srcu_struct name = {STILLPOINT_NULL_}
#define DEFINE_STATIC_SRCU(name) static struct srcu_struct name = {STILLPOINT_NULL_}

/* Creates the domain of a statically defined srcu_struct at its first use. */
STILLPOINT_INLINE_ struct stillpoint_domain *stillpoint_srcu_(struct srcu_struct *srcu)
{
    struct stillpoint_domain *domain = __atomic_load_n(&srcu->domain, __ATOMIC_ACQUIRE);
    if (domain == STILLPOINT_NULL_) {
        domain = stillpoint_domain_get_or_make(&srcu->domain);
    }
    if (domain == STILLPOINT_NULL_) {
        /* NULL would stand for the global domain, which others use. */
        stillpoint_abort(-12, "the first use of an srcu_struct"); /* -ENOMEM */
    }
    return domain;
}

STILLPOINT_INLINE_ int init_srcu_struct(struct srcu_struct *srcu)
{
    srcu->domain = stillpoint_domain_new();
    return srcu->domain != STILLPOINT_NULL_ ? 0 : -12; /* -ENOMEM */
}

/* There must be no readers or waiters, now or later. */
STILLPOINT_INLINE_ void cleanup_srcu_struct(struct srcu_struct *srcu)
{
    if (srcu->domain != STILLPOINT_NULL_ && stillpoint_domain_destroy(srcu->domain) == 0) {
        srcu->domain = STILLPOINT_NULL_;
    }
}

STILLPOINT_INLINE_ int srcu_read_lock(struct srcu_struct *srcu)
{
    stillpoint_domain_read_lock(stillpoint_srcu_(srcu));
    return 0;
}

STILLPOINT_INLINE_ void srcu_read_unlock(struct srcu_struct *srcu, int index)
{
    (void)index;
    (void)stillpoint_domain_read_unlock(stillpoint_srcu_(srcu));
}

STILLPOINT_INLINE_ bool srcu_read_lock_held(struct srcu_struct *srcu)
{
    return stillpoint_domain_read_lock_held(stillpoint_srcu_(srcu));
}

#define srcu_dereference(pointer, srcu) ((void)(srcu), rcu_dereference(pointer))

STILLPOINT_INLINE_ void synchronize_srcu(struct srcu_struct *srcu)
{
    stillpoint_done_(stillpoint_domain_synchronize(stillpoint_srcu_(srcu)), "synchronize_srcu()");
}

STILLPOINT_INLINE_ void synchronize_srcu_expedited(struct srcu_struct *srcu)
{
    stillpoint_done_(stillpoint_domain_synchronize_expedited(stillpoint_srcu_(srcu)), "synchronize_srcu_expedited()");
}

STILLPOINT_INLINE_ void call_srcu(struct srcu_struct *srcu, struct rcu_head *head, rcu_callback_t function)
{
    stillpoint_done_(stillpoint_domain_call(stillpoint_srcu_(srcu), head, function), "call_srcu()");
}

STILLPOINT_INLINE_ void srcu_barrier(struct srcu_struct *srcu)
{
    stillpoint_done_(stillpoint_domain_barrier(stillpoint_srcu_(srcu)), "srcu_barrier()");
}

STILLPOINT_INLINE_ stillpoint_cookie get_state_synchronize_srcu(struct srcu_struct *srcu)
{
    return stillpoint_domain_get_state(stillpoint_srcu_(srcu));
}

STILLPOINT_INLINE_ stillpoint_cookie start_poll_synchronize_srcu(struct srcu_struct *srcu)
{
    return stillpoint_domain_start_poll(stillpoint_srcu_(srcu));
}

STILLPOINT_INLINE_ bool poll_state_synchronize_srcu(struct srcu_struct *srcu, stillpoint_cookie cookie)
{
    return stillpoint_domain_poll(stillpoint_srcu_(srcu), cookie);
}

#ifdef __cplusplus
}
#endif

#endif
