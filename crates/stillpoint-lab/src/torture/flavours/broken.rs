//! The policies of the broken flavours: each leaves one part out. No build but the torture's has
//! them.

use stillpoint::lab::{GracePeriodPolicy, Policy};

/// Defines a policy: what differs in grace periods, and what differs in deferred frees.
macro_rules! policy {
    ($(#[$about:meta])* $name:ident, $({ $($grace_periods:tt)* })? $(frees { $($frees:tt)* })?) => {
        $(#[$about])*
        #[derive(Debug)]
        pub enum $name {}

        // SAFETY: the torture reads type-stable elements of atomics alone, whose state is wrong when a
        // reader has been missed.
        unsafe impl GracePeriodPolicy for $name {
            $($($grace_periods)*)?
        }

        // SAFETY: as above. What deferred frees free are notes that are never read.
        unsafe impl Policy for $name {
            $($($frees)*)?
        }
    };
}

policy! {
    /// Grace periods do not wait for readers.
    NoWaiting, { const WAITS_FOR_READERS: bool = false; }
}

policy! {
    /// The heavy barrier is left out.
    NoHeavyBarrier, { const HEAVY_BARRIER: bool = false; }
}

policy! {
    /// Cookies name one grace period too few.
    ShortCookies, { const WHOLE_GRACE_PERIODS: bool = false; }
}

policy! {
    /// Pages of deferred frees have cookies that are one too old.
    EarlyPages, frees { const WHOLE_PAGE_COOKIES: bool = false; }
}

policy! {
    /// A scan passes over one reader.
    SkipsOneHoldout, { const EVERY_HOLDOUT: bool = false; }
}

policy! {
    /// Barriers return at once.
    NoBarriers, { const BARRIER_WAITS: bool = false; }
}

policy! {
    /// Nothing is left out but that sleepers look again after a while. Sound: nothing rests on that.
    UnboundedSleeps, { const BOUNDED_SLEEPS: bool = false; }
}

policy! {
    /// Waiters sleep without the second barrier, and without bound. Nothing is freed early by it.
    NoFlagBarrier, {
        const FLAG_BARRIER: bool = false;
        const BOUNDED_SLEEPS: bool = false;
    }
}

policy! {
    /// The service thread does not complete what `start_poll` has named. Nothing is freed early by it.
    NoPolledCompletion, { const COMPLETES_POLLED: bool = false; }
}
