//! What goes on around readers and writers to make their lives hard, each in its own thread,
//! while it is in force ([`Session::is_active`]). A new one is a name in [`Disturbance`], an option
//! in `options.rs`, a file here and a line in [`start`].
//!
//! | file | subject |
//! |---|---|
//! | `callbacks` | floods of callbacks, barriers with other threads' callbacks, callbacks that take long |
//! | `churn` | threads that come, read and go; readers that register and deregister; domains that come and go |
//! | `processors` | a hog at a higher priority; threads moved between processors |
//! | `signals` | signals to threads whose handlers read |
//! | `fork` | children that use the domain |
//!
//! Pausing and resuming ("stutter") is the runner's.

use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use stillpoint::lab::Policy;

use super::harness::{self, Harness, ThreadSpec};
use super::session::Session;

pub mod callbacks;
mod churn;
mod fork;
pub mod processors;
pub mod signals;

/// The disturbances, by their names on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Disturbance {
    StallReader,
    StallService,
    FwdProgress,
    BarrierCallbacks,
    ReadExit,
    RegistrationChurn,
    Signals,
    Preempt,
    Shuffle,
    Stutter,
    Fork,
}

impl Disturbance {
    /// Returns the option that asks for it, without its dashes.
    pub fn option(self) -> String {
        let value = self.to_possible_value().expect("none is left out");
        value.get_name().to_owned()
    }
}

/// Starts the threads of the disturbances that the plan has.
pub fn start<'scope, 'env, P: Policy>(
    scope: &'scope Scope<'scope, 'env>,
    session: &'env Arc<Session>,
    harness: &'env Harness<'env, P>,
) {
    for &disturbance in &session.plan.disturbances {
        let once: fn(&Arc<Session>, &Harness<P>, u64) = match disturbance {
            Disturbance::Stutter => continue,
            Disturbance::StallReader => churn::stall_reader,
            Disturbance::StallService => callbacks::stall_service,
            Disturbance::FwdProgress => callbacks::flood,
            Disturbance::BarrierCallbacks => callbacks::barrier,
            Disturbance::ReadExit => churn::read_and_exit,
            Disturbance::RegistrationChurn => churn::register_and_deregister,
            Disturbance::Signals => signals::send,
            Disturbance::Preempt => processors::hog,
            Disturbance::Shuffle => processors::shuffle,
            Disturbance::Fork => fork::fork,
        };
        let spec = ThreadSpec::new(format!("{disturbance:?}"), move || {
            let mut round = 0;
            while !session.is_over() {
                if session.is_active(disturbance) {
                    once(session, harness, round);
                    round += 1;
                } else {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        harness::start(scope, session, harness, spec);
    }
}

/// A thread of a disturbance's own.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) {
    let spawned = thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, work);
    spawned.expect("a few threads more than there are");
}

/// Sleeps so long, or until the run is over.
pub fn sleep(session: &Session, seconds: f64) {
    let step = Duration::from_millis(10);
    let mut left = Duration::from_secs_f64(seconds);
    while !left.is_zero() && !session.is_over() {
        thread::sleep(left.min(step));
        left = left.saturating_sub(step);
    }
}
