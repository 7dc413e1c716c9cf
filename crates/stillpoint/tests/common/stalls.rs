//! Stalls that a test waits for.

use super::Hear;
use std::{
    sync::mpsc::{Receiver, channel},
    time::Duration,
};
use stillpoint::{Domain, StallReport};

/// Short enough for a test, long enough for an honest grace period to come first on a loaded
/// machine, mostly.
pub const TIMEOUT: Duration = Duration::from_millis(50);

/// The reports of a domain's stalls.
pub struct Stalls(Receiver<StallReport>);

impl Stalls {
    /// Gives the domain a short time-out and a handler.
    pub fn of(domain: &Domain) -> Self {
        let (tell, told) = channel();
        domain.set_stall_timeout(TIMEOUT);
        domain.on_stall(move |report| drop(tell.send(report.clone())));
        Self(told)
    }

    /// Returns the domain with a listener for its stalls.
    pub fn watch(domain: Domain) -> (Domain, Self) {
        let stalls = Self::of(&domain);
        (domain, stalls)
    }

    /// Waits for the next report.
    #[track_caller]
    pub fn next(&self) -> StallReport {
        self.0.hear("a stall is reported")
    }

    /// Returns the next report, if there is one.
    pub fn try_next(&self) -> Option<StallReport> {
        self.0.try_recv().ok()
    }
}

/// Fails the test unless a thread of this name waits.
#[track_caller]
pub fn assert_waits(report: &StallReport, name: &str) {
    let mut names = report.waiters.iter().map(|waiter| waiter.name.as_deref());
    assert!(names.any(|waiter| waiter == Some(name)), "{report}");
}
