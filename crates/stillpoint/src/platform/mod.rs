//! The one seam to the system.
//!
//! Everything that the library asks of the operating system or of the machine's memory model passes through here:
//! [`sync`] (atomics, locks, cells), [`barrier`] (the asymmetric pair of barriers), [`event`] (sleeping and waking),
//! [`clock`], [`thread`], [`turn`] (a lock across foreign code), [`fork`], [`unwind`], [`cpu`], [`numa`]. Under `--cfg
//! stillpoint_loom` the same names are answered by loom's model, so that the rooms above are checked as they are, line by line, and
//! not as a copy.
//!
//! This module decides nothing: it knows neither grace periods nor readers.

pub(crate) mod barrier;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod event;
pub(crate) mod fork;
#[cfg(not(stillpoint_loom))]
pub(crate) mod numa;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod turn;
pub(crate) mod unwind;
