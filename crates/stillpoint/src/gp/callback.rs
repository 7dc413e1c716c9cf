//! Callbacks: a callback and its link, the stack and the queue of those that wait, and how they are run.
//!
//! [`Callbacks::push`] pushes onto a stack that any thread may push to. The thread that holds the queue's
//! lock, usually in a pass, takes everything from the stack at once, reverses it and appends it. From the
//! queue's front the pass runs those whose grace period has ended, in order, with no lock of the queue
//! held. Each callback carries the cookie that was taken when it was queued; running in batches never
//! raises it.

use super::{
    batches::{Batches, QueueTimes, Taken},
    seq::{Cookie, Seq},
    stack::Stack,
    work::{Outlook, WouldDeadlock},
};
use crate::{
    platform::{
        clock, environment, fork,
        sync::{AtomicU64, Mutex, Ordering, lock},
        user_code,
    },
    trace,
};
use std::{
    alloc::Layout,
    cell::UnsafeCell,
    ptr::{self, NonNull},
};

/// The link of a callback, to be embedded in the object that the callback is about: the kernel's
/// `struct rcu_head`, with the grace period's cookie in it. Three words.
///
/// Used by [`Domain::call_head`](crate::Domain::call_head), which allocates nothing.
#[repr(C)]
pub struct CallbackHead {
    /// Meaningless while the callback is not queued; owned by the queue while it is.
    links: UnsafeCell<Links>,
}

#[derive(Clone, Copy)]
pub(super) struct Links {
    pub(super) next: *mut CallbackHead,
    pub(super) run: Option<unsafe fn(NonNull<CallbackHead>)>,
    pub(super) cookie: Cookie,
}

// SAFETY: a head holds no thread-local data; while it is queued only the queue touches it, through
// raw pointers, and the caller of `call_head` promised that the object may be handed to another
// thread.
unsafe impl Send for CallbackHead {}
// SAFETY: a shared reference to a head gives access to nothing.
unsafe impl Sync for CallbackHead {}

impl CallbackHead {
    /// The offset of a queued head's function, in bytes. The C library reads it to detect a head
    /// that is already queued.
    pub(crate) const FUNCTION_OFFSET: usize = std::mem::offset_of!(Links, run);

    /// Makes a head that is not queued. Async-signal-safe.
    pub const fn new() -> Self {
        let links = Links {
            next: ptr::null_mut(),
            run: None,
            cookie: Cookie::from_raw(0),
        };
        Self {
            links: UnsafeCell::new(links),
        }
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

/// A callback as a closure: the head in front, so that a pointer to the one is a pointer to the
/// other.
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

/// Returns a heap-allocated callback that is not queued yet.
pub(super) fn boxed<F: FnOnce() + Send + 'static>(run: F) -> Callback {
    let head = NonNull::from(Box::leak(Box::new(Boxed {
        head: CallbackHead::new(),
        run,
    })))
    .cast();
    Callback {
        head,
        run: run_boxed::<F>,
    }
}

/// Returns the same as [`boxed`], or `None` if out of memory.
pub(super) fn try_boxed<F: FnOnce() + Send + 'static>(run: F) -> Option<Callback> {
    // SAFETY: the size is not 0: there is a head in it.
    let place =
        NonNull::new(unsafe { std::alloc::alloc(Layout::new::<Boxed<F>>()) }.cast::<Boxed<F>>())?;
    // SAFETY: allocated for it just now.
    unsafe {
        place.write(Boxed {
            head: CallbackHead::new(),
            run,
        })
    };
    Some(Callback {
        head: place.cast(),
        run: run_boxed::<F>,
    })
}

/// A callback: its head, and the function to call.
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
    /// Number of callbacks ever added.
    came: u64,
    /// Number of callbacks ever removed.
    left: u64,
}

// SAFETY: the queue owns its callbacks, and `call`'s contract lets them run on any thread.
unsafe impl Send for Queue {}

impl Queue {
    /// Makes an empty queue that counts `came` callbacks as added and removed.
    pub(super) const fn new(came: u64) -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            came,
            left: came,
        }
    }

    pub(super) fn links(head: *mut CallbackHead) -> *mut Links {
        // SAFETY: `head` is queued, so it is valid and the queue's alone.
        unsafe { (*head).links.get() }
    }

    pub(super) fn push_back(&mut self, head: *mut CallbackHead) {
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

    pub(super) fn front(&self) -> Option<Links> {
        // SAFETY: a queued head; see `links`.
        (!self.first.is_null()).then(|| unsafe { *Self::links(self.first) })
    }

    pub(super) fn pop_front(&mut self) -> Option<Callback> {
        let links = self.front()?;
        let head = NonNull::new(self.first)?;
        self.first = links.next;
        self.left += 1;
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        Some(Callback {
            head,
            run: links.run.expect("a queued callback has a function"),
        })
    }

    pub(super) fn has(&self, head: *const CallbackHead) -> bool {
        // SAFETY: a queued head; see `links`.
        let next = |&at: &*mut CallbackHead| unsafe { (*Self::links(at)).next };
        let some = |at: *mut CallbackHead| (!at.is_null()).then_some(at);
        std::iter::successors(some(self.first), |at| some(next(at))).any(|at| ptr::eq(at, head))
    }

    pub(super) fn cookies(&self) -> impl Iterator<Item = Cookie> {
        std::iter::successors(self.front(), |links| {
            // SAFETY: a queued head; see `links`.
            (!links.next.is_null()).then(|| unsafe { *Self::links(links.next) })
        })
        .map(|links| links.cookie)
    }
}

