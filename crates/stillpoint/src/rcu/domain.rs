//! Domains: readers, grace periods and deferred frees that have nothing to do with those of other domains.

use super::{CallbackBarrier, GracePeriod, Guard, QsbrReader, thread};
use crate::{
    gp::{
        self, Callback, CallbackHead, Cookie, Engine, Flavour, Haste, Outlook, Policy, Progress, Readers, Seq, Sequence,
        StallReport, Waited, Work, policy::Sound,
    },
    kvfree::{Appended, DrainPolicy, Heap, Retiree, Slot},
    platform::{
        fork::{InChild, Place},
        sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering},
        thread as platform_thread,
    },
    statistics::Statistics,
};
use std::{alloc::Layout, fmt, io, ptr::NonNull, sync::Weak, time::Duration};

/// A domain of read-copy update: its sections delay its own grace periods only, and its own deferred frees.
///
/// Most programs use the global domain ([`global`](crate::global)) through the crate's functions. A domain of one's own keeps
/// long sections away from others, or bounds one part's memory by itself.
///
/// This is a handle: cloning it names the same domain. When the last handle is dropped nobody can be reading (a guard borrows
/// from a handle); the callbacks that still wait are then invoked, the objects freed, and the service thread is stopped and
/// joined (detached, if a callback or a deferred destructor of any domain drops the handle).
///
/// Dropping the last handle may block for as long as callbacks and destructors take.
///
/// # Forking
///
/// On Linux a process that forks may go on using its domains: in the parent as if nothing had happened, and in the child as a
/// process with one thread. That thread's sections are open as before, and cookies stay good. What waited is the parent's: in the
/// child, callbacks of before the fork are not run and retired objects not freed; they are forgotten, and so are those that were
/// to follow the callback or destructor that forks. Service threads start again when they are needed. Handles that other threads
/// held are never dropped there, so a domain may outlive those that are left. A domain whose callback forked is not joined when
/// it ends in the child.
///
/// Sections of other threads are over in the child. It must not use what those had found, not even a reference that one of them
/// leaked or handed over: this is among the things that the caller of fork, which is unsafe, has to see to. So is what fork asks
/// in any program: threads of the standard library take a lock when they start and end, which one that has vanished in the middle
/// of that holds for ever, so [`std::thread::spawn`] may hang in the child (the service threads do without). The children of
/// `vfork`, `_Fork`, a bare `clone`, and of a fork in a signal handler, must not use the library at all.
///
/// ```
/// let domain = stillpoint::Domain::new();
/// let cell = stillpoint::Rcu::new_in(&domain, 1);
/// let guard = domain.read_lock();
/// assert_eq!(cell.load(&guard), Some(&1));
/// ```
pub struct Domain<P: Policy = Sound> {
    pub(super) inner: Arc<Inner<P>>,
}

#[derive(Debug)]
pub(super) struct Inner<P: Policy> {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: Place,
    pub(super) engine: Engine<P>,
    pub(super) heap: Heap,
    id: u64,
    handles: AtomicUsize,
    closed: AtomicBool,
}

impl<P: Policy> Work for Inner<P> {
    fn pass(&self) -> Outlook {
        let callbacks = self.engine.run_callbacks();
        let drain = self.heap.drain(&self.engine);
        // The older of the two: the service thread sleeps until its readers have left, and must not sleep past the other's end.
        let cookie = match (callbacks, drain.cookie) {
            (Some(callbacks), Some(pages)) => Some(callbacks.older(pages)),
            (callbacks, pages) => callbacks.or(pages),
        };
        Outlook { cookie, at: drain.at }
    }
}

impl<P: Policy> InChild for Inner<P> {
    unsafe fn in_child(&self) {
        // SAFETY: the caller's promise; the share is that of the calling thread.
        unsafe {
            self.engine.in_child(platform_thread::token());
            thread::with_share(self.id, |own| self.heap.in_child(own));
        }
    }
}

