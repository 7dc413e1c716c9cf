//! Waiting for readers, naming grace periods, callbacks, barriers: what [`Domain`](crate::Domain)
//! documents.

use super::Core;
use crate::{
    gp::{
        Callback, CallbackHead, Cookie, Flavour, Haste, Holdout, Progress, Waited, WouldDeadlock,
    },
    kvfree::Policy,
    platform::{refused, thread as platform_thread, user_code},
    rcu::thread,
};
use std::ptr::NonNull;

impl<P: Policy> Core<P> {
    /// [`Domain::synchronize`](crate::Domain::synchronize).
    #[track_caller]
    pub fn synchronize(&self) {
        self.wait_for_readers(Haste::Normal);
    }

    /// [`Domain::synchronize_expedited`](crate::Domain::synchronize_expedited).
    #[track_caller]
    pub fn synchronize_expedited(&self) {
        self.wait_for_readers(Haste::Expedited);
    }

    #[track_caller]
    fn wait_for_readers(&self, haste: Haste) {
        if self.try_synchronize(haste).is_err() {
            panic!("{}", self.refusal(Refused::Wait));
        }
    }

    /// Waits for the sections that have begun.
    #[inline]
    pub(in crate::rcu) fn try_synchronize(&self, haste: Haste) -> Result<(), WouldDeadlock> {
        let engine = self.inner.parts.atomics();
        if engine.has_no_reader(|| thread::bound_record(self).is_some_and(|own| !own.is_reading()))
        {
            refused::retry();
            return Ok(());
        }
        self.wait_from_now(haste)
    }

    /// Apart from [`Core::try_synchronize`], which saves no registers for it.
    #[inline(never)]
    fn wait_from_now(&self, haste: Haste) -> Result<(), WouldDeadlock> {
        self.try_wait(self.engine().start(), haste)
    }

    pub(in crate::rcu) fn try_wait(
        &self,
        cookie: Cookie,
        haste: Haste,
    ) -> Result<(), WouldDeadlock> {
        match self
            .engine()
            .wait_for(cookie, platform_thread::token(), None, haste)
        {
            Waited::Ended => Ok(()),
            Waited::HeldUpBySelf => Err(WouldDeadlock),
            Waited::TimedOut => unreachable!("no deadline was given"),
        }
    }

    /// [`Domain::get_state`](crate::Domain::get_state).
    #[must_use]
    pub fn get_state(&self) -> Cookie {
        self.inner.parts.atomics().get_state_to_ask()
    }

    /// [`Domain::start_poll`](crate::Domain::start_poll).
    #[must_use]
    pub fn start_poll(&self) -> Cookie {
        self.engine().start_polled()
    }

    /// [`Domain::poll`](crate::Domain::poll).
    #[must_use]
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.has_ended(cookie) || self.ends_now(cookie)
    }

    /// Apart from [`Core::poll`], which saves no registers for it.
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

    /// [`Domain::cond_synchronize`](crate::Domain::cond_synchronize).
    #[track_caller]
    pub fn cond_synchronize(&self, cookie: Cookie) {
        if self.try_wait(self.known(cookie), Haste::Normal).is_err() {
            panic!("{}", self.refusal(Refused::Wait));
        }
    }

    /// The cookie, or an older one if this domain has never given it: so that a stray one is not
    /// waited for until doomsday.
    pub(in crate::rcu) fn known(&self, cookie: Cookie) -> Cookie {
        let engine = self.inner.parts.atomics();
        if engine.has_ended(cookie) {
            cookie
        } else {
            cookie.older(engine.get_state())
        }
    }

    /// [`Domain::call`](crate::Domain::call).
    pub fn call(&self, callback: impl FnOnce() + Send + 'static) {
        self.engine().call(callback);
    }

    /// [`Domain::call_head`](crate::Domain::call_head).
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

    /// [`Domain::barrier`](crate::Domain::barrier).
    #[track_caller]
    pub fn barrier(&self) {
        if self.try_barrier().is_err() {
            panic!("{}", self.refusal(Refused::Barrier));
        }
    }

    pub(in crate::rcu) fn try_barrier(&self) -> Result<(), WouldDeadlock> {
        self.engine().barrier(&*self.inner, self.section())
    }

    /// [`Domain::kvfree_barrier`](crate::Domain::kvfree_barrier).
    #[track_caller]
    pub fn kvfree_barrier(&self) {
        if self.try_kvfree_barrier().is_err() {
            panic!("{}", self.refusal(Refused::FreeBarrier));
        }
    }

    /// [`Domain::kvfree_barrier_nested`](crate::Domain::kvfree_barrier_nested).
    #[track_caller]
    pub fn kvfree_barrier_nested(&self) {
        if self.try_kvfree_barrier_nested().is_err() {
            panic!("{}", self.refusal(Refused::FreeBarrier));
        }
    }

    pub(in crate::rcu) fn try_kvfree_barrier_nested(&self) -> Result<(), WouldDeadlock> {
        let nested = || self.inner.parts.heap().nested_retires();
        loop {
            let before = nested();
            self.try_kvfree_barrier()?;
            if nested() == before {
                return Ok(());
            }
        }
    }

    pub(in crate::rcu) fn try_kvfree_barrier(&self) -> Result<(), WouldDeadlock> {
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
pub(in crate::rcu) enum Refused {
    Wait,
    Barrier,
    FreeBarrier,
}

impl<P: Policy> Core<P> {
    /// Why the calling thread must not do that, and what to do instead: what a panic says.
    #[cold]
    pub(in crate::rcu) fn refusal(&self, refused: Refused) -> String {
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
