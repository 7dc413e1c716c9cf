//! Callbacks: functions that run once a grace period has ended.
//!
//! `call` pushes onto a stack that anybody may push to and only the pass takes from, all at once. The pass turns what it took
//! around and appends it to a queue; from its front it runs what has ended, in order, with nothing of the engine held. Each
//! callback carries the cookie that was taken when it was queued; running in batches never raises it.
//!
//! [C1] the push (release CAS) pairs with [C2] the take (acquire swap): the pass sees the callback complete. [C3] the count of those that have
//! been invoked (release RMW) pairs with [C4] a look at it (acquire): who sees that a callback has been invoked sees what it did.

use super::{
    delay::Delay,
    engine::Engine,
    policy::Policy,
    seq::{Cookie, Seq},
    service::{Outlook, Work},
};
use crate::platform::{
    fork, memory,
    sync::{Arc, AtomicBool, AtomicPtr, AtomicU64, Mutex, Ordering, lock},
    user_code,
};
use std::{
    alloc::Layout,
    cell::UnsafeCell,
    ptr::{self, NonNull},
    time::Duration,
};

/// The link of a callback, to be embedded in the object that the callback is about: the kernel's `struct rcu_head`, with the
/// grace period's cookie in it. Three words.
///
/// Used by [`Domain::call_head`](crate::Domain::call_head), which allocates nothing.
#[repr(C)]
pub struct CallbackHead {
    /// Meaningless while the callback is not queued; owned by the queue while it is.
    links: UnsafeCell<Links>,
}

#[derive(Clone, Copy)]
struct Links {
    next: *mut CallbackHead,
    run: Option<unsafe fn(NonNull<CallbackHead>)>,
    cookie: Cookie,
}

// SAFETY: a head holds no thread's data of its own; while it is queued only the queue touches it, through raw pointers, and
// whoever queued it promised (in `call_head`) that the object may be handed to another thread.
unsafe impl Send for CallbackHead {}
// SAFETY: a shared reference to a head gives access to nothing.
unsafe impl Sync for CallbackHead {}

impl CallbackHead {
    /// Where a queued head has its function, in bytes: the C face knows a head that is queued already by it.
    #[cfg(not(stillpoint_loom))]
    pub(crate) const FUNCTION_OFFSET: usize = std::mem::offset_of!(Links, run);

    /// A head that is not queued. Async-signal-safe.
    pub const fn new() -> Self {
        let links = Links { next: ptr::null_mut(), run: None, cookie: Cookie::from_raw(0) };
        Self { links: UnsafeCell::new(links) }
    }
}

impl Default for CallbackHead {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CallbackHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallbackHead").finish_non_exhaustive()
    }
}

/// A callback as a closure: the head in front, so that a pointer to the one is a pointer to the other.
#[repr(C)]
struct Boxed<F> {
    head: CallbackHead,
    run: F,
}

/// # Safety
///
/// The head is the first field of a `Boxed<F>` that a box holds, and is run once.
unsafe fn run_boxed<F: FnOnce()>(head: NonNull<CallbackHead>) {
    // SAFETY: the caller's promise.
    let boxed = unsafe { Box::from_raw(head.cast::<Boxed<F>>().as_ptr()) };
    (boxed.run)();
}

/// A heap-allocated callback that is not queued yet.
pub(super) fn boxed<F: FnOnce() + Send + 'static>(run: F) -> Callback {
    let head = NonNull::from(Box::leak(Box::new(Boxed { head: CallbackHead::new(), run }))).cast();
    Callback { head, run: run_boxed::<F> }
}

/// The same, unless there is no memory for it.
fn try_boxed<F: FnOnce() + Send + 'static>(run: F) -> Option<Callback> {
    // SAFETY: the size is not 0: there is a head in it.
    let place = NonNull::new(unsafe { memory::alloc_now(Layout::new::<Boxed<F>>()) }.cast::<Boxed<F>>())?;
    // SAFETY: allocated for it just now.
    unsafe { place.write(Boxed { head: CallbackHead::new(), run }) };
    Some(Callback { head: place.cast(), run: run_boxed::<F> })
}

/// What to run and where its link is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) head: NonNull<CallbackHead>,
    pub(crate) run: unsafe fn(NonNull<CallbackHead>),
}

