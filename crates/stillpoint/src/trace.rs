//! Probes for the system's tracers (USDT, feature `usdt`), named after the kernel's tracepoints where
//! there are such. `scripts/trace/README.md` has the list for users.
//!
//! A probe may be anywhere, also under locks: it is one `nop` while no tool looks.

/// Defines the function of a probe: `stillpoint:NAME`, with at most six arguments, all `u64`.
macro_rules! probe {
    ($(#[$attribute:meta])* $name:ident($($argument:ident),+)) => {
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name($($argument: u64),+) {
            #[cfg(all(feature = "usdt", target_os = "linux", not(any(miri, stillpoint_loom))))]
            probe::probe!(stillpoint, $name, $($argument),+);
            #[cfg(not(all(feature = "usdt", target_os = "linux", not(any(miri, stillpoint_loom)))))]
            let _ = ($($argument),+);
        }
    };
}

probe! {
    /// A grace period of this number has started.
    rcu_grace_period_start(domain, number)
}

probe! {
    /// The grace periods up to this number have ended. `held_up_since` is when a waiter first saw
    /// that readers hold them up, in nanoseconds of the monotonic clock; 0 if none has.
    rcu_grace_period_end(domain, number, held_up_since)
}

probe! {
    /// A waiter has asked the reader that holds the grace period up to wake it: the thread `tid`; 0
    /// for a guard that no thread owns.
    rcu_grace_period_flag(domain, number, tid)
}

probe! {
    /// A grace period has been held up for longer than the stall time-out, by `readers` readers; or the
    /// service thread has been, and `readers` is 0. A warning with the whole report follows.
    rcu_stall_warning(domain, lasted_ns, unreclaimed_bytes, readers)
}

probe! {
    /// A callback has been queued.
    rcu_callback(domain, head, number, pending)
}

probe! {
    /// A callback is about to be invoked.
    rcu_invoke_callback(domain, head)
}

probe! {
    /// A page of retired objects has been sealed, and waits for the grace period of this number.
    rcu_kvfree_page_seal(domain, page, objects, bytes, number)
}

probe! {
    /// Some or all objects of a page are about to be freed by their thread, or have been by the service
    /// thread. The kernel's `rcu_invoke_kfree_bulk_callback`.
    rcu_kvfree_page_free(domain, page, objects, bytes)
}

probe! {
    /// A thread that retires begins to wait, for `longest_ns` at most.
    rcu_kvfree_throttle_start(domain, unreclaimed_bytes, budget_bytes, longest_ns)
}

probe! {
    /// That thread has waited for `waited_ns`.
    rcu_kvfree_throttle_end(domain, waited_ns)
}
