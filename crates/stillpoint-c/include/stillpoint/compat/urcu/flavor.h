/* A flavour as a structure of functions, for code that is to work with any: the hash table of liburcu-cds. SPDX: MIT OR Apache-2.0 */
#ifndef _URCU_FLAVOR_H
#define _URCU_FLAVOR_H

#include <stdbool.h>

#include <urcu/urcu-poll.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rcu_head;

/* What call_rcu_before_fork() and its like call for a library that has its own thread. */
struct urcu_atfork {
    void (*before_fork)(void *priv);
    void (*after_fork_parent)(void *priv);
    void (*after_fork_child)(void *priv);
    void *priv;
};

/*
 * The order is liburcu's, and part of its binary interface. The last two are there since 0.14: the libraries that stand in for those of 0.13 are
 * built without them, as the loader warns of a structure that is larger than the one a program was linked with.
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

/* A structure for the caller to fill, of the flavour that the short names mean where it stands. */
#define DEFINE_RCU_FLAVOR(x)                                                                \
    const struct rcu_flavor_struct x = {                                                    \
        .read_lock = rcu_read_lock,                                                         \
        .read_unlock = rcu_read_unlock,                                                     \
        .read_ongoing = rcu_read_ongoing,                                                   \
        .read_quiescent_state = rcu_quiescent_state,                                        \
        .update_call_rcu = call_rcu,                                                        \
        .update_synchronize_rcu = synchronize_rcu,                                          \
        .update_defer_rcu = defer_rcu,                                                      \
        .thread_offline = rcu_thread_offline,                                               \
        .thread_online = rcu_thread_online,                                                 \
        .register_thread = rcu_register_thread,                                             \
        .unregister_thread = rcu_unregister_thread,                                         \
        .barrier = rcu_barrier,                                                             \
        .register_rculfhash_atfork = urcu_register_rculfhash_atfork,                        \
        .unregister_rculfhash_atfork = urcu_unregister_rculfhash_atfork,                    \
        .update_start_poll_synchronize_rcu = start_poll_synchronize_rcu,                    \
        .update_poll_state_synchronize_rcu = poll_state_synchronize_rcu,                    \
    }

extern const struct rcu_flavor_struct stillpoint_urcu_memb_flavor, stillpoint_urcu_mb_flavor, stillpoint_urcu_qsbr_flavor,
    stillpoint_urcu_bp_flavor;

#ifdef __cplusplus
}
#endif

#endif
