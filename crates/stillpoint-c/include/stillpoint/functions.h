#ifndef STILLPOINT_FUNCTIONS_H
#define STILLPOINT_FUNCTIONS_H

/* Made by cbindgen from the Rust sources. Included by <stillpoint/stillpoint.h>, not by programs. SPDX: MIT OR Apache-2.0 */

/*
 The limits of a tenant. UINT64_MAX means no limit.
 */
enum stillpoint_limit {
  /*
   Below this, never reclaimed from.
   */
  STILLPOINT_LIMIT_MIN,
  /*
   Below this, reclaimed from only if there is nothing else.
   */
  STILLPOINT_LIMIT_LOW,
  /*
   Above this, a background thread reclaims.
   */
  STILLPOINT_LIMIT_HIGH,
  /*
   Above this, the charging thread reclaims; a charge that would still exceed it fails.
   */
  STILLPOINT_LIMIT_MAX,
};

/*
 An isolate function's result: what the walk does with the entry. The kernel's `enum lru_status`.
 Any other number stops the walk.
 */
enum stillpoint_lru_status {
  /*
   Take it off.
   */
  STILLPOINT_LRU_STATUS_REMOVED,
  /*
   Take it off, and restart with the oldest.
   */
  STILLPOINT_LRU_STATUS_REMOVED_RETRY,
  /*
   Make it the newest.
   */
  STILLPOINT_LRU_STATUS_ROTATE,
  /*
   Leave it where it is.
   */
  STILLPOINT_LRU_STATUS_SKIP,
  /*
   Leave it, and restart with the oldest.
   */
  STILLPOINT_LRU_STATUS_RETRY,
  /*
   Leave it, and end the walk.
   */
  STILLPOINT_LRU_STATUS_STOP,
};

/*
 A range of address space.
 */
struct stillpoint_arena;

/*
 A tree of tenants.
 */
struct stillpoint_hierarchy;

/*
 LRU lists, one for each tenant and node.
 */
struct stillpoint_lru;

/*
 A hash map of nodes that the program embeds in its objects: see <stillpoint/map.h>.
 */
struct stillpoint_map;

/*
 A watch for memory pressure.
 */
struct stillpoint_pressure;

/*
 A registered shrinker.
 */
struct stillpoint_shrinker;

/*
 A handle of a tenant.
 */
struct stillpoint_tenant;

/*
 The options of an arena. Zeroes are the defaults.
 */
struct stillpoint_arena_options {
  /*
   The size of the address space in bytes; 64 GiB by default.
   */
  size_t capacity;
  /*
   How many bytes may be freed but not yet given back to the system.
   */
  size_t lazy_limit;
  /*
   Whether to omit the guard page behind each area.
   */
  bool no_guards;
  /*
   Whether access to freed memory faults.
   */
  bool poison;
  /*
   Whether to advise huge pages.
   */
  bool huge_pages;
  /*
   Whether a file backs the memory: stillpoint_arena_file().
   */
  bool memory_file;
  /*
   The domain whose sections keep areas in place; NULL for a private one.
   */
  struct stillpoint_domain *domain;
};

/*
 An arena's present sizes, and counts since it was built.
 */
struct stillpoint_arena_statistics {
  /*
   Live areas.
   */
  uint64_t areas;
  /*
   Size of their pages in bytes.
   */
  uint64_t live_bytes;
  /*
   Bytes freed but not given back yet, including guard pages.
   */
  uint64_t lazy_bytes;
  /*
   Bytes of addresses (not memory) ready for use in the pools, without guard pages.
   */
  uint64_t pooled_bytes;
  /*
   Bytes of addresses (not memory) that are accessible and in no pool.
   */
  uint64_t free_bytes;
  /*
   Bytes of accessible addresses; the rest of the capacity has never been used.
   */
  uint64_t accessible_bytes;
  /*
   Bytes of all addresses.
   */
  uint64_t capacity_bytes;
  /*
   True if there are guard pages behind areas.
   */
  bool guards;
  /*
   True if the kernel takes several ranges in one call.
   */
  bool vectored;
  /*
   Areas allocated since the arena was built.
   */
  uint64_t allocated;
  /*
   Batches given back.
   */
  uint64_t drains;
  /*
   Size in bytes of those batches, guard pages included.
   */
  uint64_t drained_bytes;
  /*
   Drains that the system refused in part.
   */
  uint64_t failed_drains;
};

/*
 A log-linear histogram of durations in nanoseconds, with four buckets for each power of two.
 Part of the statistics, which say what is timed. It is a copy that no longer changes; the
 difference of two copies covers the time in between.
 */
struct stillpoint_histogram {
  /*
   Sum of all durations in nanoseconds.
   */
  uint64_t sum;
  /*
   Number of durations in each bucket. 0 to 3 ns have one each; above that, each power of two
   has four of equal width; the last has all of 18 minutes and more.
   */
  uint64_t buckets[156];
};

/*
 A domain's statistics: what is pending now, and counts since it was created.
 */
struct stillpoint_statistics {
  /*
   Retired objects that have not been freed.
   */
  uint64_t objects_pending;
  /*
   Their size in bytes: their own blocks, by the allocator's size classes, and the weights that
   Rust code gives (Rcu::weighed). An object with a destructor but no weight counts as at least
   1 KiB. Objects that the program's callbacks will free are not counted.
   */
  uint64_t bytes_pending;
  /*
   Pages of 4 KiB in use to track them.
   */
  uint64_t pages;
  /*
   Callbacks that have not been invoked.
   */
  uint64_t callbacks_pending;
  /*
   Waiting tasks of Rust code: futures that have been polled, and neither woken nor dropped
   since.
   */
  uint64_t futures_pending;
  /*
   Objects freed.
   */
  uint64_t objects_freed;
  /*
   Callbacks invoked.
   */
  uint64_t callbacks_invoked;
  /*
   Grace periods that have ended; several numbers that end at once count as one. A wait that
   returned at once, because no other thread was registered as a reader, is not counted.
   */
  uint64_t grace_periods;
  /*
   Records of readers: one for each thread that has read or retired here, each QSBR reader and
   each owned guard, at the highest number so far, and some spare ones. About 110 bytes each.
   */
  uint64_t records;
  /*
   Heavy barriers (membarrier calls, or fences) issued.
   */
  uint64_t heavy_barriers;
  /*
   Grace periods that a retiring thread ended by itself because its queue had reached its
   quota.
   */
  uint64_t assists;
  /*
   Bounded waits of retiring threads, past the budget.
   */
  uint64_t waits;
  /*
   Objects freed by the thread that retired them after a separate grace period, because there
   was no memory for a page.
   */
  uint64_t inline_waits;
  /*
   Objects that are never freed: there was no memory to track them when they were retired,
   inside a section or a callback, where waiting is impossible. C's functions return such an
   object to the caller (-ENOMEM), so these are objects that Rust code retired. Also counts
   objects that a domain of the crossbeam-epoch package leaves behind when the process exits.
   */
  uint64_t objects_leaked;
  /*
   Grace periods held up for longer than the stall time-out.
   */
  uint64_t stalls;
  /*
   Times that the service thread was held up for longer than the stall time-out.
   */
  uint64_t service_stalls;
  /*
   Callbacks, destructors, weighers, wakers and stall handlers that panicked, and subscribers
   of `tracing` that panicked at a stall. C code does not panic.
   */
  uint64_t panics;
  /*
   Times that the service thread panicked in the library's own code, and was restarted. After
   three within a minute it stays down: barriers then do its work, and tasks that wait ask
   again by themselves.
   */
  uint64_t service_failures;
  /*
   How long grace periods have taken. Each one that readers hold up is timed, from when a
   waiting thread first notices that, which is later than the start. Of the others, one in 128
   is timed, from start to end, and counts as 128. So the count estimates grace_periods.
   */
  struct stillpoint_histogram grace_period_times;
  /*
   How long callbacks have taken, from being queued to the end of the pass that invoked them.
   Callbacks that arrived together count as queued when the first one was.
   */
  struct stillpoint_histogram callback_times;
  /*
   How long the bounded waits of retiring threads took; the count equals waits.
   */
  struct stillpoint_histogram wait_times;
  /*
   How long those passes of the service thread took that freed objects.
   */
  struct stillpoint_histogram reclaim_times;
};

