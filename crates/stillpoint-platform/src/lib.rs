//! The one place where the core uses the operating system and the machine's memory model.
//! It promises no stability to other users.
//!
//! * [`sync`]: atomics, locks, cells; [`barrier`]: the asymmetric pair of barriers; [`event`]:
//!   sleeping and waking.
//! * [`clock`], [`cpu`], `numa`, [`memory`] (allocations that may fail), `mmap` (address space;
//!   Linux).
//! * [`race`]: a cell that is filled without a lock.
//! * [`thread`]; [`refused`]: threads that could not be started; [`user_code`]: calls of user code;
//!   [`owned_mutex`]: a lock that is held across user code.
//! * [`fork`]; [`fork_mutex`]: a lock that a fork may lose.
//! * [`environment`]: the library's variables; [`stderr`]: lines on standard error; `watch`: files
//!   that change; [`stats`]: the statistics page that other processes read.
//!
//! Under `--cfg stillpoint_loom` a model has the same names, so the crates above are checked as they
//! are, not as copies.
//!
//! This crate decides nothing: it knows neither grace periods nor readers.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(unix))]
compile_error!(
    "stillpoint is for Linux; on other Unix systems it builds with fewer features (see \"Where it runs\" in its documentation)"
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "stillpoint needs a target with 64-bit pointers: its cookies, records and embedded heads are made of 64-bit words"
);

pub mod barrier;
pub mod clock;
pub mod cpu;
pub mod environment;
pub mod event;
pub mod fork;
pub mod fork_mutex;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod mmap;
// Has a static, which the cell that loom checks cannot be.
#[cfg(not(all(test, stillpoint_loom)))]
pub mod numa;
pub mod owned_mutex;
pub mod race;
pub mod refused;
pub mod stats;
pub mod stderr;
pub mod sync;
pub mod thread;
pub mod user_code;
#[cfg(not(stillpoint_loom))]
pub mod watch;

mod simple;
// All that differs between the system and the model is in one of these, under the same names, for
// use by the modules above.
#[cfg(not(stillpoint_loom))]
mod system;
#[cfg(not(stillpoint_loom))]
use system as seam;
#[cfg(all(stillpoint_loom, not(any(feature = "loom", feature = "shuttle"))))]
compile_error!("the models need `--features stillpoint/loom`, or `stillpoint/shuttle`");
#[cfg(stillpoint_loom)]
mod twin;
#[cfg(stillpoint_loom)]
use twin as seam;

/// The checker of the model, loom or shuttle: for tests, which start its threads.
#[cfg(stillpoint_loom)]
pub use twin::checker as model;

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
