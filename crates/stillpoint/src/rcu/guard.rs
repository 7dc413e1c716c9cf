//! The guard of a read-side critical section.

use super::{
    core::{Core, RCU, global_id},
    thread,
};
use crate::{
    gp::{Flavour, Record},
    kvfree::Policy,
    platform::thread as platform_thread,
};
use std::{fmt, marker::PhantomData};

/// A read-side critical section, open until this is dropped: what a thread finds through it is not
/// freed meanwhile.
///
/// Made by [`read_lock`](crate::read_lock) or [`Domain::read_lock`](crate::Domain::read_lock); the
/// kernel's `rcu_read_lock()` and `rcu_read_unlock()`. Guards nest, and may be dropped in any
/// order: the section ends with the last one. A guard belongs to its thread: it is neither `Send`
/// nor `Sync`, and cannot be kept across an `.await` in a task that moves between threads.
///
/// Where a task stays on its thread (a current-thread runtime, a `LocalSet`, the future of
/// `block_on`) the compiler accepts that, and the section stays open while the thread runs other
/// tasks or sleeps: its domain stalls. Stall reports recognise it ([`AcrossAwait`]); Clippy finds
/// it with the list in [Guards across await][list].
///
/// A section that is to be held across an `.await` is an
/// [`OwnedGuard`](crate::tasks_trace::OwnedGuard).
///
/// [`AcrossAwait`]: crate::AcrossAwait
/// [list]: https://github.com/stillpoint-rcu/stillpoint/blob/main/docs/src/async.md#guards-across-await
///
/// A leaked guard leaves its section open for ever, because references that it lent may be
/// anywhere: later grace periods of its domain never end (a stall, counted in
/// [`Statistics::stalls`](crate::Statistics::stalls)), and nothing is freed.
///
/// Costs, together with making it, about a nanosecond where membarrier works and two fences where
/// it does not. Making and dropping it is async-signal-safe in a thread that has read in the domain
/// before, until its thread-local destructors run.
///
/// It cannot be sent:
///
/// ```compile_fail,E0277
/// let guard = stillpoint::read_lock();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the section ends as soon as the guard is dropped"]
pub struct Guard<'d> {
    pub(super) record: &'d Record,
    /// Not Send, not Sync: the record is one thread's.
    thread: PhantomData<*mut ()>,
}

impl<'d> Guard<'d> {
    /// Makes the guard of a section that has just been begun for it.
    #[inline(always)]
    pub(super) fn of(record: &'d Record) -> Self {
        Self {
            record,
            thread: PhantomData,
        }
    }

    #[inline]
    pub(super) fn enter(record: &'d Record) -> Self {
        record.lock();
        Self::of(record)
    }
}

impl<P: Policy> Core<P> {
    /// See [`Domain::read_lock`](super::Domain::read_lock).
    #[inline]
    pub fn read_lock(&self) -> Guard<'_> {
        match thread::record(self) {
            Some(record) => Guard::enter(record),
            None => self.read_lock_late(),
        }
    }

    /// See [`Domain::read`](super::Domain::read).
    #[inline]
    pub fn read<R>(&self, section: impl FnOnce(&Guard<'_>) -> R) -> R {
        section(&self.read_lock())
    }

    #[cold]
    pub(super) fn read_lock_late(&self) -> Guard<'_> {
        Guard::of(self.lock_late())
    }

    /// Begins a section of a thread whose own record no longer exists or cannot be allocated. If it
    /// has a section open, this is a further level of that; otherwise it is a new section, through
    /// a record for that section alone. Allocates only if all records of the domain are taken.
    ///
    /// All levels have the same record, and the thread is not bound before they have ended
    /// ([`thread`]), so an unlock without a guard may end any of them.
    #[cold]
    pub(super) fn lock_late(&self) -> &Record {
        let me = platform_thread::token();
        if let Some(record) = self.inner.parts.atomics().open_record_of(me) {
            record.lock();
            return record;
        }
        thread::note_late();
        let record = self.inner.parts.atomics().register(me, Flavour::Thread);
        record.lock();
        record.depart();
        record
    }

    /// Returns a quiescent record that is the calling thread's, to be given to an owned guard.
    #[inline]
    pub(crate) fn quiescent_record(&self) -> &Record {
        thread::take_cached_record(self).unwrap_or_else(|| self.quiescent_record_late())
    }

    /// Returns such a record for a thread whose thread-local state is gone.
    #[cold]
    fn quiescent_record_late(&self) -> &Record {
        self.inner
            .parts
            .atomics()
            .register(platform_thread::token(), Flavour::Owned)
    }
}

/// An open read-side critical section of any kind: what [`Rcu::load`](crate::Rcu::load) relies on.
///
/// A [`Guard`], a [`StaticGuard`](crate::StaticGuard), a [`tasks_trace::Guard`](crate::tasks_trace::Guard), an
/// [`OwnedGuard`](crate::tasks_trace::OwnedGuard), or an online
/// [`QsbrReader`](crate::QsbrReader). Sealed: no other type can be one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a read-side critical section",
    label = "this protects nothing that is read through it",
    note = "a section is a `stillpoint::Guard`, which `read_lock()` gives, a `tasks_trace::Guard`, a `tasks_trace::OwnedGuard` or a `QsbrReader`: pass `&guard`"
)]
pub trait Section: sealed::Section {}

impl<S: Section> Section for &S {}

pub(crate) mod sealed {
    pub trait Section {
        /// Returns the number of the domain whose grace periods wait for this section; 0 if none does.
        fn domain_id(&self) -> u64;
    }

    impl<S: Section> Section for &S {
        #[inline(always)]
        fn domain_id(&self) -> u64 {
            (**self).domain_id()
        }
    }
}

impl Section for Guard<'_> {}

impl sealed::Section for Guard<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.record.domain()
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.record.unlock().work_pending {
            thread::run_deferred_work(self.record);
        }
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("domain", &self.record.domain())
            .finish_non_exhaustive()
    }
}

/// Returns whether `section` is one of the global domain.
#[inline(always)]
pub(crate) fn is_global(section: &impl Section) -> bool {
    section.domain_id() == const { global_id(RCU) }
}
