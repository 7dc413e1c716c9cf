/*
 * What both of liburcu's flavours have, at their best documented use: read side inlined (the build defines _LGPL_SOURCE),
 * threads registered, deferred work by call_rcu. LAB(name) is our name of a call, URCU(name) the flavour's. Rust's side is
 * src/peers/liburcu.rs.
 */
#include <stdint.h>

void LAB(register)(void)
{
	URCU(register_thread)();
}

void LAB(unregister)(void)
{
	URCU(unregister_thread)();
}

/* The loop that `scale read` times: the same body, a compiler barrier, as in the Rust loops. */
void LAB(read_pairs)(uint64_t count)
{
	for (; count; count--) {
		URCU(read_lock)();
		__asm__ volatile("" ::: "memory");
		URCU(read_unlock)();
	}
	QUIESCENT_STATE();
}

/* Under QSBR it takes the calling thread offline meanwhile, by itself. */
void LAB(synchronize)(void)
{
	URCU(synchronize_rcu)();
}

void LAB(call_rcu)(struct rcu_head *head, void (*run)(struct rcu_head *head))
{
	URCU(call_rcu)(head, run);
}

void LAB(barrier)(void)
{
	URCU(barrier)();
}

#ifdef LAB_HAVE_POLL
unsigned long LAB(start_poll)(void)
{
	return URCU(start_poll_synchronize_rcu)().grace_period_id;
}

int LAB(poll)(unsigned long cookie)
{
	struct urcu_gp_poll_state state = { .grace_period_id = cookie };

	return URCU(poll_state_synchronize_rcu)(state);
}
#endif
