//! What the service thread does about deferred frees.
//!
//! It frees what no retiring thread will come back for: pages with destructors, large pages, pages
//! of threads that have exited or fallen idle, everything at a flush. Every [`TICK`] it looks at
//! the threads that are not parked. It adopts what an idle one has left (sealed pages as they are,
//! an open page's objects by copying them), and the sealed pages of a slow one. It parks a thread
//! that has nothing left (`buffer.rs`). When all are parked and nothing waits, it asks for no
//! further tick.

use super::{
    buffer::{Queue, ThreadBuffer},
    heap::Heap,
    page::{Page, PageList},
    pending::{Flush, Pending},
    policy::{Policy, start_for_page},
    request::CHANNELS,
};
use crate::{
    gp::{Cookie, Engine, Outlook, Work, WouldDeadlock},
    platform::{
        clock::{self, Nanos},
        fork,
        sync::{Arc, lock},
        user_code,
    },
};
use std::ptr::NonNull;

/// The time between two looks at the threads that retire, in nanoseconds.
const TICK: Nanos = 10_000_000;

/// A thread's pages are adopted after it has been idle for this many ticks in a row: 20 to 30 ms.
/// So a thread that only waits for a processor on an oversubscribed machine keeps its pages, whose
/// memory is warm in its own allocator's cache.
const IDLE_TICKS: u32 = 2;

/// A thread's sealed pages are adopted after it has sealed no page, and so has freed none, for this
/// many ticks in a row, though it retires now and then: at its pace, pages that are due would wait
/// for minutes.
const SLOW_TICKS: u32 = 8;

/// Where objects are freed on demand, a thread's sealed pages are adopted, too, once they weigh
/// this many shares: the thread does not ask for frees.
const NEGLECTED_SHARES: usize = 2;

/// A thread is parked after it has been idle for this many ticks in a row; from then on it has no
/// share of the budget.
const PARKING_TICKS: u32 = 8;

/// The result of a look at the threads.
struct Scan {
    /// There was memory for adopting all that had to be.
    complete: bool,
    /// Some thread has to be looked at again.
    ticking: bool,
}

impl Heap {
    /// Makes a pass: adopts what no other thread will free, and frees what is due. For one thread
    /// at a time. `retired` is as for [`Heap::note_nested`].
    pub(crate) fn drain<P: Policy>(
        &self,
        engine: &Engine<P>,
        retired: &dyn Fn() -> Option<u64>,
    ) -> Outlook {
        let now = clock::now();
        // Flushes are served one after the other.
        let flush = self
            .flushes
            .wanted()
            .filter(|_| lock(&self.line.pending).flush.is_none());
        let mut scan = Scan {
            complete: false,
            ticking: true,
        };
        // Flushes may come between ticks, and do not count as ticks.
        let is_tick = now >= lock(&self.line.pending).next_tick;
        if flush.is_some() || is_tick {
            scan = self.scan_threads(engine, flush.is_some(), is_tick);
        }
        if is_tick {
            lock(&self.line.pending).next_tick = now + TICK;
        }
        if flush.is_some() {
            self.wait_for_frees();
        }
        self.sort_pending(flush.filter(|_| scan.complete));
        if self.free_due(engine, retired) {
            let took = clock::now().saturating_sub(now);
            self.reclaim_times.record(took, 1);
        }
        let mut pending = lock(&self.line.pending);
        if let Some(ticket) = pending.end_flush() {
            self.flushes.finish(ticket);
            engine.signal_waiters();
        }
        Outlook {
            cookie: self.awaited(engine, &mut pending),
            at: scan.ticking.then_some(pending.next_tick),
        }
    }

    /// Puts the pages that have arrived in order, and begins the flush with that `ticket`. Called
    /// after the look at the threads: one that was exiting then has handed its pages over by now.
    fn sort_pending(&self, ticket: Option<u64>) {
        let mut pending = lock(&self.line.pending);
        pending.sort();
        if let Some(ticket) = ticket {
            pending.flush = Some(Flush {
                ticket,
                youngest: pending.pages.youngest(),
            });
        }
    }

