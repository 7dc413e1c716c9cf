//! The guard of a section that belongs to no thread.

use crate::{
    gp::Record,
    platform::clock,
    rcu::{Kept, Section, guard::sealed, thread},
};
use std::{
    fmt,
    marker::PhantomData,
    panic::{Location, RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
};

/// A read-side critical section that belongs to this guard and not to a thread: it lasts until the
/// guard is dropped, on any thread.
///
/// Made by [`TraceDomain::read_lock_owned`](super::TraceDomain::read_lock_owned), or
/// [`read_lock_owned`](super::read_lock_owned) for the global domain. `Send` and `Sync`: it may be
/// moved into tasks and threads, held across an `.await`, and shared by reference with threads that
/// read through it at the same time. It has no `Clone`: begin another section instead.
///
/// A guard that is leaked leaves its section open for ever, because references that it lent may be
/// anywhere.
///
/// ```
/// use stillpoint::{Rcu, tasks_trace};
/// async fn fetch(cell: &Rcu<Vec<u8>>) -> usize {
///     let guard = tasks_trace::read_lock_owned();
///     let found = cell.load(&guard).len();
///     std::future::ready(()).await;
///     found
/// }
/// fn assert_send<T: Send>(_: T) {}
/// let cell = Rcu::new_in(tasks_trace::global(), vec![1, 2, 3]);
/// assert_send(fetch(&cell));
/// ```
///
/// A reference that it lends does not outlive it:
///
/// ```compile_fail,E0505
/// use stillpoint::{Rcu, tasks_trace};
/// let cell = Rcu::new_in(tasks_trace::global(), 1);
/// let guard = tasks_trace::read_lock_owned();
/// let value = cell.load(&guard);
/// drop(guard);
/// println!("{value:?}");
/// ```
#[must_use = "the section ends as soon as the guard is dropped"]
pub struct OwnedGuard<'d> {
    /// Valid as long as the domain, which the guard borrows or has a handle of. A pointer, because
    /// dropping that handle may end the domain while a reference in this field would still have to
    /// be valid.
    record: NonNull<Record>,
    /// Dropped after the section has ended.
    _held: Option<Kept>,
    borrowed: PhantomData<&'d Record>,
}

// SAFETY: it stands for a reference to a record, which is Sync, and a handle, which is Send and
// Sync.
unsafe impl Send for OwnedGuard<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedGuard<'_> {}

impl<'d> OwnedGuard<'d> {
    /// Enters a section through `record`, which is quiescent and the calling thread's, and from now
    /// on the guard's.
    #[inline]
    #[track_caller]
    pub(super) fn enter(record: &'d Record, held: Option<Kept>) -> Self {
        record.lock_owned(Location::caller(), clock::coarse());
        Self {
            record: record.into(),
            _held: held,
            borrowed: PhantomData,
        }
    }

    #[inline(always)]
    fn record(&self) -> &Record {
        // SAFETY: the field's promise.
        unsafe { self.record.as_ref() }
    }

    /// Gives the section a name for stall reports: that of the task or request that it is for.
    ///
    /// Allocates, and takes an uncontended lock. A guard without a name is known by the place where
    /// it was made and the thread that made it.
    pub fn named(self, name: impl Into<Box<str>>) -> Self {
        self.record().set_name(name.into());
        self
    }
}

impl UnwindSafe for OwnedGuard<'_> {}
impl RefUnwindSafe for OwnedGuard<'_> {}

impl Section for OwnedGuard<'_> {}

impl sealed::Section for OwnedGuard<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.record().domain()
    }
}

impl Drop for OwnedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record().unlock_owned();
        thread::cache_record(self.record());
    }
}

impl fmt::Debug for OwnedGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedGuard")
            .field("domain", &self.record().domain())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::tasks_trace::TraceDomain;
    use std::thread;

    /// For Miri: nothing of the guard may refer to the domain when its own handle ends it.
    #[test]
    fn the_last_handle_of_a_domain_may_be_a_guards_on_a_foreign_thread() {
        let make = || TraceDomain::new().read_lock_static();
        let guard = thread::spawn(make).join().expect("no panic");
        drop(guard);
        let guard = thread::spawn(make).join().expect("no panic");
        drop(guard.named("renamed"));
    }
}
