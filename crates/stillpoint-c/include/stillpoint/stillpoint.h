/*
 * Stillpoint: kernel-style RCU, batched deferred frees and what stands on them, for C11 and C++17. SPDX: MIT OR Apache-2.0
 *
 * Functions that return int return 0 (or what they say), or a negative errno. None unwinds, and no callback may unwind or longjmp out.
 * A domain that is NULL is the global one.
 *
 * Threads. All functions may be called from any thread, and all handles may be shared between threads: only the thread that ends a handle has to be the
 * last to use it. Threads need not register: the first section or free registers a thread, and its exit releases everything.
 *
 * Signal handlers may read (begin and leave sections of a domain, and find what is there) in threads for which stillpoint_domain_register_thread()
 * has returned 0 for that domain (NULL for the global one), and not once the thread's destructors run. They do nothing else. To have read there is
 * not enough: where memory was short the thread is not registered by it, and each of its sections takes a lock that the handler may have interrupted.
 *
 * Cancellation. A thread that is cancelled inside a function of the library is undefined behaviour, as is one that leaves a callback by
 * cancellation: disable it (pthread_setcancelstate()) around all but the inlined functions of readers. A section that a cancelled thread is in
 * stays open, unless a cleanup handler or a destructor leaves it.
 *
 * Fork. In the child the forking thread's sections are open as before, and all functions work. What waited is the parent's: callbacks and frees
 * of before the fork are forgotten in the child (their heads stay taken there). Sections of other threads are over.
 *
 * Memory. call_rcu() and kfree_rcu() with a head need none. Tenants, charges, areas, and room that is reserved in maps report -ENOMEM. Elsewhere
 * an allocation that fails ends the process. Where no service thread can be created, waiting threads do its work, and later calls try again.
 *
 * The library is never unloaded: dlclose() leaves it there, with what is pending. A plug-in's pending functions are unloaded with the plug-in: before
 * dlclose(), it calls stillpoint_domain_barrier() for each domain that it has used. Do not link both forms of the library into one process.
 *
 * Stalls. What holds a grace period up for 10 s is reported on stderr, once, unless there is a function for that (stillpoint_domain_on_stall());
 * STILLPOINT_STALL=off, stderr or a number of seconds in the environment says otherwise.
 *
 * Bad use. With STILLPOINT_DEBUG=on in the environment when it is loaded, and always if built for debugging, the library says on stderr what
 * was wrong:
 *
 *   null where an object is wanted              -EINVAL
 *   unlock without lock                         -EPERM; nothing happens
 *   QSBR functions of an unregistered thread    -EPERM
 *   registered twice                            -EEXIST
 *   a wait inside one's own section             -EDEADLK; nothing was waited for
 *   a reader of a domain used on another thread, or after its own has ended     undefined
 *   a head that waits for its function          -EBUSY, where it can be seen (x86-64; by stillpoint_kvfree() if built for debugging); else
 *                                               undefined, as it is for one that was given to kvfree
 *   a domain destroyed while it is read         -EBUSY, or -EDEADLK inside one's own section or a callback; so an arena with its own domain
 *   a thread that ends inside a section         the section stays open for ever, and is reported as a stall
 *   a block freed twice, a domain used after    undefined, as for free()
 *
 * In <stillpoint/rcupdate.h> a wait or a call_rcu() that is refused aborts, as its callers could not know.
 */
#ifndef STILLPOINT_STILLPOINT_H
#define STILLPOINT_STILLPOINT_H

#define STILLPOINT_VERSION_MAJOR 0
#define STILLPOINT_VERSION_MINOR 1
#define STILLPOINT_VERSION_PATCH 0

#include <stillpoint/types.h>

#include <stillpoint/functions.h>

#ifdef __cplusplus
extern "C++" {
#endif

#define stillpoint_likely_(condition) __builtin_expect(!!(condition), 1)

/*
 * The fast paths of lock and unlock, or false. The orderings are those of the library's own read side, proved in its gp/engine.rs under these labels.
 * Where readers have to fence, or if the linker has given this program another stillpoint_started than the library's, the thread's record is never
 * cached here, and both functions take the slow path. `*started` is looked at after the record, which a signal handler may have cached between.
 */
STILLPOINT_INLINE_ __attribute__((always_inline)) bool stillpoint_enter_(struct stillpoint_record *record, const uint64_t *const *started)
{
    if (stillpoint_likely_((__atomic_load_n(&record->word, __ATOMIC_RELAXED) & STILLPOINT_NESTING_) == 0)) {
        uint64_t word = __atomic_load_n(*started, __ATOMIC_ACQUIRE); /* [R1] */
        __atomic_store_n(&record->word, word, __ATOMIC_RELEASE);     /* [R2] */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                     /* [R3] */
        return true;
    }
    return false;
}

STILLPOINT_INLINE_ __attribute__((always_inline)) bool stillpoint_leave_(struct stillpoint_record *record)
{
    if (stillpoint_likely_((__atomic_load_n(&record->word, __ATOMIC_RELAXED) & STILLPOINT_NESTING_) == 1)) {
        __atomic_store_n(&record->word, 0, __ATOMIC_RELEASE); /* [R4] */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);              /* [R5] */
        if (!stillpoint_likely_(__atomic_load_n(&record->flags, __ATOMIC_RELAXED) == 0)) { /* [R6] */
            stillpoint_read_unlock_special(record);
        }
        return true;
    }
    return false;
}

