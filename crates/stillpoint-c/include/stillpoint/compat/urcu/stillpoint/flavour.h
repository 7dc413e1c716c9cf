/*
 * All functions of one flavour. Included once per flavour, with STILLPOINT_FLAVOUR_(name) giving the flavour's name of a function and
 * STILLPOINT_FLAVOUR_NUMBER_ its number. Inlined into programs; the compat libraries define STILLPOINT_FLAVOUR_API_ to make them symbols.
 * STILLPOINT_SUFFIXED_(name) and, for three, STILLPOINT_INFIXED_(name) add the names from before liburcu 0.11, which have a suffix instead of the
 * prefix: as functions, because no macro can define a macro. Undefines all of these. SPDX: MIT OR Apache-2.0
 *
 * They do what liburcu's do. Comments note where they do more, or define what liburcu leaves undefined.
 */
#ifndef STILLPOINT_FLAVOUR_API_
#define STILLPOINT_FLAVOUR_API_ STILLPOINT_INLINE_
#endif

#ifdef STILLPOINT_SUFFIXED_
#define STILLPOINT_OLD_(type, old, parameters, ...) STILLPOINT_INLINE_ type old parameters { __VA_ARGS__ }
#else
#define STILLPOINT_OLD_(type, old, parameters, ...)
#endif
#define STILLPOINT_BOTH_(type, name, old, parameters, ...)                 \
    STILLPOINT_FLAVOUR_API_ type name parameters { __VA_ARGS__ }           \
    STILLPOINT_OLD_(type, old, parameters, __VA_ARGS__)

#ifdef __cplusplus
extern "C++" {
#endif

/*
 * Begins a read-side critical section, or one more level of it. A thread's first section registers the thread if it has not registered: here that is
 * never an error. Inlined whether or not _LGPL_SOURCE is defined.
 */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(read_lock), STILLPOINT_SUFFIXED_(rcu_read_lock), (void),
    stillpoint_urcu_lock_(STILLPOINT_FLAVOUR_NUMBER_);)
STILLPOINT_OLD_(void, STILLPOINT_SUFFIXED_(_rcu_read_lock), (void), stillpoint_urcu_lock_(STILLPOINT_FLAVOUR_NUMBER_);)

/* Without a lock before, it does nothing, and prints a message if STILLPOINT_DEBUG is in the environment. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(read_unlock), STILLPOINT_SUFFIXED_(rcu_read_unlock), (void),
    stillpoint_urcu_unlock_(STILLPOINT_FLAVOUR_NUMBER_);)
STILLPOINT_OLD_(void, STILLPOINT_SUFFIXED_(_rcu_read_unlock), (void), stillpoint_urcu_unlock_(STILLPOINT_FLAVOUR_NUMBER_);)

/* Not 0 inside a section; for QSBR, while the thread is online. Makes no call if it is not 0; for QSBR, never. */
STILLPOINT_BOTH_(int, STILLPOINT_FLAVOUR_(read_ongoing), STILLPOINT_SUFFIXED_(rcu_read_ongoing), (void),
    return stillpoint_urcu_ongoing_(STILLPOINT_FLAVOUR_NUMBER_);)
STILLPOINT_OLD_(int, STILLPOINT_SUFFIXED_(_rcu_read_ongoing), (void), return stillpoint_urcu_ongoing_(STILLPOINT_FLAVOUR_NUMBER_);)