/// Callbacks in order, linked through their heads. It owns them.
#[derive(Debug)]
pub(super) struct Queue {
    first: *mut CallbackHead,
    last: *mut CallbackHead,
    /// How many have ever come.
    came: u64,
}

// SAFETY: the queue owns its callbacks, and `call`'s contract lets them run on any thread.
unsafe impl Send for Queue {}

impl Queue {
    /// Empty, after `came` have come and gone.
    const fn new(came: u64) -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut(), came }
    }

    fn links(head: *mut CallbackHead) -> *mut Links {
        // SAFETY: `head` is queued, so it is valid and the queue's alone.
        unsafe { (*head).links.get() }
    }

    fn push_back(&mut self, head: *mut CallbackHead) {
        // SAFETY: both are queued; see `links`.
        unsafe {
            (*Self::links(head)).next = ptr::null_mut();
            if self.last.is_null() {
                self.first = head;
            } else {
                (*Self::links(self.last)).next = head;
            }
        }
        self.last = head;
        self.came += 1;
    }

    fn front(&self) -> Option<Links> {
        // SAFETY: a queued head; see `links`.
        (!self.first.is_null()).then(|| unsafe { *Self::links(self.first) })
    }

    fn pop_front(&mut self) -> Option<Callback> {
        let links = self.front()?;
        let head = NonNull::new(self.first)?;
        self.first = links.next;
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        Some(Callback { head, run: links.run.expect("a queued callback has a function") })
    }

    #[cfg(not(stillpoint_loom))]
    fn has(&self, head: *const CallbackHead) -> bool {
        // SAFETY: a queued head; see `links`.
        let next = |&at: &*mut CallbackHead| unsafe { (*Self::links(at)).next };
        let some = |at: *mut CallbackHead| (!at.is_null()).then_some(at);
        std::iter::successors(some(self.first), |at| some(next(at))).any(|at| ptr::eq(at, head))
    }

    fn cookies(&self) -> impl Iterator<Item = Cookie> {
        std::iter::successors(self.front(), |links| {
            // SAFETY: a queued head; see `links`.
            (!links.next.is_null()).then(|| unsafe { *Self::links(links.next) })
        })
        .map(|links| links.cookie)
    }
}

impl<P: Policy> Engine<P> {
    /// Queues a callback for the end of a grace period that starts now.
    ///
    /// # Safety
    ///
    /// As for [`Callbacks::push`].
    pub(crate) unsafe fn call_head(&self, callback: Callback) {
        // SAFETY: the caller's promise.
        if unsafe { self.callbacks.push(callback, self.start()) } {
            self.kick();
        } else {
            self.ensure_service();
        }
    }

    /// The same for a closure, which is put on the heap.
    pub(crate) fn call(&self, run: impl FnOnce() + Send + 'static) {
        // SAFETY: `boxed` gives a head of its own.
        unsafe { self.call_head(boxed(run)) };
    }

    /// The same, but refused if there is no memory for it: it does not wait for any. Those who wait for something else than a grace period
    /// look again when it has run.
    pub(crate) fn try_call(&self, run: impl FnOnce() + Send + 'static) -> bool {
        let shared = Arc::clone(&self.shared);
        let callback = try_boxed(move || {
            run();
            shared.waiters.signal();
        });
        match callback {
            // SAFETY: `try_boxed` gives a head of its own.
            Some(callback) => unsafe { self.call_head(callback) },
            None => return false,
        }
        true
    }

    /// How many callbacks have been queued so far: when as many have been invoked, so have these, because they keep their order. For one who will
    /// wait for that, so they are not kept for the delay.
    pub(crate) fn callbacks_queued(&self) -> u64 {
        let came = {
            let mut waiting = lock(&self.callbacks.waiting);
            self.callbacks.absorb(&mut waiting);
            self.callbacks.delay.hurry(waiting.last);
            waiting.came
        };
        if !self.callback_delay().is_zero() {
            self.kick();
        }
        came
    }

