//! Domains: readers, grace periods and deferred frees that are separate from those of other
//! domains.

use super::{
    core::{Core, RCU, global_core},
    guard::{Guard, Section, sealed},
    thread,
};
use crate::{
    gp::{Cookie, End, Engine, Record, StallReport, policy::Sound},
    statistics::Statistics,
};
use std::{
    fmt, io,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{self, NonNull},
    time::Duration,
};

/// A domain of read-copy update: its sections delay only its own grace periods and deferred frees.
///
/// Most programs use the global domain ([`global`](crate::global)) through the crate's functions. A
/// separate domain keeps long sections away from others, or gives one part of a program a separate
/// memory budget.
///
/// This is a handle: a clone of it is a handle of the same domain. When the last handle is dropped
/// there are no readers (a guard borrows from a handle). Pending callbacks are then invoked, the
/// objects freed, and the service thread is stopped and joined (detached, if user code that the
/// library runs drops the handle: a callback, a deferred destructor, a stall handler, a shrinker).
/// That thread starts with the first work, ends when there has been none for a second, and starts
/// again with the next; so an idle domain has none.
///
/// So dropping the last handle may block for as long as callbacks and destructors take. It never
/// blocks if the last handle is not a `Domain` but an object that was made in one and keeps it
/// alive: a cell, a value swapped out of it, an arena, an area, an owned guard that borrows from
/// nothing. The service thread then does the remaining work, and ends by itself; a process that
/// exits earlier does not wait for that, and there is no way to wait for it. If no thread can be
/// created, the dropping thread does it. Each domain that ends this way keeps its thread and its
/// memory until that is done: a callback that never returns keeps them for good. So a program that
/// makes many domains, or unloads the code of its callbacks, should drop the `Domain` last, which
/// waits.
///
/// # Forking
///
/// On Linux a process that forks may go on using its domains: in the parent as if nothing had
/// happened, and in the child as a process with one thread. That thread's sections are open as
/// before, and cookies stay valid. Pending work is the parent's: in the child, callbacks queued
/// before the fork are not run and objects retired before it are not freed; they are forgotten, and
/// so are those that were to follow the callback or destructor that forks. Service threads start
/// again when they are needed. Handles that other threads held are never dropped there, so a domain
/// may outlive those that are left. A domain whose callback forked is not joined when it ends in
/// the child.
///
/// Sections of other threads are over in the child. It must not use anything that they had found,
/// not even a reference that one of them leaked or handed over: this is part of the contract of
/// calling fork, which is unsafe. So is what fork requires in any program: threads of the standard
/// library take a lock when they start and end; a thread that the fork removes in the middle of
/// that holds it for ever, so [`std::thread::spawn`] may hang in the child (the service threads do
/// without). The children of `vfork`, `_Fork`, a bare `clone`, and of a fork in a signal handler,
/// must not use the library at all.
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
    /// Makes a domain with the defaults: a budget of 8 MiB, stalls after 10 seconds. Starts no
    /// thread.
    ///
    /// Allocates 2.6 KiB; does not block. Half a KiB of it keeps the cache lines of readers, writers and the
    /// service thread apart; locks, queues and counters are there from the start, so that no callback and no
    /// retire needs memory for them. A thread takes some 460 bytes with its first section here, and 400 and
    /// a page with its first retire; a histogram of [`Statistics`] 1.3 KiB once it counts.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Cookie::from_raw(0))
    }

    /// Returns the name that [`DomainBuilder::name`](crate::DomainBuilder::name) gave the domain.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.core.inner.parts.atomics().name()
    }

    /// Makes a domain whose readers fence, where those of [`Domain::new`] leave it to
    /// `membarrier(2)`.
    ///
    /// A section costs two fences (some ten nanoseconds); a grace period makes no system call and
    /// interrupts no processor. It is for readers that must not be disturbed, for updates as
    /// frequent as reads, and for [`QsbrReader`](crate::QsbrReader)s, which fence only where they
    /// pass a quiescent state that a waiter may need. When a thread that has retired here falls
    /// idle, the service thread still makes one membarrier; `STILLPOINT_MEMBARRIER=off` avoids even
    /// that.
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

    /// Makes a domain whose sequence starts at `first`: for tests that want to see it wrap.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(first: Cookie) -> Self {
        Self::of(Core::starting_at(first))
    }

    /// Makes a domain whose readers fence, and whose sequence starts at `first`.
    #[doc(hidden)]
    #[must_use]
    pub fn fencing_from(first: Cookie) -> Self {
        Self::of(Core::fencing_from(first))
    }

    /// Returns the handle of a domain that is being made.
    pub(super) fn of(core: Core<Sound>) -> Self {
        Self { core }
    }

    /// Returns the domain's core.
    #[inline]
    pub(crate) fn core(&self) -> &Core<Sound> {
        &self.core
    }

    pub(crate) fn id(&self) -> u64 {
        self.core.id()
    }

    /// Returns whether the calling thread is inside a section of this domain, through a guard or a
    /// QSBR reader (an owned guard belongs to no thread), so that it must not wait for a grace
    /// period here. The kernel's `rcu_read_lock_held()`.
    ///
    /// Costs a few loads if the thread is inside through its own guard; otherwise this looks at the
    /// records of all threads. Never blocks. Async-signal-safe.
    ///
    /// ```
    /// let domain = stillpoint::Domain::new();
    /// let guard = domain.read_lock();
    /// assert!(domain.is_reading() && !stillpoint::global().is_reading());
    /// drop(guard);
    /// assert!(!domain.is_reading());
    /// ```
    #[must_use]
    pub fn is_reading(&self) -> bool {
        thread::bound_record(&self.core).is_some_and(Record::is_reading) || self.core.is_reading()
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

    /// Begins a read-side critical section whose guard borrows nothing: it keeps the domain alive.
    /// See [`StaticGuard`].
    ///
    /// Otherwise like [`Domain::read_lock`], and not async-signal-safe.
    #[inline]
    pub fn read_lock_static(&self) -> StaticGuard {
        StaticGuard::enter(self)
    }

    /// Runs `section` inside a read-side critical section.
    ///
    /// Like [`Domain::read_lock`]; the compiler sees both ends of the section at once.
    #[inline]
    pub fn read<R>(&self, section: impl FnOnce(&Guard<'_>) -> R) -> R {
        section(&self.read_lock())
    }

    /// Sets how many bytes may be unreclaimed before retiring threads are throttled: 8 MiB by
    /// default. This counts objects, by the allocator's size classes and with the weights that
    /// users give, and the pages that track them. It is a target, not a hard limit: see the crate's
    /// "The memory budget".
    ///
    /// Each thread counts separately and shares its count in steps, so the total may be wrong by
    /// the number of retiring threads times the step: a quarter of a thread's quota, which is 16 to
    /// 144 KiB, and at most an eighth of the budget for all threads together.
    /// [`Domain::statistics`] adds up what all threads have counted, and has no such step.
    pub fn set_budget(&self, bytes: usize) {
        self.core.inner.parts.settings().set_budget(bytes);
    }

    /// Returns the budget, in bytes.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.core.inner.parts.settings().budget()
    }

    /// Delays callbacks by at least `delay` (in whole batches, so by up to twice as much), and by a
    /// grace period in any case. The default is 0, or
    /// `STILLPOINT_CALLBACK_DELAY_MS` in the environment, in whole milliseconds, for all domains
    /// (any other value is ignored, with a warning on stderr).
    ///
    /// It is for programs that use an object outside of sections for a while after queueing its
    /// callback, which is wrong, but goes well if callbacks are late. Retired objects are freed as
    /// before, except those for which there was no page, which callbacks free. A barrier cuts the
    /// delay short for the callbacks that it waits for, so that it takes no longer than without; so
    /// does the end of the domain; a delay that is set meanwhile changes neither. For all other
    /// callbacks, also those that are queued already, the delay set last applies. Takes a lock for
    /// a moment, and may start the service thread. Not async-signal-safe.
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

    /// Returns how long callbacks are kept before they may run.
    #[must_use]
    pub fn callback_delay(&self) -> Duration {
        self.engine().callback_delay()
    }

    /// Sets how long a grace period (or the service thread) may be held up before that counts as a
    /// stall. The default is 10 seconds, or `STILLPOINT_STALL` in the environment, in seconds,
    /// which a call of this overrides. The service thread is held up while it has work, and
    /// finishes no callback and no page of up to 253 retired objects.
    ///
    /// Zero means never, as does any time that is too long to elapse. Then nothing is reported or
    /// counted as a stall, and a reader that never leaves throttles writers past the budget at each
    /// page, instead of only until it is reported.
    pub fn set_stall_timeout(&self, timeout: Duration) {
        self.core.set_stall_timeout(timeout);
    }

    /// Calls `handler` once for every stall from now on, instead of an earlier handler. The
    /// kernel's "rcu detected stalls".
    ///
    /// Without a handler (and a subscriber of `tracing`, with that feature) the report is written
    /// to stderr, as one line, once per stall, however long it lasts. The line is left out if
    /// stderr is closed, or is a full pipe. `STILLPOINT_STALL` in the environment changes that:
    /// with `off` nothing is written, with `stderr` also where there is a handler.
    ///
    /// A grace period is watched while a thread or a deferred free waits for it. The handler runs
    /// on the thread that detects the stall: a waiter, a retiring thread, or the service thread. It
    /// may use the library's read side, and log; it must not wait for callbacks or deferred frees,
    /// as if it were a callback, nor take locks that are held around calls of this library. A panic
    /// of the handler or of its destructor is counted ([`Statistics::panics`]). A handler that owns
    /// a handle of the domain keeps it open until it is replaced. A replaced handler is dropped by
    /// this call, or by the report under way.
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

    /// Removes the handler: stalls are written to stderr again, as before any
    /// [`on_stall`](Self::on_stall). To discard them, set a handler that does nothing.
    ///
    /// ```
    /// let domain = stillpoint::Domain::new();
    /// domain.on_stall(|_| ()); // while something is known to take long
    /// domain.reset_on_stall();
    /// ```
    pub fn reset_on_stall(&self) {
        self.engine().set_stall_handler(None);
    }

    /// Starts the domain's service thread, which then goes on for as long as the domain: without this
    /// it starts with the first work, and ends when there has been none for a second.
    ///
    /// For a program that is about to lose what a thread needs (privileges, memory, processes), or that
    /// wants no thread to start later. Call it from a thread whose policy and nice value suit the service
    /// thread: it takes the main thread's, but the kernel lets an unprivileged thread neither leave
    /// `SCHED_IDLE` nor lower its nice value. Other attributes of the thread can be set by a callback,
    /// which runs on it.
    ///
    /// In the child of a fork the thread starts again with the first work, and goes on too. Does not
    /// block.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread. The domain works all the same: see
    /// [Limits](https://github.com/stillpoint-rcu/stillpoint/blob/main/docs/src/limits.md).
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let domain = stillpoint::Domain::new();
    /// domain.start_service()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_service(&self) -> io::Result<()> {
        self.engine().keep_service()
    }

    /// Returns the domain's statistics. Takes one lock per thread that has used the domain. Exact
    /// at rest, else a racy snapshot.
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
    /// Waits for no lock, so objects in pages that are not full yet are not counted. While it adds
    /// up, it holds the lock of the threads' list, for which a thread that joins or exits may wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// A handle that is kept by an object which was made in the domain: a cell, an arena, a guard. A
