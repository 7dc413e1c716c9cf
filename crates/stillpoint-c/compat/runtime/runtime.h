/* What the files of this folder know of each other: liburcu's API, the part that is in the library. */
#ifndef STILLPOINT_COMPAT_RUNTIME_H
#define STILLPOINT_COMPAT_RUNTIME_H

#include <urcu/flavor.h>

#include <urcu/stillpoint/runtime.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* In a static library they are names beside the program's. */
#define die stillpoint_urcu_die_
#define warn_misuse stillpoint_urcu_warn_misuse_
#define check_not_reading stillpoint_urcu_check_not_reading_
#define begin_wait stillpoint_urcu_begin_wait_
#define register_qsbr stillpoint_urcu_register_qsbr_
#define end_wait stillpoint_urcu_end_wait_
#define start_thread stillpoint_urcu_start_thread_
#define sleep_while stillpoint_urcu_sleep_while_
#define sleep_while_for stillpoint_urcu_sleep_while_for_
#define wake stillpoint_urcu_wake_
#define wake_all stillpoint_urcu_wake_all_
#define defer_reset_in_child stillpoint_urcu_defer_reset_in_child_

/* As in <urcu/call-rcu.h>, where it may have a type of liburcu's in it. */
struct rcu_head {
    struct rcu_head *next;
    stillpoint_urcu_function func;
};

/* What a function that returns nothing does where it cannot go on: prints a message, and aborts. As liburcu's urcu_die(). */
HIDDEN __attribute__((noreturn)) void die(int flavour, const char *format, ...);

/* A harmless misuse: prints a message where the library reports misuse (stillpoint_reports_misuse()). */
HIDDEN void warn_misuse(int flavour, const char *format, ...);

/* Dies if the calling thread would wait for itself by waiting for readers. */
HIDDEN void check_not_reading(int flavour, const char *function);

/* How a thread was before a wait. */
struct reader_state {
    bool was_online;
    int cancel_state;
};

/*
 * For a wait for what waits for readers: an online QSBR reader is offline meanwhile, and the thread is not cancelled, as liburcu's waits are no
 * cancellation points either, and a lock of ours would be held for ever.
 */
HIDDEN struct reader_state begin_wait(int flavour);
/* Registers the calling thread as a reader by quiescent states, however long that takes. */
HIDDEN void register_qsbr(void);
HIDDEN void end_wait(struct reader_state state);

/* A thread of the library, as those that Rust starts: neither the signal mask nor the scheduling are the caller's. 0 or an errno. In src/urcu.rs. */
HIDDEN int start_thread(pthread_t *thread, void *(*run)(void *), void *argument);

HIDDEN void sleep_while(const int *word, int value);
/* Sleeps for at most `nanoseconds`. */
HIDDEN void sleep_while_for(const int *word, int value, uint64_t nanoseconds);
HIDDEN void wake(const int *word);
HIDDEN void wake_all(const int *word);

/* In the child of a fork. */
HIDDEN void defer_reset_in_child(void);

#endif
