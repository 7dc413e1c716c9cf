//! Back-pressure: when a retiring thread ends a grace period itself, or waits for one.
//!
//! One rule, which `README.md` in this folder explains: a thread that fills a page, or past the
//! budget opens one, frees a slice of what is due, or as many bytes as it adds while its queue or the
//! domain is past the bound below. If nothing is due, and its queue has reached its *quota*, it drives
//! a grace period. If that does not help, and its queue has reached twice its *share* or the domain
//! is past its budget, it waits for the readers or the service thread that delay the free, at most
//! [`LONGEST_WAIT`] for each [`OPEN_BYTES`]. Inside a section it does not drive or wait before the
//! end.
//!
//! # Driving a grace period
//!
//! The thread leaves it to another thread whose barrier is under way, because that usually covers its
//! oldest page as well. Once its queue exceeds the quota by an eighth, it issues a barrier itself: the
//! other thread has lost its processor. So one barrier serves a quota's worth of objects of this thread,
//! and all that other threads had sealed by then.
//!
//! The grace period of a page that its owner keeps is only named when the page is sealed: a start
//! for each page would write the cache line that all readers load. The owner starts it, without a
//! barrier, once it has sealed enough for it ([`Heap::named_together`]). An attempt to end it with a
//! barrier starts it too, and so does the service thread, when it takes the page over from a thread that
//! is idle, slow or exits. Sections that begin before the start hold the page up. A page that the
//! service thread frees from the outset has its grace period started at once: that thread starts none
//! while an older one is held up.
//!
//! The quota follows the cost of grace periods ([`Quota`](super::quota::Quota)). The *share* bounds it:
//! a part of half the budget, the smaller the more threads retire.
//!
//! # Waiting
//!
//! The thread does not wait if it can end a grace period: then there is no reader to wait for. Past the
//! budget, a thread whose objects the service thread frees waits for that one instead, and first frees what
//! is due in its own queue: the time that this takes is subtracted from the wait. It waits for no service
//! thread that the system refuses or that has been reported as stuck: the thread may hold the lock that a
//! destructor waits for. What remains then is the bound on its own queue.
//!
//! The budget is compared without what the thread adds, before the wait and during it: a table of any
//! size waits only for what came before it. Threads signal when the budget is no longer used up. A thread
//! that leaves a table out of the comparison must look again by itself.
//!
//! A thread waits when it opens a page, too, because it may exit before it fills that; an exit waits
//! for nothing.
//!
//! A section's wait is proportional to what the section has retired. To know that, a section is charged
//! for each of its objects while the thread is *throttled*, that is, held back for longer than one wait.
//! Objects that the section retired before the page that triggered throttling are not charged. A page
//! of the section triggers throttling, and one that finds neither the budget used up nor the queue too
//! long ends it. The section's end pays the charge.

use super::{
    buffer::{Added, ThreadBuffer},
    heap::Heap,
    page::{OPEN_BYTES, PAGE_BYTES, SLOTS},
    policy::{Policy, name_for_page},
    quota::SMALLEST_QUOTA,
};
use crate::{
    gp::{Cookie, Engine, Haste, Progress, Record},
    platform::{
        clock::{self, Nanos},
        sync::{Ordering, lock},
        thread, user_code,
    },
};

/// A thread's share is never larger than this, however large the budget: more would not stay in the
/// cache. Its quota stays below 576 KiB (`quota.rs`).
pub(super) const LARGEST_SHARE: usize = 1 << 20;

/// A thread seals this many bytes, for each other thread that retires, before it starts the grace
/// period that it has named for them. So the rate of starts does not grow with the number of
/// threads.
const NAMED_FOR_EACH: usize = PAGE_BYTES;

/// Upper bound on these bytes: half of the smallest quota.
const MOST_NAMED: usize = SMALLEST_QUOTA / 2;

/// A thread publishes its unreclaimed bytes in steps of this part of its quota.
const STEP_PART: usize = 4;

/// While another thread's barrier is under way, a thread issues none until its queue exceeds its
/// quota by this part of it.
const PAST_QUOTA: usize = 8;

