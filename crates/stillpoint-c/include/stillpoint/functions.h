#ifndef STILLPOINT_FUNCTIONS_H
#define STILLPOINT_FUNCTIONS_H

/* Made by cbindgen from the Rust sources. Included by <stillpoint/stillpoint.h>, not by programs. SPDX: MIT OR Apache-2.0 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Has the function called with the head on the domain's service thread after a grace period: call_rcu(). Allocates nothing (the first
 call starts the service thread); does not block; may be called inside sections and callbacks, not in signal handlers.

 -EINVAL for a null head or function.

 # Safety

 The domain is NULL or alive. The head is in no queue, and the library's until the function is called.
 */
int stillpoint_domain_call(struct stillpoint_domain *domain, struct stillpoint_head *head, stillpoint_function function);

/*
 The global domain: what a domain that is NULL means. Never destroyed.
 */
struct stillpoint_domain *stillpoint_global(void);

/*
 The global domain of readers that sleep: see stillpoint_trace_read_lock(). Never destroyed.
 */
struct stillpoint_domain *stillpoint_trace_global(void);

/*
 A domain of one's own (what the kernel's SRCU is used for), with a budget of 8 MiB. NULL if it cannot be made.
 */
struct stillpoint_domain *stillpoint_domain_new(void);

/*
 The same, with readers that fence, so that its grace periods make no system call and interrupt nobody.
 */
struct stillpoint_domain *stillpoint_domain_new_fencing(void);

/*
 Destroys a domain of one's own: what waits in it is called and freed, which may block for as long as callbacks take.

 -EDEADLK inside a section of it, -EBUSY if another thread is seen inside one, -EINVAL for a global domain; it is then still there.
 Nobody may be using it otherwise, or afterwards. NULL does nothing.

 # Safety

 The domain came from stillpoint_domain_new() or its like, is used by nobody else, and by nobody afterwards.
 */
int stillpoint_domain_destroy(struct stillpoint_domain *domain);

/*
 Waits until every section that had begun before has ended: synchronize_rcu(). -EDEADLK inside a section of this domain.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_synchronize(struct stillpoint_domain *domain);

/*
 The same in haste: looks for up to 50 microseconds before it sleeps. synchronize_rcu_expedited().

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_synchronize_expedited(struct stillpoint_domain *domain);

/*
 Names the next grace period without starting it: get_state_synchronize_rcu().

 # Safety

 The domain is NULL or alive.
 */
stillpoint_cookie stillpoint_domain_get_state(struct stillpoint_domain *domain);

/*
 Starts a grace period and names it; it ends without a further call: start_poll_synchronize_rcu(). Does not block.

 # Safety

 The domain is NULL or alive.
 */
stillpoint_cookie stillpoint_domain_start_poll(struct stillpoint_domain *domain);

/*
 Whether the grace period has ended: poll_state_synchronize_rcu(). Never waits. Inside a section that section counts.

 # Safety

 The domain is NULL or alive.
 */
bool stillpoint_domain_poll(struct stillpoint_domain *domain, stillpoint_cookie cookie);

/*
 Waits until the grace period has ended: cond_synchronize_rcu(). -EDEADLK if it waits for a section of the calling thread.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_cond_synchronize(struct stillpoint_domain *domain, stillpoint_cookie cookie);

/*
 The same in haste: cond_synchronize_rcu_expedited().

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_cond_synchronize_expedited(struct stillpoint_domain *domain, stillpoint_cookie cookie);

/*
 Waits until every callback that was queued before has been called: rcu_barrier(). -EDEADLK if it would wait for itself: inside a
 callback, or inside a section that began before one of them was queued.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_barrier(struct stillpoint_domain *domain);

/*
 Waits until everything that was given to kvfree before has been freed: kvfree_rcu_barrier(). -EDEADLK as for the other one.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_kvfree_barrier(struct stillpoint_domain *domain);

/*
 How many bytes may wait to be freed before those who add more are slowed down. 8 MiB by default.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_set_budget(struct stillpoint_domain *domain, size_t bytes);

/*
 Has free() called with the block after a grace period: kvfree_rcu() with one argument. A few nanoseconds; now and then it ends a grace
 period and frees older blocks, and where readers hold up more than the domain's budget it waits outside sections, a second at most.
 Not in signal handlers. NULL does nothing.

 -ENOMEM if there is no memory to remember the block by and no way to wait, inside a section or a callback; it is then still the caller's.

 # Safety

 The domain is NULL or alive. The block came from malloc() or its kin; readers that begin from now on cannot find it; nobody else
 frees it, and nobody but readers whose sections have begun uses it.
 */
