//! A domain's deferred frees: what the service thread does.
//!
//! It frees what no retiring thread will come back for: pages with destructors, pages of threads that have gone or fallen idle,
//! everything at a flush. Every [`TICK`] it looks at the threads that are not parked; what an idle one has left is taken over
//! (sealed pages as they are, an open page's objects by copying them), of one that is slow the sealed pages alone, and a thread that
//! has nothing left is parked (`local.rs`). When all are parked and nothing waits, it asks for no further tick.

use super::{
    heap::{DrainPolicy, Heap},
    local::{CHANNELS, ThreadBuffer},
    page::{Page, PageList},
    pending::PendingPages,
    policy::{Policy, start_for_page},
};
use crate::{
    gp::{Cookie, Engine, Outlook, Work, WouldDeadlock},
    platform::{
        clock::{self, Nanos},
        fork, memory,
        sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, lock},
    },
};
use std::ptr::NonNull;

/// How often threads that retire are looked at.
const TICK: Nanos = 10_000_000;

/// So many looks in a row must find a thread idle before what it has left is taken over: two to three ticks. A thread that only
/// waits for its turn on an oversubscribed machine so keeps its pages, whose memory is warm in its own allocator's cache.
const IDLE_TICKS: u32 = 2;

/// So many in a row must find that a thread has not sealed a page, and so has freed none, before its sealed pages are taken over, though it
/// retires now and then: at its pace what is due would wait for minutes.
const SLOW_LOOKS: u32 = 8;

/// So many that find it idle before it is parked, which has it counted among those who share the budget no more.
const PARKING_TICKS: u32 = 8;

#[derive(Debug)]
pub(super) struct Drain {
    state: Mutex<State>,
    /// Flushes asked for, and the last one that is done with.
    flush_wanted: AtomicU64,
    flush_done: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Pages that wait for their grace periods here.
    pending: PendingPages,
    /// An empty page for taking over an open one when there is no memory; it comes back when that one has been freed.
    reserve: Option<Reserve>,
    next_tick: Nanos,
    flush: Option<Flush>,
}

/// An empty page that the drain owns.
#[derive(Debug)]
struct Reserve(NonNull<Page>);

// SAFETY: an empty page that nobody else knows.
unsafe impl Send for Reserve {}

/// A flush under way: number `ticket` is done with once no page is pending whose cookie is `youngest` or older. That is all that was
/// pending when it began; what came later and is no younger is due at the same time at the latest.
#[derive(Debug, Clone, Copy)]
struct Flush {
    ticket: u64,
    youngest: Option<Cookie>,
}

impl Drain {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new()), flush_wanted: AtomicU64::new(0), flush_done: AtomicU64::new(0) }
    }

    /// In the child of a fork: nothing waits, and every flush is done with.
    ///
    /// # Safety
    ///
    /// As for [`fork::ForkReset::reset_in_child`].
    #[cfg(not(stillpoint_loom))]
    pub(super) unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; user code does not run under this lock.
        unsafe { self.state.reinit(State::new()) };
        self.flush_done.store(self.flush_wanted.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl State {
    fn new() -> Self {
        Self { pending: PendingPages::new(), reserve: None, next_tick: 0, flush: None }
    }

    /// An empty page for taking over an open one.
    fn empty_page(&mut self) -> Option<NonNull<Page>> {
        Page::try_new().or_else(|| self.reserve.take().map(|reserve| reserve.0))
    }

    fn recycle(&mut self, page: NonNull<Page>) {
        if self.reserve.is_none() {
            self.reserve = Some(Reserve(page));
        } else {
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(page) };
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(reserve) = self.reserve.take() {
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(reserve.0) };
        }
    }
}

impl Heap {
    /// Sees to it that open pages can be taken over also when there is no memory: called before a thread has its first.
    pub(super) fn ensure_reserve(&self) {
        let mut state = lock(&self.drain.state);
        if state.reserve.is_none() {
            state.reserve = Page::try_new().map(Reserve);
        }
    }

