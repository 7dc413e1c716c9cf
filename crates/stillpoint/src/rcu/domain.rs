//! Domains: readers, grace periods and deferred frees that have nothing to do with those of other
//! domains.

use super::{Core, DomainBuilder, Guard, QsbrReader};
use crate::{
    gp::{Cookie, End, Engine, StallReport, policy::Sound},
    statistics::Statistics,
};
use std::{fmt, mem::ManuallyDrop, ops::Deref, ptr, time::Duration};

/// A domain of read-copy update: its sections delay its own grace periods only, and its own
/// deferred frees.
///
/// Most programs use the global domain ([`global`](crate::global)) through the crate's functions. A
/// separate domain keeps long sections away from others, or bounds one part's memory by itself.
///
/// This is a handle: cloning it names the same domain. When the last handle is dropped there are no
/// readers (a guard borrows from a handle). Pending callbacks are then invoked, the objects freed,
/// and the service thread is stopped and joined (detached, if user code that the library runs drops
/// the handle: a callback, a deferred destructor, a stall handler, a shrinker). That thread comes
/// with the first work, ends when there has been none for a second, and comes again with the next;
/// so a domain that is idle has none.
///
/// So dropping the last handle may block for as long as callbacks and destructors take. It never
/// does where that is not a `Domain` but what has been made in one, and keeps it: a cell, what was
/// swapped out of it, an arena, an area, an owned guard that borrows from nothing. The service
/// thread then does what is left, and ends by itself; a process that exits before does not wait for
/// that, and there is no way to wait for it. If no thread can be created, the dropping thread does
/// it. Each domain that ends so keeps a thread of its own, and its memory, until that is done: a
/// callback that never returns keeps them for good. A program that makes many, or unloads the code
/// of its callbacks, drops the `Domain` last, which waits.
///
/// # Forking
///
/// On Linux a process that forks may go on using its domains: in the parent as if nothing had
/// happened, and in the child as a process with one thread. That thread's sections are open as
/// before, and cookies stay good. What waited is the parent's: in the child, callbacks of before
/// the fork are not run and retired objects not freed; they are forgotten, and so are those that
/// were to follow the callback or destructor that forks. Service threads start again when they are
/// needed. Handles that other threads held are never dropped there, so a domain may outlive those
/// that are left. A domain whose callback forked is not joined when it ends in the child.
///
/// Sections of other threads are over in the child. It must not use what those had found, not even
/// a reference that one of them leaked or handed over: this is part of the contract of calling
/// fork, which is unsafe. So is what fork requires in any program: threads of the standard library
/// take a lock when they start and end, which a thread that is lost in the middle of that holds for
/// ever, so [`std::thread::spawn`] may hang in the child (the service threads do without). The
/// children of `vfork`, `_Fork`, a bare `clone`, and of a fork in a signal handler, must not use
/// the library at all.
///
/// ```
/// let domain = stillpoint::Domain::new();
/// let cell = stillpoint::Rcu::new_in(&domain, 1);
/// let guard = domain.read_lock();
/// assert_eq!(cell.load(&guard), &1);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[repr(transparent)]
pub struct Domain {
    core: Core<Sound>,
}

