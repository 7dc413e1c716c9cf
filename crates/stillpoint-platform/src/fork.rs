//! fork(2): what there is of the library in the child.
//!
//! The child is a copy of the process in which one thread goes on, the one that forked. All others
//! have vanished, each at whatever instruction it was, with the locks that it held, the lists that
//! it was changing and the work that it had promised. So one handler runs in the child before fork
//! returns there: it walks the domains ([`AtForkHandle`]), and each puts back into order what is
//! its own ([`ForkReset`]).
//!
//! # Nothing runs before the fork
//!
//! The usual recipe takes every lock before the fork and gives it back on both sides after it. Here
//! the parent does nothing at all. It could not take the locks that are held while user code runs,
//! since a callback may itself be what forks; it would stand in an order with the locks and fork
//! handlers of others, and deadlock with one who holds a lock of its own around a retire; and every
//! fork that only means to exec would wait for it. Instead, the child looks at nothing that a lock
//! guards. It overwrites the lock ([`Mutex::reinit`](super::sync::Mutex::reinit)), and what is
//! behind it with nothing: all that waits there is of before the fork, and not the child's
//! business. What it does read can be read at any moment:
//!
//! * Atomics, and what an atomic has published (the readers' records, the list of places). The
//!   child sees a state that the parent has been through, although Linux copies one page after the
//!   other while the parent's threads run: a store that is too late for its page's copy stands
//!   still, and its thread with it, until all pages are copied; so whatever the child sees, it also
//!   sees what happened before that.
//! * What belongs to the forking thread alone, and which it is not in the middle of changing: to
//!   fork is user code, which the library calls with nothing held but a [turn](super::owned_mutex),
//!   and with no waiter [announced](super::event).
//!
//! The handler allocates, frees and waits for nothing, and makes one system call, for the new
//! thread id.
//!
//! # What the child has
//!
//! | of before the fork | in the child |
//! |---|---|
//! | sections of the forking thread, QSBR readers included | open |
//! | sections of other threads, guards that ended threads leaked included | over |
//! | owned guards, whoever made them | open, without their names |
//! | cookies, settings, counters of what has happened | as they were |
//! | callbacks, retired objects | forgotten: neither run nor freed, and not counted as waiting |
//! | tasks that wait | not woken; a future that is polled again waits again |
//! | barriers and flushes (under way in the forking thread), barriers as futures | done: nothing is left that they are for |
//! | pages, bindings and domain handles of other threads | leaked, and so is a domain that they hold |
//! | service threads | gone; they start again on demand, without std ([`thread::spawn`](super::thread::spawn)) |
//!
//! If it is a callback or a deferred destructor that forks, the child is still inside it, and all
//! that holds of callbacks goes on holding: no barrier inside, and nobody else's pass before it has
//! returned. When it returns, those that were to follow it are forgotten like all the rest: the
//! loops over them compare [`process`] after each call of it. A service thread that forks goes on
//! being one in the child.
//!
//! # What this is not
//!
//! A fork in a signal handler is not foreseen (nor safe, since POSIX.1-2024): it may find its
//! thread in the middle of anything. Nothing is put in order in the child of `vfork`,
//! `posix_spawn`, `_Fork` or a bare `clone`, which must not use the library, nor on other systems
//! than Linux. A fork that is already running handlers of others when the process makes its very
//! first domain may find it half made. Fork handlers of others may use the library in the child if
//! they were registered after the first domain was made.

use crate::seam;

pub use seam::fork::AtForkHandle;

/// Something that has to be put back into order in the child of a fork.
pub trait ForkReset: Sync {
    /// Forgets what vanished threads held, and all that waits.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process, and forks: it runs user code as far as
    /// the library is concerned.
    unsafe fn reset_in_child(&self);
}

/// A number that changes in the child of a fork, so that a thread can tell that it has come back
/// from user code in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(pub(crate) u64);

impl Process {
    /// Whether it has come of a fork since the library came to use.
    #[inline]
    pub fn is_child(self) -> bool {
        self.0 > 0
    }
}

/// The present process, as seen by a thread that has called, or will call, user code.
#[inline]
pub fn process() -> Process {
    seam::fork::process()
}