    /// Adopts what idle threads (at a flush: all threads) have left, and, at a tick, parks those that
    /// have nothing.
    fn scan_threads<P: Policy>(&self, engine: &Engine<P>, flushing: bool, is_tick: bool) -> Scan {
        let buffers = lock(&self.buffers);
        let mut complete = true;
        let (mut adopted, mut parking) = (PageList::new(), Vec::new());
        for buffer in buffers
            .iter()
            .filter(|buffer| flushing || !buffer.is_parked())
        {
            let mut queue = lock(&buffer.queue);
            let (idle, slow) = if is_tick {
                buffer.note_tick(&queue)
            } else {
                (0, 0)
            };
            // Where objects are freed on demand: the thread retires, and does not ask for frees.
            let asks_not = self.frees_on_demand()
                && queue.sealed.footprint() >= NEGLECTED_SHARES * self.thread_share();
            if slow >= SLOW_TICKS || asks_not {
                adopted.append(self.take_sealed(engine, buffer, &mut queue));
            }
            drop(queue);
            let is_slow = slow >= SLOW_TICKS && slow % SLOW_TICKS == 0;
            if idle >= IDLE_TICKS || flushing || (is_slow && self.frees_on_demand()) {
                complete &= self.adopt(engine, buffer, &mut adopted);
            }
            // If there is no memory for the list, the thread is parked at a later tick.
            if idle >= PARKING_TICKS
                && buffer.is_empty(&lock(&buffer.queue))
                && parking.try_reserve(1).is_ok()
            {
                parking.push(buffer);
            }
        }
        lock(&self.line.pending).arrived.append(adopted);
        self.park(engine, &parking);
        Scan {
            complete,
            ticking: buffers.iter().any(|buffer| !buffer.is_parked()),
        }
    }