impl<P: Policy> Inner<P> {
    fn new(id: u64, readers: Readers, seq: Sequence) -> Arc<Self> {
        let inner = Arc::new_cyclic(|weak: &Weak<Self>| {
            let engine = Engine::new(id, readers, seq);
            let weak = weak.clone();
            engine.set_service(move |name| {
                let inner = weak.upgrade().ok_or(io::ErrorKind::NotFound)?;
                platform_thread::without_signals(|| {
                    platform_thread::spawn(name, move || {
                        inner.engine.serve(&*inner);
                        inner.finish();
                    })
                })
            });
            Self {
                place: Place::reserve(),
                engine,
                heap: Heap::new(id),
                id,
                handles: AtomicUsize::new(1),
                closed: AtomicBool::new(false),
            }
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its fields to be dropped.
        unsafe { inner.place.occupy(&*inner) };
        inner
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The last handle is gone.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Foreign, like the callbacks: it must not linger until the last thread lets go of the domain.
        self.engine.set_stall_handler(None);
        if !self.engine.stop_service() {
            self.finish();
        }
    }

    /// Invokes and frees what is left; nobody reads any more.
    fn finish(&self) {
        gp::as_pass(self.id, || {
            // A callback or destructor may have left something new behind it.
            while self.engine.callbacks_pending() > 0 || self.heap.waiting().objects > 0 {
                self.engine.run_all_callbacks();
                self.heap.free_all(&self.engine);
            }
            self.heap.free_all(&self.engine);
        });
    }
}

fn next_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(thread::GLOBAL_ID + 1);
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl Domain<Sound> {
    /// A domain with the defaults: a budget of 8 MiB, [`DrainPolicy::PerPage`], stalls after 10 seconds. Starts no thread.
    ///
    /// Allocates a few hundred bytes; does not block.
    #[must_use]
    pub fn new() -> Self {
        Self::with_policy()
    }

    /// A domain whose readers fence, where those of [`Domain::new`] leave it to `membarrier(2)`.
    ///
    /// A section costs two fences (some ten nanoseconds); a grace period makes no system call and interrupts nobody. For readers
    /// that must not be disturbed, for updates as frequent as reads, and for [`QsbrReader`]s, which fence only where they
    /// pass a quiescent state that somebody may wait for.
    ///
    /// ```
    /// let domain = stillpoint::Domain::with_fences();
    /// domain.read(|_| ());
    /// domain.synchronize();
    /// ```
    #[must_use]
    pub fn with_fences() -> Self {
        Self { inner: Inner::new(next_id(), Readers::Fencing, Sequence::new(Cookie::from_raw(0).seq())) }
    }

    pub(super) fn global() -> Self {
        Self { inner: Inner::new(thread::GLOBAL_ID, Readers::Asymmetric, Sequence::of_global()) }
    }
}

impl Default for Domain<Sound> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Policy> Domain<P> {
    /// A domain with parts of the machinery left out; see [`Policy`].
    #[doc(hidden)]
    #[must_use]
    pub fn with_policy() -> Self {
        Self::starting_at(Cookie::from_raw(0))
    }

    /// A domain whose sequence starts at `first`: for tests that want to see it wrap.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(first: Cookie) -> Self {
        Self { inner: Inner::new(next_id(), Readers::Asymmetric, Sequence::new(first.seq())) }
    }

    pub(super) fn id(&self) -> u64 {
        self.inner.id
    }

    fn engine(&self) -> &Engine<P> {
        &self.inner.engine
    }

    /// Begins a read-side critical section, which lasts until the guard is dropped. The kernel's `rcu_read_lock()`.
    ///
    /// Never blocks. Sections nest up to 65,535 deep; one more aborts. A thread's first section in a domain registers it (which
    /// may allocate); after that this is async-signal-safe. Works in thread-local destructors.
    #[inline]
    pub fn read_lock(&self) -> Guard<'_> {
        match thread::record(self) {
            Some(record) => Guard::enter(record),
            None => self.read_lock_late(),
        }
    }

