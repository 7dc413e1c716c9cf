//! A domain's updaters: waiting for readers, naming grace periods, callbacks, barriers.

use super::{
    core::{Core, Inner},
    domain::Domain,
    thread,
};
use crate::{
    gp::{
        Callback, CallbackHead, Cookie, Flavour, Haste, Holdout, Outlook, Progress, Waited, Work,
        WouldDeadlock,
    },
    kvfree::{Policy, ThreadBuffer},
    platform::{refused, thread as platform_thread, user_code},
};
use std::ptr::NonNull;

impl Domain {
    /// Waits until every section that had begun before this call has ended. The kernel's
    /// `synchronize_rcu()`.
    ///
    /// Everything that the caller unlinked before cannot be reached by any reader afterwards. If no
    /// reader is in the way, it costs one membarrier (a fraction of a microsecond to some tens), or
    /// a fence if no other thread is registered as a reader here; otherwise it lasts as long as the
    /// longest of those sections. The caller does the work by itself and waits for no other threads
    /// than readers. Not async-signal-safe.
    ///
    /// # Panics
    ///
    /// Inside a section of this domain: it would wait for itself.
    ///
    /// # Deadlocks
    ///
    /// If a reader waits, in its section, for something that the caller holds (a lock, say).
    #[track_caller]
    pub fn synchronize(&self) {
        self.core().synchronize();
    }

    /// Waits like [`Domain::synchronize`], but expedited: spins for up to 50 microseconds instead
    /// of 2 before it sleeps. The kernel's `synchronize_rcu_expedited()`.
    ///
    /// It saves the wake-up if sections last some tens of microseconds, and costs processor time
    /// meanwhile.
    ///
    /// # Panics
    ///
    /// Inside a section of this domain.
    ///
    /// ```
    /// stillpoint::global().synchronize_expedited();
    /// ```
    #[track_caller]
    pub fn synchronize_expedited(&self) {
        self.core().synchronize_expedited();
    }

    /// Names the next grace period without starting it. The kernel's `get_state_synchronize_rcu()`.
    ///
    /// One atomic read-modify-write. What was unlinked before is unreachable once [`Domain::poll`]
    /// says so.
    #[must_use]
    pub fn get_state(&self) -> Cookie {
        self.core().get_state()
    }

    /// Starts a grace period and names it. The kernel's `start_poll_synchronize_rcu()`.
    ///
    /// The grace period ends without a further call, as soon as its readers have left: the service
    /// thread ends it, unless another call (a [`Domain::poll`], a waiter, a deferred free) has.
    /// Costs a few atomic operations and, if the service thread sleeps, a wake-up of some
    /// microseconds. Does not block; not async-signal-safe.
    #[must_use]
    pub fn start_poll(&self) -> Cookie {
        self.core().start_poll()
    }

