/*
 * Stillpoint: kernel-style RCU, batched deferred frees and the parts built on them, for C11 and C++17. SPDX: MIT OR Apache-2.0
 *
 * Functions that return int return 0 (or the documented value) or a negative errno. None unwinds, and no callback may unwind or longjmp out. A NULL
 * domain is the global one.
 *
 * Threads. Any thread may call any function, and threads may share all handles but a struct stillpoint_domain_reader; the call that ends a handle
 * must be its last use. Threads need not register: the first section or free registers a thread, and its exit releases everything.
 *
 * Signal handlers may read (begin and leave sections of a domain, and look things up), and do nothing else. They may do so only in a thread for which
 * stillpoint_domain_register_thread() has returned 0 for that domain (NULL for the global one), until the thread's destructors run. An earlier
 * section is not enough: if memory was short, it did not register the thread, and each section takes a lock, which the handler may have interrupted.
 *
 * Cancellation. Cancelling a thread inside a library function or a callback is undefined behaviour: disable cancellation (pthread_setcancelstate())
 * around all but the inlined reader functions. A cancelled thread's section stays open unless a cleanup handler or a destructor leaves it.
 *
 * Fork. In the child, the forking thread's sections stay open, other threads' sections have ended, and all functions work. Callbacks and frees that
 * were pending at the fork run in the parent only (in the child, their heads stay taken).
 *
 * Memory. call_rcu() and kfree_rcu() with a head need none. Functions that document -ENOMEM return it; elsewhere an allocation that fails ends the
 * process. If no service thread can be created, waiting threads do its work, and later calls try again.
 *
 * The library is never unloaded: dlclose() keeps it and its pending work. A plug-in's callbacks are unloaded with the plug-in, so it calls
 * stillpoint_domain_barrier() for each domain that it has used before dlclose(). Do not link both the static and the shared library into one process.
 *
 * Stalls. A grace period that is held up for 10 s is reported once, on stderr or to a function (stillpoint_domain_on_stall()). STILLPOINT_STALL=off,
 * stderr or a number of seconds in the environment overrides that.
 *
 * Misuse. With STILLPOINT_DEBUG=on in the environment when it is loaded, and always in a debug build, the library reports on stderr:
 *
 *   null where an object is required            -EINVAL
 *   unlock without lock                         -EPERM; nothing happens
 *   QSBR functions of an unregistered thread    -EPERM
 *   registered twice                            -EEXIST
 *   a wait inside one's own section             -EDEADLK; nothing was waited for
 *   a domain's reader used on another thread, or after its own has ended        undefined
 *   a head that is queued already               -EBUSY if detected (x86-64; by stillpoint_kvfree() in debug builds only); otherwise, and for a
 *                                               head that was given to kvfree, undefined
 *   a domain destroyed while it is read         -EBUSY, or -EDEADLK inside one's own section or a callback; likewise an arena with its own domain
 *   a thread that ends inside a section         the section stays open for ever, and is reported as a stall
 *   a block freed twice, a domain used after    undefined, as for free()
 *
 * In <stillpoint/rcupdate.h> a wait or a call_rcu() that is refused aborts, because it cannot return an error.
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
 * The fast paths of lock and unlock; they return false if the slow path is needed. gp/README.md of the library proves the orderings under the same
 * labels. If readers have to fence, or the linker has given this program another stillpoint_started than the library's, the thread's record is never
 * cached here, so both return false. `*started` is read after the record, which a signal handler may have cached in between.
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
 * Returns whether the calling thread's cached record shows a section. False does not mean that there is none: the record may be the sentinel (of a
 * thread that is not bound, or whose readers fence; its nesting is the maximum), or the section may have begun without the record.
 */
STILLPOINT_INLINE_ __attribute__((always_inline)) bool stillpoint_shows_section_(const struct stillpoint_record *record)
{
    return stillpoint_likely_((__atomic_load_n(&record->word, __ATOMIC_RELAXED) & STILLPOINT_NESTING_) - 1 < STILLPOINT_NESTING_ - 1);
}

