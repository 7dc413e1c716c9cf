//! Back-pressure: when a retiring thread ends a grace period itself, or waits for one.
//!
//! A thread that fills a page seals it and queues it, and frees pages of its queue that are due
//! (`retire.rs`). If none is, and the queue has reached the thread's *quota*, it ends a grace period
//! itself, unless another thread has, or is doing so. One heavy barrier so serves a quota's worth
//! of objects of this thread, and all that other threads had sealed by then.
//!
//! The grace period of a page that its owner keeps is only named when the page is sealed: a start
//! for each page would write the cache line that all readers load. The owner starts it, without a
//! barrier, once it has sealed enough for it ([`Heap::named_together`]); that gives the pages of
//! all threads a new name. It is also started by an attempt to end it that takes a barrier of its own,
//! and when the service thread takes the page over, from a thread that is idle, slow or exits. Sections that begin before the
//! start hold the page up. Pages that the service thread frees from the outset have theirs started
//! at once: it starts none while an older one is held up.
//!
//! The quota follows what that costs ([`Quota`](super::quota::Quota)). Where barriers are cheap, or other threads' serve
//! this one too, it is small, and so is unreclaimed memory. The larger it is, the larger a part of
//! its time a thread has to spend on grace periods before it grows further: twice the memory halves
//! that part, so a quota settles where more memory would save little time. The bound is the
//! thread's *share* of the budget: the more threads, the smaller each share.
//!
//! A thread whose queue has reached its quota while another thread's barrier is under way goes on,
//! because that barrier usually covers its oldest page. Past its quota and half of it, it issues a
//! barrier of its own: the other thread has lost its processor.
//!
//! Where that does not help, because readers hold the grace period up, a thread whose queue has
//! reached twice its share, and every thread past the budget, waits a bounded time a page. Past the
//! budget it waits for its first page before it fills that, because it may exit sooner; an exit
//! waits for nothing. It does not wait if it can end a grace period: then no reader is there to be
//! waited for. What it has waited for in advance it does not wait for again once the page is full.
//!
//! Inside a section it does all this at the section's end, and waits there for what the section has
//! added, not for the page that this happened to fill: as long as that is part of a page that it
//! would have waited for. To know that, each section is charged for each of its objects while the
//! thread is *throttled*, that is, held back for longer than one wait. What a section had added
//! before the page was full that had the thread throttled is not known, and forgiven.
//!
//! # Heavy objects
//!
//! Users say what a value owns, so one object may weigh as much as many pages.
//!
//! * A *heavy* one, of which few fit into the budget, may, past the budget, be waited for as long
//!   as one call ever waits ([`LONGEST_WAIT_PAGES`]). By its weight alone it would be a few
//!   milliseconds for a megabyte, and a reader of a second let a hundred of them pile up.
//! * A *very heavy* one, of a quarter of the budget or more, counts for that quarter where others
//!   are held back ([`Heap::pressure`]). So one of them alone, and if it is larger than the whole
//!   budget, holds back those alone that add heavy objects; four of them hold back all. The thread that
//!   adds one is not held back for that one, but for those before it: the service thread frees it
//!   (`retire.rs`), and no retire takes as long as that does.

use super::{
    buffer::{Charge, OPEN_BYTES, ThreadBuffer, charged_for},
    heap::Heap,
    page::{PAGE_BYTES, Page},
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
    published::ASSISTS,
};

/// A thread's share is never larger than this, however large the budget: more would not stay in the
/// cache. Its quota stays below 864 KiB (`quota.rs`).
pub(super) const LARGEST_SHARE: usize = 1 << 20;

/// What a thread seals for a grace period that has not started, for each other thread that retires,
/// before it starts it; so the rate of starts does not grow with the number of threads.
const NAMED_FOR_EACH: usize = PAGE_BYTES;

/// What it seals for one at most: half of the smallest quota.
const MOST_NAMED: usize = SMALLEST_QUOTA / 2;

/// A thread publishes its unreclaimed bytes in steps of this part of its quota.
const STEP_PART: usize = 4;

