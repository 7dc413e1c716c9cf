//! Callbacks: functions that run once a grace period has ended.
//!
//! `call` pushes onto a stack that any thread may push to. Who has the lock of the queue, the pass
//! above all, takes all from it at once, turns that around and appends it. From the queue's front
//! the pass runs what has ended, in order, with nothing of the engine held. Each callback carries
//! the cookie that was taken when it was queued; running in batches never raises it.

use super::Engine;
use crate::{
    gp::{
        callback::{Callback, CallbackHead, Links, Queue, boxed, try_boxed},
        delay::Delay,
        policy::Policy,
        queue_times::{Batches, QueueTimes, Taken},
        seq::{Cookie, Seq},
        stack::Stack,
        work::{Outlook, Work, WouldDeadlock},
    },
    histogram::Histogram,
    platform::{
        fork,
        sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, lock},
        user_code,
    },
    trace,
};
use std::{
    ptr::{self, NonNull},
    time::Duration,
};

impl<P: Policy> Engine<P> {
    /// Queues a callback for the end of a grace period that starts now.
    ///
    /// # Safety
    ///
    /// As for [`Callbacks::push`].
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

    /// Like the function above, for a closure, which is boxed.
    pub(crate) fn call(&self, run: impl FnOnce() + Send + 'static) {
        // SAFETY: `boxed` gives a new head.
        unsafe { self.call_head(boxed(run)) };
    }

    /// Like the function above, but fails without memory, and then drops `run`.
    pub(crate) fn call_if_memory(&self, run: impl FnOnce() + Send + 'static) -> bool {
        let Some(callback) = try_boxed(run) else {
            return false;
        };
        // SAFETY: `try_boxed` gives a new head.
        unsafe { self.call_head(callback) };
        true
    }

    /// Like [`call`](Self::call), but fails without memory instead of waiting. Threads that wait for
    /// something other than a grace period look again when it has run. `run` is given this engine.
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

    /// Returns how many callbacks have been queued so far: when as many have been invoked, so have
    /// these, because they keep their order. The caller will wait for them, so the delay does not
    /// apply to them.
    pub(crate) fn callbacks_queued(&self) -> u64 {
        let came = {
            let mut waiting = lock(&self.callbacks.waiting);
            let queue = self.callbacks.absorb(&mut waiting);
            self.callbacks.delay.hurry(queue.last);
            queue.came
        };
        if !self.callback_delay().is_zero() {
            self.kick();
        }
        came
    }

