/*
 * liburcu's quiescent-state flavour: a read section costs nothing, and each thread says now and then that it is outside of
 * one. Rust's side of it is src/peers/liburcu_qsbr.rs.
 */
#include <stdint.h>

#include <urcu/urcu-qsbr.h>

void lab_qsbr_register(void)
{
	urcu_qsbr_register_thread();
}

void lab_qsbr_unregister(void)
{
	urcu_qsbr_unregister_thread();
}

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

/* The loop that `scale read` times; the thread reports a quiescent state once, after it. */
void lab_qsbr_read_pairs(uint64_t count)
{
	for (; count; count--) {
		urcu_qsbr_read_lock();
		__asm__ volatile("" ::: "memory");
		urcu_qsbr_read_unlock();
	}
	urcu_qsbr_quiescent_state();
}

/* Takes the calling thread offline meanwhile, by itself. */
void lab_qsbr_synchronize(void)
{
	urcu_qsbr_synchronize_rcu();
}

void lab_qsbr_call_rcu(struct rcu_head *head, void (*run)(struct rcu_head *head))
{
	urcu_qsbr_call_rcu(head, run);
}

void lab_qsbr_barrier(void)
{
	urcu_qsbr_barrier();
}

#ifdef LAB_HAVE_POLL
unsigned long lab_qsbr_start_poll(void)
{
	return urcu_qsbr_start_poll_synchronize_rcu().grace_period_id;
}

int lab_qsbr_poll(unsigned long cookie)
{
	struct urcu_gp_poll_state state = { .grace_period_id = cookie };

	return urcu_qsbr_poll_state_synchronize_rcu(state);
}
#endif