/// thread that drops such an object need not know that it is the last handle, so dropping this
/// never waits.
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
        // SAFETY: the rest of the handle. Nothing drops it a second time, because it is never
        // dropped as a `Domain`.
        unsafe { ptr::drop_in_place(&raw mut self.0.core.inner) };
    }
}

/// A [`Guard`] without a lifetime: it keeps its domain alive itself. For structures that hold a guard
/// beside a handle of the domain, or that give guards out by an interface without lifetimes.
///
/// Made by [`Domain::read_lock_static`](crate::Domain::read_lock_static). Like a `Guard` it belongs
/// to its thread, nests and may be leaked, and it protects the same. Unlike a `Guard`, it is a
/// handle of the domain, as a cell is ([`Domain`](crate::Domain) says what that means for its end):
/// making and dropping it costs two atomic read-modify-writes each, on a line that all threads
/// share, and is not async-signal-safe. A guard of the global domain has no lifetime to begin with
/// (`Guard<'static>`), nor has one of a domain in a `static`. One that may change threads is an
/// [`OwnedGuard`](crate::tasks_trace::OwnedGuard).
///
/// ```
/// use stillpoint::{Domain, Rcu, StaticGuard};
///
/// struct Handle(Domain);
/// struct Pinned { guard: StaticGuard }
///
/// impl Handle {
///     fn pin(&self) -> Pinned {
///         Pinned { guard: self.0.read_lock_static() }
///     }
/// }
///
/// let handle = Handle(Domain::new());
/// let cell = Rcu::new_in(&handle.0, 1);
/// let pinned = handle.pin();
/// drop(handle);
/// assert_eq!(cell.load(&pinned.guard), &1);
/// ```
///
/// It cannot be sent:
///
/// ```compile_fail,E0277
/// let guard = stillpoint::Domain::new().read_lock_static();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the section ends as soon as the guard is dropped"]
pub struct StaticGuard {
    /// Valid as long as the domain. A pointer, because dropping the handle may end the domain while
    /// a reference in this field would still have to be valid. So the guard is neither Send nor
    /// Sync.
    record: NonNull<Record>,
    /// Dropped after the section has ended.
    _held: Kept,
}