    /// Takes over a thread's sealed pages, and starts their grace periods if they have not started.
    /// Publishes its account, because the thread may not do so for long.
    fn take_sealed<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        queue: &mut Queue,
    ) -> PageList {
        if let Some(youngest) = queue.sealed.back() {
            engine.begin(youngest.cookie());
        }
        if self.publish_rest(&buffer.account) {
            engine.signal_waiters();
        }
        queue.sealed.take()
    }

    /// Moves a thread's buffered pages to `adopted`. Returns whether there was memory for all of
    /// them.
    fn adopt<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        adopted: &mut PageList,
    ) -> bool {
        let mut queue = lock(&buffer.queue);
        adopted.append(self.take_sealed(engine, buffer, &mut queue));
        for page in CHANNELS
            .into_iter()
            .filter_map(|channel| buffer.open_page(channel))
            .filter(|page| page.objects() > 0)
        {
            let Some(copy) = Page::try_new().or_else(|| self.line.reserve.take()) else {
                return false;
            };
            // SAFETY: an empty page that is ours.
            let at = unsafe { copy.as_ref() };
            page.move_to(at);
            // The objects were unlinked before they were appended, and [D3] has seen the appends: a
            // cookie of now covers them.
            at.seal(start_for_page(engine));
            self.note_sealed(at);
            adopted.push_back(copy);
        }
        true
    }

    /// Parks threads that had nothing left a moment ago, unless they turn out to have retired
    /// since.
    pub(super) fn park<P: Policy>(&self, engine: &Engine<P>, candidates: &[&Arc<ThreadBuffer>]) {
        for buffer in candidates {
            self.note_parked(buffer.park());
            lock(&buffer.queue).spares.release();
        }
        if !candidates.is_empty() {
            // Heavy barrier [D2], for all of them: each owner's next append sees that it is parked,
            // or we see the length of the last one.
            engine.process_barrier(P::PARK_BARRIER);
        }
        for buffer in candidates {
            let queue = lock(&buffer.queue);
            if !buffer.is_empty(&queue) {
                self.note_unparked(buffer.unpark());
            } else if self.publish_rest(&buffer.account) {
                // Counted since the last look. From now on the owner publishes at once.
                engine.signal_waiters();
            }
        }
    }

    /// Waits until every thread has freed what it had taken off its queue, or has handed over what
    /// it leaves. With nothing else held: user code may do what it likes meanwhile.
    fn wait_for_frees(&self) {
        // One by one, without a copy of the list, for which there may be no memory; not those that
        // have come since.
        let last = lock(&self.buffers)
            .last()
            .map_or(0, |buffer| buffer.number());
        let mut done = 0;
        while done < last {
            let next = {
                let buffers = lock(&self.buffers);
                let next = buffers.partition_point(|buffer| buffer.number() <= done);
                buffers
                    .get(next)
                    .map(|buffer| (buffer.number(), Arc::clone(buffer)))
            };
            let Some((number, buffer)) = next else { break };
            drop(buffer.freeing.lock());
            done = number;
        }
    }

    /// Frees all pending pages that are due, with nothing held. Stops after the first large one,
    /// because the system may take a tenth of a second to take 256 MiB back. Callbacks and pages
    /// that have become due meanwhile are for the next pass, which begins at once. In the child of
    /// a fork by a destructor nothing is pending any more. Returns whether there was anything to
    /// free.
    fn free_due<P: Policy>(&self, engine: &Engine<P>, retired: &dyn Fn() -> Option<u64>) -> bool {
        let mut has_freed = false;
        while let Some(page) = self.take_oldest_due(engine) {
            // SAFETY: the page was ours alone in `pending`.
            let is_large = self.is_large(unsafe { page.as_ref() }.bytes());
            // SAFETY: the page was ours alone in `pending`, its grace period has ended, and
            // destructors run here.
            self.note_nested(retired, || unsafe { self.free_unasked(engine, page) });
            self.reserve_page(page);
            engine.service_advanced();
            has_freed = true;
            if is_large {
                break;
            }
        }
        has_freed
    }

    fn take_oldest_due<P: Policy>(&self, engine: &Engine<P>) -> Option<NonNull<Page>> {
        let mut pending = lock(&self.line.pending);
        let awaited = self.awaited(engine, &mut pending)?;
        pending.pages.pop_due(|_| engine.has_ended(awaited))
    }

    /// Returns the grace period after which the oldest pending page may be freed.
    fn awaited<P: Policy>(&self, engine: &Engine<P>, pending: &mut Pending) -> Option<Cookie> {
        if self.frees_whole_batches() {
            pending.batch(|| start_for_page(engine))
        } else {
            pending.pages.oldest()
        }
    }

    /// Waits until everything that was retired before this call has been freed. Fails in user code
    /// of this domain, and inside a section while anything waits.
    pub(crate) fn flush<P: Policy>(
        &self,
        engine: &Engine<P>,
        work: &impl Work,
        in_section: bool,
    ) -> Result<(), WouldDeadlock> {
        if in_section {
            return if self.waiting().objects == 0 {
                Ok(())
            } else {
                Err(WouldDeadlock)
            };
        }
        let refused = user_code::runs_for(self.domain);
        if !refused && !engine.service_runs() && self.waiting().objects == 0 {
            // Nothing to wait for, so no service thread is started.
            return Ok(());
        }
        let ticket = self.flushes.ask();
        engine.wait_for_passes(work, || self.flushes.is_done(ticket))
    }

    /// Frees everything at the end of a domain: there are no readers any more, so everything is
    /// due. Returns whether there was anything.
    pub(crate) fn free_all<P: Policy>(&self, engine: &Engine<P>) -> bool {
        let mut all = PageList::new();
        for buffer in lock(&self.buffers).iter() {
            // A thread that is ending hands its pages over before it lets go of this.
            let _freeing = buffer.freeing.lock();
            all.append(buffer.take_all(|| engine.get_state(), |page| self.note_sealed(page)));
        }
        all.append(lock(&self.line.pending).take());
        let any = !all.is_empty();
        let process = fork::process();
        while let Some(page) = all.pop_front() {
            // SAFETY: the page was taken out of the heap; the domain has no handle, hence no guard
            // and no reader, left.
            unsafe {
                self.free_unasked(engine, page);
                Page::release(page);
            }
            if fork::process() != process {
                all.take().forget();
            }
        }
        any
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        gp::{BarrierMode, Flavour, Seq, Sequence, policy::Sound},
        kvfree::{
            buffer::Pushed,
            request::{Channel, RetireRequest},
            retire::Reclaimer,
        },
        platform::{sync::Ordering, thread},
    };

    /// Returns a heap to which one thread retires, beside fifteen others, and no service thread.
    fn heap() -> (Engine<Sound>, Heap, Arc<ThreadBuffer>) {
        let engine = Engine::new(1, BarrierMode::Fence, Sequence::new(Seq::from_bits(0)));
        let heap = Heap::new(1);
        let buffer = heap.join().expect("memory");
        heap.note_unparked(buffer.unpark());
        heap.active.store(16, Ordering::Relaxed);
        (engine, heap, buffer)
    }

    /// A page that the service thread has freed is the next that a retiring thread fills. The last
    /// one stays for when there is no memory, and no more than eight are kept.
    #[test]
    fn a_page_that_the_service_thread_has_freed_is_used_again() {
        let (_engine, heap, buffer) = heap();
        let reserve = &heap.line.reserve;
        let freed = [(); 9].map(|()| Page::try_new().expect("memory"));
        for page in freed {
            heap.reserve_page(page);
        }
        assert_eq!(lock(&reserve.0).pages(), 8);
        let used = [(); 8].map(|()| heap.new_page(&buffer, Channel::Drop).expect("a page"));
        assert_eq!(used[..7], freed[..7]);
        assert_ne!(used[7], freed[7], "the last one");
        for page in used {
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(page) };
        }
        assert_eq!(reserve.take(), Some(freed[7]));
        // SAFETY: as above.
        unsafe { Page::release(freed[7]) };
    }

    /// Otherwise thousands of domains that were busy once keep eight pages each.
    #[test]
    fn a_domain_whose_threads_are_all_parked_keeps_one_page() {
        let (engine, heap, buffer) = heap();
        heap.active.store(1, Ordering::Relaxed);
        let free = || heap.reserve_page(Page::try_new().expect("memory"));
        (0..8).for_each(|_| free());
        heap.park(&engine, &[&buffer]);
        assert_eq!(heap.active.load(Ordering::Relaxed), 0);
        free();
        assert_eq!(lock(&heap.line.reserve.0).pages(), 1);
    }

    fn tick(engine: &Engine<Sound>, heap: &Heap, times: u32) {
        for _ in 0..times {
            let _ = heap.scan_threads(engine, false, true);
        }
    }

    /// What the service thread takes over does not wait for sections that begin later, though its
    /// owner has only named the page's grace period.
    fn no_later_section_holds_up(
        hand_over: impl FnOnce(&Engine<Sound>, &Heap, &Arc<ThreadBuffer>),
    ) {
        let (engine, heap, buffer) = heap();
        buffer.replace(&mut lock(&buffer.queue), Channel::Plain, Page::try_new());
        let object = RetireRequest::boxed(NonNull::from(Box::leak(Box::new(1_u64))));
        assert_eq!(buffer.append(object), Pushed::Ok);
        heap.seal(&engine, &buffer, Channel::Plain, Reclaimer::Owner);
        hand_over(&engine, &heap, &buffer);
        let later = engine.register(thread::token(), Flavour::Thread);
        later.lock();
        lock(&heap.line.pending).sort();
        let cookie = lock(&heap.line.pending).pages.oldest().expect("the page");
        let _ = engine.recheck(cookie, thread::token());
        let has_ended = engine.has_ended(cookie);
        later.unlock();
        later.depart();
        assert!(heap.free_all(&engine));
        assert!(has_ended);
    }

    #[test]
    fn an_idle_threads_page_waits_for_no_section_that_begins_after_its_adoption() {
        no_later_section_holds_up(|engine, heap, _| {
            tick(engine, heap, IDLE_TICKS + 1);
        });
    }

    #[test]
    fn an_exited_threads_page_waits_for_no_section_that_begins_after_its_exit() {
        no_later_section_holds_up(|engine, heap, buffer| heap.leave(engine, buffer));
    }

    /// Otherwise a thread that flushes all the time would park threads that retire all the time, but less
    /// often.
    #[test]
    fn a_flush_is_no_tick() {
        let (engine, heap, buffer) = heap();
        let passes = 2 * PARKING_TICKS;
        for _ in 0..passes {
            let _ = heap.scan_threads(&engine, true, false);
        }
        assert!(!buffer.is_parked());
        tick(&engine, &heap, passes);
        assert!(buffer.is_parked());
    }

    /// A thread that flushes all the time does not put ticks off.
    #[test]
    fn a_flush_puts_no_tick_off() {
        let (engine, heap, _buffer) = heap();
        lock(&heap.line.pending).next_tick = Nanos::MAX;
        heap.flushes.ask();
        heap.drain(&engine, &|| None);
        assert_eq!(lock(&heap.line.pending).next_tick, Nanos::MAX);
    }
}
