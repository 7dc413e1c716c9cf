/* liburcu's default flavour: readers by membarrier. */
#include <urcu/urcu-memb.h>

#define LAB(name) lab_memb_##name
#define URCU(name) urcu_memb_##name
#define QUIESCENT_STATE() ((void)0)
#include "flavour.h"

void lab_memb_read_lock(void)
{
	urcu_memb_read_lock();
}

void lab_memb_read_unlock(void)
{
	urcu_memb_read_unlock();
}

/* One call_rcu worker for every CPU, instead of one for the process; 0 on success. */
int lab_memb_start_worker_per_cpu(void)
{
	return urcu_memb_create_all_cpu_call_rcu_data(0);
}
