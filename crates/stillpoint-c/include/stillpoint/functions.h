#ifndef STILLPOINT_FUNCTIONS_H
#define STILLPOINT_FUNCTIONS_H

/* Made by cbindgen from the Rust sources. Included by <stillpoint/stillpoint.h>, not by programs. SPDX: MIT OR Apache-2.0 */

/*
 What a domain does and has done.
 */
struct stillpoint_statistics {
  /*
   Objects given to kvfree that have not been freed.
   */
  uint64_t objects_waiting;
  /*
   What they take up, in bytes.
   */
  uint64_t bytes_waiting;
  /*
   Pages of 4 KiB that remember them.
   */
  uint64_t pages;
  /*
   Callbacks that have not been called.
   */
  uint64_t callbacks_waiting;
  /*
   Objects freed.
   */
  uint64_t objects_freed;
  /*
   Callbacks called.
   */
  uint64_t callbacks_invoked;
  /*
   Grace periods that have ended.
   */
  uint64_t grace_periods;
  /*
   Records of readers.
   */
  uint64_t records;
  /*
   Heavy barriers (membarrier calls, or fences).
   */
  uint64_t heavy_barriers;
  /*
   Grace periods that a thread ended because its queue had reached its share.
   */
  uint64_t assists;
  /*
   Bounded waits past the budget.
   */
  uint64_t waits;
  /*
   Objects freed at once after a grace period of their own, for want of memory.
   */
  uint64_t inline_waits;
  /*
   Grace periods held up for longer than the stall time-out.
   */
  uint64_t stalls;
  /*
   Times that the service thread was late by more than that.
   */
  uint64_t service_stalls;
};

/*
 A grace period that does not end, or a service thread that is late. Gone when the function returns.
 */
struct stillpoint_stall {
  /*
   The report: who holds it up and who waits, with names, thread ids, and where owned guards were made.
   */
  const char *text;
  /*
   How long it has been held up, in nanoseconds.
   */
  uint64_t lasted_ns;
  /*
   How many readers hold it up.
   */
  size_t holdouts;
  /*
   The kernel's id of the thread of the oldest of them; 0 for none.
   */
  uint32_t tid;
  /*
   Whether it is the service thread that is late.
   */
  bool service;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Ends the process with a message: for callers that cannot be told of an error, and would free what is still used; not for programs.

 # Safety

 `what` is a string.
 */
void stillpoint_refused(int error, const char *what) __attribute__((noreturn));

/*
 Has the function called with the head on the domain's service thread after a grace period: call_rcu(). Allocates nothing (the first
 call starts the service thread); does not block; may be called inside sections and callbacks, not in signal handlers.

 -EINVAL for a null head or function; -EBUSY for a head that is queued, in whatever domain, as far as that can be seen (x86-64).

 # Safety

 The domain is NULL or alive. The head is the library's until the function is called.
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
 Makes the domain that `place` is for, if nobody has: for domains that are static. NULL if it cannot be made.

 # Safety

 `place` is null or has a domain, and is written to by this function alone.
 */
struct stillpoint_domain *stillpoint_domain_make_once(struct stillpoint_domain **place);

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
 How long a grace period may be held up before that counts as a stall. 10 seconds by default.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_set_stall_timeout(struct stillpoint_domain *domain, uint64_t milliseconds);

/*
 Has the function told of every stall from now on, once each, in place of an earlier one; NULL ends that. The kernel's "rcu detected
 stalls". It runs on the thread that finds the stall: it may read and log; it must not wait for callbacks or deferred frees, nor take locks
 that are held around calls of this library. One that was replaced may still be running.

 # Safety

 The domain is NULL or alive. The function may be called with the data on any thread until the domain is destroyed.
 */
void stillpoint_domain_on_stall(struct stillpoint_domain *domain, stillpoint_stall_function function, void *data);

/*
 Writes the statistics, of which the caller knows the first `size` bytes (sizeof); those that this library does not know are 0. Takes a
 lock a thread that has used the domain. -EINVAL for null.

 # Safety

 The domain is NULL or alive; `statistics` can be written to.
 */
int stillpoint_domain_statistics(struct stillpoint_domain *domain, struct stillpoint_statistics *statistics, size_t size);

/*
 How many bytes may wait to be freed before those who add more are slowed down. 8 MiB by default.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_set_budget(struct stillpoint_domain *domain, size_t bytes);

/*
 The usual way of stillpoint_kvfree(block); not for programs.

 # Safety

 As for stillpoint_domain_kvfree(); the share is NULL or the calling thread's.
 */
int stillpoint_kvfree_in(const struct stillpoint_share *share, void *block);

/*
 The usual way of stillpoint_kvfree(block, field); not for programs.

 # Safety

 As for stillpoint_domain_kvfree_head(); the share is NULL or the calling thread's.
 */
int stillpoint_kvfree_head_in(const struct stillpoint_share *share, void *block, struct stillpoint_head *head);

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

/*
 Begins a section that belongs to whoever has what is returned, until stillpoint_guard_end(), on whatever thread: a request, a task. For
 readers that sleep; usually in the trace domain. Some 10 nanoseconds. Never NULL.

 A wait for it by its own holder cannot be refused: it never ends, and is reported as a stall.

 # Safety

 The domain is NULL or alive.
 */
struct stillpoint_guard *stillpoint_domain_guard(struct stillpoint_domain *domain);

/*
 Gives the section a name for stall reports, which is copied. -EINVAL for null.

 # Safety

 The guard is the caller's and has not been ended; the name is a string.
 */
int stillpoint_guard_name(struct stillpoint_guard *guard, const char *name);

/*
 Ends the section of a guard. NULL does nothing. -EPERM if it is seen to have been ended: but it may by then be another's.

 # Safety

 The guard is the caller's, and is not used again.
 */
int stillpoint_guard_end(struct stillpoint_guard *guard);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STILLPOINT_FUNCTIONS_H */