    /// Returns true if the grace period has ended. The kernel's `poll_state_synchronize_rcu()`.
    ///
    /// Costs a load if that is known; otherwise one attempt to end it, which costs a membarrier at
    /// first and a scan of the readers after that. Never waits. A section of the calling thread
    /// counts like any other.
    #[must_use]
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.core().poll(cookie)
    }

    /// Waits until the grace period has ended. The kernel's `cond_synchronize_rcu()`. Like
    /// [`Domain::synchronize`]; costs a load if it has ended already.
    ///
    /// # Panics
    ///
    /// If the grace period waits for a section of the calling thread.
    #[track_caller]
    pub fn cond_synchronize(&self, cookie: Cookie) {
        self.core().cond_synchronize(cookie);
    }

    /// Runs `callback` on the domain's service thread after a grace period. The kernel's
    /// `call_rcu()`, for a closure.
    ///
    /// Allocates; does not block; may be called inside sections and callbacks. Callbacks run one
    /// after the other, in the order in which they were queued. One that panics is counted
    /// ([`Statistics::panics`](crate::Statistics::panics)) and the rest go on. One may call
    /// [`Domain::synchronize`], but must not block on a future of this domain, whose tasks that
    /// thread wakes. Not async-signal-safe. The process's exit does not wait for callbacks: see
    /// [`Domain::barrier`].
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    /// static CALLED: AtomicBool = AtomicBool::new(false);
    /// stillpoint::global().call(|| CALLED.store(true, SeqCst));
    /// stillpoint::global().barrier();
    /// assert!(CALLED.load(SeqCst));
    /// ```
    pub fn call(&self, callback: impl FnOnce() + Send + 'static) {
        self.core().call(callback);
    }

    /// Calls `run` with `head` on the domain's service thread after a grace period, without
    /// allocating. The kernel's `call_rcu()`: the head is part of the object that the callback is
    /// about.
    ///
    /// # Safety
    ///
    /// `head` is valid and not queued; from now until `run` is called, it is the queue's alone;
    /// `run` may be called with it on another thread.
    ///
    /// ```
    /// use std::{ptr::NonNull, sync::mpsc::{Sender, channel}};
    /// use stillpoint::CallbackHead;
    /// #[repr(C)]
    /// struct Node { head: CallbackHead, tell: Sender<&'static str> }
    /// unsafe fn reclaim(head: NonNull<CallbackHead>) {
    ///     // SAFETY: the head is the first field of a boxed Node.
    ///     let node = unsafe { Box::from_raw(head.cast::<Node>().as_ptr()) };
    ///     node.tell.send("reclaimed").unwrap();
    /// }
    /// let (tell, told) = channel();
    /// let node = Box::leak(Box::new(Node { head: CallbackHead::new(), tell }));
    /// // SAFETY: the node is leaked until `reclaim` takes it back, and is Send.
    /// unsafe { stillpoint::global().call_head(NonNull::from(node).cast(), reclaim) };
    /// assert_eq!(told.recv(), Ok("reclaimed"));
    /// ```
    pub unsafe fn call_head(
        &self,
        head: NonNull<CallbackHead>,
        run: unsafe fn(NonNull<CallbackHead>),
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.core().call_head(head, run) };
    }

    /// Waits until every callback that was queued before has been invoked. The kernel's
    /// `rcu_barrier()`.
    ///
    /// Not async-signal-safe. Inside a section it succeeds as long as no such callback waits for
    /// that section.
    ///
    /// # Panics
    ///
    /// If it would wait for itself: inside a callback or a deferred destructor of this domain, or
    /// inside a section that began before one of those callbacks was queued.
    #[track_caller]
    pub fn barrier(&self) {
        self.core().barrier();
    }

    /// Waits until everything that was retired before has been freed. The kernel's
    /// `kvfree_rcu_barrier()`.
    ///
    /// Not async-signal-safe.
    ///
    /// # Panics
    ///
    /// If it would wait for itself: inside a callback or a deferred destructor of this domain;
    /// inside a section while anything waits.
    #[track_caller]
    pub fn kvfree_barrier(&self) {
        self.core().kvfree_barrier();
    }

    /// Waits like [`Domain::kvfree_barrier`], and also until what these objects' destructors have
    /// retired on their own threads has been freed, what that has retired, and so on. For use
    /// before code is unloaded, or before a test counts what is left. The kernel has no such
    /// function.
    ///
    /// It repeats the barrier until no destructor of the domain has retired anything during one. So
    /// it takes as many grace periods as the chain is long, and does not return while other threads
    /// go on retiring objects whose destructors retire. As in `kvfree_barrier`, callbacks do not
    /// count: what one of them retires may still be unreclaimed. The same holds for an object for
    /// which there was no memory for a page: a callback runs its destructor, and what that retires
    /// may still be unreclaimed. Not async-signal-safe.
    ///
    /// # Panics
    ///
    /// As [`Domain::kvfree_barrier`].
    ///
    /// ```
    /// use std::{ptr::NonNull, sync::atomic::{AtomicU32, Ordering::SeqCst}};
    /// static DROPS: AtomicU32 = AtomicU32::new(0);
    ///
    /// /// Retires the rest of the list, when its first part is dropped.
    /// struct List(Option<Box<List>>);
    /// impl Drop for List {
    ///     fn drop(&mut self) {
    ///         DROPS.fetch_add(1, SeqCst);
    ///         if let Some(rest) = self.0.take() {
    ///             // SAFETY: from a box, and no other thread has ever known it.
    ///             unsafe { stillpoint::retire(NonNull::from(Box::leak(rest))) };
    ///         }
    ///     }
    /// }
    ///
    /// let list = List(Some(Box::new(List(Some(Box::new(List(None)))))));
    /// drop(list);
    /// stillpoint::global().kvfree_barrier_nested();
    /// assert_eq!(DROPS.load(SeqCst), 3);
    /// ```
    #[track_caller]
    pub fn kvfree_barrier_nested(&self) {
        if self.core().try_kvfree_barrier_nested().is_err() {
            self.core().refuse(Refused::FreeBarrier);
        }
    }
}