impl Domain {
    /// A domain with the defaults: a budget of 8 MiB, stalls after 10 seconds. Starts no thread.
    ///
    /// Allocates a few hundred bytes; does not block.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Cookie::from_raw(0))
    }

    /// A domain with a name, or with settings from the start.
    ///
    /// ```
    /// let routes = stillpoint::Domain::builder().name("routes").build();
    /// assert_eq!(routes.name(), Some("routes"));
    /// ```
    pub fn builder() -> DomainBuilder {
        DomainBuilder::default()
    }

    /// The name that [`DomainBuilder::name`] gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.engine().name()
    }

    /// A domain whose readers fence, where those of [`Domain::new`] leave it to `membarrier(2)`.
    ///
    /// A section costs two fences (some ten nanoseconds); a grace period makes no system call and
    /// interrupts no processor. For readers that must not be disturbed, for updates as frequent as
    /// reads, and for [`QsbrReader`]s, which fence only where they pass a quiescent state that a
    /// waiter may need. When a thread that has retired here falls idle, the service thread still
    /// makes one membarrier; to avoid even that: `STILLPOINT_MEMBARRIER=off`.
    ///
    /// ```
    /// let domain = stillpoint::Domain::with_fences();
    /// domain.read(|_| ());
    /// domain.synchronize();
    /// ```
    #[must_use]
    pub fn with_fences() -> Self {
        Self::fencing_from(Cookie::from_raw(0))
    }

    /// A domain whose sequence starts at `first`: for tests that want to see it wrap.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(first: Cookie) -> Self {
        Self::of_kind(false, first, None)
    }

    /// As [`Domain::with_fences`], for this purpose.
    #[doc(hidden)]
    #[must_use]
    pub fn fencing_from(first: Cookie) -> Self {
        Self::of_kind(true, first, None)
    }

    /// Whether its readers fence, where its sequence starts, and its name.
    pub(super) fn of_kind(fences: bool, first: Cookie, name: Option<Box<str>>) -> Self {
        Self {
            core: Core::of_kind(fences, first, name),
        }
    }

    pub(super) fn global(global: usize) -> Self {
        Self {
            core: Core::global(global),
        }
    }

    /// What is behind this.
    #[inline]
    pub(crate) fn core(&self) -> &Core<Sound> {
        &self.core
    }

    pub(crate) fn id(&self) -> u64 {
        self.core.id()
    }

    /// Whether the calling thread is inside a section here, so that it must not wait for a grace
    /// period. Looks at all records.
    pub(crate) fn is_reading(&self) -> bool {
        self.core.is_reading()
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine<Sound> {
        self.core.engine()
    }

    /// Begins a read-side critical section, which lasts until the guard is dropped. The kernel's
    /// `rcu_read_lock()`.
    ///
    /// Never blocks. Sections nest up to 65,535 deep; one more aborts. A thread's first section in
    /// a domain registers it (which may allocate); after that this is async-signal-safe. Works in
    /// thread-local destructors.
    #[inline]
    pub fn read_lock(&self) -> Guard<'_> {
        self.core.read_lock()
    }

    /// Registers the calling thread as a reader that is always inside a section but where it says
    /// otherwise. The userspace RCU library's `urcu_qsbr_register_thread()`; see [`QsbrReader`].
    ///
    /// May allocate; does not block.
    #[must_use = "dropping it takes the thread's registration back"]
    pub fn qsbr_reader(&self) -> QsbrReader<'_> {
        self.core.qsbr_reader()
    }

    /// Runs `section` inside a read-side critical section.
    ///
    /// As [`Domain::read_lock`]; the compiler sees both ends of the section at once.
    #[inline]
    pub fn read<R>(&self, section: impl FnOnce(&Guard<'_>) -> R) -> R {
        section(&self.read_lock())
    }

    /// How many bytes (of objects, by the allocator's size classes, with what their owners say that
    /// they own, and of the pages that remember them) may be unreclaimed before further retiring
    /// threads are throttled. 8 MiB by default. It is a target, not a hard limit: see the crate's
    /// "The memory budget".
    pub fn set_budget(&self, bytes: usize) {
        self.core.inner.heap.set_budget(bytes);
    }

    /// The budget, in bytes.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.core.inner.heap.budget()
    }

    /// Callbacks that are queued from now on run no earlier than `delay` after that (by whole
    /// batches, so up to twice as late), and after a grace period in any case. 0 by default, or
    /// what `STILLPOINT_CALLBACK_DELAY_MS` says in the environment, in whole milliseconds, for all
    /// domains (what is no such number is told of on stderr, and ignored).
    ///
    /// For programs that use an object for a while after queueing its callback, outside of
    /// sections, which is wrong, and goes well where callbacks are late. What is retired is freed
    /// as before, but for what there was no memory to remember by, which goes by callbacks. A
    /// barrier cuts the delay short for what it waits for, so that it takes no longer than without;
    /// so does the end of the domain; neither minds a delay that is set meanwhile. All others that
    /// are kept already are kept as long as this says from about now on; with 0 they are due. Takes
    /// a lock for a moment, and may start the service thread. Not async-signal-safe.
    ///
    /// ```
    /// use std::{sync::mpsc::channel, time::Duration};
    /// let domain = stillpoint::Domain::new();
    /// domain.set_callback_delay(Duration::from_secs(3600));
    /// let (tell, told) = channel();
    /// domain.call(move || tell.send("called").unwrap());
    /// assert!(told.try_recv().is_err());
    /// domain.barrier();
    /// assert_eq!(told.recv(), Ok("called"));
    /// ```
    pub fn set_callback_delay(&self, delay: Duration) {
        self.engine().set_callback_delay(delay);
    }

    /// How long callbacks are kept before they may run.
    #[must_use]
    pub fn callback_delay(&self) -> Duration {
        self.engine().callback_delay()
    }

    /// How long a grace period (or the service thread) may be held up before that counts as a
    /// stall. 10 seconds by default, or what `STILLPOINT_STALL` says in the environment, in
    /// seconds; a call of this counts more.
    ///
    /// Zero, as any time too long to come, means never: nothing is reported, or counted as a stall,
    /// and writers past the budget wait for a reader that never leaves each time, and not only
    /// until it is reported.
    pub fn set_stall_timeout(&self, timeout: Duration) {
        self.core.set_stall_timeout(timeout);
    }

    /// Calls `handler` once for every stall from now on, instead of an earlier handler. The
    /// kernel's "rcu detected stalls".
    ///
    /// Without a handler (and a subscriber of `tracing`, with that feature) the report is written
    /// to stderr, as one line, once a stall, however long that goes on. The line is left out if
    /// stderr is closed, or a pipe that is full. `STILLPOINT_STALL` in the environment says
    /// otherwise: with `off` nothing is written, with `stderr` also where there is a handler.
    ///
    /// A grace period is watched while a thread or a deferred free waits for it. The handler runs
    /// on the thread that finds the stall: one that waits, one that retires, or the service thread.
    /// It may use the library's read side, and log; it must not wait for callbacks or deferred
    /// frees, as if it were a callback, nor take locks that are held around calls of this library.
    /// If it panics that is counted ([`Statistics::panics`]), and if its destructor does too. A
    /// handler that owns a handle of the domain keeps it open until it is replaced. One that is
    /// replaced is dropped by this call, or by the report under way.
    ///
    /// ```
    /// # use std::{sync::mpsc::channel, time::Duration};
    /// let domain = stillpoint::Domain::new();
    /// domain.set_stall_timeout(Duration::from_millis(1));
    /// let (tell, told) = channel();
    /// domain.on_stall(move |report| tell.send(report.to_string()).unwrap());
    /// let guard = domain.read_lock();
    /// let _ = domain.start_poll();
    /// assert!(told.recv().unwrap().contains("holds a guard"));
    /// ```
    pub fn on_stall(&self, handler: impl Fn(&StallReport) + Send + Sync + 'static) {
        self.core.on_stall(handler);
    }

    /// Takes the handler back: stalls are written to stderr again, as before any
    /// [`on_stall`](Self::on_stall). To have them go nowhere, set a handler that does nothing.
    ///
    /// ```
    /// let domain = stillpoint::Domain::new();
    /// domain.on_stall(|_| ()); // while something is known to take long
    /// domain.reset_on_stall();
    /// ```
    pub fn reset_on_stall(&self) {
        self.core.reset_on_stall();
    }

    /// The domain's statistics. Takes one lock per thread that has used the domain. Exact at rest,
    /// else a racy snapshot.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Domain {
    /// Takes no lock: what threads have retired that is not in a full page yet is not counted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// A handle that is kept by something which was made in the domain: a cell, an arena, a guard. Who
