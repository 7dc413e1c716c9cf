//! What is behind a [`Domain`](super::Domain), which documents the methods: an engine and a heap. A
//! [`Policy`] may leave parts of the protocol out; only torture programs use such domains.

use crate::{
    gp::{
        BarrierMode, Cookie, End, Engine, GLOBALS, Member, Pace, Round, Seq, Sequence, Served,
        Server, StallReport, Unreclaimed, policy::Sound, pool,
    },
    kvfree::{Heap, Policy},
    platform::{
        fork::AtForkHandle,
        race::RaceCell,
        refused,
        stats::{self, Block, Subject},
        sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering},
        thread as platform_thread,
    },
    statistics::Statistics,
};
use std::{
    fmt, io,
    sync::{OnceLock, Weak, atomic::fence},
    time::Duration,
};

mod parts;

use parts::Parts;

/// A counted handle of an engine and a heap. No part of the stable interface.
#[doc(hidden)]
pub struct Core<P: Policy> {
    pub(super) inner: Arc<Inner<P>>,
}

#[derive(Debug)]
pub(in crate::rcu) struct Inner<P: Policy> {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    pub(in crate::rcu) parts: Parts<P>,
    id: u64,
    handles: AtomicUsize,
    closed: AtomicBool,
    /// Whether it is a [`TraceDomain`](crate::tasks_trace::TraceDomain)'s.
    is_trace: AtomicBool,
    /// Its block in the statistics page. Last, because the others count in it while they are dropped.
    pub(super) block: OnceLock<Block>,
}

impl<P: Policy> refused::Refused for Inner<P> {
    fn start_again(&self) -> bool {
        self.parts.engine().start_service_again()
    }
}

impl<P: Policy> Member for Inner<P> {
    fn round(&self, pace: &mut Pace) -> Round {
        self.parts.engine().round(self, pace)
    }

    fn watch(&self, cookie: Option<Cookie>) -> bool {
        self.parts.engine().watch(cookie)
    }

    fn has_news(&self, cookie: Option<Cookie>) -> bool {
        self.parts.engine().has_news(cookie)
    }

    fn leave(&self, served: Served) {
        if served == Served::Stopped {
            self.finish();
            self.parts.engine().note_left();
        }
    }
}

impl<P: Policy> Subject for Inner<P> {
    fn publish(&self) {
        let Some(block) = Block::new(self.id, self.shown_name()) else {
            return;
        };
        let words = block.words();
        if self.block.set(block).is_ok() {
            self.parts.engine().open_tap(words);
            self.parts.heap().open_tap(words);
            self.publish_all();
        }
        // SeqCst, pairs with `finish`: it finds the block, or we find the domain closed.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.end_block();
        }
    }
}

/// A domain as the statistics page calls it.
struct DomainName<'a> {
    id: u64,
    name: Option<&'a str>,
}

impl fmt::Display for DomainName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.id) {
            (Some(name), _) => f.write_str(name),
            (None, id) if id == global_id(RCU) => f.write_str("global"),
            (None, id) if id == global_id(TRACE) => f.write_str("tasks_trace"),
            (None, id) => write!(f, "domain {id}"),
        }
    }
}