/* QSBR: the thread uses nothing that it has found. These three functions do nothing in other flavours. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(quiescent_state), STILLPOINT_SUFFIXED_(rcu_quiescent_state), (void),
    if (STILLPOINT_FLAVOUR_NUMBER_ == STILLPOINT_URCU_QSBR_) { stillpoint_qsbr_quiescent_state(); })

/* QSBR: around anything that may block. Does nothing in an unregistered thread, and prints a message with STILLPOINT_DEBUG. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(thread_offline), STILLPOINT_SUFFIXED_(rcu_thread_offline), (void),
    if (STILLPOINT_FLAVOUR_NUMBER_ == STILLPOINT_URCU_QSBR_) { (void)stillpoint_qsbr_pause_(); })

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(thread_online), STILLPOINT_SUFFIXED_(rcu_thread_online), (void),
    if (STILLPOINT_FLAVOUR_NUMBER_ == STILLPOINT_URCU_QSBR_) { (void)stillpoint_qsbr_online(); })

/* Needed for QSBR only, where it also brings the thread online. Registering twice does no harm; liburcu aborts. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(register_thread), STILLPOINT_SUFFIXED_(rcu_register_thread), (void),
    stillpoint_urcu_register_thread(STILLPOINT_FLAVOUR_NUMBER_);)

/* Needed for QSBR only, where the thread's end does it if the program forgets it while offline. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(unregister_thread), STILLPOINT_SUFFIXED_(rcu_unregister_thread), (void),
    stillpoint_urcu_unregister_thread(STILLPOINT_FLAVOUR_NUMBER_);)

/* Not needed. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(init), STILLPOINT_SUFFIXED_(rcu_init), (void), (void)stillpoint_urcu_domain(STILLPOINT_FLAVOUR_NUMBER_);)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(exit), STILLPOINT_SUFFIXED_(rcu_exit), (void),)

/*
 * Waits for a grace period. Inside a section of the flavour it would wait for itself: liburcu hangs; here it prints a message and aborts. An online
 * QSBR reader is offline meanwhile.
 */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(synchronize_rcu), STILLPOINT_SUFFIXED_(synchronize_rcu), (void),
    stillpoint_urcu_synchronize(STILLPOINT_FLAVOUR_NUMBER_);)

/* Starts a grace period and names it. It ends without a further call. In liburcu, like the next function, since 0.14. */
STILLPOINT_FLAVOUR_API_ struct urcu_gp_poll_state STILLPOINT_FLAVOUR_(start_poll_synchronize_rcu)(void)
{
    struct urcu_gp_poll_state state;
    state.grace_period_id = stillpoint_domain_start_poll(stillpoint_urcu_domain(STILLPOINT_FLAVOUR_NUMBER_));
    return state;
}

/* Returns whether the grace period has ended. Never waits. */
STILLPOINT_FLAVOUR_API_ bool STILLPOINT_FLAVOUR_(poll_state_synchronize_rcu)(struct urcu_gp_poll_state state)
{
    return stillpoint_domain_poll(stillpoint_urcu_domain(STILLPOINT_FLAVOUR_NUMBER_), state.grace_period_id);
}

/*
 * Calls the function with the head after a grace period, on the worker of the thread or of its processor, or on the default one. The head needs no
 * initialisation and is the library's until then. The queue is unbounded: stillpoint_domain_kvfree() has a bound. Callbacks may do anything but wait
 * for callbacks; those that they queue stay with their worker. Does not pause for 10 ms before each batch as liburcu does.
 */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(call_rcu), STILLPOINT_SUFFIXED_(call_rcu), (struct rcu_head *head, void (*func)(struct rcu_head *head)),
    stillpoint_urcu_call(STILLPOINT_FLAVOUR_NUMBER_, head, func);)

/* Waits until all callbacks of the flavour that were queued before have been called. Inside a section it prints a message and returns; in a callback it aborts. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(barrier), STILLPOINT_SUFFIXED_(rcu_barrier), (void), stillpoint_urcu_barrier(STILLPOINT_FLAVOUR_NUMBER_);)

/*
 * Creates a worker thread, on one processor if `cpu_affinity` is not negative. With URCU_CALL_RCU_RT, queueing makes no system call to wake it; it
 * polls every 10 ms. Returns NULL and sets errno where liburcu aborts.
 */
STILLPOINT_BOTH_(struct call_rcu_data *, STILLPOINT_FLAVOUR_(create_call_rcu_data), STILLPOINT_SUFFIXED_(create_call_rcu_data),
    (unsigned long flags, int cpu_affinity),
    return stillpoint_urcu_create(STILLPOINT_FLAVOUR_NUMBER_, flags, cpu_affinity);)