impl StaticGuard {
    #[inline]
    pub(super) fn enter(domain: &Domain) -> Self {
        let held = Kept::from(domain);
        let section = ManuallyDrop::new(domain.read_lock());
        Self {
            record: NonNull::from(section.record),
            _held: held,
        }
    }

    #[inline(always)]
    fn record(&self) -> &Record {
        // SAFETY: the field's promise.
        unsafe { self.record.as_ref() }
    }
}

impl Section for StaticGuard {}

impl sealed::Section for StaticGuard {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.record().domain()
    }
}

impl Drop for StaticGuard {
    #[inline]
    fn drop(&mut self) {
        if self.record().unlock().work_pending {
            thread::run_deferred_work(self.record());
        }
    }
}

impl fmt::Debug for StaticGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticGuard")
            .field("domain", &self.record().domain())
            .finish_non_exhaustive()
    }
}

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

/// Returns a global domain, which is made on first use.
#[inline]
pub(crate) fn global_domain<const GLOBAL: usize>() -> &'static Domain {
    // SAFETY: a `Domain` is nothing but its core, by `repr(transparent)`.
    unsafe { &*ptr::from_ref(global_core::<GLOBAL>()).cast() }
}

/// Returns the core of a domain, for torture programs, which take any policy.
pub fn core_of(domain: &Domain) -> &Core<Sound> {
    domain.core()
}

/// Returns the domain of a cell: its own, or the global one.
pub(super) fn home(domain: &Option<Kept>) -> &Domain {
    match domain {
        Some(domain) => domain,
        None => global(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ptr::NonNull, sync::mpsc::channel};

    /// A debugger or a log may look at a domain while a thread that holds one of its locks is
    /// stopped.
    #[test]
    fn to_show_a_domain_takes_no_lock_of_a_thread() {
        let domain = Domain::new();
        // SAFETY: from a box just now; no other thread has ever known the object.
        unsafe { domain.retire(NonNull::from(Box::leak(Box::new(1)))) };
        let shown = domain.core().inner.parts.heap().with_locks_held(|| {
            let (tell, told) = channel();
            let theirs = domain.clone();
            std::thread::spawn(move || tell.send(format!("{theirs:?}")));
            told.recv_timeout(Duration::from_secs(120))
                .expect("it does not wait for a lock")
        });
        assert!(shown.contains("objects_pending"), "{shown}");
    }
}
