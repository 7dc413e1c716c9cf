//! The interface of seize 0.5 on [Stillpoint](stillpoint)'s grace periods.
//!
//! A program moves its whole dependency tree onto it by one line in the root's `Cargo.toml`, and
//! back by taking that out:
//!
//! ```toml
//! [patch.crates-io]
//! seize = { git = "https://github.com/stillpoint-rcu/stillpoint" }
//! ```
//!
//! Every name, bound and feature of the original is here, and its promises hold: objects are freed
//! by the threads that use their collector, all of them before [`Collector::reclaim_all`] or the
//! collector's drop returns, and where the last guard ends that is in the way. No thread is started.
//! [`guide`] is an introduction; the package's README says what is different.

mod collector;
mod guard;
pub mod guide;
mod ids;
pub mod reclaim;
mod slot;
mod thread;

pub use collector::Collector;
pub use guard::{Guard, LocalGuard, OwnedGuard};

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