impl<P: Policy> Inner<P> {
    fn new(id: u64, readers: BarrierMode, seq: Sequence, name: Option<Box<str>>) -> Arc<Self> {
        let inner = Arc::new_cyclic(|weak: &Weak<Self>| {
            let place = AtForkHandle::reserve();
            let engine = Engine::new(id, readers, seq).named(name);
            let gauge = weak.clone();
            engine.set_gauge(move || {
                gauge.upgrade().map_or_else(Unreclaimed::default, |inner| {
                    let waiting = inner.parts.heap().waiting_sealed();
                    Unreclaimed {
                        objects: waiting.objects,
                        bytes: waiting.bytes,
                    }
                })
            });
            engine.set_refused(refused::Place::new(&place, weak.clone()));
            let weak = weak.clone();
            engine.set_service(move |name| {
                let inner = weak.upgrade().ok_or(io::ErrorKind::NotFound)?;
                if inner.parts.engine().shares_service() {
                    return pool::enroll(inner, name).map(|()| Server::Pool);
                }
                platform_thread::spawn(&name, move || {
                    if inner.parts.engine().serve(&*inner) == Served::Stopped {
                        inner.finish();
                    }
                })
                .map(Server::Thread)
            });
            Self {
                place,
                parts: Parts::new(engine, Heap::new(id)),
                id,
                handles: AtomicUsize::new(1),
                closed: AtomicBool::new(false),
                is_trace: AtomicBool::new(id == global_id(TRACE)),
                block: OnceLock::new(),
            }
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { inner.place.occupy(&*inner) };
        let subject: Weak<Self> = Arc::downgrade(&inner);
        stats::add(subject);
        inner
    }

    fn shown_name(&self) -> DomainName<'_> {
        DomainName {
            id: self.id,
            name: self.parts.engine().name(),
        }
    }

    /// Writes the domain's slot in the statistics page, in the child of a fork, whose page is new.
    pub(super) fn show_again(&self) {
        if let Some(block) = self.block.get()
            && !self.is_closed()
        {
            block.show(self.id, self.shown_name());
        }
    }

    /// Copies all counters into the statistics page, which has zeros there.
    pub(super) fn publish_all(&self) {
        self.parts.engine().publish_all();
        self.parts.heap().publish_all();
        self.publish_work();
    }

    /// Copies into the statistics page, if there is one, the counters that only a pass of the
    /// service thread copies.
    pub(super) fn publish_work(&self) {
        self.parts.engine().publish_work();
        self.parts.heap().publish_work(self.parts.engine().panics());
    }

    pub(in crate::rcu) fn id(&self) -> u64 {
        self.id
    }

    pub(in crate::rcu) fn is_closed(&self) -> bool {
        // Acquire, pairs with `close`: what was done through the domain's handles happens before
        // its bindings go.
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the domain: the last handle has been dropped.
    fn close(&self, end: End) {
        // Release, pairs with `is_closed`: a thread that sees it sees all handles dropped.
        self.closed.store(true, Ordering::Release);
        let is_anything_left = || {
            self.parts.engine().callbacks_pending() > 0 || self.parts.heap().waiting().objects > 0
        };
        if end == End::LeftToService && is_anything_left() {
            // There may be no thread, or one that is about to end idle: a thread that exits kicks
            // only after it has handed over what it leaves.
            self.parts.engine().kick();
        }
        if !self.parts.engine().stop_service(end) {
            self.finish();
        }
    }

    /// Invokes and frees what is left, and wakes the tasks whose futures were forgotten; there are
    /// no readers any more.
    fn finish(&self) {
        let _turn = self.parts.engine().take_turn();
        // User code, like the callbacks: it must not linger until the last thread lets go of the
        // domain.
        self.parts.engine().set_stall_handler(None);
        // A callback or destructor may have queued something new. The loop goes by what is done,
        // not by the counts of what waits, which a fault may have left too high.
        loop {
            let called = self.parts.engine().run_all_callbacks();
            if !self.parts.heap().free_all(self.parts.engine()) && !called {
                break;
            }
        }
        self.parts.engine().futures.wake_all(self.id);
        // SeqCst, pairs with `publish`: we find the block, or it finds the domain closed.
        fence(Ordering::SeqCst);
        self.end_block();
    }

    /// Hides the domain's block. Threads that have used the domain still have it, and may count there.
    fn end_block(&self) {
        if let Some(block) = self.block.get() {
            block.end();
        }
    }
}

/// The global domains, by the constant that tells them apart.
pub(crate) const RCU: usize = 0;
pub(crate) const TRACE: usize = 1;

/// Returns the number of a global domain.
pub(super) const fn global_id(global: usize) -> u64 {
    global as u64 + 1
}

/// The global domains.
static GLOBAL_CORES: [RaceCell<Box<Core<Sound>>>; GLOBALS] = [const { RaceCell::new() }; GLOBALS];

/// Returns the core of a global domain, which is made on first use.
#[inline]
pub(super) fn global_core<const GLOBAL: usize>() -> &'static Core<Sound> {
    let core = &GLOBAL_CORES[GLOBAL];
    core.get().unwrap_or_else(|| make_global(GLOBAL))
}

#[cold]
fn make_global(global: usize) -> &'static Core<Sound> {
    GLOBAL_CORES[global].put(Box::new(Core::global(global)))
}

impl<P: Policy> Core<P> {
    /// Makes a domain with the defaults.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for tortures alone")]
    pub fn new() -> Self {
        Self::starting_at(Cookie::from_raw(0))
    }

    /// Makes a domain whose sequence starts at `first`: for tests that want to see it wrap.
    #[must_use]
    pub fn starting_at(first: Cookie) -> Self {
        Self::with_readers(BarrierMode::Membarrier, first, None)
    }