/// A thread leaves the barrier to another thread, whose is under way, until its queue is past its
/// quota by this part of it.
const PAST_QUOTA: usize = 2;

/// If readers hold grace periods up, a thread is throttled when it has this many of its shares
/// unreclaimed. Without that, each thread in turn fills the whole budget in its time slice: memory
/// stays within bounds, but each allocator arena keeps the most that it has ever held.
const THROTTLE_FACTOR: usize = 2;

/// How long a thread waits at most for each [`OPEN_BYTES`], or part of it, that it adds while it is
/// throttled, or past the budget.
const LONGEST_WAIT: Nanos = 10_000_000;

/// The longest wait for one page, or one section, in multiples of that, however large its objects.
const LONGEST_WAIT_PAGES: usize = 100;

/// A wait that is shorter than this flags no holdout: the flag and its barrier would cost about as
/// much.
const SHORT_WAIT: Nanos = 1_000_000;

/// The approximate size of a full page of small objects.
const FULL_PAGE: usize = 16 << 10;

/// Any wait is at most this long.
const LONGEST_WAIT_OF_ALL: Nanos = LONGEST_WAIT * LONGEST_WAIT_PAGES as Nanos;

/// At most this many heavy objects fit into the budget.
const HEAVY_PART: usize = 32;

/// At most this many very heavy objects fit into the budget.
const VERY_HEAVY_PART: usize = 4;

/// An object of at most this many bytes is neither heavy nor very heavy, however small the budget.
const LIGHT: usize = 2 * OPEN_BYTES;

/// How long a thread may be held back for what it adds, once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// The wait that the added bytes allow.
    by_weight: Nanos,
    /// What the heaviest object weighs that it adds.
    heaviest: usize,
    /// It waits for readers alone, and not for the service thread.
    for_readers: bool,
}

impl Patience {
    /// For a page of `weight`, which `object` has filled.
    pub(super) fn for_page(weight: usize, object: usize) -> Self {
        let pages = (weight / OPEN_BYTES + 1).min(LONGEST_WAIT_PAGES);
        Self {
            by_weight: LONGEST_WAIT * pages as Nanos,
            heaviest: object,
            for_readers: false,
        }
    }

    /// The same, for a page of which the thread has waited for a part in advance.
    pub(super) fn without_advance(self) -> Self {
        Self {
            by_weight: self.by_weight.saturating_sub(LONGEST_WAIT),
            ..self
        }
    }

    /// The same, for what the thread will free by itself.
    pub(super) fn for_readers(self) -> Self {
        Self {
            for_readers: true,
            ..self
        }
    }

    /// For one object of so many bytes.
    pub(super) fn for_object(bytes: usize) -> Self {
        Self::for_section(Charge {
            bytes: charged_for(bytes),
            heaviest: bytes,
        })
    }

    /// At the end of a section.
    pub(super) fn for_section(added: Charge) -> Self {
        let bytes = added.bytes.min(LONGEST_WAIT_PAGES * OPEN_BYTES);
        Self {
            by_weight: LONGEST_WAIT * bytes as Nanos / OPEN_BYTES as Nanos,
            heaviest: added.heaviest,
            for_readers: false,
        }
    }
}

/// What back-pressure has come to.
#[derive(Debug, Clone, Copy)]
struct HeldBack {
    /// The thread is held back for longer than this one wait.
    still: bool,
    has_waited: bool,
}

impl HeldBack {
    const NOT: Self = Self {
        still: false,
        has_waited: false,
    };
}

impl Heap {
    /// Returns a thread's share of the budget: its quota at most.
    pub(super) fn thread_share(&self) -> usize {
        let threads = self.active.load(Ordering::Relaxed).max(1);
        (self.budget() / 2 / threads).clamp(SMALLEST_QUOTA, LARGEST_SHARE)
    }

    /// By how much a thread's unreclaimed bytes may change before it publishes that: at most a
    /// quarter of its quota. All threads' steps together are at most an eighth of the budget, also
    /// where that is less than the smallest shares together.
    pub(super) fn step(&self, buffer: &ThreadBuffer) -> usize {
        let threads = self.active.load(Ordering::Relaxed).max(1);
        buffer.quota.within(self.budget() / 2 / threads) / STEP_PART
    }