impl<P: Policy> Work for Inner<P> {
    fn pass(&self) -> Outlook {
        let callbacks = self.parts.engine().run_callbacks();
        let retired = || thread::with_buffer(self.id(), ThreadBuffer::progress);
        let drain = self.parts.heap().drain(self.parts.engine(), &retired);
        self.publish_work();
        // The older of the two: the service thread sleeps until its readers have left, and must not
        // sleep past the other's end.
        Outlook {
            cookie: Cookie::oldest(callbacks.cookie, drain.cookie),
            at: callbacks.at.into_iter().chain(drain.at).min(),
        }
    }
}

impl<P: Policy> Core<P> {
    /// See [`Domain::synchronize`].
    #[track_caller]
    pub fn synchronize(&self) {
        self.wait_for_readers(Haste::Normal);
    }

    /// See [`Domain::synchronize_expedited`].
    #[track_caller]
    pub fn synchronize_expedited(&self) {
        self.wait_for_readers(Haste::Expedited);
    }

    #[track_caller]
    fn wait_for_readers(&self, haste: Haste) {
        if self.try_synchronize(haste).is_err() {
            self.refuse(Refused::Wait);
        }
    }

    /// Waits for the sections that have begun.
    #[inline]
    pub(super) fn try_synchronize(&self, haste: Haste) -> Result<(), WouldDeadlock> {
        let engine = self.inner.parts.atomics();
        if engine.has_no_reader(|| thread::bound_record(self).is_some_and(|own| !own.is_reading()))
        {
            refused::retry();
            return Ok(());
        }
        self.wait_from_now(haste)
    }

    /// Waits for a grace period that starts now. A separate function, so that the short paths of
    /// [`Core::try_synchronize`] save no registers.
    #[inline(never)]
    fn wait_from_now(&self, haste: Haste) -> Result<(), WouldDeadlock> {
        self.try_wait(self.engine().start(), haste)
    }

    pub(super) fn try_wait(&self, cookie: Cookie, haste: Haste) -> Result<(), WouldDeadlock> {
        match self
            .engine()
            .wait_for(cookie, platform_thread::token(), None, haste)
        {
            Waited::Ended => Ok(()),
            Waited::HeldUpBySelf => Err(WouldDeadlock),
            Waited::TimedOut => unreachable!("no deadline was given"),
        }
    }

    /// See [`Domain::get_state`].
    #[must_use]
    pub fn get_state(&self) -> Cookie {
        self.inner.parts.atomics().get_state_to_ask()
    }

    /// See [`Domain::start_poll`].
    #[must_use]
    pub fn start_poll(&self) -> Cookie {
        self.engine().start_polled()
    }