/// If readers hold grace periods up, a thread is throttled when it has this many of its shares
/// unreclaimed. Without that, each thread in turn fills the whole budget in its time slice: memory
/// stays within bounds, but each allocator arena keeps the most that it has ever held.
const THROTTLE_FACTOR: usize = 2;

/// How long a thread waits at most for each [`OPEN_BYTES`], or part of it, that it adds while it is
/// throttled, or past the budget.
const LONGEST_WAIT: Nanos = 10_000_000;

/// The longest wait for one page, or one section, in multiples of [`LONGEST_WAIT`], however large
/// its objects.
const LONGEST_WAIT_PAGES: usize = 100;

/// A wait that is shorter than this flags no holdout: the flag and its barrier would cost about as
/// much.
const SHORT_WAIT: Nanos = 1_000_000;

/// The approximate size of a full page of small objects.
const FULL_PAGE: usize = 16 << 10;

/// A page that weighs more than this part of the budget is freed by the service thread.
const LARGE_PART: usize = 4;

/// A page of at most this many bytes is not large, however small the budget.
const LIGHT: usize = 2 * OPEN_BYTES;

impl Added {
    fn longest_wait(self) -> Nanos {
        let weight = self.weight.min(LONGEST_WAIT_PAGES * OPEN_BYTES);
        LONGEST_WAIT * weight as Nanos / OPEN_BYTES as Nanos
    }
}

impl Heap {
    /// Returns a thread's share of the budget, which bounds its quota.
    pub(super) fn thread_share(&self) -> usize {
        let threads = self.active.load(Ordering::Relaxed).max(1);
        (self.budget() / 2 / threads).clamp(SMALLEST_QUOTA, LARGEST_SHARE)
    }

    /// Returns the change of unreclaimed bytes that a thread publishes: at most a quarter of its quota. All
    /// threads' steps together are at most an eighth of the budget, also if the smallest shares together
    /// are more.
    pub(super) fn step(&self, buffer: &ThreadBuffer) -> usize {
        let threads = self.active.load(Ordering::Relaxed).max(1);
        buffer.quota.within(self.budget() / 2 / threads) / STEP_PART
    }

    /// Returns the bytes that a thread seals for a grace period before it starts that.
    pub(super) fn named_together(&self) -> usize {
        let others = self.active.load(Ordering::Relaxed).saturating_sub(1);
        others.saturating_mul(NAMED_FOR_EACH).min(MOST_NAMED)
    }

    /// Returns the number of empty pages that a thread keeps.
    pub(super) fn spare_pages(&self, buffer: &ThreadBuffer) -> usize {
        let share = self.thread_share();
        if self.frees_on_demand() {
            share / FULL_PAGE
        } else {
            buffer.quota.within(share) / FULL_PAGE
        }
    }