    /// The pass's part: takes over what nobody else will free, and frees what is due.
    pub(crate) fn drain<P: Policy>(&self, engine: &Engine<P>) -> Outlook {
        let mut state = lock(&self.drain.state);
        let now = clock::now();
        // Acquire, pairs with `flush`: the pass sees all that was retired before the tickets that it serves.
        let wanted = self.drain.flush_wanted.load(Ordering::Acquire);
        let flushing = wanted != self.drain.flush_done.load(Ordering::Relaxed) && state.flush.is_none();
        let mut ticking = true;
        let mut complete = false;
        if flushing || now >= state.next_tick {
            complete = self.scan_threads(engine, &mut state, flushing, &mut ticking);
            state.next_tick = now + TICK;
        }
        if flushing {
            drop(state);
            self.wait_for_frees();
            state = lock(&self.drain.state);
        }
        // After the threads: one that was ending when they were looked at has put its pages here since.
        self.take_service_queue(engine, &mut state, flushing);
        if flushing && complete {
            state.flush = Some(Flush { ticket: wanted, youngest: state.pending.youngest() });
        }
        let mut state = self.free_due(engine, state);
        let oldest = state.pending.oldest();
        let has_older = |youngest: Cookie| oldest.is_some_and(|oldest| youngest.at_least(oldest));
        if let Some(flush) = state.flush
            && !flush.youngest.is_some_and(has_older)
        {
            state.flush = None;
            // Release, pairs with `flush`: what the destructors did is seen by who sees the ticket done.
            self.drain.flush_done.store(flush.ticket, Ordering::Release);
            engine.signal_waiters();
        }
        // The batch is through, and the next one is waiting for its turn.
        let next_batch = state.pending.is_empty() && !lock(&self.service_queue).is_empty();
        Outlook { cookie: oldest, at: if next_batch { Some(now) } else { ticking.then_some(state.next_tick) } }
    }

    fn take_service_queue<P: Policy>(&self, engine: &Engine<P>, state: &mut State, flushing: bool) {
        match self.policy() {
            DrainPolicy::PerPage => {}
            DrainPolicy::WholeBatch if state.pending.is_empty() || flushing => {
                // One more grace period for all of them together, whatever their own cookies say.
                let mut service_queue = lock(&self.service_queue);
                let cookie = start_for_page(engine);
                service_queue.iter().for_each(|page| page.seal(cookie));
                state.pending.add(service_queue.take());
                return;
            }
            DrainPolicy::WholeBatch => return,
        }
        state.pending.add(lock(&self.service_queue).take());
    }

    /// Takes over what idle threads (at a flush: all threads) have left, and parks those that have nothing. Whether everything
    /// could be taken over; `ticking` becomes whether any thread has to be looked at again.
    fn scan_threads<P: Policy>(&self, engine: &Engine<P>, state: &mut State, flushing: bool, ticking: &mut bool) -> bool {
        let locals = lock(&self.locals);
        let mut complete = true;
        let (mut taken, mut parking) = (PageList::new(), Vec::new());
        for local in locals.iter().filter(|local| flushing || !local.is_parked()) {
            let mut queue = lock(&local.queue);
            let (idle_ticks, slow_looks) = local.looks(&queue);
            if slow_looks >= SLOW_LOOKS {
                taken.append(queue.sealed.take());
            }
            drop(queue);
            if idle_ticks >= IDLE_TICKS || flushing {
                complete &= self.adopt(engine, state, local, &mut taken);
            }
            if idle_ticks >= PARKING_TICKS && local.is_empty(&lock(&local.queue)) {
                // Who cannot be remembered is parked by a later look.
                if memory::refusable(|| parking.try_reserve(1)).is_ok() {
                    parking.push(local);
                }
            }
        }
        state.pending.add(taken);
        self.park(engine, &parking);
        *ticking = locals.iter().any(|local| !local.is_parked());
        complete
    }

    /// Waits until every thread has freed what it had taken off its queue, or has handed over what it leaves. With nothing else
    /// held: a plain destructor may do what it likes meanwhile.
    fn wait_for_frees(&self) {
        // One by one, without a copy of the list, for which there may be no memory; not those that have come since.
        let last = lock(&self.locals).last().map_or(0, |local| local.number());
        let mut done = 0;
        while done < last {
            let next = {
                let locals = lock(&self.locals);
                let next = locals.partition_point(|local| local.number() <= done);
                locals.get(next).map(|local| (local.number(), Arc::clone(local)))
            };
            let Some((number, local)) = next else { break };
            drop(local.freeing.lock());
            done = number;
        }
    }

