//! The one seam to the system.
//!
//! Everything that the library asks of the operating system or of the machine's memory model passes through here:
//! [`sync`] (atomics, locks, cells), [`barrier`] (the asymmetric pair of barriers), [`event`] (sleeping and waking),
//! [`clock`], [`cpu`], `numa`, [`thread`], [`owned_mutex`] (a lock across user code), [`fork`], [`user_code`] (calls of it), [`memory`] (that can be done without), `mmap` (address space; Linux). Under
//! `--cfg stillpoint_loom` the same names are answered by a model, so that the rooms above are checked as they are, line by line, and not
//! as a copy.
//!
//! This module decides nothing: it knows neither grace periods nor readers.

pub(crate) mod barrier;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod event;
pub(crate) mod fork;
pub(crate) mod memory;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) mod mmap;
#[cfg(not(stillpoint_loom))]
pub(crate) mod numa;
pub(crate) mod owned_mutex;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod user_code;

/// Who answers under `--cfg stillpoint_loom`: loom, which tries all schedules of a small program on weak memory; with
/// `--cfg stillpoint_shuttle` beside it shuttle, which tries many of a larger one on strong memory.
#[cfg(all(stillpoint_loom, not(stillpoint_shuttle)))]
pub(crate) use loom as model;
#[cfg(all(stillpoint_loom, stillpoint_shuttle))]
pub(crate) use shuttle as model;
