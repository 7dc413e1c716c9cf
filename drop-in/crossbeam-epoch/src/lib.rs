//! The interface of crossbeam-epoch 0.9 on [Stillpoint](stillpoint)'s grace periods.
//!
//! A program moves its whole dependency tree onto it by one line in the root's `Cargo.toml`, with the
//! path of a clone, and `cargo update -p crossbeam-epoch`; and back by taking the line out:
//!
//! ```toml
//! [patch.crates-io]
//! crossbeam-epoch = { path = "../stillpoint/drop-in/crossbeam-epoch" }
//! ```
//!
//! Every name, bound and feature of the original is here. What is different is when deferred
//! functions run, and how many of them are unreclaimed at a time:
//!
//! * They run on the thread that deferred them, in an outermost [`pin`] or in [`Guard::flush`], or
//!   on a thread of the library's, which is started by the first deferred function, is shared by all
//!   collectors (with one more for each function that blocks and holds up others), and takes care
//!   of what a thread does not come back for. Never in [`Guard::defer`], and never where a guard
//!   ends.
//! * 20 to 30 milliseconds after a thread has deferred its last function, that function runs, if no
//!   guard is in the way. The original may never run it.
//! * An outermost [`pin`] of a thread that has deferred many functions may sleep where a guard of
//!   another thread holds up more than 2 MiB, until that guard has ended, or has been in the way for
//!   10 milliseconds. So a thread that has lost its processor in a guard does not have memory grow,
//!   and one that holds a guard for long delays no other.
//! * A panic of a deferred function is caught and counted, and does not unwind through `pin`.
//! * When the process exits, functions that have not run are left alone.
//!
//! The manual's chapter "From crossbeam-epoch" has the whole list, and says what to check.
//!
//! # Features
//!
//! `default`, `std`, `alloc`, `loom` and `nightly` as in the original; `loom` does nothing. Beside
//! them: `nofence` makes a pin cheaper and takes the fence out of it that crossbeam-deque relies on;
//! `tracing` has stalls and caught panics reported as events; `reports` adds
//! `Collector::statistics`, `Collector::on_stall` and `Collector::set_stall_timeout`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "this crossbeam-epoch is Stillpoint's, which is for Linux: take the line `crossbeam-epoch = ...` out of [patch.crates-io] in the \
     root's Cargo.toml, and the tree is back on the original"
);
#[cfg(crossbeam_loom)]
compile_error!(
    "this crossbeam-epoch is Stillpoint's, which loom cannot model through this interface: take the line `crossbeam-epoch = ...` out of \
     [patch.crates-io] in the root's Cargo.toml for builds with --cfg crossbeam_loom"
);

#[cfg(feature = "alloc")]
mod atomic;
#[cfg(feature = "alloc")]
mod collector;
#[cfg(feature = "std")]
mod default;
#[cfg(feature = "alloc")]
mod deferred;
#[cfg(feature = "alloc")]
mod exit;
#[cfg(feature = "alloc")]
mod guard;
#[cfg(feature = "alloc")]
mod local;
#[cfg(feature = "alloc")]
mod ordering;
#[cfg(feature = "alloc")]
mod owned;
#[cfg(feature = "alloc")]
mod pointable;
#[cfg(feature = "alloc")]
mod shared;
#[cfg(feature = "alloc")]
mod tag;

#[cfg(feature = "std")]
pub use default::{default_collector, is_pinned, pin};
#[cfg(feature = "alloc")]
#[expect(deprecated, reason = "the original has them still")]
pub use ordering::{CompareAndSetError, CompareAndSetOrdering};
#[cfg(feature = "alloc")]
pub use {
    atomic::{Atomic, CompareExchangeError},
    collector::{Collector, LocalHandle},
    guard::{Guard, unprotected},
    owned::Owned,
    pointable::{Pointable, Pointer},
    shared::Shared,
};

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
