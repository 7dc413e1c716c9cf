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
