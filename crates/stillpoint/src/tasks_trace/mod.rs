//! Readers that sleep, block and await: the kernel's RCU Tasks Trace, for threads and for async
//! tasks.
//!
//! A section of the crate's own [`read_lock`](crate::read_lock) should be short, because all
//! deferred frees of the program wait for it. One of this module may sleep, wait for a lock or a
//! socket, and last for minutes: it delays grace periods of its domain only, for which no other
//! domain waits. And it need not stay on its thread: an [`OwnedGuard`] may be moved and shared
//! between threads, and be held across an `.await`.
//!
//! * [`read_lock`] is a section of the calling thread, as fast as that of the crate.
//! * [`read_lock_owned`] begins a section that belongs to its guard, for about 5 nanoseconds: for a
//!   task, a request, an object.
//! * [`synchronize`], [`synchronize_async`], [`call`], [`barrier`] wait for them, until the last
//!   one that had begun before has left, and some microseconds more. Waiters sleep, and the reader
//!   that they wait for wakes them; nothing polls at intervals.
//! * A separate [`TraceDomain`] (what the kernel's SRCU is used for) has its own readers and its
//!   own grace periods. It has all that a [`Domain`](crate::Domain) has; cells are made in it by
//!   [`Rcu::new_in`](crate::Rcu::new_in).
//!
//! ```
//! use stillpoint::{Rcu, tasks_trace::{self, TraceDomain}};
//!
//! let domain = TraceDomain::new();
//! let config = Rcu::new_in(&domain, String::from("v1"));
//!
//! let guard = domain.read_lock_owned().named("request 17");
//! let seen = config.load(&guard);
//! config.store("v2".into()); // does not wait; "v1" is freed when the request is done
//! std::thread::scope(|scope| {
//!     scope.spawn(|| assert_eq!(config.load(&guard), "v2"));
//! });
//! assert_eq!(seen, "v1");
//! drop(guard); // here or on any other thread
//! domain.synchronize();
//! ```
//!
//! # What can go wrong
//!
//! * **A wait for one's own guard.** Waiting for a grace period while the thread holds a [`Guard`]
//!   of the same domain panics. With an [`OwnedGuard`] this cannot be detected: a task that waits
//!   (`.await`s) for a grace period while it holds one waits for ever, and so do two tasks that
//!   each wait for what the other one's guard holds up, and an executor whose only thread waits in
//!   [`synchronize`] for a guard that one of its tasks would have to drop: use
//!   [`synchronize_async`] there. All of these are reported as stalls, with the tasks' names, the
//!   places where their guards were made, and the threads that wait: see
//!   [`Domain::on_stall`](crate::Domain::on_stall).
//! * **A guard of another domain.** The [`Guard`] of this module and the crate's own
//!   [`Guard`](crate::Guard) are two types: a function that asks for one does not take the other.
//!   Guards of different [`TraceDomain`]s have one type, and a cell takes any
//!   [`Section`](crate::Section): a cell, an arena or a list that is read with a guard of another
//!   domain panics at run time, at each load, and reads nothing. [`Rcu::new`](crate::Rcu::new)
//!   makes cells of the crate's domain, `Rcu::new_in(tasks_trace::global(), ..)` of this one.
//! * **A forgotten guard**, leaked or kept in a task that is never polled again, holds the domain's
//!   memory for ever. It is reported in the same way, with the place where it was made; with the
//!   feature `stall-backtrace`, with the whole stack.
//! * **Memory.** What is retired while a reader sleeps waits for it, in the domain's budget
//!   ([`Domain::set_budget`](crate::Domain::set_budget)): past that, threads that retire more are
//!   slowed down, by 10 ms at most for each 64 KiB, until the reader is reported as stalled. The
//!   library cannot know that the very task which retires holds an owned guard; it is then slowed
//!   down in vain, and never stopped.
//!
//! # Which one to take
//!
//! | readers | take |
//! |---|---|
//! | never block, microseconds | [`stillpoint::read_lock`](crate::read_lock) |
//! | sleep, wait for locks, files or sockets, on one thread | [`tasks_trace::read_lock`](read_lock) |
//! | are async tasks, or hand their section on to other threads | [`tasks_trace::read_lock_owned`](read_lock_owned) |
//! | are long, and should not delay other long ones | a separate [`TraceDomain`] |
//! | must not be interrupted by membarriers | [`TraceDomain::with_fences`], the kernel's `TASKS_TRACE_RCU_READ_MB` |

