//! Domains whose retirers say when objects are freed: for the interface of another library, whose
//! users rely on where destructors run.
//!
//! A retire never frees, waits or ends a grace period, and neither does the end of a section. Full
//! pages queue up with their thread, plain or not, and the thread frees them when it asks for that
//! ([`Heap::free_some`], [`Heap::flush_own`]). The service thread adopts what a thread does not
//! come back for, as everywhere (`drain.rs`); it also adopts the open pages of a slow thread, which
//! may not ask for minutes.
//!
//! Nothing throttles a thread here. Past its share, or past the budget, a thread that asks frees
//! more. If a reader holds its pages up, it is told so ([`Left`]) and may wait a little. Once a
//! reader has held them up for [`LONG`](super::held_up::LONG), threads are told not to wait, and
//! memory grows. So the budget is a target, not a bound.

use super::{
    around::{Around, call_around},
    buffer::{PAGES_PER_SLICE, ThreadBuffer},
    heap::Heap,
    page::{Page, SLOTS, Tally},
    policy::{Policy, name_for_page},
    request::Channel,
    retire::Reclaimer,
};
use crate::{
    gp::{Cookie, Engine, Progress},
    platform::{
        clock, fork,
        sync::{Ordering, lock},
        thread,
    },
};
use std::ptr::NonNull;

/// How many pages' worth of objects a thread frees for each page that it fills, once it is past its share,
/// or the domain past its budget.
const PAGES_PAST_SHARE: usize = 8;

/// What a call of `free_some` leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing that is due.
    Nothing,
    /// Pages that are due.
    Due,
    /// More than the thread's share, which a reader holds up.
    HeldUp,
    /// Pages that a reader holds up, while the domain is past its budget.
    HeldUpPastBudget,
    /// One of these two, and the reader has been seen to hold it up for `LONG`.
    HeldUpForLong,
}

impl Heap {
    /// Makes this a domain whose objects are freed on demand only. Called before the domain is
    /// used.
    pub(crate) fn set_on_demand(&self, around: Around) {
        let set = self.on_demand.set(around);
        debug_assert!(set.is_ok(), "a domain is made once");
    }

    pub(super) fn frees_on_demand(&self) -> bool {
        self.on_demand.get().is_some()
    }

