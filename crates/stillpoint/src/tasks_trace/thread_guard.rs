//! The guard of a section that may sleep, and stays on its thread.

use crate::rcu::{self, Section, guard::sealed};
use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
};

/// A section of one thread that may sleep and block, open until this is dropped.
///
/// Made by [`read_lock`](super::read_lock) or
/// [`TraceDomain::read_lock`](super::TraceDomain::read_lock); the kernel's `rcu_read_lock_trace()`
/// and `rcu_read_unlock_trace()`. It costs what a [`stillpoint::Guard`](crate::Guard) does, nests,
/// is async-signal-safe and may be leaked like that, and belongs to its thread: it is neither
/// `Send` nor `Sync`. For a section that is held across an `.await`, take an
/// [`OwnedGuard`](super::OwnedGuard).
///
/// It has its own type because it protects nothing in the crate's global domain: a function that
/// asks for a [`stillpoint::Guard`](crate::Guard) does not take it, and the other way round.
///
/// ```compile_fail,E0308
/// fn of_the_program(section: &stillpoint::Guard<'_>) {}
/// of_the_program(&stillpoint::tasks_trace::read_lock());
/// ```
///
/// A function for both takes an `&impl Section`:
///
/// ```
/// use stillpoint::{Rcu, Section, tasks_trace};
/// fn longest<'g>(names: &Rcu<Vec<String>>, section: &'g impl Section) -> Option<&'g String> {
///     names.load(section).iter().max_by_key(|name| name.len())
/// }
/// let plugins = Rcu::new_in(tasks_trace::global(), vec!["log".into(), "compress".into()]);
/// assert_eq!(longest(&plugins, &tasks_trace::read_lock()).unwrap(), "compress");
/// ```
#[must_use = "the section ends as soon as the guard is dropped"]
pub struct Guard<'d>(rcu::Guard<'d>);

impl<'d> Guard<'d> {
    /// Wraps `section`. Not public, and no `From`: only the code that begins a section knows its
    /// domain.
    #[inline(always)]
    pub(super) fn of(section: rcu::Guard<'d>) -> Self {
        Self(section)
    }
}

impl UnwindSafe for Guard<'_> {}
impl RefUnwindSafe for Guard<'_> {}

impl Section for Guard<'_> {}

impl sealed::Section for Guard<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.0.domain_id()
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