    /// Makes a domain whose readers fence.
    #[must_use]
    pub fn fencing_from(first: Cookie) -> Self {
        Self::with_readers(BarrierMode::Fence, first, None)
    }

    pub(super) fn with_readers(
        readers: BarrierMode,
        first: Cookie,
        name: Option<Box<str>>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(global_id(GLOBALS));
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self {
            inner: Inner::new(id, readers, Sequence::new(first.seq()), name),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    pub(crate) fn is_trace(&self) -> bool {
        // Relaxed: set before a second handle is made.
        self.inner.is_trace.load(Ordering::Relaxed)
    }

    pub(crate) fn set_trace(&self) {
        self.inner.is_trace.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine<P> {
        self.inner.parts.engine()
    }

    /// Makes one of the global domains.
    fn global(global: usize) -> Self {
        Self {
            inner: Inner::new(
                global_id(global),
                BarrierMode::Membarrier,
                Sequence::of_global(global),
                None,
            ),
        }
    }

    /// See [`Domain::set_stall_timeout`](super::Domain::set_stall_timeout).
    pub fn set_stall_timeout(&self, timeout: Duration) {
        self.inner.parts.atomics().set_stall_timeout(timeout);
    }

    /// See [`Domain::on_stall`](super::Domain::on_stall).
    pub fn on_stall(&self, handler: impl Fn(&StallReport) + Send + Sync + 'static) {
        self.engine()
            .set_stall_handler(Some(std::sync::Arc::new(handler)));
    }

    /// Returns the oldest section that the calling thread has open here.
    pub(super) fn section(&self) -> Option<Seq> {
        self.inner
            .parts
            .atomics()
            .section_of(platform_thread::token())
    }

    /// Returns true if the calling thread is inside a section here, so that it must not wait for a
    /// grace period. Looks at all records.
    pub(crate) fn is_reading(&self) -> bool {
        self.section().is_some()
    }

    /// See [`Domain::statistics`](super::Domain::statistics).
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::of(self.engine(), self.inner.parts.heap())
    }
}

impl<P: Policy> Clone for Core<P> {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<P: Policy> Core<P> {
    pub(super) fn let_go(&self, end: End) {
        // Acquire and release, pairs with `let_go` of other threads: what was done through other
        // handles is done before the end.
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.close(end);
        }
    }
}

impl<P: Policy> Drop for Core<P> {
    fn drop(&mut self) {
        self.let_go(End::Awaited);
    }
}

impl<P: Policy> fmt::Debug for Core<P> {
    /// Waits for no lock. Objects in pages that are not full are not counted. While another thread
    /// holds the lock of the threads' list (it joins or leaves the domain, looks at the threads as
    /// the service thread, or collects statistics), only bytes and freed objects of what was retired
    /// are counted, and those roughly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = Statistics::snapshot(self.engine(), self.inner.parts.heap());
        let mut shown = f.debug_struct("Domain");
        shown.field("id", &self.id());
        if let Some(name) = self.engine().name() {
            shown.field("name", &name);
        }
        shown.field("statistics", &snapshot).finish()
    }
}

impl<P: Policy> PartialEq for Core<P> {
    /// Returns true if both are handles of the same domain.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<P: Policy> Eq for Core<P> {}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::{
        sync::{atomic::AtomicBool as StdBool, mpsc::channel},
        thread,
    };

    /// Two callbacks of one domain never run at once, nor does one after the domain's end.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_end_of_a_domain_waits_for_a_pass() {
        struct Notes(Arc<StdBool>);
        impl Drop for Notes {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let domain = Core::<Sound>::new();
        let has_finished = Arc::new(StdBool::new(false));
        let notes = Notes(Arc::clone(&has_finished));
        // User code that the end drops. There is nothing for a service thread to do.
        domain
            .inner
            .parts
            .engine()
            .set_stall_handler(Some(Arc::new(move |_| {
                let _ = &notes;
            })));
        let inner = Arc::clone(&domain.inner);
        let turn = inner.parts.engine().take_turn();
        let (tell, told) = channel();
        let ends = thread::spawn(move || {
            tell.send(platform_thread::tid()).expect("the test waits");
            drop(domain);
        });
        let tid = told.recv().expect("it ends the domain");
        while platform_thread::blocked_in(tid).is_none_or(|call| call.name != "futex")
            && !ends.is_finished()
        {
            thread::yield_now();
        }
        assert!(!has_finished.load(Ordering::SeqCst));
        drop(turn);
        ends.join().expect("no panic");
        assert!(has_finished.load(Ordering::SeqCst));
    }
}
