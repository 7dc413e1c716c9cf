/*
 * The short names (rcu_read_lock ...) for URCU_API_MAP; STILLPOINT_MAPPED_(name) selects the flavour. Included by the flavours'
 * headers. SPDX: MIT OR Apache-2.0
 */
#ifndef STILLPOINT_URCU_NAMES_H
#define STILLPOINT_URCU_NAMES_H

#define rcu_read_lock STILLPOINT_MAPPED_(read_lock)
#define rcu_read_unlock STILLPOINT_MAPPED_(read_unlock)
#define rcu_read_ongoing STILLPOINT_MAPPED_(read_ongoing)
#define _rcu_read_lock STILLPOINT_MAPPED_(read_lock)
#define _rcu_read_unlock STILLPOINT_MAPPED_(read_unlock)
#define _rcu_read_ongoing STILLPOINT_MAPPED_(read_ongoing)
#define _rcu_quiescent_state STILLPOINT_MAPPED_(quiescent_state)
#define rcu_quiescent_state STILLPOINT_MAPPED_(quiescent_state)
#define rcu_thread_offline STILLPOINT_MAPPED_(thread_offline)
#define rcu_thread_online STILLPOINT_MAPPED_(thread_online)
#define rcu_register_thread STILLPOINT_MAPPED_(register_thread)
#define rcu_unregister_thread STILLPOINT_MAPPED_(unregister_thread)
#define rcu_init STILLPOINT_MAPPED_(init)
#define rcu_exit STILLPOINT_MAPPED_(exit)
#define synchronize_rcu STILLPOINT_MAPPED_(synchronize_rcu)
#define start_poll_synchronize_rcu STILLPOINT_MAPPED_(start_poll_synchronize_rcu)
#define poll_state_synchronize_rcu STILLPOINT_MAPPED_(poll_state_synchronize_rcu)

#define call_rcu STILLPOINT_MAPPED_(call_rcu)
#define rcu_barrier STILLPOINT_MAPPED_(barrier)
#define create_call_rcu_data STILLPOINT_MAPPED_(create_call_rcu_data)
#define call_rcu_data_free STILLPOINT_MAPPED_(call_rcu_data_free)
#define get_default_call_rcu_data STILLPOINT_MAPPED_(get_default_call_rcu_data)
#define get_cpu_call_rcu_data STILLPOINT_MAPPED_(get_cpu_call_rcu_data)
#define get_thread_call_rcu_data STILLPOINT_MAPPED_(get_thread_call_rcu_data)
#define get_call_rcu_data STILLPOINT_MAPPED_(get_call_rcu_data)
#define get_call_rcu_thread STILLPOINT_MAPPED_(get_call_rcu_thread)
#define set_thread_call_rcu_data STILLPOINT_MAPPED_(set_thread_call_rcu_data)
#define set_cpu_call_rcu_data STILLPOINT_MAPPED_(set_cpu_call_rcu_data)
#define create_all_cpu_call_rcu_data STILLPOINT_MAPPED_(create_all_cpu_call_rcu_data)
#define free_all_cpu_call_rcu_data STILLPOINT_MAPPED_(free_all_cpu_call_rcu_data)
#define call_rcu_before_fork STILLPOINT_MAPPED_(call_rcu_before_fork)
#define call_rcu_after_fork_parent STILLPOINT_MAPPED_(call_rcu_after_fork_parent)
#define call_rcu_after_fork_child STILLPOINT_MAPPED_(call_rcu_after_fork_child)

#define defer_rcu STILLPOINT_MAPPED_(defer_rcu)
#define rcu_defer_register_thread STILLPOINT_MAPPED_(defer_register_thread)
#define rcu_defer_unregister_thread STILLPOINT_MAPPED_(defer_unregister_thread)
#define rcu_defer_barrier STILLPOINT_MAPPED_(defer_barrier)
#define rcu_defer_barrier_thread STILLPOINT_MAPPED_(defer_barrier_thread)
#define rcu_defer_exit STILLPOINT_MAPPED_(defer_exit)

#define rcu_flavor STILLPOINT_MAPPED_(flavor)
#define urcu_register_rculfhash_atfork STILLPOINT_MAPPED_(register_rculfhash_atfork)
#define urcu_unregister_rculfhash_atfork STILLPOINT_MAPPED_(unregister_rculfhash_atfork)

#endif