STILLPOINT_INLINE_ __attribute__((always_inline)) void stillpoint_lock_(int which)
{
    const uint64_t *started = &stillpoint_started[which].word;
    if (!stillpoint_enter_(stillpoint_thread.reader[which].record, &started)) {
        stillpoint_read_lock_slow(which, started);
    }
}

STILLPOINT_INLINE_ __attribute__((always_inline)) int stillpoint_unlock_(int which)
{
    return stillpoint_leave_(stillpoint_thread.reader[which].record) ? 0 : stillpoint_read_unlock_slow(which);
}

/*
 * Returns whether the record that the calling thread has cached shows a section of it. Where it does not there may be one all the same: the record may
 * be the sentinel (a thread that is not bound, or whose readers fence; nested as deep as can be), or the section one that began without it.
 */
STILLPOINT_INLINE_ __attribute__((always_inline)) bool stillpoint_shows_section_(const struct stillpoint_record *record)
{
    return stillpoint_likely_((__atomic_load_n(&record->word, __ATOMIC_RELAXED) & STILLPOINT_NESTING_) - 1 < STILLPOINT_NESTING_ - 1);
}

/*
 * Begins a read-side critical section of the global domain, or one more level of it: rcu_read_lock(). What is found in it is not freed
 * until it ends. Never blocks, never fails. A thread's first registers it, which allocates; after that it is async-signal-safe, unless memory was short.
 * 65,535 levels; one more aborts. A thread that ends inside a section leaves it open for ever: a reported stall.
 */
STILLPOINT_INLINE_ void stillpoint_read_lock(void)
{
    stillpoint_lock_(STILLPOINT_RCU_);
}

/* Leaves a section or a level: rcu_read_unlock(). -EPERM if there is none. */
STILLPOINT_INLINE_ int stillpoint_read_unlock(void)
{
    return stillpoint_unlock_(STILLPOINT_RCU_);
}

/* As above for readers that sleep, block, and last for minutes, in a separate domain: rcu_read_lock_trace(). */
STILLPOINT_INLINE_ void stillpoint_trace_read_lock(void)
{
    stillpoint_lock_(STILLPOINT_TRACE_);
}

STILLPOINT_INLINE_ int stillpoint_trace_read_unlock(void)
{
    return stillpoint_unlock_(STILLPOINT_TRACE_);
}

/*
 * A section of a separate domain, or a nested level of it: stillpoint_domain_read_lock(), as fast as that of the global one. With what
 * stillpoint_domain_reader_init() has filled in on this thread; either half of the pair goes with either half of the other functions.
 */
STILLPOINT_INLINE_ void stillpoint_domain_reader_lock(const struct stillpoint_domain_reader *reader)
{
    if (!stillpoint_enter_(reader->reader.record, &reader->reader.started)) {
        stillpoint_domain_reader_lock_slow(reader);
    }
}

/* Leaves it, or a level. -EPERM if there is none. */
STILLPOINT_INLINE_ int stillpoint_domain_reader_unlock(const struct stillpoint_domain_reader *reader)
{
    return stillpoint_leave_(reader->reader.record) ? 0 : stillpoint_domain_reader_unlock_slow(reader);
}

/*
 * A section of a thread that is registered with stillpoint_qsbr_register() and online, which is inside one at all times: nothing, but that
 * the compiler moves no access out.
 */