    /// Waits until all callbacks that were queued before have been invoked. Refused inside a pass,
    /// and inside `section`, the caller's own, if one of them waits for it.
    pub(crate) fn barrier(
        &self,
        work: &impl Work,
        section: Option<Seq>,
    ) -> Result<(), WouldDeadlock> {
        if user_code::runs_for(self.domain) {
            return Err(WouldDeadlock);
        }
        if self.callbacks_pending() == 0 {
            // Nothing to wait for, and no thread to be started for that.
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

    /// Runs what is due in a pass. Returns what the rest waits for.
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
        let queue = self.callbacks.absorb(&mut waiting);
        // With that lock held: nothing goes from the one to the other meanwhile.
        queue.has(head) || lock(&self.callbacks.running).has(head)
    }

    pub(crate) fn set_callback_delay(&self, delay: Duration) {
        self.callbacks.delay.set(delay);
        if self.callbacks.pending() > 0 {
            // Some may be due by it.
            self.kick();
        }
    }

    pub(crate) fn callback_delay(&self) -> Duration {
        self.callbacks.delay.get()
    }

    pub(crate) fn callbacks_invoked(&self) -> u64 {
        // Acquire, pairs with `run`: what the callbacks that are counted did is seen.
        self.callbacks.invoked.load(Ordering::Acquire)
    }

    /// Returns how long callbacks have taken from being queued to the end of the pass that ran them.
    pub(crate) fn callback_times(&self) -> Histogram {
        self.callbacks.queue_times.load()
    }

    pub(crate) fn callbacks_panicked(&self) -> u64 {
        self.callbacks.panicked.load(Ordering::Relaxed)
    }

    /// Invokes all callbacks at the end of a domain: there are no readers any more, so all are due.
    /// Returns whether there were any.
    pub(crate) fn run_all_callbacks(&self) -> bool {
        self.callbacks.delay.set(Duration::ZERO);
        let before = self.callbacks_invoked();
        self.callbacks.run(self.domain, |_| true, || ());
        self.callbacks_invoked() != before
    }
}

/// Where an engine is.
struct Here<P: Policy>(NonNull<Engine<P>>);

// SAFETY: as a reference to the engine is, which is Sync.
unsafe impl<P: Policy> Send for Here<P> where Engine<P>: Sync {}

impl<P: Policy> Here<P> {
    /// Returns the engine's address. A closure that calls this captures all of it, and not the pointer alone.
    fn get(&self) -> NonNull<Engine<P>> {
        self.0
    }
}

#[derive(Debug)]
pub(in crate::gp) struct Callbacks {
    pub(in crate::gp) incoming: Stack<CallbackHead>,
    pub(in crate::gp) waiting: Mutex<Waiting>,
    /// The callbacks that a pass has taken from the queue and not invoked yet; they still count as
    /// queued. A thread that takes both locks takes that of `waiting` first.
    pub(in crate::gp) running: Mutex<Queue>,
    pub(in crate::gp) delay: Delay,
    pub(in crate::gp) queued: AtomicU64,
    pub(in crate::gp) invoked: AtomicU64,
    panicked: AtomicU64,
    pub(in crate::gp) queue_times: QueueTimes,
}

/// The callbacks that wait, and when they were queued.
#[derive(Debug)]
pub(in crate::gp) struct Waiting {
    queue: Queue,
    batches: Batches,
}

impl Waiting {
    /// Returns an empty one, from which `came` callbacks have left.
    pub(in crate::gp) const fn new(came: u64) -> Self {
        Self {
            queue: Queue::new(came),
            batches: Batches::new(),
        }
    }
}

impl Callbacks {
    pub(in crate::gp) fn new() -> Self {
        Self {
            incoming: Stack::new(),
            waiting: Mutex::new(Waiting::new(0)),
            running: Mutex::new(Queue::new(0)),
            delay: Delay::new(),
            queued: AtomicU64::new(0),
            invoked: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            queue_times: QueueTimes::new(),
        }
    }

    /// Queues `callback`, to be run once `cookie`'s grace period has ended. Returns true if the
    /// queue was empty, so that the thread that runs passes may be asleep. Lock-free.
    ///
    /// # Safety
    ///
    /// The head is valid, in no queue, and left alone by everyone else until its callback runs; the
    /// callback may run on any thread.
    pub(in crate::gp) unsafe fn push(&self, callback: Callback, cookie: Cookie) -> bool {
        self.queue_times.note_queued();
        self.queued.fetch_add(1, Ordering::Relaxed);
        let head = callback.head.as_ptr();
        // SAFETY: until the push publishes it the head is the caller's, by contract.
        let link = |next| unsafe {
            *Queue::links(head) = Links {
                next,
                run: Some(callback.run),
                cookie,
            }
        };
        self.incoming.push(head, link)
    }

