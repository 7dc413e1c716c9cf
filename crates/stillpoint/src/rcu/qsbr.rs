//! Readers by quiescent states: threads that read all the time and say when they do not.

use super::{
    core::Core,
    domain::Domain,
    guard::{Section, sealed},
    wait::Refused,
};
use crate::{
    gp::{Flavour, Haste, Record, WouldDeadlock},
    kvfree::Policy,
    platform::thread,
};
use std::{cell::Cell, fmt, marker::PhantomData};

/// A domain, whatever its policy.
trait Synchronize {
    fn try_synchronize(&self) -> Result<(), WouldDeadlock>;
    /// Returns the message to panic with if that is refused.
    fn refusal(&self) -> String;
}

impl Domain {
    /// Registers the calling thread as a reader that is always inside a section, except where it
    /// says otherwise. The userspace RCU library's `urcu_qsbr_register_thread()`; see
    /// [`QsbrReader`].
    ///
    /// May allocate; does not block.
    #[must_use = "dropping it takes the thread's registration back"]
    pub fn qsbr_reader(&self) -> QsbrReader<'_> {
        self.core().qsbr_reader()
    }
}

impl<P: Policy> Core<P> {
    /// See [`Domain::qsbr_reader`](super::Domain::qsbr_reader).
    #[must_use = "dropping it takes the thread's registration back"]
    pub fn qsbr_reader(&self) -> QsbrReader<'_> {
        QsbrReader::new(
            self,
            self.inner
                .parts
                .atomics()
                .register(thread::token(), Flavour::Qsbr),
        )
    }
}

impl<P: Policy> Synchronize for Core<P> {
    fn try_synchronize(&self) -> Result<(), WouldDeadlock> {
        self.try_synchronize(Haste::Normal)
    }

    fn refusal(&self) -> String {
        self.refusal(Refused::Wait)
    }
}

/// A thread that is inside a read-side critical section at all times, except when it says
/// otherwise: QSBR, the fastest read side, because reading costs nothing.
///
/// Made by [`Domain::qsbr_reader`](crate::Domain::qsbr_reader). While it is online every reference
/// that was found through it stays valid; [`quiescent_state`](Self::quiescent_state) and
/// [`offline`](Self::offline) take it by `&mut`, so that none survives them. A wait for a grace
/// period waits for the next of these calls: **a reader that makes none of them (before a blocking
/// call, say) holds up every grace period of its domain**, and with it the domain's memory. It is
/// then named in the stall report. While it is online its thread never waits for memory: behind
/// another reader, what it retires has no bound. Retire much while it is offline.
///
/// Grace periods, deferred frees and cells are the domain's as ever, and guards may be used in it
/// at the same time. In a domain [with fences](crate::Domain::with_fences) no grace period makes a
/// system call; that is the best use of QSBR readers, and what the userspace RCU library's
/// `urcu-qsbr` does.
///
/// A reader belongs to its thread: it is neither `Send` nor `Sync`. One that is leaked stays online
/// for ever.
///
/// ```
/// use stillpoint::{Domain, Rcu};
/// let domain = Domain::with_fences();
/// let routes = Rcu::new_in(&domain, vec![1, 2]);
/// let mut reader = domain.qsbr_reader();
/// for _packet in 0..3 {
///     assert_eq!(routes.load(&reader).len(), 2);
///     reader.quiescent_state(); // once a packet, or once a batch
/// }
/// ```
///
/// No reference survives a quiescent state:
///
/// ```compile_fail,E0502
/// let domain = stillpoint::Domain::with_fences();
/// let cell = stillpoint::Rcu::new_in(&domain, 1);
/// let mut reader = domain.qsbr_reader();
/// let value = cell.load(&reader);
/// reader.quiescent_state();
/// println!("{value:?}");
/// ```
#[must_use = "dropping it takes the thread's registration back"]
pub struct QsbrReader<'d> {
    domain: &'d dyn Synchronize,
    record: &'d Record,
    /// The domain's number, or 0 while offline. No domain has the number 0, so every load is
    /// refused, also after the [`Offline`] has been leaked.
    protects: Cell<u64>,
    /// Not Send, not Sync: the record is one thread's.
    thread: PhantomData<*mut ()>,
}