    /// See [`Domain::poll`].
    #[must_use]
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.has_ended(cookie) || self.ends_now(cookie)
    }

    /// Makes an attempt to end the grace period. A separate function, so that the short path of
    /// [`Core::poll`] saves no registers.
    #[inline(never)]
    fn ends_now(&self, cookie: Cookie) -> bool {
        let engine = self.inner.parts.atomics();
        engine.recheck(cookie, platform_thread::token()) == Progress::Ended
    }

    /// Returns whether the grace period is known to have ended. Only a load: it ends none, as
    /// [`Core::poll`] may. For the torture of promises that no thread but the service thread keeps.
    #[must_use]
    pub fn has_ended(&self, cookie: Cookie) -> bool {
        self.inner.parts.atomics().has_ended(cookie)
    }

    /// See [`Domain::cond_synchronize`].
    #[track_caller]
    pub fn cond_synchronize(&self, cookie: Cookie) {
        if self.try_wait(self.known(cookie), Haste::Normal).is_err() {
            self.refuse(Refused::Wait);
        }
    }

    /// Returns `cookie`, or an older one if this domain has never returned it: a wait for such a cookie
    /// would never end.
    pub(super) fn known(&self, cookie: Cookie) -> Cookie {
        let engine = self.inner.parts.atomics();
        if engine.has_ended(cookie) {
            cookie
        } else {
            cookie.older(engine.get_state())
        }
    }

    /// See [`Domain::call`].
    pub fn call(&self, callback: impl FnOnce() + Send + 'static) {
        self.engine().call(callback);
    }

    /// See [`Domain::call_head`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn call_head(
        &self,
        head: NonNull<CallbackHead>,
        run: unsafe fn(NonNull<CallbackHead>),
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.engine().call_head(Callback { head, run }) };
    }

    /// See [`Domain::barrier`].
    #[track_caller]
    pub fn barrier(&self) {
        if self.try_barrier().is_err() {
            self.refuse(Refused::Barrier);
        }
    }

    pub(super) fn try_barrier(&self) -> Result<(), WouldDeadlock> {
        self.engine().barrier(&*self.inner, self.section())
    }

    /// See [`Domain::kvfree_barrier`].
    #[track_caller]
    pub fn kvfree_barrier(&self) {
        if self.try_kvfree_barrier().is_err() {
            self.refuse(Refused::FreeBarrier);
        }
    }

    pub(super) fn try_kvfree_barrier_nested(&self) -> Result<(), WouldDeadlock> {
        let nested = || self.inner.parts.heap().nested_retires();
        loop {
            let before = nested();
            self.try_kvfree_barrier()?;
            if nested() == before {
                return Ok(());
            }
        }
    }

    pub(super) fn try_kvfree_barrier(&self) -> Result<(), WouldDeadlock> {
        self.inner
            .parts
            .heap()
            .flush(self.engine(), &*self.inner, self.is_reading())?;
        if self.engine().callbacks_pending() > 0 {
            // Objects for which there was no page.
            self.try_barrier()?;
        }
        Ok(())
    }
}

/// Returns where a section was entered, as far as that is known.
fn entered_at(own: Holdout) -> String {
    #[cfg(feature = "stall-backtrace")]
    if let Some(entered) = own.entered {
        return format!(" that was made at\n{entered}\n");
    }
    let _ = own;
    String::new()
}

/// A call that would wait for the calling thread itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Wait,
    Barrier,
    FreeBarrier,
}

impl<P: Policy> Core<P> {
    /// Panics with the message of [`Core::refusal`]. A separate function, so that callers save no
    /// registers for it.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn refuse(&self, refused: Refused) -> ! {
        panic!("{}", self.refusal(refused));
    }

    /// Returns the message of a panic: why the calling thread must not wait, and what to do instead.
    #[cold]
    pub(super) fn refusal(&self, refused: Refused) -> String {
        let what = match refused {
            Refused::Wait => "waiting for a grace period",
            Refused::Barrier => "barrier()",
            Refused::FreeBarrier => "kvfree_barrier()",
        };
        let engine = self.engine();
        let domain = engine.title();
        // A callback may wait for a grace period.
        let (why, remedy) = if refused != Refused::Wait && user_code::runs_for(self.id()) {
            let why = format!("runs a callback or a deferred destructor of {domain}");
            (why, "Return from it first")
        } else {
            match engine.own_holdout(platform_thread::token()) {
                Some(own) if own.flavour == Flavour::Qsbr => {
                    let why = format!("is an online QSBR reader of {domain}");
                    (why, "Go offline first")
                }
                own => {
                    let place = own.map_or_else(String::new, entered_at);
                    let why = format!(
                        "is inside a read-side critical section of {domain}, by a guard{place}"
                    );
                    (why, "Drop the guard first")
                }
            }
        };
        format!(
            "stillpoint: {what} would wait for the calling thread itself, which {why}. {remedy}, or hand the wait to another thread"
        )
    }
}
