//! Implementations that need nothing of the system: for Miri, for other systems, and for the model.
//! A build uses some of them.
#![allow(dead_code, reason = "the system has something better, or the model")]

pub mod cell;
pub mod condvar;
pub mod one_cpu;
#[cfg(target_os = "linux")]
pub mod table;