STILLPOINT_INLINE_ void stillpoint_qsbr_read_lock(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

STILLPOINT_INLINE_ void stillpoint_qsbr_read_unlock(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/*
 * Says that this thread uses nothing that it has found: urcu_qsbr_quiescent_state(). Two loads and a comparison if no grace period has
 * started since the last time. Does nothing while offline or unregistered.
 */
STILLPOINT_INLINE_ void stillpoint_qsbr_quiescent_state(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint64_t now = __atomic_load_n(stillpoint_thread.reader[STILLPOINT_QSBR_].started, __ATOMIC_ACQUIRE); /* [R1] */
    if (!stillpoint_likely_(__atomic_load_n(&stillpoint_thread.reader[STILLPOINT_QSBR_].record->word, __ATOMIC_RELAXED) == now)) {
        stillpoint_qsbr_quiescent_state_slow();
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* The functions of a domain, for the global one. */
STILLPOINT_INLINE_ int stillpoint_synchronize(void)
{
    return stillpoint_domain_synchronize(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ int stillpoint_synchronize_expedited(void)
{
    return stillpoint_domain_synchronize_expedited(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ stillpoint_cookie stillpoint_get_state(void)
{
    return stillpoint_domain_get_state(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ stillpoint_cookie stillpoint_start_poll(void)
{
    return stillpoint_domain_start_poll(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ bool stillpoint_poll(stillpoint_cookie cookie)
{
    return stillpoint_domain_poll(STILLPOINT_NULL_, cookie);
}

STILLPOINT_INLINE_ int stillpoint_cond_synchronize(stillpoint_cookie cookie)
{
    return stillpoint_domain_cond_synchronize(STILLPOINT_NULL_, cookie);
}

STILLPOINT_INLINE_ int stillpoint_call(struct stillpoint_head *head, stillpoint_function function)
{
    return stillpoint_domain_call(STILLPOINT_NULL_, head, function);
}

STILLPOINT_INLINE_ int stillpoint_barrier(void)
{
    return stillpoint_domain_barrier(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ int stillpoint_kvfree_barrier(void)
{
    return stillpoint_domain_kvfree_barrier(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ int stillpoint_kvfree_barrier_nested(void)
{
    return stillpoint_domain_kvfree_barrier_nested(STILLPOINT_NULL_);
}

/* rcu_read_lock_held(). In a section a few instructions and no call. */
STILLPOINT_INLINE_ bool stillpoint_read_lock_held(void)
{
    return stillpoint_shows_section_(stillpoint_thread.reader[STILLPOINT_RCU_].record) || stillpoint_domain_read_lock_held(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ bool stillpoint_trace_read_lock_held(void)
{
    return stillpoint_shows_section_(stillpoint_thread.reader[STILLPOINT_TRACE_].record) ||
           stillpoint_domain_read_lock_held(stillpoint_trace_global());
}

/* A section of the global trace domain that belongs to the guard, not to a thread. */
STILLPOINT_INLINE_ struct stillpoint_guard *stillpoint_trace_guard(void)
{
    return stillpoint_domain_guard(stillpoint_trace_global());
}

STILLPOINT_INLINE_ int stillpoint_kvfree_one_(void *block)
{
    return stillpoint_kvfree_buffered(stillpoint_thread.buffer, block);
}

/* A cast that programs in C++ which do without C's casts can include. */
#ifdef __cplusplus
#define STILLPOINT_CAST_(type, pointer) reinterpret_cast<type>(pointer)
#else
#define STILLPOINT_CAST_(type, pointer) ((type)(pointer))
#endif

/* The struct that a link or a node is part of. */
#define STILLPOINT_AROUND_(link, type, member) STILLPOINT_CAST_(type *, STILLPOINT_CAST_(char *, link) - offsetof(type, member))

STILLPOINT_INLINE_ int stillpoint_kvfree_two_(void *block, size_t offset)
{
    char *head = STILLPOINT_CAST_(char *, block) + offset;

    return stillpoint_kvfree_head_buffered(stillpoint_thread.buffer, block, STILLPOINT_CAST_(struct stillpoint_head *, head));
}

/*
 * Calls free() with a block of malloc() after a grace period of the global domain: stillpoint_kvfree(block), which may fail inside a
 * section with -ENOMEM and then leaves the block to the caller; or, if the block is a struct with a stillpoint_head in its
 * first 4,096 bytes, stillpoint_kvfree(block, head's field), which needs no memory. Each evaluates its argument once. NULL does nothing.
 */
#define stillpoint_kvfree(...) STILLPOINT_THIRD_(__VA_ARGS__, STILLPOINT_KVFREE_2_, STILLPOINT_KVFREE_1_, 0)(__VA_ARGS__)
#define STILLPOINT_THIRD_(one, two, three, ...) three
#define STILLPOINT_KVFREE_1_(block) stillpoint_kvfree_one_(block)
#define STILLPOINT_KVFREE_2_(block, field) stillpoint_kvfree_two_((block), offsetof(__typeof__(*(block)), field))

#ifdef __cplusplus
}
#endif

#endif
