//! What this crate shows to a person who looks into a running program: probes (feature `usdt`) and
//! events (feature `tracing`), named after the kernel's tracepoints where it has such.
//!
//! Call sites may be anywhere, also under locks. Where events reach the subscriber says `emit`
//! (`stillpoint-platform/src/trace.rs`). `scripts/trace/README.md` has the list for users.

pub(crate) use crate::platform::trace::{Entered, emit, emit_within, is_pending, wants_spans};
use crate::platform::{trace_event, trace_span};

trace_event! {
    /// A grace period of this number has started.
    TRACE rcu_grace_period_start(domain, number) for domain
}

trace_event! {
    /// The grace periods up to this number have ended. `held_up_since` is when a waiter first saw
    /// that readers hold them up, in nanoseconds of the monotonic clock; 0 if none has.
    TRACE rcu_grace_period_end(domain, number, held_up_since) for domain
}

trace_event! {
    /// A waiter has asked the reader that holds the grace period up to wake it: the thread `tid`; 0
    /// for a guard that no thread owns.
    TRACE rcu_grace_period_flag(domain, number, tid) for domain
}

trace_event! {
    /// A grace period has been held up for longer than the stall time-out, by so many readers; or
    /// the service thread has been, and `readers` is 0. A warning with the whole report follows.
    DEBUG rcu_stall_warning(domain, lasted_ns, unreclaimed_bytes, readers) for domain
}

trace_event! {
    /// A callback has been queued.
    TRACE rcu_callback(domain, head, number, pending) for domain
}

trace_event! {
    /// A callback is about to be invoked.
    TRACE rcu_invoke_callback(domain, head) for domain
}

trace_event! {
    /// A page of retired objects has been sealed, and waits for the grace period of this number.
    TRACE rcu_kvfree_page_seal(domain, page, objects, bytes, number) for domain
}

trace_event! {
    /// The objects of a page have been freed. The kernel's `rcu_invoke_kfree_bulk_callback`.
    TRACE rcu_kvfree_page_free(domain, page, objects, bytes) for domain
}

trace_event! {
    /// A thread that retires begins to wait, for `longest_ns` at most.
    TRACE rcu_kvfree_throttle_start(domain, unreclaimed_bytes, budget_bytes, longest_ns) for domain
}

trace_event! {
    /// It has waited for so long.
    TRACE rcu_kvfree_throttle_end(domain, waited_ns) for domain
}

trace_span! {
    /// The thread sleeps, now and then, until the grace period of this number has ended.
    rcu_grace_period(domain, number) for domain
}

trace_span! {
    /// The thread, which retires, waits.
    rcu_kvfree_throttle(domain) for domain
}
