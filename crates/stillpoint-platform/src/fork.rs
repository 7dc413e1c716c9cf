//! fork(2): the state of the library in the child.
//!
//! The child is a copy of the process in which one thread goes on, the one that forked. All others
//! are gone, each at an arbitrary instruction, with the locks that it held, the lists that it was
//! changing and the work that it had promised. So one handler runs in the child before fork returns
//! there: it walks the domains ([`AtForkHandle`]), and each resets its own state ([`ForkReset`]).
//!
//! # Nothing runs before the fork
//!
//! The common recipe takes every lock before the fork and releases it on both sides afterwards.
//! Here the parent does nothing at all. It could not take the locks that are held while user code
//! runs, since a callback may be what forks. Its locks would join an order with the locks and fork
//! handlers of other libraries, and deadlock with a program that holds a lock around a retire. And
//! every fork that only leads to an exec would pay for it. Instead, the child reads nothing that a
//! lock guards. It overwrites the lock ([`Mutex::reinit`](super::sync::Mutex::reinit)) and replaces
//! the data behind it by an empty value: pending work there belongs to the parent. What it does
//! read can be read at any moment:
//!
//! * Atomics, and what an atomic has published (the readers' records, the list of places). The
//!   child sees a state that the parent has been through. Linux copies the pages one after the other
//!   while the parent's threads run, but a thread that writes to a page which has been copied stands
//!   still until all are copied. So if the child sees a store, it also sees all that happened before.
//! * State that no lost thread can have left half changed, as such atomics show. It stays as it is.
//! * State of the forking thread alone, which is not in the middle of a change: only user code forks,
//!   and the library calls user code with no lock held except an [owned
//!   mutex](super::owned_mutex), and with no waiter [announced](super::event).
//!
//! The handler allocates, frees and waits for nothing, and makes one system call, for the new
//! thread id. It writes only to what it resets: the child copies each page that it writes to.
//!
//! # What the child has
//!
//! | before the fork | in the child |
//! |---|---|
//! | sections of the forking thread, QSBR readers included | open |
//! | sections of other threads, guards that ended threads leaked included | over |
//! | owned guards of all threads | open, without their names |
//! | cookies, settings, counters of what has happened | as they were, except that up to 4,095 freed objects of each other thread are no longer counted |
//! | callbacks, retired objects | forgotten: neither run nor freed, and no longer counted |
//! | waiting tasks | not woken; a future that is polled again waits again |
//! | barriers and flushes (under way in the forking thread), barriers as futures | done: nothing is left to wait for |
//! | pages, bindings and domain handles of other threads | leaked, and so is a domain that they hold |
//! | service threads | gone; they start again on demand, without std ([`thread::spawn`](super::thread::spawn)) |
//!
//! If a callback or a deferred destructor forks, the child is still inside it, and the rules for
//! callbacks still hold: no barrier inside, and no other thread's pass before it has returned. When
//! it returns, the callbacks that were to follow are forgotten like the rest: the loops over them
//! compare [`process`] after each call. A service thread that forks remains one in the child.
//!
//! # What this is not
//!
//! A fork in a signal handler is not supported (nor safe, since POSIX.1-2024): it may interrupt its
//! thread anywhere. Nothing is reset in the child of `vfork`, `posix_spawn`, `_Fork` or a bare
//! `clone`, which must not use the library, nor on other systems than Linux. If another library's
//! fork handlers are already running when the process makes its first domain, the child may find
//! that domain half made. Fork handlers of other libraries may use this one in the child if they
//! were registered after the first domain was made.

use crate::seam;
// std's also in the model, which does not fork.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use seam::fork::AtForkHandle;

/// The token of the thread that forked last; 0 in the first process. Written, with the id below, in
/// the child alone, by its only thread.
static SURVIVOR: AtomicU64 = AtomicU64::new(0);

/// That thread's kernel id.
static SURVIVORS_TID: AtomicU32 = AtomicU32::new(0);

/// Records the calling thread's new kernel id, in the child.
#[cfg(not(stillpoint_loom))]
pub(crate) fn note_survivor() {
    SURVIVORS_TID.store(crate::thread::tid(), Ordering::Relaxed);
    SURVIVOR.store(crate::thread::token().get(), Ordering::Relaxed);
}

/// Returns the kernel id of the thread with the token `owner`. `noted` is the id that was recorded for it.
/// The thread that forks gets another id in the child, which saves a write to every place that records the
/// old one.
#[inline]
pub fn tid_of(owner: u64, noted: u32) -> u32 {
    if owner == SURVIVOR.load(Ordering::Relaxed) && owner != 0 {
        SURVIVORS_TID.load(Ordering::Relaxed)
    } else {
        noted
    }
}

/// State that has to be reset in the child of a fork.
pub trait ForkReset: Sync {
    /// Forgets what the lost threads held, and all pending work.
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
    /// Returns whether this process is the child of a fork that came after the library's first use.
    #[inline]
    pub fn is_child(self) -> bool {
        self.0 > 0
    }

    /// Returns how many forks lie between the first process and this one.
    #[inline]
    pub fn generation(self) -> u64 {
        self.0
    }
}

/// Returns the present process, as seen by a thread that has called, or will call, user code.
#[inline]
pub fn process() -> Process {
    seam::fork::process()
}
