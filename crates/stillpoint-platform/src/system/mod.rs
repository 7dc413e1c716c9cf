//! The system's side of the seam: std and Linux, with less under Miri and on other Unixes.

pub mod barrier;
pub mod clock;
pub mod cpu;
pub mod fork;
#[cfg(all(target_os = "linux", not(miri)))]
mod futex;
pub mod sync;
#[cfg(target_os = "linux")]
pub mod table;
pub mod thread;

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) use crate::simple::condvar::Signals;
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use futex::Signals;
