//! What may be left out of the machinery, so that a test can show that it is needed.
//!
//! The core is generic over a [`Policy`]; every shipped build instantiates [`Sound`] alone, and no
//! public type has the parameter. A torture program implements the trait for its own type, with
//! one part switched off, and must then see its checks fail. There is no cargo feature and no
//! run-time switch: only `unsafe impl Policy` reaches a broken variant, and only for a type that
//! the writer of that `unsafe` has named. Deferred frees have another trait.

/// Which parts of the grace-period machinery are present. All of them, unless a test says
/// otherwise.
///
/// # Safety
///
/// With every constant at its default the implementation is sound. Switching one off breaks the
/// promise that a retired object outlives its readers: the implementer must then use the domain
/// only with objects for which that is harmless (type-stable elements of atomics, as rcutorture
/// does).
pub unsafe trait Policy: Send + Sync + Sized + 'static {
    /// Whether a scan waits for readers at all. Off: every grace period ends at once ("busted").
    const WAITS_FOR_READERS: bool = true;
    /// Whether the updater issues the heavy barrier between starting a grace period and scanning
    /// (W3).
    const HEAVY_BARRIER: bool = true;
    /// Whether a waiter issues the heavy barrier between flagging a holdout and reading it again
    /// (S2).
    const FLAG_BARRIER: bool = true;
    /// Whether a scan looks at every reader. Off: it passes over the first one that it would have
    /// to wait for.
    const EVERY_HOLDOUT: bool = true;
    /// Whether a cookie names a grace period that has yet to start. Off: it names the one before
    /// that, which sections that are open need not hold up.
    const WHOLE_GRACE_PERIODS: bool = true;
    /// Whether a barrier waits for the callbacks that were queued before it. Off: it returns at
    /// once.
    const BARRIER_WAITS: bool = true;
    /// Whether the service thread completes the grace periods of `start_poll` cookies. Off: they
    /// complete only when another thread ends them.
    const COMPLETES_POLLED: bool = true;
    /// Whether threads that sleep for a reader look again after a while, even if no thread wakes
    /// them.
    const BOUNDED_SLEEPS: bool = true;
    /// How long an idle service thread stays, in nanoseconds, so that one burst of work per second
    /// does not start a thread each time.
    const IDLE: u64 = 1_000_000_000;
    /// Whether a service thread without work looks, when it ends, whether it has been kicked
    /// meanwhile. Off: work that comes at that moment is not done.
    const ENDS_UNKICKED: bool = true;
    /// Called by the service thread before each of its passes. A test panics here, as a fault of
    /// the library's own would.
    fn service_comes() {}
}

/// The one policy of shipped builds: everything is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sound {}

// SAFETY: every constant keeps its default.
unsafe impl Policy for Sound {}
