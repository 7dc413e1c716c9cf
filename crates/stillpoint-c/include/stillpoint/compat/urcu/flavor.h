/* A flavour as a structure of functions, for code that works with any flavour: the hash table of liburcu-cds. SPDX: MIT OR Apache-2.0 */
#ifndef _URCU_FLAVOR_H
#define _URCU_FLAVOR_H

#include <stdbool.h>

#include <urcu/urcu-poll.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rcu_head;

/* Called by call_rcu_before_fork() and its like for a library that has its own thread. */
struct urcu_atfork {
    void (*before_fork)(void *priv);
    void (*after_fork_parent)(void *priv);
    void (*after_fork_child)(void *priv);
    void *priv;
};

/*
 * The order is liburcu's, and part of its ABI. The last two exist since 0.14. Libraries that replace those of 0.13 are built without them, because
 * the loader warns of a structure larger than the one that a program was linked with.
 */
struct rcu_flavor_struct {
    void (*read_lock)(void);
    void (*read_unlock)(void);
    int (*read_ongoing)(void);
    void (*read_quiescent_state)(void);
    void (*update_call_rcu)(struct rcu_head *head, void (*func)(struct rcu_head *head));
    void (*update_synchronize_rcu)(void);
    void (*update_defer_rcu)(void (*fct)(void *p), void *p);
    void (*thread_offline)(void);
    void (*thread_online)(void);
    void (*register_thread)(void);
    void (*unregister_thread)(void);
    void (*barrier)(void);
    void (*register_rculfhash_atfork)(struct urcu_atfork *atfork);
    void (*unregister_rculfhash_atfork)(struct urcu_atfork *atfork);
#ifndef STILLPOINT_URCU_0_13_
    struct urcu_gp_poll_state (*update_start_poll_synchronize_rcu)(void);
    bool (*update_poll_state_synchronize_rcu)(struct urcu_gp_poll_state state);
#endif
};

#ifdef STILLPOINT_URCU_0_13_
#define STILLPOINT_POLLS_(name)
#else
#define STILLPOINT_POLLS_(name)                                                             \
        .update_start_poll_synchronize_rcu = name(start_poll_synchronize_rcu),              \
        .update_poll_state_synchronize_rcu = name(poll_state_synchronize_rcu),
#endif

/* A structure of functions; `name` makes the flavour's name of each. */
#define STILLPOINT_STRUCTURE_(name)                                                         \
    {                                                                                       \
        .read_lock = name(read_lock),                                                       \
        .read_unlock = name(read_unlock),                                                   \
        .read_ongoing = name(read_ongoing),                                                 \
        .read_quiescent_state = name(quiescent_state),                                      \
        .update_call_rcu = name(call_rcu),                                                  \
        .update_synchronize_rcu = name(synchronize_rcu),                                    \
        .update_defer_rcu = name(defer_rcu),                                                \
        .thread_offline = name(thread_offline),                                             \
        .thread_online = name(thread_online),                                               \
        .register_thread = name(register_thread),                                           \
        .unregister_thread = name(unregister_thread),                                       \
        .barrier = name(barrier),                                                           \
        .register_rculfhash_atfork = name(register_rculfhash_atfork),                       \
        .unregister_rculfhash_atfork = name(unregister_rculfhash_atfork),                   \
        STILLPOINT_POLLS_(name)                                                             \
    }

/* Defines a program's structure, for the flavour that the short names mean at that point. */
#define DEFINE_RCU_FLAVOR(x) const struct rcu_flavor_struct x = STILLPOINT_STRUCTURE_(STILLPOINT_MAPPED_)

extern const struct rcu_flavor_struct stillpoint_urcu_memb_flavor, stillpoint_urcu_mb_flavor, stillpoint_urcu_qsbr_flavor,
    stillpoint_urcu_bp_flavor;

#ifdef __cplusplus
}
#endif

#endif