/*
 The tenant and node of a shrinker's call. Valid until the function returns.
 */
struct stillpoint_scope {
  /*
   The tenant whose memory to free. The function must not release this handle.
   */
  struct stillpoint_tenant *tenant;
  /*
   The NUMA node.
   */
  size_t node;
};

/*
 An object that can free memory on request: `struct shrinker`. Registering copies it. Any thread
 that reclaims calls the functions, several at once, without a lock held.
 */
struct stillpoint_shrinker_ops {
  /*
   Estimates how many objects could be freed. Should be cheap: stillpoint_lru_count_one().
   */
  size_t (*count)(const struct stillpoint_scope *scope, void *data);
  /*
   Looks at up to `objects` objects and frees those that can be freed. Returns how many it freed,
   or -1 if it cannot work now.
   */
  int64_t (*scan)(const struct stillpoint_scope *scope, size_t objects, void *data);
  /*
   Passed to the functions.
   */
  void *data;
  /*
   The cost of making an object again; 0 stands for the default, 2.
   */
  uint32_t seeks;
  /*
   How many objects a scan should look at; 0 stands for the default, 128.
   */
  size_t batch;
  /*
   Whether the memory belongs to no tenant. Only passes over the whole hierarchy then call the
   shrinker, with the root as tenant.
   */
  bool not_per_tenant;
};

/*
 The options of a watch. Zeroes are the defaults.
 */
struct stillpoint_pressure_options {
  /*
   The file, FIFO or socket; NULL for $MEMORY_PRESSURE_WATCH, which the service manager sets.
   */
  const char *path;
  /*
   Whether to watch this process's control group if there is no path and the service manager has
   set nothing; the whole system only if the process is in the root group and that has no file.
   */
  bool or_system;
  /*
   Bytes to write to the file once it is open; only with a path.
   */
  const void *payload;
  /*
   The number of these bytes.
   */
  size_t payload_size;
  /*
   Bytes that may still be charged after a pass; 0 stands for three quarters of the bytes
   charged before it.
   */
  uint64_t target;
  /*
   Called after each pass; may be NULL.
   */
  stillpoint_relieved_function after;
  /*
   Passed to `after`.
   */
  void *data;
};

/*
 What a pass over a hierarchy has freed.
 */
struct stillpoint_relieved {
  /*
   Objects that shrinkers have freed.
   */
  uint64_t objects;
  /*
   Bytes by which the usage has fallen; bytes freed after a grace period may be missing.
   */
  uint64_t bytes;
};

/*
 A tenant's usage, limits (in bytes) and event counts, its descendants included. Each field is read
 separately.
 */
struct stillpoint_tenant_statistics {
  /*
   Bytes charged.
   */
  uint64_t usage;
  /*
   Most bytes charged at once, including bytes in stock, but not refused charges.
   */
  uint64_t peak;
  /*
   The min limit.
   */
  uint64_t min;
  /*
   The low limit.
   */
  uint64_t low;
  /*
   The high limit.
   */
  uint64_t high;
  /*
   The max limit.
   */
  uint64_t max;
  /*
   Passes that reclaimed from the tenant although it was under its low limit.
   */
  uint64_t low_events;
  /*
   Times that charges exceeded the high limit.
   */
  uint64_t high_events;
  /*
   Charges that hit the max: those that failed, and those for which memory was reclaimed.
   */
  uint64_t max_events;
  /*
   Charges that failed because of this tenant's max.
   */
  uint64_t failed_charges;
  /*
   Objects that shrinkers have freed for it.
   */
  uint64_t objects_reclaimed;
};

/*
 A report on a grace period that does not end, or a service thread that makes no progress. It is
 valid until the function returns.
 */
struct stillpoint_stall {
  /*
   The report: the holdouts and the waiters, with names, thread ids, and where owned guards
   were made.
   */
  const char *text;
  /*
   How long the stall has lasted, in nanoseconds.
   */
  uint64_t lasted_ns;
  /*
   The number of readers that block the grace period.
   */
  size_t holdouts;
  /*
   The kernel's thread id of the oldest of them; 0 for none.
   */
  uint32_t tid;
  /*
   Whether the service thread has stalled.
   */
  bool service;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Creates an arena. -EINVAL or -E2BIG for a bad capacity; otherwise the system's error.

 # Safety