    /// Queues `callback` behind everything that has been queued before this call, as already due.
    /// Refused if something before it waits for `section`, the caller's own.
    ///
    /// # Safety
    ///
    /// As for [`Callbacks::push`].
    pub(super) unsafe fn push_marker(
        &self,
        callback: Callback,
        section: Option<Seq>,
        completed: Cookie,
    ) -> Result<(), WouldDeadlock> {
        let mut waiting = lock(&self.waiting);
        let queue = self.absorb(&mut waiting);
        if let Some(section) = section
            && queue.cookies().any(|cookie| {
                !section.at_least(cookie.seq()) && !completed.seq().at_least(cookie.seq())
            })
        {
            return Err(WouldDeadlock);
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the head is the caller's, by contract.
        unsafe {
            *Queue::links(callback.head.as_ptr()) = Links {
                next: ptr::null_mut(),
                run: Some(callback.run),
                cookie: completed,
            };
        }
        queue.push_back(callback.head.as_ptr());
        self.delay.hurry(queue.last);
        Ok(())
    }

    /// Moves what is incoming to the end of the queue, oldest first. Returns the queue.
    fn absorb<'w>(&self, waiting: &'w mut Waiting) -> &'w mut Queue {
        let Waiting { queue, batches } = waiting;
        let mut newest = self.incoming.take_all();
        let (since, before) = (self.queue_times.take_first(), queue.came);
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: taken off the stack, so ours alone.
            let next = unsafe { std::mem::replace(&mut (*Queue::links(newest)).next, oldest) };
            oldest = newest;
            newest = next;
        }
        while !oldest.is_null() {
            // SAFETY: as above; read before `push_back` overwrites it.
            let next = unsafe { (*Queue::links(oldest)).next };
            queue.push_back(oldest);
            oldest = next;
        }
        batches.add(before, queue.came, since);
        queue
    }

    /// Runs, in order, what `has_ended`, with nothing held. Panics are contained and counted. The
    /// callers take turns: the engine's pass is one thread at a time. Calls `has_run` after each.
    /// Returns what the rest waits for. If a callback forks, those behind it are forgotten in the
    /// child, like all the others that waited.
    pub(super) fn run(
        &self,
        domain: u64,
        has_ended: impl Fn(Cookie) -> bool,
        has_run: impl Fn(),
    ) -> Outlook {
        let process = fork::process();
        let (rest, taken) = self.take_ended(has_ended);
        loop {
            let Some(callback) = lock(&self.running).pop_front() else {
                break;
            };
            trace::rcu_invoke_callback(domain, callback.head.as_ptr().addr() as u64);
            // SAFETY: it was queued under `push`'s contract, its grace period has ended, and it is
            // in no queue any more. The head is not touched after this.
            if user_code::panics(domain, || unsafe { (callback.run)(callback.head) }) {
                self.panicked.fetch_add(1, Ordering::Relaxed);
            }
            if fork::process() != process {
                // This one has been forgotten as well: see `gp/fork.rs`.
                return Outlook::default();
            }
            // Release, pairs with `callbacks_invoked`: a thread that sees it counted sees what the
            // callback did.
            self.invoked.fetch_add(1, Ordering::Release);
            has_run();
        }
        self.queue_times.note_run(&taken);
        rest
    }

    /// Moves what `has_ended`, and has been kept as long as it has to be, to `running`, which a
    /// pass leaves empty. Returns what the rest waits for, and when those were queued.
    fn take_ended(&self, has_ended: impl Fn(Cookie) -> bool) -> (Outlook, Taken) {
        let mut waiting = lock(&self.waiting);
        let queue = self.absorb(&mut waiting);
        let (mut running, mut batch) = (lock(&self.running), self.delay.batch());
        let mut rest = Outlook::default();
        while let Some(front) = queue.front() {
            rest.at = self.delay.until(&mut batch, queue.last);
            if rest.at.is_some() {
                break;
            }
            if !has_ended(front.cookie) {
                rest.cookie = Some(front.cookie);
                break;
            }
            let callback = queue.pop_front().expect("the queue has a front");
            batch.let_go(callback.head.as_ptr());
            running.push_back(callback.head.as_ptr());
        }
        let left = queue.left;
        (rest, waiting.batches.take(left))
    }

    /// Callbacks that wait or run at this moment.
    fn pending(&self) -> u64 {
        // Invoked first: a callback that is queued and run between the two loads then counts as
        // waiting, never as -1. Acquire, pairs with `run`: the second load sees those queued that
        // this one sees invoked.
        let invoked = self.invoked.load(Ordering::Acquire);
        // Needs no partner: what was invoked had been counted before its push, or under the lock,
        // and the load above comes first.
        self.queued.load(Ordering::Acquire).saturating_sub(invoked)
    }
}