    #[cold]
    pub(super) fn read_lock_late(&self) -> Guard<'_> {
        Guard::enter_once(self.engine().register(platform_thread::token(), Flavour::Thread))
    }

    /// Registers the calling thread as a reader that is always inside a section but where it says otherwise. The userspace RCU
    /// library's `urcu_qsbr_register_thread()`; see [`QsbrReader`].
    ///
    /// May allocate; does not block.
    #[must_use = "dropping it takes the thread's registration back"]
    pub fn qsbr_reader(&self) -> QsbrReader<'_, P> {
        QsbrReader::new(self, self.engine().register(platform_thread::token(), Flavour::Qsbr))
    }

    /// Runs `section` inside a read-side critical section.
    ///
    /// As [`Domain::read_lock`]; the compiler sees both ends of the section at once.
    #[inline]
    pub fn read<R>(&self, section: impl FnOnce(&Guard<'_>) -> R) -> R {
        section(&self.read_lock())
    }

    /// The oldest section that the calling thread has open here.
    fn section(&self) -> Option<Seq> {
        self.engine().section_of(platform_thread::token())
    }

    fn is_reading(&self) -> bool {
        self.section().is_some()
    }

    /// Waits until every section that had begun before this call has ended. The kernel's `synchronize_rcu()`.
    ///
    /// Everything that the caller unlinked before cannot be reached by any reader afterwards. Idle, it costs one membarrier
    /// (a fraction of a microsecond to some tens); else it lasts as long as the longest of those sections. The caller does the
    /// work by itself and depends on no other thread but the readers. Not async-signal-safe.
    ///
    /// # Panics
    ///
    /// Inside a section of this domain: it would wait for itself.
    ///
    /// # Deadlocks
    ///
    /// If a reader waits, in its section, for something that the caller holds (a lock, say).
    pub fn synchronize(&self) {
        self.wait(self.engine().start(), Haste::Normal);
    }

    /// As [`Domain::synchronize`], in haste: looks for up to 50 microseconds, in place of 5, whether the readers have left before it
    /// sleeps. The kernel's `synchronize_rcu_expedited()`.
    ///
    /// Where sections last some tens of microseconds it saves the wake-up, and costs the processor's time meanwhile.
    ///
    /// # Panics
    ///
    /// Inside a section of this domain.
    ///
    /// ```
    /// stillpoint::global().synchronize_expedited();
    /// ```
    pub fn synchronize_expedited(&self) {
        self.wait(self.engine().start(), Haste::Expedited);
    }

    /// Names the next grace period without starting it. The kernel's `get_state_synchronize_rcu()`.
    ///
    /// One atomic read-modify-write. What was unlinked before is unreachable once [`Domain::poll`] says so.
    #[must_use]
    pub fn get_state(&self) -> Cookie {
        self.engine().get_state()
    }

    /// Starts a grace period and names it. The kernel's `start_poll_synchronize_rcu()`.
    ///
    /// It ends without a further call, as soon as its readers have left: the service thread sees to it, unless somebody else
    /// (a [`Domain::poll`], a waiter, a deferred free) has. A few atomic operations; where the service thread sleeps, also a
    /// wake-up, of some microseconds. Does not block; not async-signal-safe.
    #[must_use]
    pub fn start_poll(&self) -> Cookie {
        self.engine().start_promised()
    }

    /// Whether the grace period has ended. The kernel's `poll_state_synchronize_rcu()`.
    ///
    /// A load if it is known to have; else one attempt to end it, which costs a membarrier at first and a scan of the readers
    /// after that. Never waits. Inside a section, that section counts.
    #[must_use]
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.engine().advance(cookie, platform_thread::token()) == Progress::Ended
    }

    /// Waits until the grace period has ended. The kernel's `cond_synchronize_rcu()`. As [`Domain::synchronize`], and a load if it
    /// has ended already.
    ///
    /// # Panics
    ///
    /// If the grace period waits for a section of the calling thread.
    pub fn cond_synchronize(&self, cookie: Cookie) {
        self.wait(self.known(cookie), Haste::Normal);
    }

    fn wait(&self, cookie: Cookie, haste: Haste) {
        match self.engine().wait_for(cookie, platform_thread::token(), None, haste) {
            Waited::Ended => {}
            Waited::HeldUpBySelf => refuse("waiting for a grace period"),
            Waited::TimedOut => unreachable!("no deadline was given"),
        }
    }

    /// As [`Domain::synchronize`], for tasks: a future that is ready when every section that had begun before this call has ended.
    ///
    /// The grace period starts now and ends by itself, whether or not the future is polled; no thread waits. For any executor.
    /// Sections of the very thread that polls hold it up like all others: where the same task keeps a guard across the `.await`,
    /// or another task of a single-threaded executor that would have to run first, it never ends, which nobody can see
    /// beforehand; it is then reported as a stall, and the guard's thread named.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #         std::thread::yield_now();
    /// #     }
    /// # }
    /// block_on(async {
    ///     stillpoint::global().synchronize_async().await;
    /// });
    /// ```
    pub fn synchronize_async(&self) -> GracePeriod<'_, P> {
        self.cond_synchronize_async(self.start_poll())
    }

    /// As [`Domain::cond_synchronize`], for tasks: a future that is ready when the grace period has ended. See
    /// [`Domain::synchronize_async`].
    pub fn cond_synchronize_async(&self, cookie: Cookie) -> GracePeriod<'_, P> {
        GracePeriod::new(self, self.known(cookie))
    }

    /// The cookie, or an older one if this domain has never given it: so that a stray one is not waited for until doomsday.
    fn known(&self, cookie: Cookie) -> Cookie {
        if self.engine().has_ended(cookie) { cookie } else { cookie.older(self.get_state()) }
    }

    /// As [`Domain::barrier`], for tasks: a future that is ready when every callback that was queued before this call has been
    /// invoked. Allocates; does not block. Never refused: what would wait for itself is reported as a stall.
    pub fn barrier_async(&self) -> CallbackBarrier<'_, P> {
        CallbackBarrier::new(self)
    }

    /// Has `callback` run on the domain's service thread after a grace period. The kernel's `call_rcu()`, for a closure.
    ///
    /// Allocates; does not block; may be called inside sections and callbacks. Callbacks run one after the other, in the order in
    /// which they were queued. One that panics is counted ([`Statistics::panics`]) and the rest go on. Not async-signal-safe.
    /// The process's exit does not wait for callbacks: see [`Domain::barrier`].
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    /// static CALLED: AtomicBool = AtomicBool::new(false);
    /// stillpoint::global().call(|| CALLED.store(true, SeqCst));
    /// stillpoint::global().barrier();
    /// assert!(CALLED.load(SeqCst));
    /// ```
    pub fn call(&self, callback: impl FnOnce() + Send + 'static) {
        self.engine().call(callback);
    }

    /// Has `run` called with `head` on the domain's service thread after a grace period, without allocating. The kernel's
    /// `call_rcu()`: the head is part of the object that the callback is about.
    ///
    /// # Safety
    ///
    /// `head` is valid and not queued; from now until `run` is called, it is the queue's alone; `run` may be called with it on
    /// another thread.
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
    pub unsafe fn call_head(&self, head: NonNull<CallbackHead>, run: unsafe fn(NonNull<CallbackHead>)) {
        // SAFETY: the caller's promise.
        unsafe { self.engine().call_head(Callback { head, run }) };
    }

    /// Waits until every callback that was queued before has been invoked. The kernel's `rcu_barrier()`.
    ///
    /// Not async-signal-safe. Inside a section it goes through as long as no such callback waits for that section.
    ///
    /// # Panics
    ///
    /// If it would wait for itself: inside a callback or a deferred destructor of this domain, or inside a section that began
    /// before one of those callbacks was queued.
    pub fn barrier(&self) {
        if self.engine().barrier(&*self.inner, self.section()).is_err() {
            refuse("barrier()");
        }
    }

    /// Waits until everything that was retired before has been freed. The kernel's `kvfree_rcu_barrier()`.
    ///
    /// Not async-signal-safe.
    ///
    /// # Panics
    ///
    /// If it would wait for itself: inside a callback or a deferred destructor of this domain; inside a section while anything
    /// waits.
    pub fn kvfree_barrier(&self) {
        if self.inner.heap.flush(self.engine(), &*self.inner, self.is_reading()).is_err() {
            refuse("kvfree_barrier()");
        }
        if self.engine().callbacks_pending() > 0 {
            // Objects for which there was no page.
            self.barrier();
        }
    }

    /// Frees the boxed `object` after a grace period. The kernel's `kvfree_rcu()` with one argument.
    ///
    /// A few nanoseconds; now and then (once a page of some 250 objects) it seals a page, frees older ones, ends a grace period,
    /// or, where readers hold up what fills the thread's share or the budget, waits outside sections: up to 10 ms for each 64 KiB, a
    /// second at most. Objects with a destructor are dropped on the service
    /// thread; others are freed by the retiring thread. May be called inside sections, callbacks and thread-local
    /// destructors; not in signal handlers.
    ///
    /// If there is no memory for a page the caller waits for a grace period and frees the object itself; inside a section or a
    /// callback, where that is impossible, the process ends as on any failed allocation: see [`Domain::try_retire`].
    ///
    /// # Safety
    ///
    /// `object` came from [`Box::into_raw`] (or [`Box::leak`]); readers that begin from now on cannot find it; nobody else frees or
    /// retires it, and nobody but readers whose sections in this domain have begun already uses it.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// let object = NonNull::from(Box::leak(Box::new([0_u64; 4])));
    /// // SAFETY: nobody else has ever known the object.
    /// unsafe { stillpoint::global().retire(object) };
    /// stillpoint::global().kvfree_barrier();
    /// assert_eq!(stillpoint::global().statistics().objects_waiting, 0);
    /// ```
    #[inline]
    pub unsafe fn retire<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        if unsafe { self.try_retire(object) }.is_err() {
            out_of_memory();
        }
    }

    /// As [`Domain::retire`], but gives the object back if there is no memory for a page and no way to wait.
    ///
    /// # Errors
    ///
    /// The object, which is then the caller's to deal with as before the call.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    #[inline]
    pub unsafe fn try_retire<T: Send + 'static>(&self, object: NonNull<T>) -> Result<(), NonNull<T>> {
        // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
        unsafe { self.retire_object(Retiree::boxed(object)) }.map_err(|_| object)
    }

    /// As [`Domain::retire`] for a type whose destructor may run on the retiring thread, in the middle of any later retire, and at the
    /// end of any section in which one was made: one that only frees memory, such as that of `Vec<u8>` or `String`.
    ///
    /// Freed where it was allocated, it is cheaper than on the service thread. A destructor that takes a lock may deadlock with a
    /// caller of `retire`, or with one who drops a guard, while holding it.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    #[inline]
    pub unsafe fn retire_plain<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        if unsafe { self.retire_object(Retiree::boxed_plain(object)) }.is_err() {
            out_of_memory();
        }
    }

    /// Frees a block of the global allocator after a grace period, without dropping what is in it.
    ///
    /// As [`Domain::retire`] otherwise.
    ///
    /// # Safety
    ///
    /// `block` came from the global allocator with `layout`, whose size is not 0; the rest as for [`Domain::retire`].
    ///
    /// ```
    /// use std::{alloc::{Layout, alloc}, ptr::NonNull};
    /// let layout = Layout::from_size_align(100, 8).unwrap();
    /// // SAFETY: the size is not 0.
    /// let block = NonNull::new(unsafe { alloc(layout) }).expect("memory");
    /// // SAFETY: allocated with that layout, and nobody else has ever known it.
    /// unsafe { stillpoint::global().retire_sized(block, layout) };
    /// ```
    #[inline]
    pub unsafe fn retire_sized(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        if unsafe { self.retire_object(Retiree::memory(block, layout)) }.is_err() {
            out_of_memory();
        }
    }

    /// Frees a boxed object that embeds a [`CallbackHead`]. The kernel's `kvfree_rcu()` with two arguments.
    ///
    /// As [`Domain::retire`], but it never fails and never waits for want of memory: if there is none for a page, the object is
    /// chained through its head.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    pub unsafe fn retire_with_head<T: EmbedsHead>(&self, object: NonNull<T>) {
        unsafe fn free<T: EmbedsHead>(head: NonNull<CallbackHead>) {
            // SAFETY: the head lies at this offset in a boxed T, by `EmbedsHead` and `retire_with_head`'s contract.
            drop(unsafe { Box::from_raw(head.as_ptr().byte_sub(T::HEAD_OFFSET).cast::<T>()) });
        }
        // SAFETY: the caller's promise.
        if unsafe { self.try_retire(object) }.is_err() {
            // SAFETY: in bounds, by `EmbedsHead`'s contract.
            let head = unsafe { object.byte_add(T::HEAD_OFFSET) }.cast();
            // SAFETY: the object is given up to the callback, and is Send.
            unsafe { self.call_head(head, free::<T>) };
        }
    }

    /// # Safety
    ///
    /// As for [`Domain::retire`], and the object may be freed on any thread.
    #[inline]
    unsafe fn retire_object(&self, object: Retiree) -> Result<(), Slot> {
        let heap = &self.inner.heap;
        // SAFETY: the share and the record are the calling thread's; the rest is the caller's promise.
        let retired = thread::with(self, |record, local| unsafe { heap.retire(self.engine(), local, Some(record), object) });
        // SAFETY: the caller's promise.
        retired.unwrap_or_else(|| unsafe { heap.retire_late(self.engine(), object) })
    }

    /// The rest of a retire by the calling thread whose append to its own share was not the usual one.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`], and the object may be freed on any thread.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn retire_unusual(&self, object: Retiree, appended: Option<Appended>) {
        let heap = &self.inner.heap;
        let retired = match appended {
            // SAFETY: the caller's promise.
            None => unsafe { self.retire_object(object) },
            Some(appended) => {
                thread::with(self, |record, local| heap.see_to(self.engine(), local, Some(record), object, appended))
                    .expect("the thread has a share, since it has appended to it")
            }
        };
        if retired.is_err() {
            out_of_memory();
        }
    }

    /// How waiting objects are freed from now on. Takes effect with the next page; may be called at any time.
    pub fn set_drain_policy(&self, policy: DrainPolicy) {
        self.inner.heap.set_policy(policy);
    }

    /// How waiting objects are freed.
    #[must_use]
    pub fn drain_policy(&self) -> DrainPolicy {
        self.inner.heap.policy()
    }

    /// How many bytes (of objects, by the allocator's size classes, and of the pages that remember them) may wait before those
    /// who retire more are slowed down. 8 MiB by default. It is a target, not a wall: see the crate's "The memory budget".
    pub fn set_budget(&self, bytes: usize) {
        self.inner.heap.set_budget(bytes);
    }

    /// The budget, in bytes.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.inner.heap.budget()
    }

    /// How long a grace period (or the service thread) may be held up before that counts as a stall. 10 seconds by default.
    pub fn set_stall_timeout(&self, timeout: Duration) {
        self.engine().set_stall_timeout(timeout);
    }

    /// Has `handler` told of every stall from now on, in place of an earlier one; once a stall. The kernel's "rcu detected stalls".
    ///
    /// A grace period is watched while anybody waits for it, in a call or by a deferred free. The handler runs on the thread that
    /// finds the stall: one that waits, one that retires, or the service thread. It may use the library's read side, and log; it must
    /// not wait for callbacks or deferred frees, as if it were a callback, nor take locks that are held around calls of this
    /// library. If it panics that is counted ([`Statistics::panics`]). A handler that owns a handle of the domain keeps it open until
    /// it is replaced.
    ///
    /// ```
    /// # use std::{sync::mpsc::channel, time::Duration};
    /// let domain = stillpoint::Domain::new();
    /// domain.set_stall_timeout(Duration::from_millis(1));
    /// let (tell, told) = channel();
    /// domain.on_stall(move |report| tell.send(report.to_string()).unwrap());
    /// let guard = domain.read_lock();
    /// let _ = domain.start_poll();
    /// assert!(told.recv().unwrap().contains("holds a guard"));
    /// ```
    pub fn on_stall(&self, handler: impl Fn(&StallReport) + Send + Sync + 'static) {
        self.engine().set_stall_handler(Some(std::sync::Arc::new(handler)));
    }

    /// What the domain does and has done. Takes a lock a thread that has used the domain; exact at rest, else a glimpse.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::of(self.engine(), &self.inner.heap)
    }
}