/// drops such a thing need not know that it is the last handle, so dropping this never waits.
pub struct Kept(ManuallyDrop<Domain>);

impl From<&Domain> for Kept {
    fn from(domain: &Domain) -> Self {
        Self(ManuallyDrop::new(domain.clone()))
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl Deref for Kept {
    type Target = Domain;

    #[inline]
    fn deref(&self) -> &Domain {
        &self.0
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.core.let_go(End::LeftToService);
        // SAFETY: what is left of the handle, which nothing drops a second time, as it is never
        // dropped as a `Domain`.
        unsafe { ptr::drop_in_place(&raw mut self.0.core.inner) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ptr::NonNull, sync::mpsc::channel};

    /// A thread may be stopped while it holds its lock, and a debugger's or a log's look at the
    /// domain must not hang with it.
    #[test]
    fn to_show_a_domain_takes_no_lock_of_a_thread() {
        let domain = Domain::new();
        // SAFETY: from a box just now; no other thread has ever known the object.
        unsafe { domain.retire(NonNull::from(Box::leak(Box::new(1)))) };
        let shown = domain.core().inner.heap.with_locks_held(|| {
            let (tell, told) = channel();
            let theirs = domain.clone();
            std::thread::spawn(move || tell.send(format!("{theirs:?}")));
            told.recv_timeout(Duration::from_secs(120))
                .expect("it does not wait for a lock")
        });
        assert!(shown.contains("objects_pending"), "{shown}");
    }
}