    /// Waits until all callbacks that were queued before have been invoked. Refused inside a pass, and inside `section`, the
    /// caller's own, if one of them waits for it.
    pub(crate) fn barrier(&self, work: &impl Work, section: Option<Seq>) -> Result<(), WouldDeadlock> {
        if user_code::runs_for(self.domain) {
            return Err(WouldDeadlock);
        }
        let reached = Arc::new(AtomicBool::new(false));
        let (marker, shared) = (Arc::clone(&reached), Arc::clone(&self.shared));
        let callback = boxed(move || {
            // Release, pairs with the load below, in `barrier`: the callbacks before this one happen before its return.
            marker.store(true, Ordering::Release);
            shared.waiters.signal();
        });
        let completed = Cookie::new(self.shared.seq.completed());
        // SAFETY: `boxed` gives a head of its own.
        let queued = unsafe { self.callbacks.push_marker(callback, section, completed) };
        if let Err(refused) = queued {
            // SAFETY: it was not queued, so this is the one run that `boxed` allows; it frees the memory.
            unsafe { (callback.run)(callback.head) };
            return Err(refused);
        }
        // Acquire, pairs with the store above, in `barrier`: what the callbacks did is seen after our return.
        self.wait_for_passes(work, || !P::BARRIER_WAITS || reached.load(Ordering::Acquire))
    }

    /// The pass's part: runs what is due and returns what the rest waits for.
    pub(crate) fn run_callbacks(&self) -> Outlook {
        self.callbacks.run(self.domain, |cookie| self.has_ended(cookie))
    }

    pub(crate) fn callbacks_pending(&self) -> u64 {
        self.callbacks.pending()
    }

    /// Whether the callback of `head` waits here, and is not being invoked. Looks at all that wait.
    #[cfg(not(stillpoint_loom))]
    pub(crate) fn is_queued(&self, head: *const CallbackHead) -> bool {
        let mut waiting = lock(&self.callbacks.waiting);
        self.callbacks.absorb(&mut waiting);
        // With that lock held: nothing goes from the one to the other meanwhile.
        waiting.has(head) || lock(&self.callbacks.running).has(head)
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
        self.callbacks.invoked.load(Ordering::Acquire) // [C4]
    }

    pub(crate) fn callbacks_panicked(&self) -> u64 {
        self.callbacks.panicked.load(Ordering::Relaxed)
    }

    /// For the end of a domain: there are no readers any more, so everything is due. Returns whether there was anything.
    pub(crate) fn run_all_callbacks(&self) -> bool {
        self.callbacks.delay.set(Duration::ZERO);
        let before = self.callbacks_invoked();
        self.callbacks.run(self.domain, |_| true);
        self.callbacks_invoked() != before
    }
}

/// An operation that would wait for the caller's own section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WouldDeadlock;

#[derive(Debug)]
pub(super) struct Callbacks {
    incoming: AtomicPtr<CallbackHead>,
    waiting: Mutex<Queue>,
    /// What a pass has taken and not come to yet: still the queue's. Taken after the lock of `waiting`, by who takes both.
    running: Mutex<Queue>,
    delay: Delay,
    queued: AtomicU64,
    invoked: AtomicU64,
    panicked: AtomicU64,
}

impl Callbacks {
    pub(super) fn new() -> Self {
        Self {
            incoming: AtomicPtr::new(ptr::null_mut()),
            waiting: Mutex::new(Queue::new(0)),
            running: Mutex::new(Queue::new(0)),
            delay: Delay::new(),
            queued: AtomicU64::new(0),
            invoked: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        }
    }

    /// Queues `callback`, to be run once `cookie`'s grace period has ended. Whether nothing was incoming before, so that
    /// the one who passes may be asleep. Lock-free.
    ///
    /// # Safety
    ///
    /// The head is valid, in no queue, and left alone by everyone else until its callback runs; the callback may run on any
    /// thread.
    pub(super) unsafe fn push(&self, callback: Callback, cookie: Cookie) -> bool {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let head = callback.head.as_ptr();
        let mut first = self.incoming.load(Ordering::Relaxed);
        loop {
            // SAFETY: until the CAS publishes it the head is the caller's, by contract.
            unsafe { *Queue::links(head) = Links { next: first, run: Some(callback.run), cookie } };
            // [C1]
            match self.incoming.compare_exchange_weak(first, head, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return first.is_null(),
                Err(now) => first = now,
            }
        }
    }