#[derive(Debug)]
pub(super) struct Callbacks {
    pub(super) incoming: Stack<CallbackHead>,
    pub(super) waiting: Mutex<Waiting>,
    /// The callbacks that a pass has taken from the queue and not invoked yet; they still count as
    /// queued. A thread that takes both locks takes that of `waiting` first.
    pub(super) running: Mutex<Queue>,
    /// How long callbacks are kept, in nanoseconds. Changes under the lock of `waiting`; at the end of
    /// a domain without it, when no other thread makes passes.
    pub(super) delay: AtomicU64,
    pub(super) queued: AtomicU64,
    pub(super) invoked: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) queue_times: QueueTimes,
}

/// The callbacks that wait, and when they were queued.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) queue: Queue,
    batches: Batches,
}

impl Waiting {
    /// Makes an empty queue that counts `came` callbacks as added and removed.
    pub(super) const fn new(came: u64) -> Self {
        Self {
            queue: Queue::new(came),
            batches: Batches::new(),
        }
    }

    /// Takes the delay from all callbacks in the queue. Returns how many have ever been added.
    pub(super) fn hurry(&mut self) -> u64 {
        self.batches.hurried = self.queue.came;
        self.queue.came
    }
}

impl Callbacks {
    pub(super) fn new() -> Self {
        Self {
            incoming: Stack::new(),
            waiting: Mutex::new(Waiting::new(0)),
            running: Mutex::new(Queue::new(0)),
            delay: AtomicU64::new(environment::callback_delay()),
            queued: AtomicU64::new(0),
            invoked: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            queue_times: QueueTimes::new(),
        }
    }

    /// Queues `callback`, to be run once `cookie`'s grace period has ended. Returns true if the
    /// stack was empty: the thread that runs passes may be asleep. Lock-free.
    ///
    /// # Safety
    ///
    /// The head is valid, in no queue, and accessed by no other code until its callback runs; the
    /// callback may run on any thread.
    pub(super) unsafe fn push(&self, callback: Callback, cookie: Cookie) -> bool {
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

    /// Queues `callback`, which is due at once, behind all callbacks that were queued before this
    /// call. Fails if one of them waits for `section`, which is the caller's own.
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
        self.absorb(&mut waiting);
        if let Some(section) = section
            && waiting.queue.cookies().any(|cookie| {
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
        waiting.queue.push_back(callback.head.as_ptr());
        waiting.hurry();
        Ok(())
    }

    /// Moves what is incoming to the end of the queue, oldest first.
    pub(super) fn absorb(&self, waiting: &mut Waiting) {
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
        batches.add(before, queue.came, since, clock::now);
    }

    /// Runs, in order, the callbacks whose grace period `has_ended`, with no lock of the queue
    /// held. Panics are contained and counted. Called by one thread at a time: the one that makes
    /// the engine's pass. Calls `has_run` after each callback. Returns what the remaining ones wait
    /// for. If a callback forks, those behind it are forgotten in the child, like all others that
    /// were waiting.
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

    /// Moves the callbacks whose grace period `has_ended` and whose delay is over to `running`,
    /// which each pass leaves empty. Returns what the remaining ones wait for, and when those that
    /// were moved were queued.
    fn take_ended(&self, has_ended: impl Fn(Cookie) -> bool) -> (Outlook, Taken) {
        let mut waiting = lock(&self.waiting);
        self.absorb(&mut waiting);
        let Waiting { queue, batches } = &mut *waiting;
        let (mut running, delay) = (lock(&self.running), self.delay.load(Ordering::Relaxed));
        let mut rest = Outlook::default();
        while let Some(front) = queue.front() {
            let until = batches.kept_until(queue.left + 1, delay);
            rest.at = until.filter(|&until| clock::now() < until);
            if rest.at.is_some() {
                break;
            }
            if !has_ended(front.cookie) {
                rest.cookie = Some(front.cookie);
                break;
            }
            let callback = queue.pop_front().expect("the queue has a front");
            running.push_back(callback.head.as_ptr());
        }
        (rest, batches.take(queue.left))
    }

    /// Returns the number of callbacks that wait or run at this moment.
    pub(super) fn pending(&self) -> u64 {
        // Invoked first: a callback that is queued and run between the two loads then counts as
        // waiting, never as -1. Acquire, pairs with `run`: the second load sees those queued that
        // this one sees invoked.
        let invoked = self.invoked.load(Ordering::Acquire);
        // Needs no partner: what was invoked had been counted before its push, or under the lock,
        // and the load above comes first.
        self.queued.load(Ordering::Acquire).saturating_sub(invoked)
    }
}
