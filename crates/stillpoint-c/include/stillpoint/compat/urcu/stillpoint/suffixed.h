/*
 * A flavour's functions by their names before liburcu 0.11: the suffix instead of the prefix. Included once for each flavour by its header,
 * unless there is URCU_NO_COMPAT_IDENTIFIERS, with STILLPOINT_FLAVOUR_(name), STILLPOINT_SUFFIXED_(name) and, for three, STILLPOINT_INFIXED_(name).
 * liburcu has macros; no macro can make the name of another. SPDX: MIT OR Apache-2.0
 */
#ifdef __cplusplus
extern "C++" {
#endif

STILLPOINT_INLINE_ void STILLPOINT_INFIXED_(before_fork)(void) { STILLPOINT_FLAVOUR_(before_fork)(); }
STILLPOINT_INLINE_ void STILLPOINT_INFIXED_(after_fork_parent)(void) { STILLPOINT_FLAVOUR_(after_fork_parent)(); }
STILLPOINT_INLINE_ void STILLPOINT_INFIXED_(after_fork_child)(void) { STILLPOINT_FLAVOUR_(after_fork_child)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_read_lock)(void) { STILLPOINT_FLAVOUR_(read_lock)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_read_unlock)(void) { STILLPOINT_FLAVOUR_(read_unlock)(); }
STILLPOINT_INLINE_ int STILLPOINT_SUFFIXED_(rcu_read_ongoing)(void) { return STILLPOINT_FLAVOUR_(read_ongoing)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(_rcu_read_lock)(void) { STILLPOINT_FLAVOUR_(read_lock)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(_rcu_read_unlock)(void) { STILLPOINT_FLAVOUR_(read_unlock)(); }
STILLPOINT_INLINE_ int STILLPOINT_SUFFIXED_(_rcu_read_ongoing)(void) { return STILLPOINT_FLAVOUR_(read_ongoing)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_quiescent_state)(void) { STILLPOINT_FLAVOUR_(quiescent_state)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_thread_offline)(void) { STILLPOINT_FLAVOUR_(thread_offline)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_thread_online)(void) { STILLPOINT_FLAVOUR_(thread_online)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_register_thread)(void) { STILLPOINT_FLAVOUR_(register_thread)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_unregister_thread)(void) { STILLPOINT_FLAVOUR_(unregister_thread)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_init)(void) { STILLPOINT_FLAVOUR_(init)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_exit)(void) { STILLPOINT_FLAVOUR_(exit)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(synchronize_rcu)(void) { STILLPOINT_FLAVOUR_(synchronize_rcu)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(call_rcu)(struct rcu_head *head, void (*func)(struct rcu_head *head)) { STILLPOINT_FLAVOUR_(call_rcu)(head, func); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_barrier)(void) { STILLPOINT_FLAVOUR_(barrier)(); }
STILLPOINT_INLINE_ struct call_rcu_data *STILLPOINT_SUFFIXED_(create_call_rcu_data)(unsigned long flags, int cpu_affinity) { return STILLPOINT_FLAVOUR_(create_call_rcu_data)(flags, cpu_affinity); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(call_rcu_data_free)(struct call_rcu_data *crdp) { STILLPOINT_FLAVOUR_(call_rcu_data_free)(crdp); }
STILLPOINT_INLINE_ struct call_rcu_data *STILLPOINT_SUFFIXED_(get_default_call_rcu_data)(void) { return STILLPOINT_FLAVOUR_(get_default_call_rcu_data)(); }
STILLPOINT_INLINE_ struct call_rcu_data *STILLPOINT_SUFFIXED_(get_cpu_call_rcu_data)(int cpu) { return STILLPOINT_FLAVOUR_(get_cpu_call_rcu_data)(cpu); }
STILLPOINT_INLINE_ struct call_rcu_data *STILLPOINT_SUFFIXED_(get_thread_call_rcu_data)(void) { return STILLPOINT_FLAVOUR_(get_thread_call_rcu_data)(); }
STILLPOINT_INLINE_ struct call_rcu_data *STILLPOINT_SUFFIXED_(get_call_rcu_data)(void) { return STILLPOINT_FLAVOUR_(get_call_rcu_data)(); }
STILLPOINT_INLINE_ pthread_t STILLPOINT_SUFFIXED_(get_call_rcu_thread)(struct call_rcu_data *crdp) { return STILLPOINT_FLAVOUR_(get_call_rcu_thread)(crdp); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(set_thread_call_rcu_data)(struct call_rcu_data *crdp) { STILLPOINT_FLAVOUR_(set_thread_call_rcu_data)(crdp); }
STILLPOINT_INLINE_ int STILLPOINT_SUFFIXED_(set_cpu_call_rcu_data)(int cpu, struct call_rcu_data *crdp) { return STILLPOINT_FLAVOUR_(set_cpu_call_rcu_data)(cpu, crdp); }
STILLPOINT_INLINE_ int STILLPOINT_SUFFIXED_(create_all_cpu_call_rcu_data)(unsigned long flags) { return STILLPOINT_FLAVOUR_(create_all_cpu_call_rcu_data)(flags); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(free_all_cpu_call_rcu_data)(void) { STILLPOINT_FLAVOUR_(free_all_cpu_call_rcu_data)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(call_rcu_before_fork)(void) { STILLPOINT_FLAVOUR_(call_rcu_before_fork)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(call_rcu_after_fork_parent)(void) { STILLPOINT_FLAVOUR_(call_rcu_after_fork_parent)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(call_rcu_after_fork_child)(void) { STILLPOINT_FLAVOUR_(call_rcu_after_fork_child)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(defer_rcu)(void (*fct)(void *p), void *p) { STILLPOINT_FLAVOUR_(defer_rcu)(fct, p); }
STILLPOINT_INLINE_ int STILLPOINT_SUFFIXED_(rcu_defer_register_thread)(void) { return STILLPOINT_FLAVOUR_(defer_register_thread)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_defer_unregister_thread)(void) { STILLPOINT_FLAVOUR_(defer_unregister_thread)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_defer_barrier)(void) { STILLPOINT_FLAVOUR_(defer_barrier)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_defer_barrier_thread)(void) { STILLPOINT_FLAVOUR_(defer_barrier_thread)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(rcu_defer_exit)(void) { STILLPOINT_FLAVOUR_(defer_exit)(); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(urcu_register_rculfhash_atfork)(struct urcu_atfork *atfork) { STILLPOINT_FLAVOUR_(register_rculfhash_atfork)(atfork); }
STILLPOINT_INLINE_ void STILLPOINT_SUFFIXED_(urcu_unregister_rculfhash_atfork)(struct urcu_atfork *atfork) { STILLPOINT_FLAVOUR_(unregister_rculfhash_atfork)(atfork); }

#ifdef __cplusplus
}
#endif
