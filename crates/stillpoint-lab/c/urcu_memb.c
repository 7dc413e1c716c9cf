/*
 * liburcu's default flavour (readers by membarrier) at its best documented use: read side inlined (the build defines
 * _LGPL_SOURCE), threads registered, deferred work by call_rcu. Rust's side of it is src/peers/liburcu_memb.rs.
 */
#include <stdint.h>

#include <urcu/urcu-memb.h>

void lab_memb_register(void)
{
	urcu_memb_register_thread();
}

void lab_memb_unregister(void)
{
	urcu_memb_unregister_thread();
}

void lab_memb_read_lock(void)
{
	urcu_memb_read_lock();
}

void lab_memb_read_unlock(void)
{
	urcu_memb_read_unlock();
}

/* The loop that `scale read` times: the same body, a compiler barrier, as in the Rust loops. */
void lab_memb_read_pairs(uint64_t count)
{
	for (; count; count--) {
		urcu_memb_read_lock();
		__asm__ volatile("" ::: "memory");
		urcu_memb_read_unlock();
	}
}

void lab_memb_synchronize(void)
{
	urcu_memb_synchronize_rcu();
}

void lab_memb_call_rcu(struct rcu_head *head, void (*reclaim)(struct rcu_head *head))
{
	urcu_memb_call_rcu(head, reclaim);
}

void lab_memb_barrier(void)
{
	urcu_memb_barrier();
}

/* One call_rcu worker for every CPU, instead of one for the process; 0 on success. */
int lab_memb_start_worker_per_cpu(void)
{
	return urcu_memb_create_all_cpu_call_rcu_data(0);
}

#ifdef LAB_HAVE_POLL
unsigned long lab_memb_start_poll(void)
{
	return urcu_memb_start_poll_synchronize_rcu().grace_period_id;
}

int lab_memb_poll(unsigned long cookie)
{
	struct urcu_gp_poll_state state = { .grace_period_id = cookie };

	return urcu_memb_poll_state_synchronize_rcu(state);
}
#endif