int stillpoint_domain_kvfree(struct stillpoint_domain *domain, void *block);

/*
 The same for a block with a head in it, by which it is remembered if there is no memory: kvfree_rcu() with two arguments. Never fails
 for want of memory and never waits for it. -EINVAL if the head is not in the first 4096 bytes of the block.

 # Safety

 As for the other one; the head is in the block and in no queue.
 */
int stillpoint_domain_kvfree_head(struct stillpoint_domain *domain, void *block, struct stillpoint_head *head);

/*
 The domain of QSBR readers, for the functions that take a domain. Never destroyed.
 */
struct stillpoint_domain *stillpoint_qsbr_global(void);

/*
 Makes the calling thread a reader that is inside a section at all times, but where it says otherwise: urcu_qsbr_register_thread(). It
 is online then. -EEXIST if it is one; -ESRCH at the thread's very end.
 */
int stillpoint_qsbr_register(void);

/*
 Ends that: urcu_qsbr_unregister_thread(). -EPERM if the thread is no QSBR reader.
 */
int stillpoint_qsbr_unregister(void);

/*
 Goes offline, around everything that may block: nothing that was found before may be used after. urcu_qsbr_thread_offline(). Does
 nothing if it is. -EPERM if the thread is no QSBR reader.
 */
int stillpoint_qsbr_offline(void);

/*
 Comes back: urcu_qsbr_thread_online(). -EPERM if the thread is no QSBR reader.
 */
int stillpoint_qsbr_online(void);

/*
 Whether the calling thread is a QSBR reader and online.
 */
bool stillpoint_qsbr_is_online(void);

/*
 The unusual way of stillpoint_qsbr_quiescent_state(); not for programs.
 */
void stillpoint_qsbr_renew(void);

/*
 Waits for a grace period of the QSBR readers, the calling one offline meanwhile: urcu_qsbr_synchronize_rcu(). Nothing that was found
 before may be used after. -EDEADLK inside a section that the thread has begun by stillpoint_domain_read_lock() there.
 */
int stillpoint_qsbr_synchronize(void);

/*
 The unusual ways of stillpoint_read_lock(); not for programs. `started` is where the caller would load from by itself.
 */
void stillpoint_lock_slow(int which, const uint64_t *started);

/*
 The unusual ways of stillpoint_read_unlock(); not for programs.
 */
int stillpoint_unlock_slow(int which);

/*
 The end of a section that somebody waits for; not for programs.

 # Safety

 The record is the calling thread's, and its outermost section has just ended.
 */
void stillpoint_ended_with_flags(const struct stillpoint_record *record);

/*
 Registers the calling thread as a reader of the domain, so that its sections there are async-signal-safe from the first on. A thread
 need not do so: its first section does. 0; -EEXIST if it is registered, which does no harm.

 There is nothing to be undone: at its end every thread is forgotten.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_register_thread(struct stillpoint_domain *domain);

/*
 Whether the calling thread is registered in the domain.

 # Safety

 The domain is NULL or alive.
 */
bool stillpoint_domain_is_registered(struct stillpoint_domain *domain);

/*
 Begins a section of the domain, or a level of it: srcu_read_lock(). As stillpoint_read_lock(), by a call.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_read_lock(struct stillpoint_domain *domain);

/*
 Leaves a section or a level: srcu_read_unlock(). -EPERM if the calling thread is in none.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_read_unlock(struct stillpoint_domain *domain);

/*
 Whether the calling thread is inside a section of the domain: rcu_read_lock_held().

 # Safety

 The domain is NULL or alive.
 */
bool stillpoint_domain_read_lock_held(struct stillpoint_domain *domain);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STILLPOINT_FUNCTIONS_H */
