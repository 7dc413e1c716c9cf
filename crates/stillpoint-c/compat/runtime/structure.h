/* A flavour as a structure, of functions whose names begin with a prefix. */
#ifndef STILLPOINT_COMPAT_STRUCTURE_H
#define STILLPOINT_COMPAT_STRUCTURE_H

#ifdef STILLPOINT_URCU_0_13_
#define POLLS(prefix)
#else
#define POLLS(prefix)                                                            \
    .update_start_poll_synchronize_rcu = prefix##start_poll_synchronize_rcu,     \
    .update_poll_state_synchronize_rcu = prefix##poll_state_synchronize_rcu,
#endif

#define STRUCTURE(prefix)                                                        \
    {                                                                            \
        .read_lock = prefix##read_lock,                                          \
        .read_unlock = prefix##read_unlock,                                      \
        .read_ongoing = prefix##read_ongoing,                                    \
        .read_quiescent_state = prefix##quiescent_state,                         \
        .update_call_rcu = prefix##call_rcu,                                     \
        .update_synchronize_rcu = prefix##synchronize_rcu,                       \
        .update_defer_rcu = prefix##defer_rcu,                                   \
        .thread_offline = prefix##thread_offline,                                \
        .thread_online = prefix##thread_online,                                  \
        .register_thread = prefix##register_thread,                              \
        .unregister_thread = prefix##unregister_thread,                          \
        .barrier = prefix##barrier,                                              \
        .register_rculfhash_atfork = prefix##register_rculfhash_atfork,          \
        .unregister_rculfhash_atfork = prefix##unregister_rculfhash_atfork,      \
        POLLS(prefix)                                                            \
    }

#endif
