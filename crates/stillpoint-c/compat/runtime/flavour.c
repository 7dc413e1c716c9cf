/* liburcu's API: the flavours, what they wait for, and the thread-local state of the inlined readers. SPDX: MIT OR Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const names[STILLPOINT_URCU_FLAVOURS_] = {"memb", "qsbr", "mb", "bp"};

/* In nanoseconds. */
#define SECOND 1000000000ul

/* The record of unregistered threads: src/thread.c. */
HIDDEN extern const struct stillpoint_record stillpoint_unregistered_;

#define UNREGISTERED {(struct stillpoint_record *)&stillpoint_unregistered_, &stillpoint_unregistered_.word}

/* With the model of the declaration, which the definition would take back. */
__thread struct stillpoint_urcu_thread stillpoint_urcu_thread
    __attribute__((tls_model("initial-exec"))) = {.reader = {UNREGISTERED, UNREGISTERED}};

/* For src/thread.rs. The order as in thread.c. */
HIDDEN void stillpoint_urcu_cache_record_(int flavour, struct stillpoint_record *record, const uint64_t *started)
{
    struct stillpoint_reader *reader = &stillpoint_urcu_thread.reader[flavour - STILLPOINT_URCU_MB_];
    reader->started = started;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    reader->record = record;
}

HIDDEN void stillpoint_urcu_clear_records_(void)
{
    for (int n = 0; n < 2; n++) {
        stillpoint_urcu_thread.reader[n].record = (struct stillpoint_record *)&stillpoint_unregistered_;
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void print(int flavour, const char *format, va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    fprintf(stderr, "stillpoint: urcu-%s: %s\n", names[flavour], text);
}

void die(int flavour, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print(flavour, format, arguments);
    va_end(arguments);
    abort();
}

void warn_misuse(int flavour, const char *format, ...)
{
    if (stillpoint_reports_misuse()) {
        va_list arguments;
        va_start(arguments, format);
        print(flavour, format, arguments);
        va_end(arguments);
    }
}

void check_not_reading(int flavour, const char *function)
{
    /* An online QSBR reader goes offline for it. */
    if (flavour != STILLPOINT_URCU_QSBR_ && stillpoint_urcu_ongoing_(flavour)) {
        die(flavour, "%s inside a read-side critical section would wait for itself: leave the section first", function);
    }
}

struct reader_state begin_wait(int flavour)
{
    struct reader_state state = {.was_online = flavour == STILLPOINT_URCU_QSBR_ && stillpoint_qsbr_is_online()};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state.cancel_state);
    if (state.was_online) {
        stillpoint_qsbr_pause_();
    }
    return state;
}

void end_wait(struct reader_state state)
{
    if (state.was_online) {
        stillpoint_qsbr_online();
    }
    pthread_setcancelstate(state.cancel_state, NULL);
}

void register_qsbr(void)
{
    /* Readers of this flavour do nothing, so one that is not registered would not be waited for; and the caller cannot be told of an error. */
    for (;;) {
        int outcome = stillpoint_qsbr_register();
        if (outcome == 0 || outcome == -EEXIST) {
            return;
        }
        if (outcome != -ENOMEM) {
            die(STILLPOINT_URCU_QSBR_, "a thread cannot be registered (errno %d), and its readers would not be waited for: at its very end it is too late",
                -outcome);
        }
        struct timespec pause = {.tv_nsec = 1000 * 1000};
        nanosleep(&pause, NULL);
    }
}

void stillpoint_urcu_register_thread(int flavour)
{
    if (flavour == STILLPOINT_URCU_QSBR_) {
        register_qsbr();
    } else {
        (void)stillpoint_domain_register_thread(stillpoint_urcu_domain(flavour));
    }
}

void stillpoint_urcu_unregister_thread(int flavour)
{
    if (flavour == STILLPOINT_URCU_QSBR_) {
        (void)stillpoint_qsbr_unregister();
    }
}

void stillpoint_urcu_synchronize(int flavour)
{
    int outcome = flavour == STILLPOINT_URCU_QSBR_ ? stillpoint_qsbr_synchronize()
                                                   : stillpoint_domain_synchronize(stillpoint_urcu_domain(flavour));
    if (outcome == -EDEADLK) {
        die(flavour, "synchronize_rcu() inside a read-side critical section would wait for itself: leave the section first");
    }
    if (outcome != 0) {
        die(flavour, "synchronize_rcu() failed: errno %d", -outcome);
    }
}

void sleep_while(const int *word, int value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void sleep_while_for(const int *word, int value, uint64_t nanoseconds)
{
    struct timespec time = {.tv_sec = (time_t)(nanoseconds / SECOND), .tv_nsec = (long)(nanoseconds % SECOND)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0);
}

void wake(const int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void wake_all(const int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- The structures of functions, which the hash table of liburcu-cds is given. No state of readers is in them. ---- */

#define MEMB(name) memb_##name
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MEMB_
#define STILLPOINT_FLAVOUR_(name) MEMB(name)
#include <urcu/stillpoint/flavour.h>
const struct rcu_flavor_struct stillpoint_urcu_memb_flavor = STILLPOINT_STRUCTURE_(MEMB);

#define QSBR(name) qsbr_##name
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_QSBR_
#define STILLPOINT_FLAVOUR_(name) QSBR(name)
#include <urcu/stillpoint/flavour.h>
const struct rcu_flavor_struct stillpoint_urcu_qsbr_flavor = STILLPOINT_STRUCTURE_(QSBR);

#define MB(name) mb_##name
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_MB_
#define STILLPOINT_FLAVOUR_(name) MB(name)
#include <urcu/stillpoint/flavour.h>
const struct rcu_flavor_struct stillpoint_urcu_mb_flavor = STILLPOINT_STRUCTURE_(MB);

#define BP(name) bp_##name
#define STILLPOINT_FLAVOUR_NUMBER_ STILLPOINT_URCU_BP_
#define STILLPOINT_FLAVOUR_(name) BP(name)
#include <urcu/stillpoint/flavour.h>
const struct rcu_flavor_struct stillpoint_urcu_bp_flavor = STILLPOINT_STRUCTURE_(BP);