    /// Frees a few pages of the calling thread that are due; past its share or the budget, more of
    /// them and one page that waits for the service thread. Tries to end the grace period of its oldest
    /// page, once. A call from within a destructor does nothing.
    pub(crate) fn free_some<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) -> Left {
        let Some(_reclaiming) = buffer.begin_reclaiming() else {
            return Left::Nothing;
        };
        let _ = engine.note_service(clock::now());
        let (sealed, queued) = buffer.queued();
        let past_budget = self.is_over_budget(buffer, 0);
        let over = past_budget || queued >= self.thread_share();
        if let Some((oldest, youngest)) = sealed
            && !engine.has_ended(oldest)
            && engine.assist(oldest, youngest, thread::token(), true) != Progress::Ended
        {
            return match (past_budget, over) {
                (false, false) => Left::Nothing,
                _ if self.held_up.note(engine.grace_periods(), clock::now()) => Left::HeldUpForLong,
                (true, _) => Left::HeldUpPastBudget,
                (false, true) => Left::HeldUp,
            };
        }
        let pages = if over {
            PAGES_PAST_SHARE
        } else {
            PAGES_PER_SLICE
        };
        let more = (0..pages).all(|_| self.free_own(engine, buffer, SLOTS));
        if over {
            // Among them may be the thread's own, which the service thread has adopted.
            self.free_pending(engine, buffer, 1, |cookie| engine.has_ended(cookie));
        }
        if more { Left::Due } else { Left::Nothing }
    }

    /// Tries to end the grace period of all that the calling thread has retired, and frees what is
    /// due. If objects are freed on demand and the thread has none, frees what others have left.
    /// Hands objects with destructors to the service thread, unless the budget is used up. A call from
    /// within a destructor frees nothing.
    pub(crate) fn flush_own<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) {
        let has = |channel| {
            let open = buffer.open_page(channel);
            open.is_some_and(|page| page.objects() > 0)
        };
        let seal = |channel| self.seal(engine, buffer, channel, Reclaimer::Owner);
        // Past the budget the page is to fill up, so that the thread is held back.
        let hand_over = || {
            if has(Channel::Drop) && !self.is_over_budget(buffer, 0) {
                seal(Channel::Drop);
            }
        };
        hand_over();
        let Some(_reclaiming) = buffer.begin_reclaiming() else {
            return;
        };
        if has(Channel::Plain) && !self.waits_for_a_reader(engine, buffer) {
            seal(Channel::Plain);
        }
        let (youngest, pages) = {
            let queue = lock(&buffer.queue);
            (queue.sealed.back().map(Page::cookie), queue.sealed.pages())
        };
        if let Some(cookie) = youngest {
            // The result does not matter: the cookies of the pages say which are due.
            let _ = engine.recheck(cookie, thread::token());
            // A few at a time, because a flush of the domain waits for those that are being freed; in no
            // more calls than there were pages, because destructors may retire again.
            let _ = (0..pages).all(|_| self.free_own(engine, buffer, SLOTS));
            // Its own pages may have been what filled the budget.
            hand_over();
        } else if self.frees_on_demand() {
            let cookie = {
                let mut pending = lock(&self.line.pending);
                pending.sort();
                pending.pages.youngest()
            };
            if let Some(youngest) = cookie {
                let _ = engine.recheck(youngest, thread::token()); // As above.
                self.free_pending(engine, buffer, usize::MAX, |cookie| {
                    youngest.at_least(cookie) && engine.has_ended(cookie)
                });
            }
        }
    }

    /// Tries to end the grace period of the calling thread's youngest sealed page, and returns whether a
    /// reader holds it up. Then a flush leaves the open page to fill up, as the thread is held back only
    /// when it fills one. A full page does not count before the budget is used up or the thread is
    /// throttled; so at least every other page in its queue is full, however often it flushes.
    fn waits_for_a_reader<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) -> bool {
        // A thread that frees on demand is never held back.
        let is_past = !self.frees_on_demand() && self.is_under_pressure(buffer);
        let queue = lock(&buffer.queue);
        let youngest = queue.sealed.back();
        let cookie = match youngest {
            Some(page) => (is_past || !page.is_full()).then(|| page.cookie()),
            // The service thread has all that the thread has sealed.
            None => is_past.then(|| name_for_page(engine)),
        };
        drop(queue);
        cookie.is_some_and(|cookie| engine.recheck(cookie, thread::token()) != Progress::Ended)
    }

    /// Frees up to `pages` pages that wait for the service thread, and whose cookie `is_due`.
    fn free_pending<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        pages: usize,
        is_due: impl Fn(Cookie) -> bool,
    ) {
        let process = fork::process();
        for _ in 0..pages {
            let taken = lock(&self.line.pending).take_due(&is_due);
            let Some(page) = taken else { return };
            // SAFETY: the page was ours alone in `pending`, its grace period has ended, and
            // objects that are retired here may be freed on any thread.
            let free = || unsafe { self.free_counted(engine, page) };
            self.note_nested(|| buffer.progress(), free);
            self.reserve_page(page);
            // In the child of a fork nothing is pending, nor counted, any more.
            if fork::process() != process {
                return;
            }
            if lock(&self.line.pending).note_freed() {
                engine.kick();
            }
        }
    }

    /// Frees a page on a thread that has not asked for it. Where objects are freed on demand, it
    /// is freed inside a section, as all are there, and only if the domain's [`Around`] lets it.
    ///
    /// # Safety
    ///
    /// As for [`Heap::free_counted`].
    pub(super) unsafe fn free_unasked<P: Policy>(&self, engine: &Engine<P>, page: NonNull<Page>) {
        let Some(around) = self.on_demand.get() else {
            // SAFETY: the caller's promise.
            return unsafe { self.free_counted(engine, page) };
        };
        let mut left = Some(page);
        call_around(engine, *around, &mut || {
            if let Some(page) = left.take() {
                // SAFETY: the caller's promise; `left` gives the page once.
                unsafe { self.free_counted(engine, page) };
            }
        });
        if let Some(page) = left {
            // SAFETY: the caller's promise.
            self.leak(engine, unsafe { page.as_ref() });
        }
    }

    /// Leaves a page's objects where they are for ever, and counts them as leaked.
    fn leak<P: Policy>(&self, engine: &Engine<P>, page: &Page) {
        let leaked = Tally::of(page);
        page.forget_objects();
        self.leaked
            .fetch_add(leaked.objects as u64, Ordering::Relaxed);
        if self.note_gone(leaked, 0) {
            engine.signal_waiters();
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        gp::{BarrierMode, Flavour, Record, Seq, Sequence, policy::Sound},
        kvfree::{
            Destructor, OnNoPage, RetireRequest, Retirer,
            buffer::Pushed,
            page::{OPEN_BYTES, PAGE_BYTES},
        },
        platform::sync::Arc,
    };
    use std::{
        ptr::NonNull,
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        thread as std_thread,
    };

    /// A domain without a service thread, whose passes a test runs.
    struct Passive {
        engine: Engine<Sound>,
        heap: Heap,
    }

    impl Passive {
        fn new() -> Self {
            let heap = Heap::new(1);
            heap.set_on_demand(|free| free());
            Self {
                engine: Engine::new(1, BarrierMode::Fence, Sequence::new(Seq::from_bits(0))),
                heap,
            }
        }

        fn reader(&self) -> &Record {
            self.engine.register(thread::token(), Flavour::Thread)
        }

        fn retire(&self, buffer: &Arc<ThreadBuffer>, object: RetireRequest) {
            let retirer = Retirer {
                record: self.reader(),
                buffer,
            };
            // SAFETY: no other thread has ever known what the tests retire.
            let retired = unsafe {
                self.heap
                    .retire_slow(&self.engine, retirer, object, None, OnNoPage::BlockOrCall)
            };
            assert!(retired.is_ok());
            retirer.record.depart();
        }

        /// Asks for a flush and begins it. Returns its ticket.
        fn begin_flush(&self) -> u64 {
            let ticket = self.heap.flushes.ask();
            self.heap.drain(&self.engine, &|| None);
            ticket
        }
    }

    /// A destructor that says that it runs, and then waits.
    struct Slow {
        runs: Barrier,
        may_end: Barrier,
    }

    unsafe fn free_slow(slow: *mut u8) {
        // SAFETY: the test's own, which outlives the flush.
        let slow = unsafe { &*slow.cast::<Slow>() };
        slow.runs.wait();
        slow.may_end.wait();
    }

    /// A thread has taken a page from under the flush, which the service thread does not find any
    /// more.
    #[test]
    fn a_flush_waits_for_what_another_thread_frees() {
        static SLOW: Destructor = Destructor::new(free_slow, 0);
        let domain = Passive::new();
        let (engine, heap) = (&domain.engine, &domain.heap);
        let slow = Slow {
            runs: Barrier::new(2),
            may_end: Barrier::new(2),
        };
        let reader = domain.reader();
        reader.lock();
        let leaver = heap.join().expect("memory");
        let object = (&raw const slow).cast_mut().cast();
        domain.retire(&leaver, RetireRequest::with(object, &SLOW).plain());
        heap.leave(engine, &leaver);
        let ticket = domain.begin_flush();
        assert!(!heap.flushes.is_done(ticket));
        reader.unlock();
        reader.depart();
        let is_done_meanwhile = std_thread::scope(|scope| {
            scope.spawn(|| heap.flush_own(engine, &ThreadBuffer::new()));
            slow.runs.wait();
            heap.drain(engine, &|| None);
            let is_done = heap.flushes.is_done(ticket);
            slow.may_end.wait();
            is_done
        });
        assert!(!is_done_meanwhile);
        heap.drain(engine, &|| None);
        assert!(heap.flushes.is_done(ticket));
    }

    unsafe fn count(freed: *mut u8) {
        // SAFETY: the test's own counter.
        unsafe { &*freed.cast::<AtomicUsize>() }.fetch_add(1, SeqCst);
    }

    /// A thread that comes back late: the service thread has adopted what it had.
    #[test]
    fn past_the_budget_a_thread_frees_what_waits_for_the_service_thread() {
        let domain = Passive::new();
        let (engine, heap) = (&domain.engine, &domain.heap);
        let leaver = heap.join().expect("memory");
        let object = RetireRequest::boxed(NonNull::from(Box::leak(Box::new(1_u64))));
        domain.retire(&leaver, object);
        heap.leave(engine, &leaver);
        lock(&heap.line.pending).sort();
        let _ = engine.recheck(engine.start(), thread::token());
        let nothing_of_its_own = ThreadBuffer::new();
        let left_within = |budget: usize| {
            heap.set_budget(budget);
            assert_eq!(heap.free_some(engine, &nothing_of_its_own), Left::Nothing);
            heap.waiting().objects
        };
        let left = [8 << 20, 0].map(left_within);
        let _ = heap.free_all(engine);
        assert_eq!(left, [1, 0]);
    }

    /// An object that its destructor retires again, by a page that is due at once.
    struct Again<'a> {
        domain: &'a Passive,
        /// Where it is retired; if there is none, the service thread adopts the page.
        buffer: Option<Arc<ThreadBuffer>>,
        runs: AtomicUsize,
    }

    /// Bound on the runs, without which a test that fails would not end.
    const MOST_RUNS: usize = 100;

    impl Again<'_> {
        fn retire(&self) {
            static AGAIN: Destructor = Destructor::new(retire_again, OPEN_BYTES);
            let Passive { engine, heap } = self.domain;
            let object = RetireRequest::with((&raw const *self).cast_mut().cast(), &AGAIN).plain();
            match &self.buffer {
                Some(buffer) => self.domain.retire(buffer, object),
                None => {
                    let leaver = heap.join().expect("memory");
                    self.domain.retire(&leaver, object);
                    heap.leave(engine, &leaver);
                    lock(&heap.line.pending).sort();
                }
            }
            let _ = engine.recheck(engine.start(), thread::token());
        }
    }

    unsafe fn retire_again(again: *mut u8) {
        // SAFETY: the test's own, which outlives the domain's pages.
        let again = unsafe { &*again.cast::<Again<'_>>() };
        if again.runs.fetch_add(1, SeqCst) < MOST_RUNS {
            again.retire();
        }
    }

    #[test]
    fn a_flush_frees_nothing_that_destructors_retire_meanwhile() {
        for is_adopted in [false, true] {
            let domain = Passive::new();
            let heap = &domain.heap;
            let buffer = heap.join().expect("memory");
            let again = Again {
                domain: &domain,
                buffer: (!is_adopted).then(|| Arc::clone(&buffer)),
                runs: AtomicUsize::new(0),
            };
            again.retire();
            heap.flush_own(&domain.engine, &buffer);
            let runs = again.runs.swap(MOST_RUNS, SeqCst);
            assert!(heap.free_all(&domain.engine), "the object is there again");
            assert_eq!(runs, 1);
        }
    }

    #[test]
    fn a_thread_past_its_bound_frees_little_that_destructors_retire_meanwhile() {
        let domain = Passive {
            heap: Heap::new(1),
            ..Passive::new()
        };
        let heap = &domain.heap;
        let buffer = heap.join().expect("memory");
        let again = Again {
            domain: &domain,
            buffer: Some(Arc::clone(&buffer)),
            runs: AtomicUsize::new(0),
        };
        (0..2 * PAGES_PER_SLICE).for_each(|_| again.retire());
        heap.set_budget(0);
        let before = again.runs.load(SeqCst);
        again.retire();
        let runs = again.runs.swap(MOST_RUNS, SeqCst) - before;
        assert!(heap.free_all(&domain.engine), "the object is there again");
        assert!((1..MOST_RUNS / 4).contains(&runs), "{runs} runs");
    }

    /// Each page has a few objects. A thread that may hand one over at each flush is never held back.
    #[test]
    fn past_the_budget_a_flush_leaves_the_page_for_the_service_thread_open() {
        static COUNT: Destructor = Destructor::new(count, 0);
        let domain = Passive::new();
        let heap = &domain.heap;
        heap.set_budget(8 << 10);
        let buffer = heap.join().expect("memory");
        let reader = domain.reader();
        reader.lock();
        let freed = AtomicUsize::new(0);
        let object = (&raw const freed).cast_mut().cast();
        for _ in 0..SLOTS {
            domain.retire(&buffer, RetireRequest::with(object, &COUNT));
            heap.flush_own(&domain.engine, &buffer);
        }
        let pages = heap.waiting().pages;
        reader.unlock();
        reader.depart();
        assert!(heap.free_all(&domain.engine), "some are in the open page");
        assert_eq!(freed.load(SeqCst), SLOTS);
        assert!(pages <= 8, "{pages} pages of {SLOTS} objects");
    }

    #[test]
    fn a_flush_hands_over_once_it_has_freed_what_filled_the_budget() {
        static COUNT: Destructor = Destructor::new(count, 0);
        let domain = Passive::new();
        let heap = &domain.heap;
        heap.set_budget(OPEN_BYTES);
        let buffer = heap.join().expect("memory");
        let freed = AtomicUsize::new(0);
        let object = (&raw const freed).cast_mut().cast();
        domain.retire(&buffer, RetireRequest::with(object, &COUNT));
        let large = NonNull::from(Box::leak(Box::new(1_u64)));
        domain.retire(&buffer, RetireRequest::weighed(large, OPEN_BYTES));
        assert!(heap.is_over_budget(&buffer, 0));
        heap.flush_own(&domain.engine, &buffer);
        let left = buffer.open_page(Channel::Drop).map(Page::objects);
        let _ = heap.free_all(&domain.engine);
        assert_eq!((left, freed.load(SeqCst)), (Some(0), 1));
    }

    /// A page that a flush has sealed is due once the sections that the flush found have ended,
    /// whichever thread frees it; objects retired later are not.
    #[test]
    fn what_a_flush_has_sealed_keeps_its_grace_period() {
        static COUNT: Destructor = Destructor::new(count, 0);
        let domain = Passive::new();
        let (engine, heap) = (&domain.engine, &domain.heap);
        let freed = AtomicUsize::new(0);
        let object = (&raw const freed).cast_mut().cast();
        let (older, younger) = (domain.reader(), domain.reader());
        let buffer = heap.join().expect("memory");
        older.lock();
        domain.retire(&buffer, RetireRequest::with(object, &COUNT).plain());
        heap.flush_own(engine, &buffer);
        domain.retire(&buffer, RetireRequest::with(object, &COUNT).plain());
        younger.lock();
        older.unlock();
        let ticket = domain.begin_flush();
        assert_eq!(
            (freed.load(SeqCst), heap.flushes.is_done(ticket)),
            (0, false)
        );
        let oldest = lock(&heap.line.pending).pages.oldest().expect("two pages");
        let _ = engine.recheck(oldest, thread::token());
        heap.drain(engine, &|| None);
        assert_eq!(
            (freed.load(SeqCst), heap.flushes.is_done(ticket)),
            (1, false)
        );
        younger.unlock();
        let _ = engine.start();
        let rest = lock(&heap.line.pending).pages.oldest().expect("a page");
        let _ = engine.recheck(rest, thread::token());
        heap.drain(engine, &|| None);
        assert_eq!(
            (freed.load(SeqCst), heap.flushes.is_done(ticket)),
            (2, true)
        );
        heap.leave(engine, &buffer);
    }

    /// Otherwise each object would take up a page.
    #[test]
    fn behind_a_reader_every_other_page_is_full_however_often_a_thread_flushes() {
        const FULL: usize = 4;
        let domain = Passive::new();
        let (engine, heap) = (&domain.engine, &domain.heap);
        let buffer = heap.join().expect("memory");
        let reader = domain.reader();
        reader.lock();
        for _ in 0..FULL * SLOTS {
            let object = RetireRequest::boxed(NonNull::from(Box::leak(Box::new(1_u64))));
            domain.retire(&buffer, object);
            heap.flush_own(engine, &buffer);
        }
        let waiting = heap.waiting();
        reader.unlock();
        reader.depart();
        heap.flush_own(engine, &buffer);
        assert_eq!(waiting.objects, (FULL * SLOTS) as u64);
        assert!(waiting.pages <= 2 * FULL as u64 + 1, "{waiting:?}");
        assert!(!heap.free_all(engine));
    }

    /// A thread asks for its pages from inside a section that began after they were sealed, and
    /// that must not hold them up, however many threads retire: elsewhere a page's grace period is
    /// only named at first.
    #[test]
    fn a_section_does_not_hold_up_what_its_thread_had_sealed_before() {
        let engine =
            Engine::<Sound>::new(1, BarrierMode::Membarrier, Sequence::new(Seq::from_bits(0)));
        let heap = Heap::new(1);
        heap.set_on_demand(|free| free());
        let buffer = heap.join().expect("memory");
        heap.note_unparked(buffer.unpark());
        heap.active.store(16, Ordering::Relaxed);
        assert!(heap.named_together() > 2 * PAGE_BYTES);

        buffer.replace(&mut lock(&buffer.queue), Channel::Plain, Page::try_new());
        let object = RetireRequest::boxed(NonNull::from(Box::leak(Box::new(1_u64))));
        assert_eq!(buffer.append(object), Pushed::Ok);
        heap.seal(&engine, &buffer, Channel::Plain, Reclaimer::Owner);
        assert_eq!(heap.waiting().objects, 1);

        let record = engine.register(thread::token(), Flavour::Thread);
        record.lock();
        assert_eq!(heap.free_some(&engine, &buffer), Left::Nothing);
        record.unlock();
        record.depart();
        assert_eq!(heap.waiting().objects, 0, "it is freed inside the section");
        assert!(!heap.free_all(&engine));
    }
}