    /// Returns whether objects of `bytes` bytes are freed by the service thread, even if they are plain
    /// memory: returning a large block to the system takes longer than a retire may.
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > LIGHT.max(self.budget() / LARGE_PART)
    }

    /// Returns whether the budget is used up, as the owner of `buffer` sees it, without `except` bytes.
    pub(super) fn is_over_budget(&self, buffer: &ThreadBuffer, except: usize) -> bool {
        let sealed = self
            .shared
            .footprint_with(&buffer.account)
            .saturating_sub(except);
        sealed.saturating_add(self.callbacks.bytes()) >= self.limit()
    }

    /// Returns whether the budget is used up, or the queue of `buffer` is so long that its owner is held
    /// back.
    pub(super) fn is_under_pressure(&self, buffer: &ThreadBuffer) -> bool {
        let (_, queued) = buffer.queued();
        queued >= THROTTLE_FACTOR * self.thread_share() || self.is_over_budget(buffer, 0)
    }

    /// Returns whether the calling thread may wait for a grace period: not in user code that the
    /// library runs, nor in a section of any kind. Looks at all records.
    pub(super) fn may_wait<P: Policy>(&self, engine: &Engine<P>) -> bool {
        !user_code::runs_for(self.domain) && engine.section_of(thread::token()).is_none()
    }

    /// Charges the caller's section, if it is in one and throttled, for an object of `bytes` bytes that
    /// it has retired by the slow path, and that may have `added` a page.
    pub(super) fn charge_section(
        &self,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        bytes: usize,
        by_service: bool,
        added: Option<Added>,
    ) {
        if let Some(record) = record
            && record.is_reading()
            && buffer.is_throttled()
        {
            record.defer_to_unlock();
            let counted = added.map_or(0, |added| added.counted);
            // The thread may exit before it fills a page that it has opened.
            let opened = added.filter(|_| counted == 0);
            buffer.charge(Added {
                weight: opened.map_or(bytes, |opened| opened.weight),
                counted,
                by_service,
            });
        }
    }

    /// Like [`Heap::charge_section`], for an object that a callback will free, past the budget.
    pub(super) fn charge_section_for_callback(
        &self,
        buffer: &ThreadBuffer,
        record: &Record,
        bytes: usize,
    ) {
        if record.is_reading() && self.is_over_budget(buffer, bytes) {
            buffer.charge(Added {
                weight: bytes,
                counted: bytes,
                by_service: true,
            });
            record.defer_to_unlock();
        }
    }

    /// Makes the calling thread do its part before it frees pages, as the module's documentation
    /// says; inside `section` this is put off to its end. Returns whether the thread is held back for
    /// longer than this wait.
    pub(super) fn hold_back<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        section: Option<&Record>,
        added: Added,
    ) -> bool {
        let (sealed, queued) = buffer.queued();
        let share = self.thread_share();
        let quota = buffer.quota.within(share);
        // Past the budget it waits for the thread that frees what it adds, if that makes progress.
        let over_budget =
            self.is_over_budget(buffer, added.counted) && (!added.by_service || engine.is_served());
        let too_much =
            !self.frees_whole_batches() && (queued >= THROTTLE_FACTOR * share || over_budget);
        let for_service = over_budget && added.by_service;
        // The grace period that it waits for; without one, until the budget is no longer used up.
        let oldest = sealed.map(|(oldest, _)| oldest);
        let awaited = oldest.filter(|_| !for_service);
        if awaited.is_some_and(|oldest| engine.has_ended(oldest)) || (queued < quota && !too_much) {
            return false;
        }
        let waits = too_much && !engine.is_stalled();
        if let Some(section) = section {
            section.defer_to_unlock();
            return waits;
        }
        let longest = added.longest_wait();
        let ended = match sealed {
            Some((oldest, youngest)) => {
                let insists = too_much || queued >= quota + quota / PAST_QUOTA;
                let assist = || engine.assist(oldest, youngest, thread::token(), insists);
                !engine.has_ended(oldest) && self.note_assist(buffer, share, assist)
            }
            // What it adds is in an open page. If a grace period can end now, there is no reader to
            // wait for. Finding that out costs as much as a short wait.
            None if waits && !for_service && longest >= SHORT_WAIT => {
                let now = name_for_page(engine);
                let assist = || engine.assist(now, now, thread::token(), true);
                self.note_assist(buffer, share, assist)
            }
            None => false,
        };
        if ended && !for_service {
            return false;
        }
        let is_held_back = || match awaited {
            Some(oldest) => !engine.has_ended(oldest),
            None => self.is_over_budget(buffer, added.counted),
        };
        if waits && longest > 0 && is_held_back() && self.may_wait(engine) {
            let (begun, mut left) = (clock::now(), longest);
            // Its own pages may be what fills the budget.
            let mut more = for_service && oldest.is_some_and(|oldest| engine.has_ended(oldest));
            while more && is_held_back() && left > 0 {
                more = self.free_own(engine, buffer, SLOTS);
                left = longest.saturating_sub(clock::now().saturating_sub(begun));
            }
            if is_held_back() && left > 0 {
                // The threads that end the wait compare published numbers.
                self.publish_own(engine, buffer);
                self.wait(engine, awaited, left, is_held_back);
            }
        }
        waits && is_held_back()
    }

    /// Makes an attempt to end a grace period, and notes what it has cost. Returns whether that has
    /// ended.
    fn note_assist(
        &self,
        buffer: &ThreadBuffer,
        share: usize,
        assist: impl FnOnce() -> Progress,
    ) -> bool {
        let begun = clock::now();
        let ended = assist() == Progress::Ended;
        buffer.quota.note_attempt(begun, clock::now(), ended, share);
        if ended {
            self.shared.note_assist();
        }
        ended
    }

    fn publish_own<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) {
        let queue = lock(&buffer.queue);
        let is_relief = self.publish_rest(&buffer.account);
        drop(queue);
        if is_relief {
            engine.signal_waiters();
        }
    }

    /// Waits while the thread is held back, which ends with the grace period of `awaited` if there is
    /// one, for `longest` at most. However this ends, the pages' own cookies decide what is freed.
    fn wait<P: Policy>(
        &self,
        engine: &Engine<P>,
        awaited: Option<Cookie>,
        longest: Nanos,
        is_held_back: impl Fn() -> bool,
    ) {
        #[cfg(test)]
        self.waits_granted.fetch_add(longest, Ordering::Relaxed);
        self.note_wait(longest, |now| match awaited {
            Some(awaited) if longest >= SHORT_WAIT => {
                let until = Some(now + longest);
                let _ = engine.wait_for(awaited, thread::token(), until, Haste::Normal);
            }
            _ => {
                if let Some(awaited) = awaited {
                    // As `wait_for` does: a reader that never leaves is reported, and then no
                    // thread waits for it.
                    let _ = engine.note_held_up(awaited, now);
                }
                // The thread looks again by itself. The budget may still be used up with what the thread
                // has added, and not without: then no thread signals.
                let (mut look, end) = (now, now + longest);
                while look < end && is_held_back() {
                    look = end.min(look + LONGEST_WAIT);
                    engine.sleep_until(look, || !is_held_back());
                }
            }
        });
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        gp::{BarrierMode, Flavour, Seq, Sequence, Server, Waited, policy::Sound},
        kvfree::{
            Destructor, OnNoPage, Retirer, SLOTS,
            buffer::{Pushed, SLICE},
            page::Page,
            request::{Channel, RetireRequest},
            retire::Reclaimer,
        },
        platform::sync::{Arc, AtomicBool, AtomicUsize},
    };
    use std::{
        io,
        ptr::{self, NonNull},
        time::Duration,
    };

    /// A domain to which the test thread retires. The test does the work of the service thread, if there
    /// is one.
    struct Retires {
        engine: Engine<Sound>,
        heap: Heap,
        buffer: Arc<ThreadBuffer>,
    }

    impl Retires {
        fn new(budget: usize, is_served: bool) -> Self {
            let engine = Engine::new(1, BarrierMode::Fence, Sequence::new(Seq::from_bits(0)));
            engine.set_service(move |_| match is_served {
                true => Ok(Server::Forked),
                false => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            });
            let heap = Heap::new(1);
            heap.set_budget(budget);
            let buffer = heap.join().expect("memory");
            Self {
                engine,
                heap,
                buffer,
            }
        }

        /// Returns a reader that another thread seems to be.
        fn reader(&self) -> &Record {
            let another = std::thread::spawn(thread::token).join().expect("no panic");
            self.engine.register(another, Flavour::Thread)
        }

        fn retirer(&self) -> Retirer<'_> {
            Retirer {
                record: self.engine.register(thread::token(), Flavour::Thread),
                buffer: &self.buffer,
            }
        }

        fn retire(&self, retirer: Retirer<'_>, object: RetireRequest) {
            let engine = &self.engine;
            // SAFETY: no other thread has ever known the object.
            let retired =
                unsafe { (self.heap).retire_slow(engine, retirer, object, None, OnNoPage::Fail) };
            assert!(retired.is_ok());
        }

        fn end_grace_period(&self) {
            let cookie = self.engine.start();
            let waited = (self.engine).wait_for(cookie, thread::token(), None, Haste::Normal);
            assert_eq!(waited, Waited::Ended);
        }

        fn waits(&self) -> u64 {
            self.heap.counts().waits
        }
    }

    impl Drop for Retires {
        fn drop(&mut self) {
            self.heap.leave(&self.engine, &self.buffer);
            self.heap.free_all(&self.engine);
        }
    }

    fn plain() -> RetireRequest {
        weighing(0)
    }

    fn weighing(heap_bytes: usize) -> RetireRequest {
        RetireRequest::weighed(NonNull::from(Box::leak(Box::new(1_u64))), heap_bytes)
    }

    fn dropped() -> RetireRequest {
        RetireRequest::boxed(NonNull::from(Box::leak(Box::new(String::new()))))
    }

    /// Returns an object for which a thread may wait a second, so that a test does not depend on how long
    /// the thread takes to free what is due.
    fn heaviest() -> RetireRequest {
        let object = NonNull::from(Box::leak(Box::new(String::new())));
        RetireRequest::weighed(object, LONGEST_WAIT_PAGES * OPEN_BYTES)
    }

    /// The budget is used up by what other threads keep or the service thread has not freed yet. A
    /// thread that comes then is held back by a reader, and by the service thread if that is to free
    /// what it adds.
    #[test]
    fn a_first_object_is_held_back_by_a_reader_or_by_the_service_thread() {
        let waits = |object: RetireRequest, is_read: bool, is_served: bool, is_stuck: bool| {
            let retires = Retires::new(0, is_served);
            let (engine, heap) = (&retires.engine, &retires.heap);
            let left = Page::try_new().expect("memory");
            // SAFETY: made just now, and released below.
            heap.note_sealed(unsafe { left.as_ref() });
            let (reader, retirer) = (retires.reader(), retires.retirer());
            if is_read {
                reader.lock();
            }
            if is_stuck {
                engine.set_stall_handler(Some(Arc::new(|_| ())));
                engine.kick();
                engine.set_stall_timeout(Duration::from_nanos(1));
                let _ = engine.note_service(Nanos::MAX);
            }
            retires.retire(retirer, object);
            if is_read {
                reader.unlock();
            }
            let waits = retires.waits();
            drop(retires);
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(left) };
            waits
        };
        assert_eq!(waits(plain(), true, true, false), 1);
        assert_eq!(waits(plain(), false, true, false), 0, "for none");
        assert_eq!(waits(dropped(), false, true, false), 1, "for the service");
        assert_eq!(waits(dropped(), false, false, false), 0, "there is none");
        assert_eq!(waits(dropped(), false, true, true), 0, "it is stuck");
    }

    #[test]
    fn no_thread_waits_for_the_service_thread_while_its_own_due_pages_fill_the_budget() {
        let retires = Retires::new(100 << 10, true);
        let (reader, retirer) = (retires.reader(), retires.retirer());
        reader.lock();
        // Light enough to stay in the thread's own queue.
        retires.retire(retirer, weighing(100 << 10));
        reader.unlock();
        retires.end_grace_period();
        assert_eq!(retires.heap.waiting().objects, 1);
        retires.retire(retirer, heaviest());
        assert_eq!(retires.heap.waiting().objects, 1, "the last one");
        assert_eq!(retires.waits(), 0);
    }

    #[test]
    fn a_thread_that_frees_for_as_long_as_it_may_wait_does_not_wait() {
        // The rule is about time, so no event can stand for it. It may take longer.
        unsafe fn take_long(_: *mut u8) {
            let end = clock::now() + LONGEST_WAIT;
            while clock::now() < end {
                std::thread::sleep(Duration::from_nanos(LONGEST_WAIT));
            }
        }
        static TAKES_LONG: Destructor = Destructor::new(take_long, OPEN_BYTES);
        let retires = Retires::new(8 << 20, true);
        let (reader, retirer) = (retires.reader(), retires.retirer());
        reader.lock();
        let object = NonNull::dangling().as_ptr();
        retires.retire(retirer, RetireRequest::with(object, &TAKES_LONG).plain());
        reader.unlock();
        retires.end_grace_period();
        retires.heap.set_budget(0);
        // Another thread's.
        retires.heap.callbacks.note_queued(1 << 20);
        retires.retire(retirer, dropped());
        assert_eq!(retires.heap.waiting().objects, 2, "without the thread's");
        assert_eq!(retires.waits(), 0);
    }

    /// What is due is freed by slices, in retires, also while the longer page is one of objects with
    /// destructors; and all of it before as much has been retired.
    #[test]
    fn a_retire_frees_one_slice() {
        unsafe fn count(freed: *mut u8) {
            // SAFETY: the test's own counter.
            unsafe { &*freed.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
        }
        static COUNT: Destructor = Destructor::new(count, 0);
        for dropped_before in [0, 200] {
            let retires = Retires::new(8 << 20, false);
            let (reader, retirer) = (retires.reader(), retires.retirer());
            let freed = AtomicUsize::new(0);
            let counted = || {
                let object = ptr::from_ref(&freed).cast_mut().cast();
                RetireRequest::with(object, &COUNT).plain()
            };
            reader.lock();
            (0..dropped_before).for_each(|_| retires.retire(retirer, dropped()));
            (0..4 * SLOTS).for_each(|_| retires.retire(retirer, counted()));
            reader.unlock();
            retires.end_grace_period();
            let mut before = 0;
            for number in 0..4 * SLOTS {
                retires.retire(retirer, counted());
                if dropped_before > 0 && number % SLOTS == 0 {
                    retires.retire(retirer, dropped());
                }
                let now = freed.load(Ordering::Relaxed);
                assert!(now - before <= 2 * SLICE, "of both retires");
                let of_both = dropped_before > 0 && number % SLOTS == 0;
                assert!(now - before <= SLICE || of_both, "of one");
                before = now;
            }
            assert!(before >= 4 * SLOTS, "{before}");
            drop(retires);
        }
    }

    /// To free gigabytes may take seconds, and inline destructors may do anything.
    #[test]
    fn a_thread_frees_no_more_of_its_own_than_it_must_and_a_few_where_it_may_not_wait() {
        const PAGE: usize = OPEN_BYTES + PAGE_BYTES;
        let left_after = |budget: usize, may_wait: bool| {
            let retires = Retires::new(8 << 20, true);
            let (reader, retirer) = (retires.reader(), retires.retirer());
            reader.lock();
            (0..8).for_each(|_| retires.retire(retirer, weighing(OPEN_BYTES)));
            reader.unlock();
            retires.end_grace_period();
            assert_eq!(retires.heap.waiting().objects, 8);
            retires.heap.set_budget(budget);
            let owned = retires.engine.register(thread::token(), Flavour::Owned);
            if !may_wait {
                owned.lock();
            }
            retires.retire(retirer, heaviest());
            if !may_wait {
                owned.unlock();
            }
            retires.heap.waiting().objects - 1
        };
        // Two bring the domain back under its budget, and two are freed in any case.
        assert_eq!(left_after(7 * PAGE, true), 4);
        assert_eq!(left_after(0, true), 0);
        assert_eq!(left_after(0, false), 6);
    }

    /// What the section has retired before is still the service thread's.
    #[test]
    fn a_page_that_is_due_releases_no_section_from_its_wait_for_the_service_thread() {
        let retires = Retires::new(8 << 20, true);
        let (reader, retirer) = (retires.reader(), retires.retirer());
        reader.lock();
        // Each frees two.
        (0..6).for_each(|_| retires.retire(retirer, weighing(OPEN_BYTES)));
        reader.unlock();
        retires.end_grace_period();
        retires.heap.set_budget(0);
        // Another thread's.
        retires.heap.callbacks.note_queued(1 << 20);
        retirer.record.lock();
        retires.retire(retirer, heaviest());
        retires.retire(retirer, weighing(OPEN_BYTES));
        assert_eq!(retires.waits(), 0, "inside the section");
        retirer.record.unlock();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while retires.waits() == 0 && !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                retires.heap.callbacks.note_gone(1 << 20);
            });
            retires.heap.reclaim_after_section(&retires.engine, retirer);
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(retires.waits(), 1);
    }

    /// Otherwise each object would take the slow path up to the end of the section.
    #[test]
    fn a_section_is_throttled_only_while_there_is_pressure() {
        let retires = Retires::new(8 << 20, true);
        let retirer = retires.retirer();
        // Another thread's.
        let others = &retires.heap.callbacks;
        others.note_queued(8 << 20);
        retirer.record.lock();
        retires.retire(retirer, dropped());
        assert!(retires.buffer.is_throttled());
        retires.retire(retirer, weighing(OPEN_BYTES));
        assert!(retires.buffer.is_throttled(), "the budget is used up");
        others.note_gone(8 << 20);
        retires.retire(retirer, weighing(OPEN_BYTES));
        assert!(!retires.buffer.is_throttled());
        retirer.record.unlock();
        let charge = retires.buffer.take_charge();
        assert!(
            charge.weight > OPEN_BYTES,
            "it pays for what it has retired"
        );
    }

    /// A barrier interrupts all running threads.
    #[test]
    fn past_the_budget_a_flush_of_nothing_needs_no_barrier() {
        let retires = Retires::new(0, true);
        let reader = retires.reader();
        // Another thread's.
        retires.heap.callbacks.note_queued(1 << 20);
        reader.lock();
        retires.heap.flush_own(&retires.engine, &retires.buffer);
        reader.unlock();
        retires.heap.callbacks.note_gone(1 << 20);
        assert_eq!(retires.engine.heavy_barriers(), 0);
    }

    /// Plain objects are the thread's own to free, and a reader holds them up.
    #[test]
    fn a_service_thread_that_is_refused_releases_no_section_from_its_wait_for_a_reader() {
        let retires = Retires::new(0, false);
        let (reader, retirer) = (retires.reader(), retires.retirer());
        reader.lock();
        retirer.record.lock();
        (0..3).for_each(|_| retires.retire(retirer, weighing(OPEN_BYTES)));
        (0..=SLOTS).for_each(|_| retires.retire(retirer, dropped()));
        retirer.record.unlock();
        retires.heap.reclaim_after_section(&retires.engine, retirer);
        assert_eq!(retires.waits(), 1);
        reader.unlock();
    }

    /// The stall time-out passes while each of its pages is freed.
    #[test]
    fn a_service_thread_that_is_slow_is_waited_for() {
        struct Slow<'a>(&'a Engine<Sound>, AtomicUsize);
        unsafe fn take_long(slow: *mut u8) {
            // SAFETY: the test's own, which outlives the pass.
            let Slow(engine, served) = unsafe { &*slow.cast::<Slow<'_>>() };
            served.fetch_add(engine.is_served().into(), Ordering::Relaxed);
            engine.kick();
            let _ = engine.note_service(Nanos::MAX);
            assert!(!engine.is_served());
        }
        static TAKES_LONG: Destructor = Destructor::new(take_long, 0);
        const PAGES: usize = 3;
        let retires = Retires::new(usize::MAX, true);
        let slow = Slow(&retires.engine, AtomicUsize::new(0));
        let object = ptr::from_ref(&slow).cast::<u8>().cast_mut();
        let retirer = retires.retirer();
        (0..PAGES * SLOTS).for_each(|_| {
            retires.retire(retirer, RetireRequest::with(object, &TAKES_LONG));
        });
        retires.end_grace_period();
        retires.engine.set_stall_handler(Some(Arc::new(|_| ())));
        retires.engine.set_stall_timeout(Duration::from_nanos(1));
        retires.heap.drain(&retires.engine, &|| None);
        assert_eq!(retires.heap.waiting().objects, 0);
        assert_eq!(retires.heap.counts().panicked, 0);
        assert_eq!(slow.1.load(Ordering::Relaxed), PAGES, "after each page");
        assert!(retires.engine.is_served());
    }

    /// During the wait all earlier objects are freed, but not those that the thread has added.
    #[test]
    fn a_large_object_does_not_wait_for_itself() {
        const BUDGET: usize = 1 << 20;
        let is_held_back_at_the_end = || {
            let retires = Retires::new(BUDGET, true);
            let (reader, retirer) = (retires.reader(), retires.retirer());
            retires.retire(retirer, weighing(BUDGET));
            retires.end_grace_period();
            assert_eq!(retires.waits(), 0);
            reader.lock();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while retires.waits() == 0 {
                        std::thread::yield_now();
                    }
                    retires.heap.drain(&retires.engine, &|| None);
                });
                retires.retire(retirer, weighing(3 * BUDGET));
            });
            assert_eq!(retires.waits(), 1);
            assert_eq!(retires.heap.waiting().objects, 1, "the object itself");
            reader.unlock();
            retires.buffer.is_throttled()
        };
        // The machine may leave the other thread out for the whole second, but not every time.
        assert!((0..10).any(|_| !is_held_back_at_the_end()));
    }

    /// A small object weighs its part of a page, which is more than what is counted for it.
    #[test]
    fn a_section_does_not_outweigh_the_budget_by_small_objects() {
        unsafe fn nothing(_: *mut u8) {}
        static NOTHING: Destructor = Destructor::new(nothing, 0);
        let retires = Retires::new(64 << 10, true);
        let (reader, retirer) = (retires.reader(), retires.retirer());
        reader.lock();
        retirer.record.lock();
        for _ in 0..8 * SLOTS {
            let object = NonNull::dangling().as_ptr();
            retires.retire(retirer, RetireRequest::with(object, &NOTHING));
        }
        retirer.record.unlock();
        retires.heap.reclaim_after_section(&retires.engine, retirer);
        assert_eq!(retires.waits(), 1);
        reader.unlock();
    }

    /// Each object is light, and so is a page of other ones.
    #[test]
    fn what_is_added_is_the_service_threads_if_the_page_is() {
        let retires = Retires::new(0, true);
        let retirer = retires.retirer();
        retires.retire(retirer, weighing(OPEN_BYTES / 2));
        retires.retire(retirer, weighing(LIGHT - OPEN_BYTES / 4));
        assert!(lock(&retires.buffer.queue).sealed.is_empty());
        assert_eq!(retires.waits(), 0, "there is nothing else");
        retires.retire(retirer, weighing(OPEN_BYTES / 2));
        retires.retire(retirer, weighing(LIGHT - OPEN_BYTES / 4));
        assert_eq!(retires.waits(), 1, "for the page before");
    }

    #[test]
    fn a_thread_that_waits_looks_again_also_if_no_thread_signals() {
        let retires = Retires::new(0, true);
        let looks = AtomicUsize::new(0);
        let is_held_back = || looks.fetch_add(1, Ordering::Relaxed) < 10;
        let longest = 1000 * LONGEST_WAIT;
        (retires.heap).wait(&retires.engine, None, longest, is_held_back);
        assert!(looks.load(Ordering::Relaxed) > 10);
    }

    /// A barrier would cost about as much as the wait.
    #[test]
    fn before_a_short_wait_no_grace_period_is_driven() {
        let retires = Retires::new(0, true);
        let left = Page::try_new().expect("memory");
        // SAFETY: made just now, and released below.
        retires.heap.note_sealed(unsafe { left.as_ref() });
        let _ = retires.retirer();
        let attempts = |weight| {
            let before = retires.engine.get_state();
            let added = Added {
                weight,
                counted: 0,
                by_service: false,
            };
            (retires.heap).hold_back(&retires.engine, &retires.buffer, None, added);
            retires.engine.get_state() != before
        };
        assert!(attempts(OPEN_BYTES));
        assert!(!attempts(256));
        drop(retires);
        // SAFETY: an empty page that is in no list.
        unsafe { Page::release(left) };
    }

    /// A thread goes on while another thread's barrier is under way, but not for long: that thread
    /// may have lost its processor.
    #[test]
    fn a_barrier_that_does_not_end_is_left_alone_up_to_an_eighth_of_a_quota() {
        let engine =
            Engine::<Sound>::new(1, BarrierMode::Membarrier, Sequence::new(Seq::from_bits(0)));
        engine.lose_first_leader();
        let heap = Heap::new(1);
        let buffer = heap.join().expect("memory");
        heap.note_unparked(buffer.unpark());
        buffer.replace(&mut lock(&buffer.queue), Channel::Plain, Page::try_new());
        let queued = || lock(&buffer.queue).sealed.footprint();
        let mut largest = 0;
        while engine.heavy_barriers() == 0 {
            let object = NonNull::from(Box::leak(Box::new(1_u64)));
            let object = RetireRequest::weighed(object, FULL_PAGE - PAGE_BYTES);
            assert_eq!(buffer.append(object), Pushed::Ok);
            heap.seal(&engine, &buffer, Channel::Plain, Reclaimer::Owner);
            largest = queued();
            assert!(largest < LARGEST_SHARE, "it waits for the other thread");
            let added = Added::filled(FULL_PAGE, false);
            heap.hold_back(&engine, &buffer, None, added);
        }
        let most = SMALLEST_QUOTA + SMALLEST_QUOTA / PAST_QUOTA;
        assert!((most..most + 2 * FULL_PAGE).contains(&largest), "{largest}");
        assert!(heap.free_all(&engine));
    }
}