    /// How much a thread seals for a grace period before it starts it.
    pub(super) fn named_together(&self) -> usize {
        let others = self.active.load(Ordering::Relaxed).saturating_sub(1);
        others.saturating_mul(NAMED_FOR_EACH).min(MOST_NAMED)
    }

    /// How many empty pages a thread keeps.
    pub(super) fn spare_pages(&self, buffer: &ThreadBuffer) -> usize {
        let share = self.thread_share();
        if self.frees_on_demand() {
            share / FULL_PAGE
        } else {
            buffer.quota.within(share) / FULL_PAGE
        }
    }

    fn is_heavy(&self, bytes: usize) -> bool {
        bytes > LIGHT.max(self.budget() / HEAVY_PART)
    }

    /// Returns what a very heavy page counts for when other threads are throttled.
    fn very_heavy_counts_for(&self) -> usize {
        LIGHT.max(self.budget() / VERY_HEAVY_PART)
    }

    pub(super) fn is_very_heavy(&self, bytes: usize) -> bool {
        bytes > self.very_heavy_counts_for()
    }

    /// Returns the unreclaimed bytes that count where the owner of `buffer` is throttled. If it adds
    /// a heavy object they are all of them, except a very heavy one of its own; otherwise each very
    /// heavy page counts for less.
    fn pressure(&self, buffer: &ThreadBuffer, heaviest_added: usize) -> usize {
        let all = self
            .footprint(buffer)
            .saturating_add(self.callbacks.bytes());
        if self.is_very_heavy(heaviest_added) {
            all.saturating_sub(heaviest_added)
        } else if self.is_heavy(heaviest_added) {
            all
        } else {
            // Never more than they are, if the budget has grown since they were sealed.
            let (pages, bytes) = self.very_heavy.load();
            let counted = bytes.min(pages.saturating_mul(self.very_heavy_counts_for()));
            all.saturating_sub(bytes).saturating_add(counted)
        }
    }

    pub(super) fn is_over_budget(&self, buffer: &ThreadBuffer, heaviest_added: usize) -> bool {
        self.pressure(buffer, heaviest_added) >= self.limit()
    }

    /// Returns whether the calling thread may wait for a grace period: not in user code that the
    /// library runs, nor in a section of any kind. Looks at all records.
    pub(super) fn may_wait<P: Policy>(&self, engine: &Engine<P>) -> bool {
        !user_code::runs_for(self.domain) && engine.section_of(thread::token()).is_none()
    }

    /// Charges the caller's section, if it is in one, for an object that it has retired by the slow
    /// path: if the thread is throttled, or the object has filled a page.
    pub(super) fn charge_section(
        &self,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        bytes: usize,
        sealed: bool,
    ) {
        let Some(record) = record.filter(|record| record.is_reading()) else {
            return;
        };
        if buffer.is_throttled() {
            record.defer_to_unlock();
        }
        if buffer.is_throttled() || sealed {
            buffer.charge(bytes);
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
            buffer.charge(bytes);
            record.defer_to_unlock();
        }
    }

