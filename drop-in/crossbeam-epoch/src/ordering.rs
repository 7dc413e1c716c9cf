//! The orderings of the deprecated exchanges.

#![expect(deprecated, reason = "it is what defines them")]

use crate::CompareExchangeError;
use std::sync::atomic::Ordering;

/// The error of a failed exchange.
#[deprecated(note = "`CompareExchangeError` is its name")]
pub type CompareAndSetError<'g, T, P> = CompareExchangeError<'g, T, P>;

/// The orderings of an exchange: one for both outcomes, or a pair.
#[deprecated(note = "`compare_exchange` and `compare_exchange_weak` take two orderings")]
pub trait CompareAndSetOrdering {
    /// The ordering of an exchange that succeeds.
    fn success(&self) -> Ordering;

    /// The ordering of the load where it fails.
    fn failure(&self) -> Ordering;
}

impl CompareAndSetOrdering for Ordering {
    #[inline]
    fn success(&self) -> Ordering {
        *self
    }

    /// The strongest load ordering that is not stronger than the exchange's.
    #[inline]
    fn failure(&self) -> Ordering {
        match self {
            Ordering::Relaxed | Ordering::Release => Ordering::Relaxed,
            Ordering::Acquire | Ordering::AcqRel => Ordering::Acquire,
            _ => Ordering::SeqCst, // Needs no partner: the caller's, handed on.
        }
    }
}

impl CompareAndSetOrdering for (Ordering, Ordering) {
    #[inline]
    fn success(&self) -> Ordering {
        self.0
    }

    #[inline]
    fn failure(&self) -> Ordering {
        self.1
    }
}
