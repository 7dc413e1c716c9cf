//! The interface of crossbeam-epoch 0.9 on [Stillpoint](stillpoint)'s grace periods.
//!
//! One line in the root's `Cargo.toml`, with the path of a clone, and `cargo update -p
//! crossbeam-epoch` move a program's whole dependency tree onto it. To go back, remove the line:
//!
//! ```toml
//! [patch.crates-io]
//! crossbeam-epoch = { path = "../stillpoint/drop-in/crossbeam-epoch" }
//! ```
//!
//! Every name, bound and feature of the original is here. The differences are when deferred functions
//! run, and how much memory is unreclaimed meanwhile:
//!
//! * They run on the thread that deferred them, in an outermost [`pin`] or in [`Guard::flush`], or
//!   on a thread of the library; never in [`Guard::defer`], and never where a guard ends. The first
//!   deferred function starts that thread, and all collectors share it (with one more for each
//!   function that blocks and holds up others).
//! * 20 to 30 milliseconds after a thread has deferred its last function, that function runs, if no
//!   guard is in the way. The original may never run it.
//! * An outermost [`pin`] of a thread that has deferred many functions may sleep while another
//!   thread's guard holds up more than 2 MiB: until that guard has ended, or for 10 milliseconds.
//!   So memory does not grow because a thread was preempted in a guard, and a long guard delays no
//!   other thread for long.
//! * A panic of a deferred function is caught and counted, and does not unwind through `pin`.
//! * When the process exits, pending functions do not run.
//!
//! The manual's chapter "From crossbeam-epoch" has the rest, and says what to check.
//!
//! # Features
//!
//! `default`, `std`, `alloc`, `loom` and `nightly` are those of the original; `loom` does nothing.
//! `nofence` makes a pin cheaper, and takes away the fence that crossbeam-deque relies on.
//! `tracing` reports stalls and caught panics as events. `reports` adds `Collector::statistics`,
//! `Collector::on_stall` and `Collector::set_stall_timeout`.

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