    /// Queues `callback` behind everything that has been queued before this call, as already due. Refused if something before
    /// it waits for `section`, the caller's own.
    ///
    /// # Safety
    ///
    /// As for [`Callbacks::push`].
    pub(super) unsafe fn push_marker(
        &self, callback: Callback, section: Option<Seq>, completed: Cookie,
    ) -> Result<(), WouldDeadlock> {
        let mut waiting = lock(&self.waiting);
        self.absorb(&mut waiting);
        if let Some(section) = section
            && waiting.cookies().any(|cookie| !section.at_least(cookie.seq()) && !completed.seq().at_least(cookie.seq()))
        {
            return Err(WouldDeadlock);
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the head is the caller's, by contract.
        unsafe {
            *Queue::links(callback.head.as_ptr()) = Links { next: ptr::null_mut(), run: Some(callback.run), cookie: completed };
        }
        waiting.push_back(callback.head.as_ptr());
        self.delay.hurry(waiting.last);
        Ok(())
    }

    /// Moves what is incoming to the end of the queue, oldest first.
    fn absorb(&self, waiting: &mut Queue) {
        let mut newest = self.incoming.swap(ptr::null_mut(), Ordering::Acquire); // [C2]
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
            waiting.push_back(oldest);
            oldest = next;
        }
    }

    /// Runs, in order, what `has_ended`, with nothing held. Panics are contained and counted. The callers take turns: the
    /// engine's pass is one thread at a time. Returns what the rest waits for. If a callback forks, those behind it are
    /// forgotten in the child, like all the others that waited.
    pub(super) fn run(&self, domain: u64, has_ended: impl Fn(Cookie) -> bool) -> Outlook {
        let process = fork::process();
        let rest = self.take_ended(has_ended);
        loop {
            let Some(callback) = lock(&self.running).pop_front() else { break };
            // SAFETY: it was queued under `push`'s contract, its grace period has ended, and it is in no queue any more. The
            // head is not touched after this.
            if user_code::panics(domain, || unsafe { (callback.run)(callback.head) }) {
                self.panicked.fetch_add(1, Ordering::Relaxed);
            }
            if fork::process() != process {
                // This one has been forgotten as well: see `reset_in_child`.
                return Outlook::default();
            }
            self.invoked.fetch_add(1, Ordering::Release); // [C3]
        }
        rest
    }

    /// In the child of a fork: forgets what waits, where it is.
    ///
    /// # Safety
    ///
    /// As for [`fork::ForkReset::reset_in_child`].
    #[cfg(not(stillpoint_loom))]
    pub(super) unsafe fn reset_in_child(&self) {
        self.incoming.store(ptr::null_mut(), Ordering::Relaxed);
        let invoked = self.invoked.load(Ordering::Relaxed);
        // SAFETY: the caller's promise; user code does not run under this lock.
        unsafe {
            self.waiting.reinit(Queue::new(invoked));
            self.running.reinit(Queue::new(0));
            self.delay.reset_in_child();
        }
        self.queued.store(invoked, Ordering::Relaxed);
    }

    /// Moves what `has_ended`, and has been kept as long as it has to be, to `running`, which a pass leaves empty. What the rest waits for.
    fn take_ended(&self, has_ended: impl Fn(Cookie) -> bool) -> Outlook {
        let mut waiting = lock(&self.waiting);
        self.absorb(&mut waiting);
        let (mut running, mut batch) = (lock(&self.running), self.delay.batch());
        while let Some(front) = waiting.front() {
            let at = self.delay.until(&mut batch, waiting.last);
            if at.is_some() {
                return Outlook { cookie: None, at };
            }
            if !has_ended(front.cookie) {
                return Outlook { cookie: Some(front.cookie), at: None };
            }
            let callback = waiting.pop_front().expect("the queue has a front");
            batch.let_go(callback.head.as_ptr());
            running.push_back(callback.head.as_ptr());
        }
        Outlook::default()
    }

    /// Callbacks that wait or run at this moment.
    fn pending(&self) -> u64 {
        // Invoked first: a callback that is queued and run between the two loads then counts as waiting, never as -1.
        let invoked = self.invoked.load(Ordering::Acquire); // [C4]
        // Needs no partner: what was invoked had been counted before C1, or under the lock, and C4 comes first.
        self.queued.load(Ordering::Acquire).saturating_sub(invoked)
    }
}
