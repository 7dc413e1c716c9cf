//! Stalls: a grace period that readers hold up for longer than anyone would want.

use super::{engine::Engine, policy::Policy, seq::Cookie};
use crate::platform::{
    clock::Nanos,
    sync::{AtomicBool, AtomicU64, Ordering},
    thread,
};
use std::time::Duration;

/// What a new domain takes for a stall; the kernel's is 21 s.
pub(crate) const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Times the grace period that is being waited for. Reported once per period.
#[derive(Debug)]
pub(super) struct Stalls {
    /// When somebody first found the present grace period held up; 0 while nobody has.
    since: AtomicU64,
    reported: AtomicBool,
    count: AtomicU64,
    timeout: AtomicU64,
}

impl Stalls {
    pub(super) fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            reported: AtomicBool::new(false),
            count: AtomicU64::new(0),
            timeout: AtomicU64::new(crate::platform::clock::nanos(DEFAULT_STALL_TIMEOUT)),
        }
    }

    /// A grace period has ended: whatever is waited for next is waited for afresh.
    pub(super) fn ended(&self) {
        if self.since.load(Ordering::Relaxed) != 0 {
            self.since.store(0, Ordering::Relaxed);
            self.reported.store(false, Ordering::Relaxed);
        }
    }

    /// How long the present grace period has been held up, if that is a stall which nobody has reported yet.
    fn is_due(&self, now: Nanos) -> Option<Duration> {
        let since = self.since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|since| since);
        let waited = if since == 0 { 0 } else { now.saturating_sub(since) };
        let due = waited > self.timeout.load(Ordering::Relaxed) && !self.reported.swap(true, Ordering::Relaxed);
        due.then_some(Duration::from_nanos(waited))
    }
}

impl<P: Policy> Engine<P> {
    /// To be called now and then by whoever finds `cookie` held up.
    pub(crate) fn note_held_up(&self, cookie: Cookie, now: Nanos) {
        let Some(waited) = self.stalls.is_due(now) else {
            return;
        };
        self.stalls.count.fetch_add(1, Ordering::Relaxed);
        for (record, _) in self.holdouts(cookie.seq()) {
            let name = thread::name_of(record.tid());
            report(cookie, waited, record.tid(), name.as_deref().unwrap_or("(gone)"));
        }
    }

    /// Whether the present grace period has been reported as stalled and has not ended since.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalls.reported.load(Ordering::Relaxed)
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.count.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stall_timeout(&self, timeout: Duration) {
        self.stalls.timeout.store(crate::platform::clock::nanos(timeout), Ordering::Relaxed);
    }
}

#[cfg(feature = "tracing")]
fn report(cookie: Cookie, waited: Duration, tid: u32, name: &str) {
    tracing::warn!(?cookie, ?waited, tid, name, "a reader holds up a grace period");
}

#[cfg(not(feature = "tracing"))]
fn report(_: Cookie, _: Duration, _: u32, _: &str) {}