    /// Makes the calling thread do its part before it frees pages, as the module's head says, and
    /// throttles it for at most `patience`. Inside a section all of this is put off to its end.
    /// Returns whether it has waited.
    pub(super) fn apply_backpressure<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        patience: Patience,
    ) -> bool {
        let held_back = self.hold_back(engine, buffer, record, patience);
        buffer.set_throttled(held_back.still);
        if !held_back.still {
            // Nothing that a section has added so far is waited for.
            buffer.take_charge();
        }
        held_back.has_waited
    }

    fn hold_back<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        patience: Patience,
    ) -> HeldBack {
        let (oldest, youngest, queued) = {
            let queue = lock(&buffer.queue);
            (
                queue.sealed.front().map(Page::cookie),
                queue.sealed.back().map(Page::cookie),
                queue.sealed.footprint(),
            )
        };
        let share = self.thread_share();
        let quota = buffer.quota.within(share);
        let over_budget = self.is_over_budget(buffer, patience.heaviest);
        let too_much =
            !self.frees_whole_batches() && (queued >= THROTTLE_FACTOR * share || over_budget);
        // Past the budget, a thread that adds a very heavy object waits for the service thread, which
        // frees those, and not for its own oldest page.
        let awaited = oldest.filter(|_| !over_budget || !self.is_very_heavy(patience.heaviest));
        if awaited.is_some_and(|oldest| engine.has_ended(oldest)) || (queued < quota && !too_much) {
            return HeldBack::NOT;
        }
        let waits = too_much && !engine.is_stalled();
        if let Some(record) = record
            && record.is_reading()
        {
            record.defer_to_unlock();
            return HeldBack {
                still: waits,
                ..HeldBack::NOT
            };
        }
        let ended = oldest.zip(youngest).is_some_and(|(oldest, youngest)| {
            let insists = too_much || queued >= quota + quota / PAST_QUOTA;
            let assist = || engine.assist(oldest, youngest, thread::token(), insists);
            !engine.has_ended(oldest) && self.note_assist(buffer, share, assist)
        });
        if ended && awaited.is_some() {
            return HeldBack::NOT;
        }
        if waits && oldest.is_none() && patience.for_readers {
            // Nothing is queued: what it adds comes into a page that is open. If the grace period of
            // that could end, no reader is there to be waited for.
            let now = name_for_page(engine);
            let assist = || engine.assist(now, now, thread::token(), true);
            if self.note_assist(buffer, share, assist) {
                return HeldBack::NOT;
            }
        }
        let longest = if over_budget && self.is_heavy(patience.heaviest) {
            LONGEST_WAIT_OF_ALL
        } else {
            patience.by_weight
        };
        let is_held_back = || self.is_still_held_back(engine, buffer, awaited, patience.heaviest);
        let has_waited = waits && longest > 0 && self.may_wait(engine);
        if has_waited {
            // The threads that end the wait compare published numbers.
            self.publish_own(engine, buffer);
            self.wait(engine, awaited, longest, is_held_back);
        }
        HeldBack {
            still: waits && is_held_back(),
            has_waited,
        }
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
            buffer.account.note_assist();
            self.shared.tap().add(ASSISTS, 1);
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

    /// Waits for the oldest page's grace period, for `longest` at most. However this ends, the
    /// pages' own cookies decide what is freed.
    fn wait<P: Policy>(
        &self,
        engine: &Engine<P>,
        oldest: Option<Cookie>,
        longest: Nanos,
        is_held_back: impl Fn() -> bool,
    ) {
        #[cfg(test)]
        self.waits_granted.fetch_add(longest, Ordering::Relaxed);
        self.note_wait(longest, |now| match oldest {
            Some(oldest) if longest >= SHORT_WAIT => {
                let until = Some(now + longest);
                let _ = engine.wait_for(oldest, thread::token(), until, Haste::Normal);
            }
            _ => {
                if let Some(oldest) = oldest {
                    // As `wait_for` does: a reader that never leaves is reported, and then no more
                    // waited for.
                    let _ = engine.note_held_up(oldest, now);
                }
                engine.sleep_until(now + longest, || !is_held_back());
            }
        });
    }

    fn is_still_held_back<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        oldest: Option<Cookie>,
        heaviest_added: usize,
    ) -> bool {
        oldest.map_or_else(
            || self.is_over_budget(buffer, heaviest_added),
            |oldest| !engine.has_ended(oldest),
        )
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        gp::{BarrierMode, Flavour, Seq, Sequence, policy::Sound},
        kvfree::{
            OnNoPage, Retirer,
            buffer::Pushed,
            request::{Channel, RetireRequest},
            retire::Reclaimer,
        },
    };
    use std::ptr::NonNull;

    /// The budget is used up by what other threads keep or the service thread has not freed yet. A
    /// thread that comes then is held back by a reader, and by the service thread if that is to free
    /// what it adds.
    #[test]
    fn a_first_object_is_held_back_by_a_reader_or_by_the_service_thread() {
        let waits = |object: RetireRequest, is_read: bool| {
            let engine =
                Engine::<Sound>::new(1, BarrierMode::Fence, Sequence::new(Seq::from_bits(0)));
            let heap = Heap::new(1);
            heap.set_budget(0);
            let left = Page::try_new().expect("memory");
            // SAFETY: made just now, and released below.
            heap.note_sealed(unsafe { left.as_ref() });
            let another = std::thread::spawn(thread::token).join().expect("no panic");
            let reader = engine.register(another, Flavour::Thread);
            let own = engine.register(thread::token(), Flavour::Thread);
            if is_read {
                reader.lock();
            }
            let buffer = heap.join().expect("memory");
            let retirer = Retirer {
                record: own,
                buffer: &buffer,
            };
            // SAFETY: no other thread has ever known the object.
            let retired =
                unsafe { heap.retire_slow(&engine, retirer, object, None, OnNoPage::Fail) };
            assert!(retired.is_ok());
            if is_read {
                reader.unlock();
            }
            heap.leave(&engine, &buffer);
            heap.free_all(&engine);
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(left) };
            heap.counts().waits
        };
        let plain = || RetireRequest::boxed(NonNull::from(Box::leak(Box::new(1_u64))));
        let dropped = || RetireRequest::boxed(NonNull::from(Box::leak(Box::new(String::new()))));
        assert_eq!(waits(plain(), true), 1);
        assert_eq!(waits(dropped(), false), 1, "for the service thread");
        assert_eq!(waits(plain(), false), 0, "there is none to wait for");
    }

    /// A thread that may not wait, because the library runs its code, owes the wait for the page that
    /// it has opened.
    #[test]
    fn a_page_is_waited_for_in_advance_only_by_a_thread_that_has_waited() {
        for may_wait in [true, false] {
            let engine =
                Engine::<Sound>::new(1, BarrierMode::Fence, Sequence::new(Seq::from_bits(0)));
            let heap = Heap::new(1);
            heap.set_budget(0);
            let left = Page::try_new().expect("memory");
            // SAFETY: made just now, and released below.
            heap.note_sealed(unsafe { left.as_ref() });
            let another = std::thread::spawn(thread::token).join().expect("no panic");
            let reader = engine.register(another, Flavour::Thread);
            let own = engine.register(thread::token(), Flavour::Thread);
            reader.lock();
            let buffer = heap.join().expect("memory");
            let retire = || {
                let object = RetireRequest::boxed(NonNull::from(Box::leak(Box::new(1_u64))));
                let retirer = Retirer {
                    record: own,
                    buffer: &buffer,
                };
                // SAFETY: no other thread has ever known the object.
                let retired =
                    unsafe { heap.retire_slow(&engine, retirer, object, None, OnNoPage::Fail) };
                assert!(retired.is_ok());
            };
            if may_wait {
                retire();
            } else {
                assert!(!user_code::panics(1, retire));
            }
            assert!(buffer.is_throttled());
            assert_eq!(heap.counts().waits, u64::from(may_wait));
            assert_eq!(buffer.is_paid(Channel::Plain), may_wait);
            reader.unlock();
            heap.leave(&engine, &buffer);
            heap.free_all(&engine);
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(left) };
        }
    }

    /// A thread goes on while another thread's barrier is under way, but not for long: that thread
    /// may have lost its processor.
    #[test]
    fn a_barrier_that_does_not_end_is_left_alone_up_to_half_a_quota() {
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
            let patience = Patience::for_page(FULL_PAGE, object.bytes);
            let _ = heap.apply_backpressure(&engine, &buffer, None, patience);
        }
        let most = SMALLEST_QUOTA + SMALLEST_QUOTA / PAST_QUOTA;
        assert!((most..most + 2 * FULL_PAGE).contains(&largest), "{largest}");
        assert!(heap.free_all(&engine));
    }
}