/* Ends a worker once its queue is empty; the default one stays. Aborts inside a section, and in a callback of that worker. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(call_rcu_data_free), STILLPOINT_SUFFIXED_(call_rcu_data_free), (struct call_rcu_data *crdp),
    stillpoint_urcu_free(STILLPOINT_FLAVOUR_NUMBER_, crdp);)

/* Returns the default worker; creates it if there is none. */
STILLPOINT_BOTH_(struct call_rcu_data *, STILLPOINT_FLAVOUR_(get_default_call_rcu_data), STILLPOINT_SUFFIXED_(get_default_call_rcu_data), (void),
    return stillpoint_urcu_default(STILLPOINT_FLAVOUR_NUMBER_);)

/* Returns the worker of a processor, or NULL. */
STILLPOINT_BOTH_(struct call_rcu_data *, STILLPOINT_FLAVOUR_(get_cpu_call_rcu_data), STILLPOINT_SUFFIXED_(get_cpu_call_rcu_data), (int cpu),
    return stillpoint_urcu_of_cpu(STILLPOINT_FLAVOUR_NUMBER_, cpu);)

/* Returns the worker that the calling thread was given, or NULL. */
STILLPOINT_BOTH_(struct call_rcu_data *, STILLPOINT_FLAVOUR_(get_thread_call_rcu_data), STILLPOINT_SUFFIXED_(get_thread_call_rcu_data), (void),
    return stillpoint_urcu_of_thread(STILLPOINT_FLAVOUR_NUMBER_);)

/* Returns the worker that call_rcu() would use. */
STILLPOINT_BOTH_(struct call_rcu_data *, STILLPOINT_FLAVOUR_(get_call_rcu_data), STILLPOINT_SUFFIXED_(get_call_rcu_data), (void),
    return stillpoint_urcu_current(STILLPOINT_FLAVOUR_NUMBER_);)

STILLPOINT_BOTH_(pthread_t, STILLPOINT_FLAVOUR_(get_call_rcu_thread), STILLPOINT_SUFFIXED_(get_call_rcu_thread), (struct call_rcu_data *crdp),
    return stillpoint_urcu_worker(crdp);)

/* Gives the calling thread a worker; NULL takes it away. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(set_thread_call_rcu_data), STILLPOINT_SUFFIXED_(set_thread_call_rcu_data), (struct call_rcu_data *crdp),
    stillpoint_urcu_set_of_thread(STILLPOINT_FLAVOUR_NUMBER_, crdp);)

/* The same for a processor. Returns -EINVAL, -ENOMEM, or -EEXIST if it has one; sets errno, too. */
STILLPOINT_BOTH_(int, STILLPOINT_FLAVOUR_(set_cpu_call_rcu_data), STILLPOINT_SUFFIXED_(set_cpu_call_rcu_data), (int cpu, struct call_rcu_data *crdp),
    return stillpoint_urcu_set_of_cpu(STILLPOINT_FLAVOUR_NUMBER_, cpu, crdp);)

/* Creates a worker for each processor that has none. */
STILLPOINT_BOTH_(int, STILLPOINT_FLAVOUR_(create_all_cpu_call_rcu_data), STILLPOINT_SUFFIXED_(create_all_cpu_call_rcu_data), (unsigned long flags),
    return stillpoint_urcu_create_all(STILLPOINT_FLAVOUR_NUMBER_, flags);)

/* Ends the workers of all processors. Waits for a grace period, so not inside a section. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(free_all_cpu_call_rcu_data), STILLPOINT_SUFFIXED_(free_all_cpu_call_rcu_data), (void),
    stillpoint_urcu_free_all(STILLPOINT_FLAVOUR_NUMBER_);)

/*
 * Call these around fork() if the child goes on using call_rcu(). Workers stand still from the first call to the second or third, which must follow
 * on the same thread. In the child, one default worker runs all callbacks that were pending. Without these three, the child forgets pending
 * callbacks but otherwise works; the last two without the first do nothing.
 *
 * The first waits for the callback that is running, but, unlike liburcu's, for no grace period: inside a section it returns, if no callback waits
 * for that section's end. An online QSBR reader of the flavour is offline meanwhile. Two threads do not fork at once: the second waits; if it is
 * running a callback, the first goes ahead, and in its child that callback is half done.
 */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(call_rcu_before_fork), STILLPOINT_SUFFIXED_(call_rcu_before_fork), (void),
    stillpoint_urcu_before_fork(STILLPOINT_FLAVOUR_NUMBER_);)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(call_rcu_after_fork_parent), STILLPOINT_SUFFIXED_(call_rcu_after_fork_parent), (void),
    stillpoint_urcu_after_fork_parent(STILLPOINT_FLAVOUR_NUMBER_);)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(call_rcu_after_fork_child), STILLPOINT_SUFFIXED_(call_rcu_after_fork_child), (void),
    stillpoint_urcu_after_fork_child(STILLPOINT_FLAVOUR_NUMBER_);)

