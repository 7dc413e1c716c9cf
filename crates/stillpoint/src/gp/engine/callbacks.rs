//! An engine's callbacks: queueing them, running them in passes, barriers.

use super::Engine;
use crate::{
    gp::{
        callback::{Callback, CallbackHead, boxed, try_boxed},
        policy::Policy,
        seq::{Cookie, Seq},
        work::{Outlook, Work, WouldDeadlock},
    },
    histogram::Histogram,
    platform::{
        clock,
        sync::{Arc, AtomicBool, Ordering, lock},
        user_code,
    },
    trace,
};
use std::{ptr::NonNull, time::Duration};

impl<P: Policy> Engine<P> {
    /// Queues a callback for the end of a grace period that starts now.
    ///
    /// # Safety
    ///
    /// As for [`Callbacks::push`](crate::gp::callback::Callbacks::push).
    pub(crate) unsafe fn call_head(&self, callback: Callback) {
        let cookie = self.start();
        trace::rcu_callback(
            self.domain,
            callback.head.as_ptr().addr() as u64,
            cookie.seq().number(),
            self.callbacks.pending(),
        );
        // SAFETY: the caller's promise.
        if unsafe { self.callbacks.push(callback, cookie) } {
            self.kick();
        } else {
            self.ensure_service();
        }
    }

    /// Queues a closure, which is boxed, like [`Engine::call_head`].
    pub(crate) fn call(&self, run: impl FnOnce() + Send + 'static) {
        // SAFETY: `boxed` gives a new head.
        unsafe { self.call_head(boxed(run)) };
    }

    /// Queues a closure like [`Engine::call`]. If out of memory, drops `run` and returns false.
    pub(crate) fn call_if_memory(&self, run: impl FnOnce() + Send + 'static) -> bool {
        let Some(callback) = try_boxed(run) else {
            return false;
        };
        // SAFETY: `try_boxed` gives a new head.
        unsafe { self.call_head(callback) };
        true
    }

    /// Queues a closure like [`Engine::call_if_memory`], and passes this engine to it. When the closure
    /// has run, wakes the threads that wait in this engine, which look again.
    ///
    /// # Safety
    ///
    /// The engine is not moved from now on.
    pub(crate) unsafe fn try_call(&self, run: impl FnOnce(&Self) + Send + 'static) -> bool {
        let here = Here(NonNull::from(self));
        let callback = try_boxed(move || {
            // SAFETY: an engine invokes its callbacks itself, so it is there; it is where it was, by
            // the caller's promise.
            let engine = unsafe { here.get().as_ref() };
            run(engine);
            engine.shared.waiters.signal();
        });
        match callback {
            // SAFETY: `try_boxed` gives a new head.
            Some(callback) => unsafe { self.call_head(callback) },
            None => return false,
        }
        true
    }

    /// Returns how many callbacks have been queued so far. They run in order, so these have run
    /// once that many have been invoked. The caller will wait for them, so the delay does not apply
    /// to them.
    pub(crate) fn callbacks_queued(&self) -> u64 {
        let came = {
            let mut waiting = lock(&self.callbacks.waiting);
            self.callbacks.absorb(&mut waiting);
            waiting.hurry()
        };
        if !self.callback_delay().is_zero() {
            self.kick();
        }
        came
    }

    /// Waits until all callbacks that were queued before this call have been invoked. Fails inside
    /// user code of this domain, and if one of them waits for `section`, which is the caller's own.
    pub(crate) fn barrier(
        &self,
        work: &impl Work,
        section: Option<Seq>,
    ) -> Result<(), WouldDeadlock> {
        if user_code::runs_for(self.domain) {
            return Err(WouldDeadlock);
        }
        if self.callbacks_pending() == 0 {
            // Nothing to wait for, so no service thread is started.
            return Ok(());
        }
        let reached = Arc::new(AtomicBool::new(false));
        let (marker, shared) = (Arc::clone(&reached), Arc::clone(&self.shared));
        let callback = boxed(move || {
            // Release, pairs with the load below, in `barrier`: the callbacks before this one
            // happen before its return.
            marker.store(true, Ordering::Release);
            shared.waiters.signal();
        });
        let completed = Cookie::new(self.shared.seq.completed());
        // SAFETY: `boxed` gives a new head.
        let queued = unsafe { self.callbacks.push_marker(callback, section, completed) };
        if let Err(refused) = queued {
            // SAFETY: it was not queued, so this is the one run that `boxed` allows; it frees the
            // memory.
            unsafe { (callback.run)(callback.head) };
            return Err(refused);
        }
        self.wait_for_passes(work, || {
            // Acquire, pairs with the store above, in `barrier`: what the callbacks did is seen
            // after our return.
            !P::BARRIER_WAITS || reached.load(Ordering::Acquire)
        })
    }

    /// Runs the callbacks that are due, in a pass. Returns what the remaining ones wait for.
    pub(crate) fn run_callbacks(&self) -> Outlook {
        let has_ended = |cookie| self.has_ended(cookie);
        self.callbacks
            .run(self.domain, has_ended, || self.service_advanced())
    }

    pub(crate) fn callbacks_pending(&self) -> u64 {
        self.callbacks.pending()
    }

    /// Returns true if the callback of `head` is queued and is not being invoked. Looks at all
    /// queued callbacks.
    pub(crate) fn is_queued(&self, head: *const CallbackHead) -> bool {
        let mut waiting = lock(&self.callbacks.waiting);
        self.callbacks.absorb(&mut waiting);
        // Under that lock, so that no callback moves from `queue` to `running` meanwhile.
        waiting.queue.has(head) || lock(&self.callbacks.running).has(head)
    }

    pub(crate) fn set_callback_delay(&self, delay: Duration) {
        let delay = clock::nanos(delay);
        {
            // A pass looks under this lock: it finds the new delay, or we find what it has left.
            let _waiting = lock(&self.callbacks.waiting);
            self.callbacks.delay.store(delay, Ordering::Relaxed);
        }
        if self.callbacks.pending() > 0 {
            // Some may be due under the new delay.
            self.kick();
        }
    }

    pub(crate) fn callback_delay(&self) -> Duration {
        Duration::from_nanos(self.callbacks.delay.load(Ordering::Relaxed))
    }

    pub(crate) fn callbacks_invoked(&self) -> u64 {
        // Acquire, pairs with `run`: what the callbacks that are counted did is seen.
        self.callbacks.invoked.load(Ordering::Acquire)
    }

    /// Returns how long callbacks have taken from being queued to the end of the pass that ran them.
    pub(crate) fn callback_times(&self) -> Histogram {
        self.callbacks.queue_times.times.load()
    }

    /// Invokes all callbacks at the end of a domain: there are no readers any more, so all are due.
    /// Returns whether there were any.
    pub(crate) fn run_all_callbacks(&self) -> bool {
        self.callbacks.delay.store(0, Ordering::Relaxed);
        let before = self.callbacks_invoked();
        self.callbacks.run(self.domain, |_| true, || ());
        self.callbacks_invoked() != before
    }
}

/// The address of an engine.
struct Here<P: Policy>(NonNull<Engine<P>>);

// SAFETY: as a reference to the engine is, which is Sync.
unsafe impl<P: Policy> Send for Here<P> where Engine<P>: Sync {}

impl<P: Policy> Here<P> {
    /// Returns the engine's address. A closure that calls this captures the whole `Here`, which is `Send`,
    /// and not the pointer alone.
    fn get(&self) -> NonNull<Engine<P>> {
        self.0
    }
}
