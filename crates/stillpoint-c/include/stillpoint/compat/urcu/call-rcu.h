/*
 * call_rcu()'s head of an object, and the flags of its workers. The functions are in each flavour's: <urcu/stillpoint/flavour.h>. SPDX: MIT
 * OR Apache-2.0
 */
#ifndef _URCU_CALL_RCU_H
#define _URCU_CALL_RCU_H

#include <pthread.h>
#include <stdlib.h>

/* Programs use liburcu's queues without including their header. The queues are independent of RCU, and come with liburcu if it is installed. */
#if defined(__has_include)
#if __has_include(<urcu/wfcqueue.h>)
#include <urcu/wfcqueue.h>
#define STILLPOINT_URCU_QUEUE_ 1
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A worker of call_rcu(). */
struct call_rcu_data;

/* Flag of create_call_rcu_data(): queueing makes no system call. */
#define URCU_CALL_RCU_RT (1U << 0)
/* States of liburcu's workers. Programs do not need them; here they are never set, and ignored. */
#define URCU_CALL_RCU_RUNNING (1U << 1)
#define URCU_CALL_RCU_STOP (1U << 2)
#define URCU_CALL_RCU_STOPPED (1U << 3)
#define URCU_CALL_RCU_PAUSE (1U << 4)
#define URCU_CALL_RCU_PAUSED (1U << 5)

/* Part of the object. Two words, as in liburcu, so that code compiled with either header works together. Needs no initialisation. */
struct rcu_head {
#ifdef STILLPOINT_URCU_QUEUE_
    struct cds_wfcq_node next;
#else
    struct rcu_head *next;
#endif
    void (*func)(struct rcu_head *head);
};

#ifdef __cplusplus
}
#endif

#endif