/*
 * Begins a read-side critical section of the global domain, or one more level of it: rcu_read_lock(). Objects found in it are not freed until it
 * ends. Never blocks, never fails. A thread's first section registers the thread, which allocates; after that it is async-signal-safe, unless memory
 * was short. Nests up to 65,535 levels; one more aborts. A thread that ends inside a section leaves it open for ever, which is reported as a stall.
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

/* The same for readers that sleep, block or run for minutes, in a separate domain: rcu_read_lock_trace(). */
STILLPOINT_INLINE_ void stillpoint_trace_read_lock(void)
{
    stillpoint_lock_(STILLPOINT_TRACE_);
}

STILLPOINT_INLINE_ int stillpoint_trace_read_unlock(void)
{
    return stillpoint_unlock_(STILLPOINT_TRACE_);
}

/*
 * Begins a section of a separate domain, or one more level of it, like stillpoint_domain_read_lock(), but as fast as in the global domain.
 * stillpoint_domain_reader_init() has filled in `reader` on this thread. Each function of the pair may be combined with the other pair's.
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
 * Marks a section of a thread that is registered with stillpoint_qsbr_register() and online. Such a thread is always inside a section, so this is
 * only a compiler barrier.
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
 * Declares that this thread uses nothing that it has found: urcu_qsbr_quiescent_state(). Costs two loads and a comparison if no grace period has
 * started since the last call. Does nothing while offline or unregistered.
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

/* rcu_read_lock_held(). Inside a section it takes a few instructions and no call. */
STILLPOINT_INLINE_ bool stillpoint_read_lock_held(void)
{
    return stillpoint_shows_section_(stillpoint_thread.reader[STILLPOINT_RCU_].record) || stillpoint_domain_read_lock_held(STILLPOINT_NULL_);
}

STILLPOINT_INLINE_ bool stillpoint_trace_read_lock_held(void)
{
    return stillpoint_shows_section_(stillpoint_thread.reader[STILLPOINT_TRACE_].record) ||
           stillpoint_domain_read_lock_held(stillpoint_trace_global());
}

/* Begins a section of the global trace domain that belongs to the guard, not to a thread. */
STILLPOINT_INLINE_ struct stillpoint_guard *stillpoint_trace_guard(void)
{
    return stillpoint_domain_guard(stillpoint_trace_global());
}

STILLPOINT_INLINE_ int stillpoint_kvfree_one_(void *block)
{
    return stillpoint_kvfree_buffered(stillpoint_thread.buffer, block);
}

/* A cast that does not warn under C++'s -Wold-style-cast. */
#ifdef __cplusplus
#define STILLPOINT_CAST_(type, pointer) reinterpret_cast<type>(pointer)
#else
#define STILLPOINT_CAST_(type, pointer) ((type)(pointer))
#endif

/* The struct that contains a link or a node. */
#define STILLPOINT_AROUND_(link, type, member) STILLPOINT_CAST_(type *, STILLPOINT_CAST_(char *, link) - offsetof(type, member))

STILLPOINT_INLINE_ int stillpoint_kvfree_two_(void *block, size_t offset)
{
    char *head = STILLPOINT_CAST_(char *, block) + offset;

    return stillpoint_kvfree_head_buffered(stillpoint_thread.buffer, block, STILLPOINT_CAST_(struct stillpoint_head *, head));
}

/*
 * Calls free() with a block of malloc() after a grace period of the global domain. stillpoint_kvfree(block) may fail with -ENOMEM inside a section or
 * a callback; the block is then still the caller's. stillpoint_kvfree(block, field) needs no memory: the field is a stillpoint_head in the block's
 * first 4,096 bytes. Evaluates `block` once. NULL does nothing.
 */
#define stillpoint_kvfree(...) STILLPOINT_THIRD_(__VA_ARGS__, STILLPOINT_KVFREE_2_, STILLPOINT_KVFREE_1_, 0)(__VA_ARGS__)
#define STILLPOINT_THIRD_(one, two, three, ...) three
#define STILLPOINT_KVFREE_1_(block) stillpoint_kvfree_one_(block)
#define STILLPOINT_KVFREE_2_(block, field) stillpoint_kvfree_two_((block), offsetof(__typeof__(*(block)), field))

#ifdef __cplusplus
}
#endif

#endif
