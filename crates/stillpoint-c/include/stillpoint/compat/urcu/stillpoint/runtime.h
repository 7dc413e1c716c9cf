/*
 * The base of the liburcu-compatible API: functions of libstillpoint that take a flavour's number, and the inlined read side. Included by the
 * flavours' headers, not by programs. SPDX: MIT OR Apache-2.0
 *
 * | flavour | domain | readers |
 * |---|---|---|
 * | memb | the global one, so that kvfree and the native calls work with it | inlined |
 * | mb, bp | one each | inlined, through stillpoint_urcu_thread |
 * | qsbr | stillpoint_qsbr_global() | compiler barriers only |
 *
 * As in liburcu, a section of one flavour delays no grace period of another. Misuse (see each function) ends the process with a message, because the
 * functions cannot return errors.
 */
#ifndef STILLPOINT_URCU_RUNTIME_H
#define STILLPOINT_URCU_RUNTIME_H

#include <pthread.h>
#include <stdlib.h>
#include <stillpoint/stillpoint.h>

#include <urcu/urcu-poll.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rcu_head;
struct call_rcu_data;
struct urcu_atfork;

typedef void (*stillpoint_urcu_function)(struct rcu_head *head);

enum {
    STILLPOINT_URCU_MEMB_ = 0,
    STILLPOINT_URCU_QSBR_ = 1,
    /* The flavours from here on have their readers in stillpoint_urcu_thread. */
    STILLPOINT_URCU_MB_ = 2,
    STILLPOINT_URCU_BP_ = 3,
    STILLPOINT_URCU_FLAVOURS_ = 4
};

struct stillpoint_urcu_thread {
    struct stillpoint_reader reader[2];
};

__extension__ extern __thread struct stillpoint_urcu_thread stillpoint_urcu_thread __attribute__((tls_model("initial-exec")));

/* Returns a flavour's domain, for the native functions that take one. */
struct stillpoint_domain *stillpoint_urcu_domain(int flavour);

/* The slow paths of lock and unlock. */
void stillpoint_urcu_lock_slow(int flavour);
int stillpoint_urcu_unlock_slow(int flavour);

/* Returns whether the thread is inside a section of the flavour (QSBR: online), even if the cached record does not show it. Async-signal-safe. */
bool stillpoint_urcu_read_ongoing(int flavour);
void stillpoint_urcu_register_thread(int flavour);
void stillpoint_urcu_unregister_thread(int flavour);
void stillpoint_urcu_synchronize(int flavour);

void stillpoint_urcu_call(int flavour, struct rcu_head *head, stillpoint_urcu_function function);
void stillpoint_urcu_barrier(int flavour);
struct call_rcu_data *stillpoint_urcu_create(int flavour, unsigned long flags, int cpu);
void stillpoint_urcu_free(int flavour, struct call_rcu_data *data);
struct call_rcu_data *stillpoint_urcu_default(int flavour);
struct call_rcu_data *stillpoint_urcu_of_cpu(int flavour, int cpu);
struct call_rcu_data *stillpoint_urcu_of_thread(int flavour);
struct call_rcu_data *stillpoint_urcu_current(int flavour);
pthread_t stillpoint_urcu_worker(struct call_rcu_data *data);
void stillpoint_urcu_set_of_thread(int flavour, struct call_rcu_data *data);
int stillpoint_urcu_set_of_cpu(int flavour, int cpu, struct call_rcu_data *data);
int stillpoint_urcu_create_all(int flavour, unsigned long flags);
void stillpoint_urcu_free_all(int flavour);
void stillpoint_urcu_before_fork(int flavour);
void stillpoint_urcu_after_fork_parent(int flavour);
void stillpoint_urcu_after_fork_child(int flavour);
void stillpoint_urcu_register_atfork(int flavour, struct urcu_atfork *atfork);
void stillpoint_urcu_unregister_atfork(int flavour, struct urcu_atfork *atfork);

void stillpoint_urcu_defer(int flavour, void (*function)(void *), void *argument);
int stillpoint_urcu_defer_register(int flavour);
void stillpoint_urcu_defer_unregister(int flavour);
void stillpoint_urcu_defer_barrier(int flavour);
void stillpoint_urcu_defer_barrier_thread(int flavour);

#ifdef __cplusplus
}

extern "C++" {
#endif

/* As stillpoint_lock_(). mb and bp domains have no symbol for their word, so `started` of the thread's reader points to it. */
STILLPOINT_INLINE_ __attribute__((always_inline)) void stillpoint_urcu_lock_(int flavour)
{
    if (flavour == STILLPOINT_URCU_MEMB_) {
        stillpoint_read_lock();
    } else if (flavour == STILLPOINT_URCU_QSBR_) {
        stillpoint_qsbr_read_lock();
    } else {
        struct stillpoint_reader *reader = &stillpoint_urcu_thread.reader[flavour - STILLPOINT_URCU_MB_];
        if (!stillpoint_enter_(reader->record, &reader->started)) {
            stillpoint_urcu_lock_slow(flavour);
        }
    }
}

STILLPOINT_INLINE_ __attribute__((always_inline)) void stillpoint_urcu_unlock_(int flavour)
{
    if (flavour == STILLPOINT_URCU_MEMB_) {
        (void)stillpoint_read_unlock();
    } else if (flavour == STILLPOINT_URCU_QSBR_) {
        stillpoint_qsbr_read_unlock();
    } else if (!stillpoint_leave_(stillpoint_urcu_thread.reader[flavour - STILLPOINT_URCU_MB_].record)) {
        (void)stillpoint_urcu_unlock_slow(flavour);
    }
}

/* A QSBR reader's only section is the one that its record shows, and its record is always cached, even if the domain's readers fence. */
STILLPOINT_INLINE_ __attribute__((always_inline)) bool stillpoint_urcu_ongoing_(int flavour)
{
    if (flavour == STILLPOINT_URCU_QSBR_) {
        return stillpoint_shows_section_(stillpoint_thread.reader[STILLPOINT_QSBR_].record);
    }
    return stillpoint_shows_section_(flavour == STILLPOINT_URCU_MEMB_ ? stillpoint_thread.reader[STILLPOINT_RCU_].record
                                                                      : stillpoint_urcu_thread.reader[flavour - STILLPOINT_URCU_MB_].record) ||
           stillpoint_urcu_read_ongoing(flavour);
}

#ifdef __cplusplus
}
#endif

#endif