mod domain;
mod guard;
pub(crate) mod snapshot;
mod thread_guard;

pub use domain::TraceDomain;
pub use guard::OwnedGuard;
pub use thread_guard::Guard;

use crate::rcu::{self, GracePeriod, TRACE};

/// Returns the global domain of this module, which its functions use. Made on first use and never dropped.
///
/// It is not the crate's global domain: no grace period waits for both.
///
/// ```
/// assert_ne!(**stillpoint::tasks_trace::global(), *stillpoint::global());
/// ```
#[inline]
pub fn global() -> &'static TraceDomain {
    TraceDomain::of(rcu::global_domain::<TRACE>())
}

/// Begins a section of the calling thread that may sleep and block. The kernel's
/// `rcu_read_lock_trace()`.
///
/// As the crate's [`read_lock`](crate::read_lock), of another domain: about a nanosecond, nests,
/// async-signal-safe in a thread that has read here before. The guard belongs to its thread; one
/// that may move is that of [`read_lock_owned`]. It protects what is in this domain alone:
/// [`Rcu::load`](crate::Rcu::load) panics if the cell is of another.
///
/// ```
/// let guard = stillpoint::tasks_trace::read_lock();
/// std::thread::sleep(std::time::Duration::from_millis(1));
/// drop(guard);
/// ```
#[inline(always)]
pub fn read_lock() -> Guard<'static> {
    Guard::of(rcu::global_read_lock::<TRACE>())
}

/// Begins a section that belongs to its guard: [`TraceDomain::read_lock_owned`] of the global
/// domain.
///
/// ```
/// # fn spawn(_: impl Future<Output = ()> + Send + 'static) {}
/// spawn(async {
///     let guard = stillpoint::tasks_trace::read_lock_owned();
///     std::future::ready(()).await; // perhaps on another thread after this
///     drop(guard);
/// });
/// ```
#[inline]
#[track_caller]
pub fn read_lock_owned() -> OwnedGuard<'static> {
    global().read_lock_owned()
}

/// Waits until every section of the global domain that had begun before has ended. The kernel's
/// `synchronize_rcu_tasks_trace()`.
///
/// Blocks for as long as the longest of them lasts; idle, it costs one membarrier. As
/// [`Domain::synchronize`](crate::Domain::synchronize).
///
/// # Panics
///
/// If the calling thread holds a [`Guard`] of this domain. An [`OwnedGuard`] that it would have to
/// drop cannot be detected: then the thread waits for ever, and the stall is reported.
#[track_caller]
pub fn synchronize() {
    global().synchronize();
}

/// Returns a future for tasks: [`Domain::synchronize_async`](crate::Domain::synchronize_async) of
/// the global domain.
#[track_caller]
pub fn synchronize_async() -> GracePeriod<'static> {
    global().synchronize_async()
}

/// Runs `callback` after a grace period of the global domain. The kernel's
/// `call_rcu_tasks_trace()`; as [`Domain::call`](crate::Domain::call).
pub fn call(callback: impl FnOnce() + Send + 'static) {
    global().call(callback);
}

/// Waits until every callback that was queued in the global domain before has been invoked. The
/// kernel's `rcu_barrier_tasks_trace()`; as [`Domain::barrier`](crate::Domain::barrier).
///
/// # Panics
///
/// If it would wait for itself, as far as that can be detected.
#[track_caller]
pub fn barrier() {
    global().barrier();
}