    /// Moves what waits in a thread's share to `taken`. Whether there was memory for all of it.
    fn adopt<P: Policy>(&self, engine: &Engine<P>, state: &mut State, local: &ThreadBuffer, taken: &mut PageList) -> bool {
        let mut queue = lock(&local.queue);
        taken.append(queue.sealed.take());
        for channel in CHANNELS {
            let Some(page) = local.open_page(channel).filter(|page| page.objects() > 0) else {
                continue;
            };
            let Some(copy) = state.empty_page() else {
                return false;
            };
            // SAFETY: an empty page of our own.
            let at = unsafe { copy.as_ref() };
            page.move_to(at);
            // The objects were unlinked before they were appended, and [D3] has seen the appends: a cookie of now covers them.
            at.seal(start_for_page(engine));
            self.note_sealed(at);
            taken.push_back(copy);
        }
        true
    }

    /// Parks threads that had nothing left at the last look, unless they turn out to have retired since.
    pub(super) fn park<P: Policy>(&self, engine: &Engine<P>, candidates: &[&Arc<ThreadBuffer>]) {
        for local in candidates {
            self.note_parked(local.park()); // [D1]
            lock(&local.queue).release_spares();
        }
        if !candidates.is_empty() {
            engine.process_barrier(P::PARK_BARRIER); // [D2]
        }
        for local in candidates {
            // [D3]
            if !local.is_empty(&lock(&local.queue)) {
                self.note_unparked(local.unpark());
            }
        }
    }

    /// Frees all pending pages that are due, with nothing held.
    fn free_due<'a, P: Policy>(&'a self, engine: &Engine<P>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // In the child of a fork by a destructor nothing is pending any more.
        while let Some(page) = state.pending.pop_due(|cookie| engine.has_ended(cookie)) {
            drop(state);
            // SAFETY: the page was ours alone in `pending`, its grace period has ended, and destructors run here.
            unsafe { self.free(engine, page) };
            state = lock(&self.drain.state);
            state.recycle(page);
        }
        state
    }

    /// Waits until everything that was retired before this call has been freed. Refused inside a pass, and inside a section
    /// while anything waits.
    pub(crate) fn flush<P: Policy>(&self, engine: &Engine<P>, work: &impl Work, in_section: bool) -> Result<(), WouldDeadlock> {
        if in_section {
            return if self.waiting().objects == 0 { Ok(()) } else { Err(WouldDeadlock) };
        }
        // Release, pairs with `drain`: what was retired before this is seen by the pass that serves the ticket.
        let ticket = self.drain.flush_wanted.fetch_add(1, Ordering::AcqRel) + 1;
        // Acquire, pairs with `free_due` and the rest of `drain`: the destructors happen before our return.
        engine.wait_for_passes(work, || self.drain.flush_done.load(Ordering::Acquire) >= ticket)
    }

    /// A pass that takes over everything, without anybody waiting for it.
    #[cfg(all(test, stillpoint_loom))]
    pub(super) fn drain_as_flush<P: Policy>(&self, engine: &Engine<P>) {
        self.drain.flush_wanted.fetch_add(1, Ordering::AcqRel);
        self.drain(engine);
    }

    /// For the end of a domain: nobody reads any more, so everything is due. Whether there was anything.
    pub(crate) fn free_all<P: Policy>(&self, engine: &Engine<P>) -> bool {
        let mut all = PageList::new();
        for local in lock(&self.locals).iter() {
            // A thread that is ending puts its pages into the service queue before it lets go of this.
            let _freeing = local.freeing.lock();
            let (sealed, opened) = local.take_all(|| engine.get_state(), |page| self.note_sealed(page));
            all.append(sealed);
            all.append(opened);
        }
        all.append(lock(&self.service_queue).take());
        all.append(lock(&self.drain.state).pending.take());
        let any = !all.is_empty();
        let process = fork::process();
        while let Some(page) = all.pop_front() {
            // SAFETY: the page was taken out of the heap; the domain has no handle, hence no guard and no reader, left.
            unsafe {
                self.free(engine, page);
                Page::release(page);
            }
            if fork::process() != process {
                all.take().forget();
            }
        }
        any
    }
}