impl<'d> QsbrReader<'d> {
    /// Makes an online reader of `domain` through `record`, a record of the domain that nothing else
    /// uses.
    pub(super) fn new<P: Policy>(domain: &'d Core<P>, record: &'d Record) -> Self {
        let reader = Self {
            domain,
            record,
            protects: Cell::new(0),
            thread: PhantomData,
        };
        reader.go_online();
        reader
    }

    fn go_online(&self) {
        self.record.lock();
        self.protects.set(self.record.domain());
    }

    fn go_offline(&self) {
        self.protects.set(0);
        self.record.unlock();
    }

    /// Declares that this thread no longer uses anything that it has found.
    /// `urcu_qsbr_quiescent_state()`.
    ///
    /// Two loads and a comparison if no grace period has started since the last time, which is what
    /// it nearly always costs; else a store and a fence, and a wake-up if a waiter sleeps for it.
    /// Never blocks. Does nothing while offline.
    #[inline]
    pub fn quiescent_state(&mut self) {
        self.record.quiescent_state();
    }

    /// Goes offline until the returned value is dropped: around everything that may block.
    /// `urcu_qsbr_thread_offline()` and `urcu_qsbr_thread_online()`.
    ///
    /// Two fences together. If the value is leaked, the reader stays offline and protects nothing:
    /// loads through it then panic.
    ///
    /// ```
    /// # let domain = stillpoint::Domain::with_fences();
    /// let mut reader = domain.qsbr_reader();
    /// {
    ///     let _offline = reader.offline();
    ///     std::thread::yield_now(); // or read from a socket, take a lock, sleep
    /// }
    /// assert!(reader.is_online());
    /// ```
    #[must_use = "dropping it takes the reader online again"]
    pub fn offline(&mut self) -> Offline<'_, 'd> {
        if self.is_online() {
            self.go_offline();
        }
        Offline { reader: self }
    }

    /// Returns true if grace periods wait for this reader.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.protects.get() != 0
    }

    /// Goes offline, waits for a grace period as
    /// [`Domain::synchronize`](crate::Domain::synchronize) does, and goes online again.
    ///
    /// `urcu_qsbr_synchronize_rcu()`. The domain's own `synchronize` would panic while this reader
    /// is online, because it cannot know that no reference is held.
    ///
    /// # Panics
    ///
    /// Inside another section of the calling thread in this domain.
    #[track_caller]
    pub fn synchronize(&mut self) {
        let domain = self.domain;
        let _offline = self.offline();
        if domain.try_synchronize().is_err() {
            panic!("{}", domain.refusal());
        }
    }
}

impl Section for QsbrReader<'_> {}

impl sealed::Section for QsbrReader<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.protects.get()
    }
}

impl Drop for QsbrReader<'_> {
    fn drop(&mut self) {
        if self.is_online() {
            self.go_offline();
        }
        self.record.depart();
    }
}

impl fmt::Debug for QsbrReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QsbrReader")
            .field("domain", &self.record.domain())
            .field("online", &self.is_online())
            .finish()
    }
}

/// A [`QsbrReader`] that is offline until this is dropped; made by [`QsbrReader::offline`].
#[must_use = "dropping it takes the reader online again"]
pub struct Offline<'r, 'd> {
    reader: &'r mut QsbrReader<'d>,
}

impl Drop for Offline<'_, '_> {
    fn drop(&mut self) {
        self.reader.go_online();
    }
}

impl fmt::Debug for Offline<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offline")
            .field("domain", &self.reader.record.domain())
            .finish()
    }
}