/// A type with a [`CallbackHead`] in it, through which it can be chained when there is no memory to remember it otherwise.
///
/// # Safety
///
/// A `CallbackHead` lies at `HEAD_OFFSET` bytes from the start of the type, and nothing else touches it.
///
/// ```
/// use std::{mem::offset_of, ptr::NonNull};
/// use stillpoint::{CallbackHead, EmbedsHead};
/// struct Node { value: u64, head: CallbackHead }
/// // SAFETY: that is where the head is, and it is private.
/// unsafe impl EmbedsHead for Node { const HEAD_OFFSET: usize = offset_of!(Node, head); }
/// let node = NonNull::from(Box::leak(Box::new(Node { value: 1, head: CallbackHead::new() })));
/// // SAFETY: nobody else has ever known the node.
/// unsafe { stillpoint::global().retire_with_head(node) };
/// ```
pub unsafe trait EmbedsHead: Send + 'static {
    /// Where the head is, in bytes.
    const HEAD_OFFSET: usize;
}

impl<P: Policy> Clone for Domain<P> {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<P: Policy> Drop for Domain<P> {
    fn drop(&mut self) {
        // Acquire and release: what was done through other handles is done before the end.
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.close();
        }
    }
}

impl<P: Policy> fmt::Debug for Domain<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("id", &self.id()).field("statistics", &self.statistics()).finish()
    }
}

impl<P: Policy> PartialEq for Domain<P> {
    /// Whether both are handles of the same domain.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<P: Policy> Eq for Domain<P> {}

#[cold]
fn refuse(what: &str) -> ! {
    panic!(
        "stillpoint: {what} would wait for the calling thread itself, which is inside a read-side critical section, a callback \
         or a deferred destructor of the same domain, or is an online QSBR reader of it. Drop the guard or go offline first, or \
         hand the wait to another thread"
    );
}

#[cold]
fn out_of_memory() -> ! {
    std::alloc::handle_alloc_error(Layout::new::<[u8; 4096]>());
}
