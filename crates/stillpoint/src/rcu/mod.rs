//! Thread readers, domains, and the cell.
//!
//! | file | subject |
//! |---|---|
//! | `core` | a domain's engine and heap, under any policy: how they are made, and how they end |
//! | `thread` | what a thread keeps for each domain, and its end |
//! | `guard` | a read-side critical section |
//! | `domain` | a domain as users see it, and the global ones |
//! | `builder`, `wait`, `retire`, `future`, `qsbr` | more of its methods: settings; grace periods and callbacks; deferred frees; waits of tasks; threads that read all the time |
//! | `weigh`, `retired`, `cell` | what values own beside their own size; what is swapped out of a cell; `Rcu<T>` and `RcuOption<T>` |
//! | `raw` | the same without guards and panics, for the C library |
//! | `epoch` | readers that count for themselves, frees on demand: for the drop-in for crossbeam-epoch |
//! | `unwind` | that panics of user code break none of these |
//!
//! Each file imports only from those before it; `tests/imports.rs` sees that there is no circle. This
//! module adds no orderings beyond the cell's: the proofs are in `gp/README.md`.

mod builder;
mod cell;
mod core;
mod domain;
pub mod epoch;
mod future;
pub(crate) mod guard;
mod qsbr;
#[cfg(unix)]
// Its functions end sections without having the guards: for the C library only, which has its own
// contract.
#[cfg_attr(not(feature = "c-symbols"), allow(dead_code))]
pub mod raw;
mod retire;
mod retired;
pub(crate) mod thread;
mod unwind;
mod wait;
mod weigh;

pub use self::core::Core;
pub(crate) use self::core::{RCU, TRACE};
pub use builder::DomainBuilder;
pub use cell::{Rcu, RcuOption};
pub(crate) use domain::global_domain;
pub use domain::{Domain, Kept, StaticGuard, core_of, global};
pub use future::{CallbackBarrier, GracePeriod};
pub(crate) use guard::is_global;
pub use guard::{Guard, Section};
pub use qsbr::{Offline, QsbrReader};
pub use retire::{EmbedsHead, free_whole_batches, retire};
pub use retired::Retired;
pub use weigh::Weigh;

use crate::platform::stats;
use std::io;

/// Begins a read-side critical section of the global domain. The kernel's `rcu_read_lock()`.
///
/// As [`Domain::read_lock`], with one thread-local load instead of a look-up. [`Rcu::load`] panics
/// with a guard of another domain than the cell's. Guards of other [`Domain`]s have the same type;
/// those of [`tasks_trace`](crate::tasks_trace) [have another](crate::tasks_trace::Guard).
///
/// ```
/// let cell = stillpoint::Rcu::new("routes");
/// let guard = stillpoint::read_lock();
/// assert_eq!(cell.load(&guard), &"routes");
/// ```
#[inline(always)]
pub fn read_lock() -> Guard<'static> {
    global_read_lock::<RCU>()
}

/// Begins a section of a global domain.
#[inline(always)]
pub(crate) fn global_read_lock<const GLOBAL: usize>() -> Guard<'static> {
    match thread::lock_global_outermost::<GLOBAL>() {
        Some(record) => Guard::of(record),
        None => read_lock_unusual::<GLOBAL>(),
    }
}

/// Begins a nested section, a thread's first, one after the thread's end, or one that needs fences.
#[cold]
#[inline(never)]
fn read_lock_unusual<const GLOBAL: usize>() -> Guard<'static> {
    match thread::global_record::<GLOBAL>() {
        Some(record) => Guard::enter(record),
        None => global_domain::<GLOBAL>().core().read_lock_late(),
    }
}

/// Runs `section` inside a read-side critical section of the global domain.
///
/// ```
/// let cell = stillpoint::Rcu::new(20);
/// assert_eq!(stillpoint::read(|guard| *cell.load(guard)), 20);
/// ```
#[inline(always)]
pub fn read<R>(section: impl FnOnce(&Guard<'_>) -> R) -> R {
    section(&read_lock())
}

/// [`Domain::synchronize`] of the global domain.
///
/// ```
/// let cell = stillpoint::Rcu::new(String::from("old"));
/// let old = cell.swap(String::from("new"));
/// stillpoint::synchronize(); // every section that may have seen the old value has ended
/// assert_eq!(*old.wait(), "old"); // so this does not wait
/// ```
///
/// # Panics
///
/// Inside a section of the global domain.
#[track_caller]
pub fn synchronize() {
    global().synchronize();
}

/// [`Domain::synchronize_expedited`] of the global domain.
///
/// # Panics
///
/// Inside a section of the global domain.
#[track_caller]
pub fn synchronize_expedited() {
    global().synchronize_expedited();
}

/// Publishes the process's statistics from now on, for `stillpoint-top` and other programs of the same
/// user: those of all present and future domains.
///
/// They are in a memory file of 8 MiB, most of which takes no memory. Others find it in
/// `/proc/PID/fd` by its name, `stillpoint-stats`, and can neither change nor shorten it. No thread
/// is started, and none copies values periodically: a counter is also written there when it
/// changes. Readers write nothing. An event between the first domain and this call may be missing
/// in it, and so may one of another thread during this call. `STILLPOINT_STATS=on` in the
/// environment does the same at the first domain. Calling it again does nothing.
///
/// Takes locks for a moment; makes some ten system calls, and later one for each domain. Not
/// async-signal-safe. The process must not close the file's descriptor. The child of a fork gets a new
/// page, or none if the system refuses it there.
///
/// # Errors
///
/// If the system refuses the file, its mapping or its memory: too many open files, a seccomp
/// filter, no memory, no memory files on this system. The program goes on without, and a later call
/// tries again, except in the child of a fork that got no page. A filter that kills the process for
/// `memfd_create` does so here.
///
/// ```
/// if let Err(error) = stillpoint::publish_statistics() {
///     eprintln!("`stillpoint-top` will not show this process: {error}");
/// }
/// ```
#[cold]
pub fn publish_statistics() -> io::Result<()> {
    // A program that has no domain yet shows at least this one.
    let _ = global();
    stats::publish().map_err(io::Error::from)
}

/// [`Domain::call`] of the global domain.
///
/// ```
/// stillpoint::call(|| println!("every section that was open has ended"));
/// stillpoint::barrier(); // waits for the callback
/// ```
pub fn call(callback: impl FnOnce() + Send + 'static) {
    global().call(callback);
}

/// [`Domain::barrier`] of the global domain.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// static CALLED: AtomicBool = AtomicBool::new(false);
/// stillpoint::call(|| CALLED.store(true, Ordering::Relaxed));
/// stillpoint::barrier();
/// assert!(CALLED.load(Ordering::Relaxed));
/// ```
///
/// # Panics
///
/// If it would wait for itself.
#[track_caller]
pub fn barrier() {
    global().barrier();
}

/// [`Domain::kvfree_barrier`] of the global domain.
///
/// ```
/// let cell = stillpoint::Rcu::new([0; 100]);
/// cell.store([1; 100]);
/// stillpoint::kvfree_barrier(); // the old value has been freed
/// ```
///
/// # Panics
///
/// If it would wait for itself.
#[track_caller]
pub fn kvfree_barrier() {
    global().kvfree_barrier();
}
