/* liburcu's quiescent-state flavour: a section costs nothing, and each thread says now and then that it is outside of one. */
#include <urcu/urcu-qsbr.h>

#define LAB(name) lab_qsbr_##name
#define URCU(name) urcu_qsbr_##name
/* A thread reports one after the loop that is timed. */
#define QUIESCENT_STATE() urcu_qsbr_quiescent_state()
#include "flavour.h"

void lab_qsbr_offline(void)
{
	urcu_qsbr_thread_offline();
}

void lab_qsbr_online(void)
{
	urcu_qsbr_thread_online();
}

void lab_qsbr_quiescent_state(void)
{
	urcu_qsbr_quiescent_state();
}