/* The bp flavour's own three do nothing: readers need no help around fork() here. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(before_fork), STILLPOINT_INFIXED_(before_fork), (void),)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(after_fork_parent), STILLPOINT_INFIXED_(after_fork_parent), (void),)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(after_fork_child), STILLPOINT_INFIXED_(after_fork_child), (void),)

/* For the hash table, which has its own worker: call_rcu_before_fork() and its like call the three functions of `atfork`. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(register_rculfhash_atfork), STILLPOINT_SUFFIXED_(urcu_register_rculfhash_atfork),
    (struct urcu_atfork *atfork),
    stillpoint_urcu_register_atfork(STILLPOINT_FLAVOUR_NUMBER_, atfork);)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(unregister_rculfhash_atfork), STILLPOINT_SUFFIXED_(urcu_unregister_rculfhash_atfork),
    (struct urcu_atfork *atfork),
    stillpoint_urcu_unregister_atfork(STILLPOINT_FLAVOUR_NUMBER_, atfork);)

/*
 * Calls the function with the argument after a grace period. Needs no head, but a thread can have at most 4,096 pending; the next call waits for a
 * grace period, so do not call it inside sections. Aborts with a message in a thread that is not registered for it.
 */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(defer_rcu), STILLPOINT_SUFFIXED_(defer_rcu), (void (*fct)(void *p), void *p),
    stillpoint_urcu_defer(STILLPOINT_FLAVOUR_NUMBER_, fct, p);)

/* Returns 0 or a negative errno (-ENOMEM). Registering twice does no harm. May wait for a grace period: aborts inside a section. */
STILLPOINT_BOTH_(int, STILLPOINT_FLAVOUR_(defer_register_thread), STILLPOINT_SUFFIXED_(rcu_defer_register_thread), (void),
    return stillpoint_urcu_defer_register(STILLPOINT_FLAVOUR_NUMBER_);)

/* Waits for a grace period, calls the functions that the thread has deferred, and ends its registration. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(defer_unregister_thread), STILLPOINT_SUFFIXED_(rcu_defer_unregister_thread), (void),
    stillpoint_urcu_defer_unregister(STILLPOINT_FLAVOUR_NUMBER_);)

/* Waits for a grace period, and calls the functions that all threads have deferred before. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(defer_barrier), STILLPOINT_SUFFIXED_(rcu_defer_barrier), (void),
    stillpoint_urcu_defer_barrier(STILLPOINT_FLAVOUR_NUMBER_);)

/* The same for the calling thread only. */
STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(defer_barrier_thread), STILLPOINT_SUFFIXED_(rcu_defer_barrier_thread), (void),
    stillpoint_urcu_defer_barrier_thread(STILLPOINT_FLAVOUR_NUMBER_);)

STILLPOINT_BOTH_(void, STILLPOINT_FLAVOUR_(defer_exit), STILLPOINT_SUFFIXED_(rcu_defer_exit), (void),
    stillpoint_urcu_defer_barrier(STILLPOINT_FLAVOUR_NUMBER_);)

#ifdef __cplusplus
}
#endif

#undef STILLPOINT_BOTH_
#undef STILLPOINT_OLD_
#undef STILLPOINT_INFIXED_
#undef STILLPOINT_SUFFIXED_
#undef STILLPOINT_FLAVOUR_
#undef STILLPOINT_FLAVOUR_NUMBER_
#undef STILLPOINT_FLAVOUR_API_
