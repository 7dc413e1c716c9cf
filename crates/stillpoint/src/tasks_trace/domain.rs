//! Domains whose readers may sleep.

use super::{guard::OwnedGuard, thread_guard::Guard};
use crate::{
    gp::Cookie,
    kvfree::Policy,
    rcu::{Core, Domain, DomainBuilder},
};
use std::{
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr,
};

/// A domain whose readers may sleep, block, and be tasks.
///
/// It derefs to a [`Domain`]: `synchronize` and its asynchronous form, cookies, callbacks, deferred
/// frees, stall reports and statistics are those of every domain. It adds [`OwnedGuard`]s, and a
/// type for guards of threads; its own type says that its grace periods may last long. A section
/// that begins through a `&Domain` is of this domain too, but has the crate's
/// [`Guard`](crate::Guard).
///
/// This is a handle: a clone of it is a handle of the same domain.
///
/// # Forking
///
/// See [`Domain`], "Forking". In addition, an owned guard from before the fork is still a section
/// in the child: it is an object of the program's memory, which the child may go on with. If it
/// does not, because the guard was on the stack of a thread that the fork removed or in the queue
/// of its executor, the child has to say so ([`TraceDomain::abandon_owned_guards`]) or do without
/// grace periods in that domain. Reports in the child do not know the names of guards from before
/// the fork.
///
/// ```
/// use stillpoint::tasks_trace::TraceDomain;
/// let (plugins, sessions) = (TraceDomain::new(), TraceDomain::new());
/// let long = sessions.read_lock_owned();
/// plugins.synchronize(); // does not wait for sessions
/// drop(long);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(transparent)]
pub struct TraceDomain(Domain);

impl TraceDomain {
    /// Makes a domain with the defaults of [`Domain::new`].
    #[must_use]
    pub fn new() -> Self {
        Self::made(Domain::new())
    }

    /// Makes a domain whose readers fence, as [`Domain::with_fences`]: no grace period interrupts a
    /// processor. The kernel's `CONFIG_TASKS_TRACE_RCU_READ_MB`.
    #[must_use]
    pub fn with_fences() -> Self {
        Self::made(Domain::with_fences())
    }

