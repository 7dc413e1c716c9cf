//! What may be left out of deferred frees, so that a test can show that it is needed: see
//! `gp/policy.rs`.

use crate::gp::{self, Cookie, Engine, policy::Sound};

/// Which parts of deferred frees are present, beside those of grace periods.
///
/// # Safety
///
/// As for [`gp::Policy`](crate::gp::Policy).
pub unsafe trait Policy: gp::Policy {
    /// Whether the drain issues the heavy barrier between parking a thread and reading its page's
    /// length again (D2).
    const PARK_BARRIER: bool = true;
    /// Whether a sealed page of deferred frees has a cookie that was named after its last object
    /// had been unlinked. Off: the one before.
    const WHOLE_PAGE_COOKIES: bool = true;
}

// SAFETY: every constant keeps its default.
unsafe impl Policy for Sound {}

/// Starts a grace period for a page of objects that have been unlinked.
pub(super) fn start_for_page<P: Policy>(engine: &Engine<P>) -> Cookie {
    whole::<P>(engine.start())
}

/// Names a grace period for a page whose owner keeps it, without starting it: a start writes the
/// cache line that all readers load. `throttle.rs` says which thread starts it, and when.
pub(super) fn name_for_page<P: Policy>(engine: &Engine<P>) -> Cookie {
    whole::<P>(engine.get_state())
}

/// Returns the cookie, unless the policy takes one that is too old.
fn whole<P: Policy>(cookie: Cookie) -> Cookie {
    if P::WHOLE_PAGE_COOKIES {
        cookie
    } else {
        cookie.previous()
    }
}
