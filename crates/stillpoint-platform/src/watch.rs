//! Waits for changes of files, and for a bell that other threads ring: both in one call.
//!
//! Files are watched by inotify, which also works for files of control groups: the kernel reports a
//! change of `memory.events`. The bell is an eventfd, so a ring that comes before the wait is not
//! lost. Other systems, and Miri, have none of it: there a watch is never open.

#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(miri))))]
mod none;

#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::{Bell, Watch, Watched};
#[cfg(not(all(target_os = "linux", not(miri))))]
pub use none::{Bell, Watch, Watched};
