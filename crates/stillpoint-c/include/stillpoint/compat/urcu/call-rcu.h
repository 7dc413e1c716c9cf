/*
 * What call_rcu() remembers an object by, and the flags of its workers. The functions are among those of each flavour:
 * <urcu/stillpoint/flavour.h>. SPDX: MIT OR Apache-2.0
 */
#ifndef _URCU_CALL_RCU_H
#define _URCU_CALL_RCU_H

#include <pthread.h>
#include <stdlib.h>

/* Programs use liburcu's queues without including them by themselves. They have nothing to do with RCU and come with liburcu, if it is there. */
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

/* Flags of create_call_rcu_data(): that its users shall make no system call. */
#define URCU_CALL_RCU_RT (1U << 0)
/* States of liburcu's workers, which programs have no use for: nothing sets them here, and they are ignored. */
#define URCU_CALL_RCU_RUNNING (1U << 1)
#define URCU_CALL_RCU_STOP (1U << 2)
#define URCU_CALL_RCU_STOPPED (1U << 3)
#define URCU_CALL_RCU_PAUSE (1U << 4)
#define URCU_CALL_RCU_PAUSED (1U << 5)

/* Part of the object. Two words, as liburcu's, so that objects compiled with either header go together. Needs no initialisation. */
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
