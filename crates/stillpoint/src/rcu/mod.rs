//! Thread readers, domains, and the cell.
//!
//! | file | subject |
//! |---|---|
//! | `thread` | what a thread keeps for each domain, and its end |
//! | `guard` | a read-side critical section |
//! | `qsbr` | a thread that reads all the time, but where it says otherwise |
//! | `core` | a domain's engine and heap, with what a policy leaves: making one, its end |
//! | `builder` | domains with a name, and with settings from the start |
//! | `domain`, `wait`, `retire` | a domain as users see it; what tortures use of it with other policies |
//! | `future` | waiting for grace periods and callbacks without a thread |
//! | `raw` | the same without guards and panics, for the C library |
//! | `cell` | `Rcu<T>`, which is never empty, and `RcuOption<T>`, which may be: what all cells are made of |
//! | `retired` | what is swapped out of a cell |
//! | `weigh` | what values own beside their own size |
//! | `epoch` | readers that count for themselves, frees on demand: what the drop-in for crossbeam-epoch stands on |
//! | `unwind` | that panics of user code break none of these |
//!
//! This module adds no orderings beyond the cell's: the proofs are in `gp/README.md`.

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
use self::core::global_id;
pub(crate) use self::core::{RCU, TRACE};
pub use builder::DomainBuilder;
pub use cell::{Rcu, RcuOption};
pub use domain::Domain;
pub use domain::Kept;
pub use future::{CallbackBarrier, GracePeriod};
pub use guard::{Guard, Section, StaticGuard};
pub use qsbr::{Offline, QsbrReader};
pub use retire::{EmbedsHead, free_whole_batches, retire};
pub use retired::Retired;
pub use weigh::Weigh;

use crate::{
    gp::{GLOBALS, policy::Sound},
    platform::stats,
};
use std::{
    io, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Returns the global domain, which the functions of this crate use.
///
/// It is made on first use and never dropped: callbacks and objects that are pending when the
/// process exits are neither called nor freed.
///
/// ```
/// let domain = stillpoint::global();
/// let cookie = domain.start_poll(); // the grace period runs from here on
/// domain.cond_synchronize(cookie); // waits only if it has not ended
/// assert!(domain.poll(cookie));
/// println!("{} bytes wait for readers", domain.statistics().bytes_pending);
/// ```
#[inline]
pub fn global() -> &'static Domain {
    global_domain::<RCU>()
}

static GLOBAL_DOMAINS: [AtomicPtr<Domain>; GLOBALS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; GLOBALS];

/// Returns a global domain, made on first use.
#[inline]
pub(crate) fn global_domain<const GLOBAL: usize>() -> &'static Domain {
    // Acquire, pairs with `make_global`: the domain that is found is complete.
    // SAFETY: null, or what `make_global` has put there for ever.
    unsafe { GLOBAL_DOMAINS[GLOBAL].load(Ordering::Acquire).as_ref() }
        .unwrap_or_else(|| make_global(GLOBAL))
}

/// Two threads may both make one; the slower drops its own. Neither waits for the other, which a
/// fork may have removed.
#[cold]
fn make_global(global: usize) -> &'static Domain {
    let made = Box::into_raw(Box::new(Domain::of(Core::global(global))));
    // Release, pairs with `global_domain`: the domain is complete before it is found. Acquire: so
    // is the faster thread's.
    match GLOBAL_DOMAINS[global].compare_exchange(
        ptr::null_mut(),
        made,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        // SAFETY: leaked.
        Ok(_) => unsafe { &*made },
        Err(faster) => {
            // SAFETY: it came out of a box just now and was never published.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: the faster thread leaked it.
            unsafe { &*faster }
        }
    }
}

/// Returns the core of a domain, for torture programs, which take any policy.
pub fn core_of(domain: &Domain) -> &Core<Sound> {
    domain.core()
}

/// Returns the domain of a cell: its own, or the global one.
fn home(domain: &Option<Kept>) -> &Domain {
    match domain {
        Some(domain) => domain,
        None => global(),
    }
}

/// Returns whether `section` is one of the global domain.
#[inline(always)]
pub(crate) fn is_global(section: &impl Section) -> bool {
    section.domain_id() == const { global_id(RCU) }
}

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
/// user: all domains that there are and will be.
///
/// They are in a memory file of 8 MiB, of which little takes memory. Others find it in
/// `/proc/PID/fd` by its name, `stillpoint-stats`, and can neither change nor shorten it. No thread is
/// started and none ticks: what is counted is counted there, too, beside the read side. An event
/// between the first domain and this call may be missing in it, and so may one of another thread during
/// this call. `STILLPOINT_STATS=on` in the
/// environment does the same at the first domain. To call it again does nothing.
///
/// Takes locks for a moment; makes some ten system calls, and later one for each domain. Not
/// async-signal-safe. The process must not close the file's descriptor. The child of a fork gets a new
/// page, or none if the system refuses it there.
///
/// # Errors
///
/// If the system refuses the file, its mapping or its memory: too many open files, a seccomp filter,
/// no memory, no memory files on this system. The program goes on without, and a later call tries
/// again, but in the child of a fork that got no page. A filter that kills for `memfd_create` kills.
///
/// ```
/// if let Err(error) = stillpoint::publish_statistics() {
///     eprintln!("`stillpoint-top` will not show this process: {error}");
/// }
/// ```
#[cold]
pub fn publish_statistics() -> io::Result<()> {
    // So that there is something to see, whichever is first.
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