    /// Makes a domain whose sequence starts at `first`: for tests that want to see it wrap.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(first: Cookie) -> Self {
        Self::made(Domain::starting_at(first))
    }

    /// Turns a domain that was just made into one whose readers may sleep.
    fn made(domain: Domain) -> Self {
        domain.core().set_trace();
        Self(domain)
    }

    pub(crate) fn of(domain: &Domain) -> &Self {
        // SAFETY: it is nothing but a `Domain`, by `repr(transparent)`.
        unsafe { &*ptr::from_ref(domain).cast() }
    }

    /// Begins a section of the calling thread that may sleep and block. Like [`Domain::read_lock`],
    /// except for the guard's type.
    ///
    /// ```
    /// let sessions = stillpoint::tasks_trace::TraceDomain::new();
    /// let guard = sessions.read_lock();
    /// std::thread::sleep(std::time::Duration::from_millis(1));
    /// drop(guard);
    /// ```
    #[inline]
    pub fn read_lock(&self) -> Guard<'_> {
        Guard::of(self.0.read_lock())
    }

    /// Runs `section` inside a section of the calling thread, which may sleep and block. Like
    /// [`Domain::read`], except for the guard's type.
    ///
    /// ```
    /// use stillpoint::{Rcu, tasks_trace::TraceDomain};
    /// let sessions = TraceDomain::new();
    /// let count = Rcu::new_in(&sessions, 7);
    /// assert_eq!(sessions.read(|guard| *count.load(guard)), 7);
    /// ```
    #[inline]
    pub fn read<R>(&self, section: impl FnOnce(&Guard<'_>) -> R) -> R {
        section(&self.read_lock())
    }

    /// Begins a section that belongs to the guard and not to a thread: for a task, a request, a
    /// long-lived object.
    ///
    /// The guard is `Send` and `Sync`, may be dropped on any thread, and may be held across an
    /// `.await`. It lasts until it is dropped, also if its task is cancelled or panics. Making and
    /// dropping it costs about 5 nanoseconds. Waits for no reader and no grace period. At most one
    /// call in 16 takes a lock. Under it, some 3 KiB are allocated for each 32 guards beyond the
    /// largest number so far. Not async-signal-safe. Works in thread-local destructors.
    ///
    /// ```
    /// let domain = stillpoint::tasks_trace::TraceDomain::new();
    /// let guard = domain.read_lock_owned();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| drop(guard));
    /// });
    /// ```
    #[inline]
    #[track_caller]
    pub fn read_lock_owned(&self) -> OwnedGuard<'_> {
        self.core().read_lock_owned()
    }

    /// Like [`read_lock_owned`](Self::read_lock_owned), but the guard may outlive this handle of
    /// the domain: it keeps another.
    ///
    /// Costs two atomic read-modify-writes more, and as many when it is dropped. If it has the
    /// domain's last handle, dropping the guard ends the domain, without waiting: see [`Domain`].
    ///
    /// ```
    /// use stillpoint::tasks_trace::{OwnedGuard, TraceDomain};
    /// fn enter() -> OwnedGuard<'static> {
    ///     TraceDomain::new().read_lock_static()
    /// }
    /// drop(enter());
    /// ```
    #[inline]
    #[track_caller]
    pub fn read_lock_static(&self) -> OwnedGuard<'static> {
        // SAFETY: the guard's handle keeps the domain, and so the record, alive.
        let record = unsafe { &*ptr::from_ref(self.core().quiescent_record()) };
        OwnedGuard::enter(record, Some((&self.0).into()))
    }

    /// Ends the sections of all owned guards. It is for the child of a fork, in which the tasks
    /// that held them no longer exist.
    ///
    /// # Safety
    ///
    /// No owned guard of this domain that was made before this call is used any more, not even
    /// dropped, nor anything that was found through one; and no other thread makes one during this
    /// call.
    ///
    /// ```
    /// let domain = stillpoint::tasks_trace::TraceDomain::new();
    /// std::mem::forget(domain.read_lock_static()); // think of a fork
    /// // SAFETY: the guard is forgotten, and has found nothing.
    /// unsafe { domain.abandon_owned_guards() };
    /// domain.synchronize();
    /// ```
    pub unsafe fn abandon_owned_guards(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.core().abandon_owned_guards() };
    }
}

impl DomainBuilder {
    /// Makes a domain whose readers may sleep, like [`DomainBuilder::build`].
    ///
    /// ```
    /// let sessions = stillpoint::Domain::builder().name("sessions").build_trace();
    /// let guard = sessions.read_lock_owned();
    /// assert_eq!(sessions.name(), Some("sessions"));
    /// ```
    #[must_use]
    pub fn build_trace(self) -> TraceDomain {
        TraceDomain::made(self.build())
    }
}

impl<P: Policy> Core<P> {
    /// [`TraceDomain::read_lock_owned`].
    #[inline]
    #[track_caller]
    pub fn read_lock_owned(&self) -> OwnedGuard<'_> {
        OwnedGuard::enter(self.quiescent_record(), None)
    }

    /// [`TraceDomain::abandon_owned_guards`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn abandon_owned_guards(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.engine().abandon_guards() };
    }
}

impl UnwindSafe for TraceDomain {}
impl RefUnwindSafe for TraceDomain {}

impl Default for TraceDomain {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for TraceDomain {
    type Target = Domain;

    #[inline]
    fn deref(&self) -> &Domain {
        &self.0
    }
}

impl AsRef<Domain> for TraceDomain {
    fn as_ref(&self) -> &Domain {
        self
    }
}