 The options are NULL or valid; the handle can be written to `arena`.
 */
int stillpoint_arena_new(const struct stillpoint_arena_options *options, struct stillpoint_arena **arena);

/*
 Releases the handle. The arena ends once its last area has been freed, too. Its private domain
 ends with it, and must not be used afterwards. NULL does nothing.

 If the domain ends here, this first calls its pending callbacks and frees its objects, like
 stillpoint_domain_destroy(), and may block for as long as callbacks take. For a private domain:
 -EDEADLK inside a section or a callback of it, -EBUSY if another thread is detected inside a
 section; the handle is then still valid.

 # Safety

 No other thread uses the handle, and it is not used afterwards; areas may still be used, but no
 longer freed.
 */
int stillpoint_arena_free(struct stillpoint_arena *arena);

/*
 Allocates an area of `size` zeroed bytes at a multiple of `align` (a power of two): vmalloc().
 Returns NULL if that fails, with the negative errno in `error` unless that is NULL: -EINVAL,
 -E2BIG, -ENOMEM, -EPERM in the child of a fork over a memory file, or the system's error.

 # Safety

 The handle is valid; `error` is NULL or can be written to.
 */
void *stillpoint_arena_alloc(struct stillpoint_arena *arena, size_t size, size_t align, int *error);

/*
 Frees the area that starts at the address: vfree(). -EFAULT if there is none, -EINVAL if the
 address is inside one, -ENOMEM if there is no memory to record it as free; nothing is freed
 then.

 # Safety

 The handle is valid; the area is the caller's alone, except for readers that check it.
 */
int stillpoint_arena_free_area(struct stillpoint_arena *arena, void *area);

/*
 Frees the area after a grace period of the arena's domain, on that domain's service thread:
 vfree_rcu(). Until then, readers find it as before. -EFAULT and -EINVAL as for
 stillpoint_arena_free_area(); nothing is freed then. If memory is short when the grace period
 has ended, the free is retried after another one until it succeeds; barriers do not wait for the
 retries. No budget bounds what waits.

 # Safety

 As for stillpoint_arena_free_area().
 */
int stillpoint_arena_free_area_rcu(struct stillpoint_arena *arena, void *area);

/*
 Returns the domain whose sections keep areas in place. It belongs to the arena: do not pass it
 to stillpoint_domain_destroy(). NULL for NULL.

 # Safety

 The handle is valid or NULL.
 */
struct stillpoint_domain *stillpoint_arena_domain(const struct stillpoint_arena *arena);

/*
 Checks that `size` bytes from an address lie inside one live area: check_object_size(). Inside a
 section of the arena's domain, the bytes stay in place until the section ends. -EFAULT if the
 first byte is in no live area, -ERANGE if the area ends before the last byte, -EOVERFLOW,
 -EINVAL for no bytes. Async-signal-safe in a thread that is registered.

 # Safety

 The handle is valid.
 */
int stillpoint_arena_check(const struct stillpoint_arena *arena, const void *address, size_t size);

/*
 Finds the area around an address: find_vmap_area(). Returns its first address, and its length in
 `size` unless that is NULL; NULL if there is none. The area stays in place until the caller's
 section of the arena's domain ends.

 # Safety

 The handle is valid or NULL; `size` is NULL or can be written to.
 */
void *stillpoint_arena_find(const struct stillpoint_arena *arena, const void *address, size_t *size);

/*
 Checks `size` bytes from an address of the arena, and copies them out. Errors as for
 stillpoint_arena_check(), but 0 bytes are no error.

 # Safety

 The handle is valid; `size` bytes can be written at `to`; no other thread uses them, and they
 lie in no arena.
 */
int stillpoint_arena_copy_out(const struct stillpoint_arena *arena, void *to, const void *from, size_t size);

/*
 Checks `size` bytes at an address of the arena, and copies them in.

 # Safety

 The handle is valid; `size` bytes can be read at `from`; no thread writes them meanwhile, and
 they lie in no arena.
 */
int stillpoint_arena_copy_in(const struct stillpoint_arena *arena, void *to, const void *from, size_t size);

/*
 Checks `size` bytes at two addresses of the arena, and copies from one to the other; they may
 overlap.

 # Safety

 The handle is valid.
 */
int stillpoint_arena_copy_between(const struct stillpoint_arena *arena, void *to, const void *from, size_t size);

/*
 Gives the memory of all areas freed before the call back to the system; waits for a grace
 period. -EDEADLK inside a section of the arena's domain.

 # Safety

 The handle is valid.
 */
int stillpoint_arena_drain(struct stillpoint_arena *arena);

/*
 Gives back the memory that needs no waiting; returns its size in bytes.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_arena_shrink(struct stillpoint_arena *arena);

/*
 Returns the file descriptor of an arena created with `memory_file`; it stays the arena's.
 -ENOENT for other arenas. To share areas, give another process the file (execve() closes it) and
 the offset of an area (stillpoint_arena_offset()); that process maps the file by mmap().

 # Safety

 The handle is valid.
 */
int stillpoint_arena_file(const struct stillpoint_arena *arena);

/*
 Returns the first address that areas can have, and the number of bytes in `size` unless that is
 NULL; NULL for NULL. With a memory file, these bytes are the whole file in order.
 Async-signal-safe.

 # Safety

 The handle is valid or NULL; `size` is NULL or can be written to.
 */
void *stillpoint_arena_addresses(const struct stillpoint_arena *arena, size_t *size);

/*
 Writes the offset of an address in the arena, in bytes from its first address: a process that
 has mapped the file of stillpoint_arena_file() finds the same bytes at that offset. -EFAULT for
 an address outside of the arena. Does not check for an area. Async-signal-safe.

 # Safety

 The handle is valid; `offset` can be written to.
 */
int stillpoint_arena_offset(const struct stillpoint_arena *arena, const void *address, uint64_t *offset);

/*
 Writes a description of an address, as snprintf() does: ends it with a null byte if there is
 space, and returns the length of the whole text.

 # Safety

 The handle is valid; `size` bytes can be written at `text`.
 */
int stillpoint_arena_describe(const struct stillpoint_arena *arena, const void *address, char *text, size_t size);

/*
 Writes the statistics, as stillpoint_domain_statistics() does.

 # Safety

 The handle is valid; `size` bytes can be written.
 */
int stillpoint_arena_get_statistics(const struct stillpoint_arena *arena, struct stillpoint_arena_statistics *statistics, size_t size);

/*
 Calls the function with the head on the domain's service thread after a grace period:
 call_rcu(). Allocates nothing (the first call starts the service thread); does not block; may be
 called inside sections and callbacks, not in signal handlers.

 -EINVAL for a null head or function; -EBUSY for a head that is queued in any domain, if detected
 (x86-64).

 # Safety

 The domain is NULL or alive. The head is the library's until the function is called.
 */
int stillpoint_domain_call(struct stillpoint_domain *domain, struct stillpoint_head *head, stillpoint_function function);

/*
 Like stillpoint_domain_call(), for a head that may be a copy of a queued one, as in
 <stillpoint/rcu.hpp>; not for programs. If misuse is reported (in a debug build, or with
 STILLPOINT_DEBUG in the environment), a head that looks queued is searched for among all pending
 callbacks.

 # Safety

 As for stillpoint_domain_call().
 */
int stillpoint_domain_call_copied(struct stillpoint_domain *domain, struct stillpoint_head *head, stillpoint_function function);

/*
 Returns the global domain, which NULL also stands for. Never destroyed.
 */
struct stillpoint_domain *stillpoint_global(void);

/*
 Returns the global domain of readers that sleep: see stillpoint_trace_read_lock(). Never
 destroyed.
 */
struct stillpoint_domain *stillpoint_trace_global(void);

/*
 Creates a separate domain (like the kernel's SRCU), with a budget of 8 MiB.
 */
struct stillpoint_domain *stillpoint_domain_new(void);

/*
 Like stillpoint_domain_new(), but readers fence, so grace periods make no system call and
 interrupt no thread.
 */
struct stillpoint_domain *stillpoint_domain_new_fencing(void);

/*
 Like stillpoint_domain_new(), with a name for stall reports and for the service thread, which is
 named "rcu/" plus the start of the name, 15 bytes in all. Copies the name; replaces bytes that
 are not UTF-8. NULL means no name. Names need not differ.

 # Safety

 The name is NULL or ends in a null byte.
 */
struct stillpoint_domain *stillpoint_domain_new_named(const char *name);

/*
 Returns the domain at `place`; if there is none, creates one as stillpoint_domain_new() does.
 For static domains.

 # Safety

 `*place` is NULL or a domain, and only this function writes to it.
 */
struct stillpoint_domain *stillpoint_domain_get_or_make(struct stillpoint_domain **place);

/*
 Destroys a separate domain: calls its pending callbacks and frees its objects, which may block
 for as long as callbacks take. A domain that arenas use ends with the last of them instead.

 -EDEADLK inside a section or a callback of it, -EBUSY if another thread is detected inside a
 section, -EINVAL for a global domain; the domain then still exists. No other thread may use it,
 and it must not be used afterwards. NULL does nothing.

 # Safety

 The domain came from stillpoint_domain_new() or its like, no other thread uses it, and it is not
 used afterwards.
 */
int stillpoint_domain_destroy(struct stillpoint_domain *domain);

/*
 Waits until every section that began before the call has ended: synchronize_rcu(). -EDEADLK
 inside a section of this domain.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_synchronize(struct stillpoint_domain *domain);

/*
 Waits like stillpoint_domain_synchronize(), but spins for up to 50 microseconds before it
 sleeps: synchronize_rcu_expedited().

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
 Starts a grace period and names it; it ends without a further call:
 start_poll_synchronize_rcu(). Does not block.

 # Safety

 The domain is NULL or alive.
 */
stillpoint_cookie stillpoint_domain_start_poll(struct stillpoint_domain *domain);

/*
 Returns whether the grace period has ended: poll_state_synchronize_rcu(). Never waits. The
 caller's own section counts, too.

 # Safety

 The domain is NULL or alive.
 */
bool stillpoint_domain_poll(struct stillpoint_domain *domain, stillpoint_cookie cookie);

/*
 Waits until the grace period has ended: cond_synchronize_rcu(). -EDEADLK if it waits for a
 section of the calling thread.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_cond_synchronize(struct stillpoint_domain *domain, stillpoint_cookie cookie);

/*
 Waits like stillpoint_domain_cond_synchronize(), but expedited:
 cond_synchronize_rcu_expedited().

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_cond_synchronize_expedited(struct stillpoint_domain *domain, stillpoint_cookie cookie);

/*
 Waits until every callback queued before the call has run: rcu_barrier(). -EDEADLK if it would
 wait for itself: inside a callback, or inside a section that began before one of them was
 queued.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_barrier(struct stillpoint_domain *domain);

/*
 Waits until everything given to kvfree before the call has been freed: kvfree_rcu_barrier().
 -EDEADLK as for stillpoint_domain_barrier().

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_kvfree_barrier(struct stillpoint_domain *domain);

/*
 Waits like stillpoint_domain_kvfree_barrier(), and also until the objects that destructors have
 retired on their own threads have been freed, those that they retired, and so on. Blocks of
 malloc() have no destructors: this is for processes whose Rust or C++ parts retire in the same
 domain, before their code is unloaded. Takes one grace period per link of the chain, and does
 not return while other threads go on retiring objects whose destructors retire. Not
 async-signal-safe. -EDEADLK as for stillpoint_domain_barrier().

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_kvfree_barrier_nested(struct stillpoint_domain *domain);

/*
 Delays callbacks of the domain by at least `milliseconds`: those of stillpoint_call() and of its
 liburcu flavour, including those already queued. Whole batches are delayed, so a callback may
 wait up to twice as long. The default for all domains is STILLPOINT_CALLBACK_DELAY_MS in the
 environment, or 0. For programs that use an object outside of sections for a while after
 queueing its callback. Deferred frees are not delayed; stillpoint_domain_barrier() cuts the
 delay short for the callbacks that it waits for. Not async-signal-safe.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_set_callback_delay(struct stillpoint_domain *domain, uint64_t milliseconds);

/*
 Returns the callback delay in milliseconds. Async-signal-safe.

 # Safety

 The domain is NULL or alive.
 */
uint64_t stillpoint_domain_callback_delay(struct stillpoint_domain *domain);

/*
 Sets how long a grace period may be held up before it counts as a stall, in milliseconds. The
 default is 10 seconds, or STILLPOINT_STALL in the environment, in seconds; this call overrides
 both. 0 means that nothing counts as a stall.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_set_stall_timeout(struct stillpoint_domain *domain, uint64_t milliseconds);

/*
 Starts the domain's service thread, which then runs for as long as the domain exists; otherwise
 it starts with the first work and ends after a second without any. For programs that are about
 to lose what starting a thread needs, or whose first work may come from a thread of low
 priority: the service thread gets the main thread's policy and nice value if the kernel permits
 that.

 Does not block. -EAGAIN if the system refuses a thread, -ENOMEM.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_start_service(struct stillpoint_domain *domain);

/*
 Sets the function to call once per stall, like the kernel's "rcu detected stalls"; NULL removes
 it. Without a function, one line per stall is written to stderr; it is dropped if stderr is
 closed, or is a full pipe. STILLPOINT_STALL=off in the environment writes nothing;
 STILLPOINT_STALL=stderr writes the line even if there is a function. The function runs on the
 thread that detects the stall: it may read and log; it must not wait for callbacks or deferred
 frees, nor take locks that are held around calls of this library. A replaced function may still
 be running.

 # Safety

 The domain is NULL or alive. The function may be called with the data on any thread until the
 domain is destroyed.
 */
void stillpoint_domain_on_stall(struct stillpoint_domain *domain, stillpoint_stall_function function, void *data);

/*
 Writes the first `size` bytes of the statistics (sizeof); bytes that this library does not know
 are 0. Takes one lock per thread that has used the domain. -EINVAL for null.

 # Safety

 The domain is NULL or alive; `statistics` can be written to.
 */
int stillpoint_domain_statistics(struct stillpoint_domain *domain, struct stillpoint_statistics *statistics, size_t size);

/*
 Publishes the statistics of all present and future domains of the process to `stillpoint-top`
 and other programs of the same user. They are in a memory file of 8 MiB, mostly unallocated,
 which others can neither change nor shorten. The process must not close its descriptor, whose
 link in /proc/PID/fd is /memfd:stillpoint-stats. STILLPOINT_STATS=on in the environment does the
 same. A second call does nothing. The child of a fork gets its own page. Not async-signal-safe.

 Returns a negative errno if the system refuses the file or its memory (-EMFILE, -ENOMEM, -EPERM
 by a seccomp filter, and others). The next call tries again, except in a forked child in which
 the system has refused it.
 */
int stillpoint_publish_statistics(void);

/*
 Returns the number of durations in a histogram; 0 for NULL.

 # Safety

 The histogram is NULL, or one of the statistics.
 */
uint64_t stillpoint_histogram_count(const struct stillpoint_histogram *histogram);

/*
 Returns the quantile `q` of a histogram's durations in nanoseconds: 0.5 for the median, 0.99 for
 the 99th percentile. At most a quarter too high; never too low, except that durations over 18
 minutes count as 18. 0 if there are no durations, and for NULL. Clamps `q` to 0 to 1.

 # Safety

 The histogram is NULL, or one of the statistics.
 */
uint64_t stillpoint_histogram_quantile(const struct stillpoint_histogram *histogram, double q);

/*
 Sets how many bytes may be unreclaimed before threads that add more are throttled. 8 MiB by
 default. Counts blocks given to kvfree, by their malloc_usable_size(), and the pages that track
 them; not blocks that call_rcu()'s functions will free.

 # Safety

 The domain is NULL or alive.
 */
void stillpoint_domain_set_budget(struct stillpoint_domain *domain, size_t bytes);

/*
 Returns the budget, in bytes.

 # Safety

 The domain is NULL or alive.
 */
size_t stillpoint_domain_budget(struct stillpoint_domain *domain);

/*
 Returns whether misuse is reported on stderr: in a debug build of the library, or if
 STILLPOINT_DEBUG was in the environment when the library was loaded, and neither empty nor 0,
 off, no or false.
 */
bool stillpoint_reports_misuse(void);

/*
 Aborts the process with a message: for callers that cannot return an error, and would free
 memory that is still in use; not for programs.

 # Safety

 `what` is a string.
 */
void stillpoint_abort(int error, const char *what) __attribute__((noreturn));

/*
 The fast path of stillpoint_kvfree(block); not for programs.

 # Safety

 As for stillpoint_domain_kvfree(); the buffer is NULL or the calling thread's.
 */
int stillpoint_kvfree_buffered(const struct stillpoint_thread_buffer *buffer, void *block) STILLPOINT_NO_STUB_;

/*
 The fast path of stillpoint_kvfree(block, field); not for programs.

 # Safety

 As for stillpoint_domain_kvfree_head(); the buffer is NULL or the calling thread's.
 */
int stillpoint_kvfree_head_buffered(const struct stillpoint_thread_buffer *buffer,
                                    void *block,
                                    struct stillpoint_head *head)
STILLPOINT_NO_STUB_;

/*
 Calls free() with the block after a grace period: kvfree_rcu() with one argument. Takes a few
 nanoseconds; now and then it ends a grace period and frees older blocks. Outside of sections, it
 waits for up to a second if readers hold up more than the domain's budget, and for a whole grace
 period, however long, if there is no memory to track the block. Not for signal handlers. NULL
 does nothing. The budget and the statistics count the block's malloc_usable_size(), and nothing
 that it points to.

 -ENOMEM inside a section or a callback, where it cannot wait, if there is no memory to track the
 block, which is then still the caller's.

 # Safety

 The domain is NULL or alive. The block came from malloc() or its kin; readers that begin later
 cannot find it; nothing else frees it, and only readers whose sections have begun use it.
 */
int stillpoint_domain_kvfree(struct stillpoint_domain *domain, void *block);

/*
 Frees a block like stillpoint_domain_kvfree(), but uses the head in it to track it if memory is
 short: kvfree_rcu() with two arguments. Never fails for lack of memory and never waits for it.
 -EINVAL if the head is not in the first 4,096 bytes of the block; -EBUSY if it is queued for a
 function, if detected (x86-64; by stillpoint_kvfree() in a debug build only).

 # Safety

 The conditions of stillpoint_domain_kvfree() hold, and the head is in the block and in no queue.
 */
int stillpoint_domain_kvfree_head(struct stillpoint_domain *domain, void *block, struct stillpoint_head *head);

/*
 Creates lists for the tenants of a hierarchy or, for NULL, one list per node for all items.
 -ENOMEM.

 # Safety

 The hierarchy is NULL or valid; the handle can be written to `lru`.
 */
int stillpoint_lru_new(struct stillpoint_hierarchy *hierarchy, struct stillpoint_lru **lru);

/*
 Destroys the lists and releases their references to entries. NULL does nothing.

 # Safety

 The handle is not used again, not even by a shrinker.
 */
void stillpoint_lru_free(struct stillpoint_lru *lru);

/*
 Creates an entry for an object, with one reference, the caller's. Each list has a reference to
 its entries, and a walk takes one briefly. The thread that releases the last one calls `release`
 with the object; `release` may be NULL.

 # Safety

 `release` may be called with the object on any thread.
 */
struct stillpoint_entry *stillpoint_entry_new(void *object, stillpoint_release_function release);

/*
 Takes another reference to an entry. The caller already has one.

 # Safety

 The entry is NULL or alive.
 */
struct stillpoint_entry *stillpoint_entry_get(struct stillpoint_entry *entry);

/*
 Releases a reference. NULL does nothing.

 # Safety

 The reference is the caller's, and not used again.
 */
void stillpoint_entry_put(struct stillpoint_entry *entry);

/*
 Returns the object of an entry; NULL for NULL.

 # Safety

 The entry is NULL or alive.
 */
void *stillpoint_entry_object(const struct stillpoint_entry *entry);

/*
 Adds an entry to the tenant's list of this node as the newest; the list takes a reference. NULL
 stands for the root tenant. list_lru_add(). -EEXIST if it is on a list already; -EXDEV for a
 tenant of another hierarchy; -EINVAL.

 # Safety

 The handles are valid; the entry is alive.
 */
int stillpoint_lru_add(struct stillpoint_lru *lru, struct stillpoint_tenant *tenant, struct stillpoint_entry *entry);

/*
 Takes an entry off its list, and releases the list's reference. list_lru_del(). -ENOENT if it is
 on none of this lru's lists.

 # Safety

 The handle is valid; the entry is alive, and the caller has a reference.
 */
int stillpoint_lru_del(struct stillpoint_lru *lru, struct stillpoint_entry *entry);

/*
 Returns the number of NUMA nodes; a machine without NUMA has one.
 */
size_t stillpoint_nodes(void);

/*
 Returns the number of the tenant's entries on the node: list_lru_count_one(). Takes no lock. 0
 for a tenant or node that does not exist.

 # Safety

 The handles are valid or NULL.
 */
size_t stillpoint_lru_count_one(const struct stillpoint_lru *lru, const struct stillpoint_tenant *tenant, size_t number);

/*
 Returns the number of entries: list_lru_count().

 # Safety

 The handle is valid or NULL.
 */
size_t stillpoint_lru_count(const struct stillpoint_lru *lru);

/*
 Calls the function for up to `budget` entries of the tenant on the node, oldest first, and does
 what it returns; returns the number of entries taken off: list_lru_walk_one(). A node of
 SIZE_MAX means all nodes and all tenants: list_lru_walk(). 0 for a tenant or node that does not
 exist.

 # Safety

 The handles are valid or NULL; the function may be called with the data.
 */
size_t stillpoint_lru_walk(struct stillpoint_lru *lru,
                           struct stillpoint_tenant *tenant,
                           size_t number,
                           size_t budget,
                           stillpoint_isolate_function function,
                           void *data);

/*
 Registers a shrinker: shrinker_register(). -ENOSPC if there are 1,024 already; -EINVAL if a
 function is missing.

 # Safety

 The hierarchy is valid; the functions may be called with the data, on any thread, until
 stillpoint_shrinker_free() has returned; the handle can be written to `shrinker`.
 */
int stillpoint_shrinker_register(struct stillpoint_hierarchy *hierarchy,
                                 const struct stillpoint_shrinker_ops *ops,
                                 struct stillpoint_shrinker **shrinker);

/*
 Declares that all objects that the shrinker can free are on this lru's lists, so it is not
 called for empty lists. -EXDEV if the lru is not for the tenants of its hierarchy.

 # Safety

 The handles are valid.
 */
int stillpoint_shrinker_covers(struct stillpoint_shrinker *shrinker, struct stillpoint_lru *lru);

/*
 Unregisters a shrinker: waits for calls under way, unless it is called inside one. NULL does
 nothing.

 # Safety

 The handle is not used again.
 */
void stillpoint_shrinker_free(struct stillpoint_shrinker *shrinker);

/*
 Creates a map with room for `capacity` nodes: cds_lfht_new(). Its readers are in sections of the
 domain (NULL is the global one). The table grows and shrinks by itself; with
 STILLPOINT_MAP_KEEP_CAPACITY in `flags`, it does not shrink by itself below `capacity`. Does not
 block; not async-signal-safe. A domain that is destroyed before its maps ends with the last of
 them.

 -EINVAL for null or unknown flags; -ENOMEM.

 # Safety

 The domain is NULL or alive; the handle can be written to `map`.
 */
int stillpoint_map_new(struct stillpoint_domain *domain, size_t capacity, unsigned int flags, struct stillpoint_map **map);

/*
 Destroys a map, and passes each node left in it to the function, which may free it at once:
 cds_lfht_destroy(). Waits for a millisecond or two if the service thread is moving the table;
 not async-signal-safe. No other thread may use the map: if readers find it by a pointer, clear
 that and wait for a grace period first. NULL does nothing.

 -ENOTEMPTY (liburcu's -EPERM) if the function is NULL and the map has nodes; the map is then
 unchanged.

 # Safety

 The map is NULL, or alive, not used by other threads, and not used afterwards.
 */
int stillpoint_map_destroy(struct stillpoint_map *map, stillpoint_map_node_function function, void *data);

/*
 Returns the number of nodes, exact while no thread changes the map: cds_lfht_count_nodes(), but
 without a walk, and also outside of sections. Async-signal-safe. 0 for NULL.

 # Safety

 The map is NULL or alive.
 */
size_t stillpoint_map_count(const struct stillpoint_map *map);

/*
 Returns how many nodes the table has room for before it grows. Async-signal-safe. 0 for NULL.

 # Safety

 The map is NULL or alive; inside a section of its domain.
 */
size_t stillpoint_map_capacity(const struct stillpoint_map *map);

/*
 Makes room for `nodes` more nodes, and keeps the table from shrinking below that:
 cds_lfht_resize() to a larger size. Does not wait: the table moves as when it grows, a few
 buckets with each change, and more on the domain's service thread. Not async-signal-safe.
 -EINVAL for null; -ENOMEM, also if no table can be so large; -EPERM outside of a section, if
 misuse is reported.

 # Safety

 The map is NULL or alive; inside a section of its domain.
 */
int stillpoint_map_reserve(struct stillpoint_map *map, size_t nodes);

/*
 Allows the table to shrink to the size of its contents, below any reserved or initial capacity:
 cds_lfht_resize() to a smaller size. Does not wait. A map that loses nodes shrinks without this.
 Not async-signal-safe. -EINVAL for null; -EPERM outside of a section, if misuse is reported.

 # Safety

 The map is NULL or alive; inside a section of its domain.
 */
int stillpoint_map_shrink(struct stillpoint_map *map);

/*
 Adds a node, even if others have the same key: cds_lfht_add(). The node needs no initialisation,
 lies at a multiple of 8, and is the map's until a grace period after it was taken out or
 replaced. Allocates if its bucket is full. Blocks only for the bucket's lock, which other
 threads hold for nanoseconds; not async-signal-safe. The more nodes have the same hash, the more
 it costs to find or add one.

 -EINVAL for null; if misuse is reported, -EBUSY for a node that is in this map with that hash,
 and -EPERM outside of a section. The node is then still the caller's.

 # Safety

 The map is NULL or alive; inside a section of its domain. The node is in no map, and no reader can
 find it any more.
 */
int stillpoint_map_add(struct stillpoint_map *map, uint64_t hash, struct stillpoint_map_node *new_);

/*
 Adds a node unless one with its key exists: cds_lfht_add_unique(). Otherwise like
 stillpoint_map_add(). Calls the function without a lock held, and again if another thread
 changes the bucket meanwhile.

 -EEXIST if one exists; writes it to `existing` unless that is NULL, and it is valid until the
 section ends. -EINVAL, -EBUSY and -EPERM as for stillpoint_map_add().

 # Safety

 The conditions of stillpoint_map_add() hold, the function accepts nodes and the key, and
 `existing` is NULL or writable.
 */
int stillpoint_map_add_unique(struct stillpoint_map *map,
                              uint64_t hash,
                              stillpoint_match_function function,
                              const void *key,
                              struct stillpoint_map_node *new_,
                              struct stillpoint_map_node **existing);

/*
 Adds a node, or replaces one with its key: cds_lfht_add_replace(). A reader finds one of the
 two. Otherwise like stillpoint_map_add_unique(). Writes the replaced node, or NULL, to `old`; it
 may be freed after a grace period, by stillpoint_call() or stillpoint_kvfree().

 -EINVAL, -EBUSY and -EPERM as for stillpoint_map_add().

 # Safety

 The conditions of stillpoint_map_add_unique() hold, and `old` is writable.
 */
int stillpoint_map_add_replace(struct stillpoint_map *map,
                               uint64_t hash,
                               stillpoint_match_function function,
                               const void *key,
                               struct stillpoint_map_node *new_,
                               struct stillpoint_map_node **old);

/*
 Replaces a node that the caller has found in its section with a new one of the same hash and
 key: cds_lfht_replace(). A reader finds one of the two. Allocates nothing; blocks no longer than
 stillpoint_map_add(); not async-signal-safe. The old node may be freed after a grace period.

 -ENOENT if the old node is not in the map (any more); -EINVAL for null; -EBUSY if both are one
 node; -EPERM outside of a section, if misuse is reported.

 # Safety

 The map is NULL or alive; inside the section in which `old` was found, or `old` is kept alive by
 other means. The new node is in no map, and no reader can find it any more.
 */
int stillpoint_map_replace(struct stillpoint_map *map, struct stillpoint_map_node *old, struct stillpoint_map_node *new_);

/*
 Takes a node out: cds_lfht_del(). If several threads try, one gets 0: it owns the node, and may
 free it or add it again after a grace period. Never fails for lack of memory; blocks no longer
 than stillpoint_map_add(); not async-signal-safe.

 -ENOENT if it is not in the map (any more); -EINVAL for null; -EPERM outside of a section, if
 misuse is reported.

 # Safety

 The map is NULL or alive; inside the section in which the node was found, or it is kept alive by
 other means. It has been in a map.
 */
int stillpoint_map_del(struct stillpoint_map *map, struct stillpoint_map_node *old);

/*
 Returns a node with that hash for which the function does not return 0; NULL if there is none:
 cds_lfht_lookup(). The node stays valid until the caller's section ends. Takes no lock, writes
 nothing, never blocks; async-signal-safe if the function is.

 Undefined outside of a section; if misuse is reported, returns NULL if it detects that (not
 while another thread is in a section).

 # Safety

 The map is NULL or alive; inside a section of its domain; the function may be called with nodes
 and the key.
 */
struct stillpoint_map_node *stillpoint_map_lookup(const struct stillpoint_map *map,
                                                  uint64_t hash,
                                                  stillpoint_match_function function,
                                                  const void *key);

/*
 Like stillpoint_map_lookup(), for maps with duplicates: get the others with
 stillpoint_map_next_duplicate(), the same function and key. The result is also in `iter->node`.

 # Safety

 The conditions of stillpoint_map_lookup() hold; the iterator is writable, and used only in this section.
 */
struct stillpoint_map_node *stillpoint_map_first_duplicate(const struct stillpoint_map *map,
                                                           uint64_t hash,
                                                           stillpoint_match_function function,
                                                           const void *key,
                                                           struct stillpoint_map_iter *iter);

/*
 Returns the next node with that key; NULL after the last: cds_lfht_next_duplicate(). Returns
 each node that stays in the map once; may miss one that is added or taken out meanwhile. Costs
 as much as stillpoint_map_lookup(), and is as async-signal-safe. NULL after
 stillpoint_map_first().

 # Safety

 The iterator is stillpoint_map_first_duplicate()'s, in the same section.
 */
struct stillpoint_map_node *stillpoint_map_next_duplicate(struct stillpoint_map_iter *iter,
                                                          stillpoint_match_function function,
                                                          const void *key);

/*
 Begins a walk over all nodes in no particular order, and returns the first one; NULL if there is
 none: cds_lfht_first(). Returns each node that stays in the map once, even while the table grows
 and shrinks; may miss one that is added, taken out or replaced meanwhile. Writers go on, and the
 caller may take out the nodes it gets. Takes no lock; async-signal-safe. The result is also in
 `iter->node`.

 # Safety

 The map is NULL or alive; inside a section of its domain; the iterator can be written to, and is
 used only in this section.
 */
struct stillpoint_map_node *stillpoint_map_first(const struct stillpoint_map *map, struct stillpoint_map_iter *iter);

/*
 Returns the next node of a walk; NULL after the last: cds_lfht_next(). After
 stillpoint_map_first_duplicate(), returns the next node with that hash, whatever its key.

 # Safety

 The iterator is stillpoint_map_first()'s, in the same section.
 */
struct stillpoint_map_node *stillpoint_map_next(struct stillpoint_map_iter *iter);

/*
 Returns whether a node that has been in a map is in this one: !cds_lfht_is_node_deleted(). Costs
 a look-up: takes no lock, never blocks; async-signal-safe. False for null.

 # Safety

 As for stillpoint_map_del().
 */
bool stillpoint_map_has(const struct stillpoint_map *map, struct stillpoint_map_node *of);

/*
 Starts a thread that frees memory by the hierarchy's shrinkers whenever the system reports
 memory pressure. Without options, uses the service manager's settings in the environment;
 -ENODATA if there are none. -EINVAL for a file that cannot be watched; otherwise the system's
 error. Watching /dev/null does nothing, and is no error: that is how a service manager turns
 watching off, so the system is not watched instead.

 # Safety

 The hierarchy is valid; the options are NULL or valid; the function may be called with the data
 on another thread until stillpoint_pressure_free() has returned; the handle can be written to
 `pressure`.
 */
int stillpoint_pressure_watch(struct stillpoint_hierarchy *hierarchy,
                              const struct stillpoint_pressure_options *options,
                              struct stillpoint_pressure **pressure);

/*
 Returns how many passes memory pressure has caused. 0 for NULL. Async-signal-safe.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_pressure_events(const struct stillpoint_pressure *pressure);

/*
 Returns how many notifications came less than a tenth of a second after a pass. The next pass
 waits until that time is over and serves all of them, so there are at most ten passes a second.
 0 for NULL. Async-signal-safe.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_pressure_coalesced(const struct stillpoint_pressure *pressure);

/*
 Returns how many objects shrinkers have freed in these passes. 0 for NULL. Async-signal-safe.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_pressure_objects(const struct stillpoint_pressure *pressure);

/*
 Returns how often a pass has panicked; the watch goes on. Only Rust code in passes can panic;
 shrinkers' panics are not counted. 0 for NULL. Async-signal-safe.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_pressure_panics(const struct stillpoint_pressure *pressure);

/*
 Returns whether a thread watches and the file is open. False for /dev/null, for a file that was
 removed and not yet created again, and in the child of a fork. Async-signal-safe.

 # Safety

 The handle is valid or NULL.
 */
bool stillpoint_pressure_is_watching(const struct stillpoint_pressure *pressure);

/*
 Ends a watch: waits for a pass under way, unless it is called on the watching thread. NULL does
 nothing.

 # Safety

 The handle is not used again.
 */
void stillpoint_pressure_free(struct stillpoint_pressure *pressure);

/*
 Returns the domain of QSBR readers, for the functions that take a domain. Never destroyed.
 */
struct stillpoint_domain *stillpoint_qsbr_global(void);

/*
 Registers the calling thread as a reader that is always inside a section, except when it says
 otherwise: urcu_qsbr_register_thread(). It begins online. -EEXIST if it is registered already;
 -ENOMEM; -ESRCH at the thread's very end.
 */
int stillpoint_qsbr_register(void);

/*
 Unregisters the calling thread: urcu_qsbr_unregister_thread(). -EPERM if it is not a QSBR
 reader. May also be called in the destructors of pthread_key_create().
 */
int stillpoint_qsbr_unregister(void);

/*
 Takes the calling thread offline, before anything that may block: urcu_qsbr_thread_offline().
 Pointers found before must not be used afterwards. Does nothing if it is offline already. -EPERM
 if the thread is not a QSBR reader. In the destructors of pthread_key_create() it unregisters
 the thread.
 */
int stillpoint_qsbr_offline(void);

/*
 Takes the calling thread offline and keeps it registered, also in the destructors of
 pthread_key_create(), where stillpoint_qsbr_offline() unregisters it; not for programs.
 stillpoint_qsbr_online() undoes it. -EPERM if the thread is not a QSBR reader.
 */
int stillpoint_qsbr_pause_(void);

/*
 Brings the calling thread online again: urcu_qsbr_thread_online(). -EPERM if it is not a QSBR
 reader.
 */
int stillpoint_qsbr_online(void);

/*
 Returns whether the calling thread is a QSBR reader and online.
 */
bool stillpoint_qsbr_is_online(void);

/*
 The slow path of stillpoint_qsbr_quiescent_state(); not for programs.
 */
void stillpoint_qsbr_quiescent_state_slow(void);

/*
 Waits for a grace period of the QSBR readers, with the calling thread offline meanwhile:
 urcu_qsbr_synchronize_rcu(). Pointers found before must not be used afterwards. -EDEADLK inside
 a section that the thread has begun there with stillpoint_domain_read_lock().
 */
int stillpoint_qsbr_synchronize(void);

/*
 The slow path of stillpoint_read_lock(); not for programs. `started` is the address from which
 the caller's inlined code would load.
 */
void stillpoint_read_lock_slow(int which, const uint64_t *started);

/*
 The slow path of stillpoint_read_unlock(); not for programs.
 */
int stillpoint_read_unlock_slow(int which);

/*
 Ends a section that a waiter waits for, or in which work was postponed; not for programs.

 # Safety

 The record is the calling thread's, and its outermost section has just ended.
 */
void stillpoint_read_unlock_special(const struct stillpoint_record *record);

/*
 Registers the calling thread as a reader of the domain, so that even its first section there is
 async-signal-safe. Optional: the first section registers the thread. Returns 0; -EEXIST if it is
 registered already, which does no harm; -ENOMEM; -ESRCH at the thread's very end.

 There is nothing to undo: every thread is unregistered at its end.

 # Safety

 The domain is NULL or alive.
 */
int stillpoint_domain_register_thread(struct stillpoint_domain *domain);

/*
 Registers the calling thread as a reader of the domain, if necessary, and fills in the handle
 for stillpoint_domain_reader_lock(). The handle is valid only in this thread, until the thread's
 destructors run or the domain is destroyed; a thread may have several. -EINVAL for null;
 -ENOMEM; -ESRCH at the thread's very end.

 # Safety

 The domain is NULL or alive; the reader is NULL or can be written to.
 */
int stillpoint_domain_reader_init(struct stillpoint_domain *domain, struct stillpoint_domain_reader *reader);

/*
 The slow path of stillpoint_domain_reader_unlock(); not for programs.

 # Safety

 The reader is the calling thread's, and its domain alive.
 */
int stillpoint_domain_reader_unlock_slow(const struct stillpoint_domain_reader *reader);

/*
 The slow path of stillpoint_domain_reader_lock(); not for programs.

 # Safety

 The conditions of stillpoint_domain_reader_unlock_slow() hold.
 */
void stillpoint_domain_reader_lock_slow(const struct stillpoint_domain_reader *reader);

/*
 Returns whether the calling thread is registered in the domain.

 # Safety

 The domain is NULL or alive.
 */
bool stillpoint_domain_is_registered(struct stillpoint_domain *domain);

/*
 Begins a section of the domain, or one more level of it: srcu_read_lock(). Like
 stillpoint_read_lock(), but a function call.

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
 Returns whether the calling thread is inside a section of the domain: rcu_read_lock_held().

 # Safety

 The domain is NULL or alive.
 */
bool stillpoint_domain_read_lock_held(struct stillpoint_domain *domain);

/*
 Begins a section that belongs to the holder of the guard (a request, a task) until
 stillpoint_guard_end(), on any thread. For readers that sleep, usually in the trace domain.
 Costs about 5 nanoseconds.

 If the holder itself waits for the section, that cannot be refused: the wait never ends, and is
 reported as a stall.

 # Safety

 The domain is NULL or alive.
 */
struct stillpoint_guard *stillpoint_domain_guard(struct stillpoint_domain *domain);

/*
 Gives the section a name for stall reports; copies it. -EINVAL for null.

 # Safety

 The guard is the caller's and has not been ended; the name is a string.
 */
int stillpoint_guard_name(struct stillpoint_guard *guard, const char *name);

/*
 Ends the section of a guard. NULL does nothing. -EPERM if the guard has been ended before, if
 detected: it may belong to another section by then.

 # Safety

 The guard is the caller's, and is not used again.
 */
int stillpoint_guard_end(struct stillpoint_guard *guard);

/*
 Creates a hierarchy with only a root tenant. -ENOMEM.

 # Safety

 The handle can be written to `hierarchy`.
 */
int stillpoint_hierarchy_new(struct stillpoint_hierarchy **hierarchy);

/*
 Releases a handle. The hierarchy lives as long as any object created for it. NULL does nothing.

 # Safety

 The handle is not used again.
 */
void stillpoint_hierarchy_free(struct stillpoint_hierarchy *hierarchy);

/*
 Frees memory through the shrinkers until no more than `target` bytes are charged; UINT64_MAX
 stands for a quarter less than now. If nothing is charged, it frees about 71 % of the objects of
 each shrinker of the default cost (`seeks` 2), whatever the target. `relieved` may be NULL. Does
 not wait for grace periods.

 # Safety

 The handle is valid; `relieved` is NULL or can be written to.
 */
int stillpoint_hierarchy_relieve(struct stillpoint_hierarchy *hierarchy, uint64_t target, struct stillpoint_relieved *relieved);

/*
 Creates a handle of the hierarchy's root. -ENOMEM.

 # Safety

 The handle is valid; the new one can be written to `tenant`.
 */
int stillpoint_hierarchy_root(struct stillpoint_hierarchy *hierarchy, struct stillpoint_tenant **tenant);

/*
 Creates a tenant below another one, without limits. -ENOENT if the parent has been deleted,
 -ENOMEM.

 # Safety

 The handle is valid; the new one can be written to `tenant`.
 */
int stillpoint_tenant_create(struct stillpoint_tenant *parent, struct stillpoint_tenant **tenant);

/*
 Deletes the tenant: its items on LRU lists go to its nearest ancestor, and so do later charges.
 Handles stay valid, and must be released. -EBUSY if it has children, -EINVAL for a root.

 # Safety

 The handle is valid.
 */
int stillpoint_tenant_delete(struct stillpoint_tenant *tenant);

/*
 Releases a handle; releasing the last one deletes the tenant. NULL does nothing.

 # Safety

 The handle is not used again.
 */
void stillpoint_tenant_free(struct stillpoint_tenant *tenant);

/*
 Sets a limit, one of `enum stillpoint_limit`, in bytes. A max below the usage reclaims at once.
 -EINVAL for an unknown limit.

 # Safety

 The handle is valid.
 */
int stillpoint_tenant_set_limit(struct stillpoint_tenant *tenant, int limit, uint64_t bytes);

/*
 Returns the bytes charged to the tenant and all below it; 0 for NULL.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_tenant_usage(const struct stillpoint_tenant *tenant);

/*
 Tries to reclaim `bytes` bytes from the tenant and all below it, whatever its usage:
 memory.reclaim. Returns by how many bytes its usage has fallen, not counting memory that waits
 for a grace period. Calls shrinkers on this thread; does not wait. 0 for NULL, and inside a
 shrinker.

 # Safety

 The handle is valid or NULL.
 */
uint64_t stillpoint_tenant_reclaim(struct stillpoint_tenant *tenant, uint64_t bytes);

/*
 Writes the statistics, as stillpoint_domain_statistics() does.

 # Safety

 The handle is valid; `size` bytes can be written.
 */
int stillpoint_tenant_get_statistics(const struct stillpoint_tenant *tenant, struct stillpoint_tenant_statistics *statistics, size_t size);

/*
 Charges bytes to the tenant and its ancestors, until stillpoint_uncharge(): keep the charge in
 the object that the bytes are for. It may be copied if only one copy is used. Past a max it
 reclaims, and waits for up to a tenth of a second.

 -ENOMEM if `bytes` alone exceed the max, or reclaiming does not free enough; where it cannot
 reclaim, -EDEADLK inside a section or a callback, -EAGAIN inside a shrinker. -E2BIG for more
 bytes than any memory has. The charge is then empty.

 # Safety

 The handle is valid; `charge` can be written to, and its old value is lost.
 */
int stillpoint_tenant_charge(struct stillpoint_tenant *tenant, size_t bytes, struct stillpoint_charge *charge);

/*
 Changes the number of bytes charged. Errors as for stillpoint_tenant_charge(), with the charge
 unchanged; -EINVAL for an empty charge.

 # Safety

 The charge was made by stillpoint_tenant_charge() and not given back, or is
 STILLPOINT_CHARGE_INIT.
 */
int stillpoint_charge_resize(struct stillpoint_charge *charge, size_t bytes);

/*
 Gives the bytes back; the charge is then STILLPOINT_CHARGE_INIT. Does nothing for that and for
 NULL. Costs some ten nanoseconds.

 # Safety

 The charge was made by stillpoint_tenant_charge(), or is STILLPOINT_CHARGE_INIT; no other copy
 of it is used.
 */
void stillpoint_uncharge(struct stillpoint_charge *charge);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STILLPOINT_FUNCTIONS_H */
