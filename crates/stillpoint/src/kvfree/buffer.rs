//! A thread's buffer of retired objects: two open pages, and the sealed ones that wait for their
//! grace periods.
//!
//! The owner appends to an open page without a lock or an atomic read-modify-write. All others (the
//! service thread's drain, statistics) take the queue's lock and see an open page up to its
//! published length, while the owner goes on appending.
//!
//! # Parking
//!
//! The drain has to look at a thread now and then only while the thread retires. Once it finds
//! nothing new, it parks the thread, and when all are parked it sleeps for good; the owner's next
//! append must then say so. The *limit* says which appends take the slow path: the one that fills
//! the page, an earlier one that frees a slice (`retire.rs`), or each.
//!
//! ```text
//!   owner   [P1] Publish: length = n + 1          drain   [D1] Park: limit = 0
//!           [P2] Light barrier                            [D2] Heavy barrier
//!           [P3] Look: if n + 1 >= limit,                 [D3] Look: if the length has moved,
//!                slow path: limit = SLOTS, kick                limit = SLOTS, stay
//! ```
//!
//! The barriers are the asymmetric pair: the drain sees the new length, or the owner sees the limit
//! 0. One heavy barrier serves all the threads that a tick parks. The same comparison tells the
//! owner that its page is full, so it costs nothing.

use super::{
    account::Account,
    page::{OPEN_BYTES, Page, PageList, SLOTS, Tally},
    quota::Quota,
    request::{CHANNELS, Channel, RetireRequest},
};
use crate::{
    gp::Cookie,
    platform::{
        barrier, memory,
        owned_mutex::OwnedMutex,
        sync::{
            Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, lock,
        },
    },
};
use std::ptr::{self, NonNull};
// std's also in the model, to which what one thread keeps for itself is no step.
use std::sync::atomic::AtomicBool as OwnersBool;

/// Objects up to this size cannot reach [`OPEN_BYTES`] before the page is full.
const SMALL: usize = OPEN_BYTES / SLOTS;

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Ok,
    /// Done, but there is more to do: the page is full, or the thread was parked, or is throttled.
    PageFull,
    /// Not done: there is no open page.
    NoPage,
}

/// The limit of a thread that the drain does not look at: each append takes the slow path.
const PARKED: usize = 0;

/// Number of objects that a retire frees at most of its thread's queue while that is within its bound,
/// a third of a page: with smaller slices the mean retire takes longer, with larger ones the longest.
pub(super) const SLICE: usize = SLOTS.div_ceil(3);

/// A slice is of at most this many pages: those of large objects have few.
pub(super) const PAGES_PER_SLICE: usize = 2;

/// The most appends to the plain page between two slices: half of what a slice frees, so that the
/// queue becomes shorter.
const SLICE_EVERY: usize = SLICE / 2;

/// The limit of a thread that is held back, and accounts for each object that it retires in a
/// section.
const THROTTLED: usize = 1;

/// Memory that a thread adds: a page that it has opened or filled, or the objects of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Added {
    /// Weight in bytes, to which the longest wait is proportional.
    pub(super) weight: usize,
    /// The bytes by which it has raised what is counted as unreclaimed.
    pub(super) counted: usize,
    /// Whether the service thread frees some of it.
    pub(super) by_service: bool,
}

impl Added {
    /// Describes a page that has been opened: the thread may exit before it fills that.
    pub(super) fn opened(by_service: bool) -> Self {
        Self {
            weight: OPEN_BYTES,
            counted: 0,
            by_service,
        }
    }

    /// Describes a page that has been filled, with `footprint` bytes in all.
    pub(super) fn filled(footprint: usize, by_service: bool) -> Self {
        Self {
            weight: (footprint / OPEN_BYTES + 1) * OPEN_BYTES,
            counted: footprint,
            by_service,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            weight: self.weight.saturating_add(other.weight),
            counted: self.counted.saturating_add(other.counted),
            by_service: self.by_service || other.by_service,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ThreadBuffer {
    /// An append that makes a page this long takes the slow path: SLOTS, or the length at which the
    /// next slice is freed, or [`THROTTLED`], or [`PARKED`].
    limit: AtomicUsize,
    /// The open pages. Replaced by the owner, under the lock; so the owner may read them without
    /// the lock, and so may the holder of the lock.
    pub(super) open: [AtomicPtr<Page>; 2],
    /// Number of pages that the owner has replaced. It shows whether the owner is active, and
    /// whether it frees.
    replaced: AtomicU64,
    /// Counts ticks without progress: the owner has retired nothing.
    idle: Ticks,
    /// Counts ticks in which `replaced` has not changed.
    not_sealing: Ticks,
    /// Whether the owner is in the middle of reclaiming; then a retire from within does not
    /// reclaim.
    reclaiming: AtomicBool,
    /// Held by the owner while it frees pages that it has taken off the queue, so that a flush can
    /// wait for that.
    pub(super) freeing: OwnedMutex,
    pub(super) queue: Mutex<Queue>,
    pub(super) account: Account,
    /// What the owner has added in its present section, as far as it accounts for it, in the fields of
    /// [`Added`]. Owner only.
    charged_weight: AtomicUsize,
    charged_count: AtomicUsize,
    charged_for_service: OwnersBool,
    /// Bytes that the owner queues before it drives a grace period.
    pub(super) quota: Quota,
    /// Whether the heap's list has it. Owner only.
    listed: AtomicBool,
    /// The position in that list, guarded by the list's lock; a later one has a greater number.
    number: AtomicU64,
}

/// Counts successive ticks of the drain at which a number has not changed.
#[derive(Debug)]
struct Ticks {
    last: AtomicU64,
    unchanged: AtomicU32,
}

impl Ticks {
    fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            unchanged: AtomicU32::new(0),
        }
    }

    fn note(&self, now: u64) -> u32 {
        if self.last.swap(now, Ordering::Relaxed) == now {
            self.unchanged.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.reset();
            0
        }
    }

    fn reset(&self) {
        self.unchanged.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Sealed pages of the plain channel, oldest first.
    pub(super) sealed: PageList,
    /// Empty pages.
    pub(super) spares: PageList,
    /// The grace period of the youngest sealed page, and the bytes of all pages that were sealed
    /// for it.
    named: Option<(Cookie, usize)>,
}

/// The owner is reclaiming, until this is dropped.
#[derive(Debug)]
pub(super) struct Reclaiming<'a>(&'a AtomicBool);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Queue {
    pub(super) const fn new(spares: PageList) -> Self {
        Self {
            sealed: PageList::new(),
            spares,
            named: None,
        }
    }

    /// Notes that a page of `footprint` bytes has been sealed for the grace period of `cookie`. Returns the
    /// bytes of all pages that have been sealed for it.
    pub(super) fn note_named(&mut self, cookie: Cookie, footprint: usize) -> usize {
        let before = self.named.filter(|&(named, _)| named == cookie);
        let sum = before.map_or(0, |(_, sum)| sum).saturating_add(footprint);
        self.named = Some((cookie, sum));
        sum
    }
}

impl ThreadBuffer {
    /// Makes a buffer that other threads may look at once it is listed. `None` if there is no memory.
    pub(super) fn try_new() -> Option<Arc<Self>> {
        const COUNTS: usize = 2 * size_of::<usize>();
        memory::is_there_for(size_of::<Self>() + COUNTS).then(|| Arc::new(Self::new()))
    }

    /// Makes a parked buffer without pages, in no list.
    pub(super) fn new() -> Self {
        Self {
            limit: AtomicUsize::new(PARKED),
            open: CHANNELS.map(|_| AtomicPtr::new(ptr::null_mut())),
            replaced: AtomicU64::new(0),
            idle: Ticks::new(),
            not_sealing: Ticks::new(),
            reclaiming: AtomicBool::new(false),
            freeing: OwnedMutex::new(),
            queue: Mutex::new(Queue::new(PageList::new())),
            account: Account::new(),
            charged_weight: AtomicUsize::new(0),
            charged_count: AtomicUsize::new(0),
            charged_for_service: OwnersBool::new(false),
            quota: Quota::new(),
            listed: AtomicBool::new(false),
            number: AtomicU64::new(0),
        }
    }

    /// Appends an object to the open page: the fast path of a retire. Owner only.
    #[inline(always)]
    pub(crate) fn append(&self, object: RetireRequest) -> Pushed {
        let Some(page) = self.open_page(object.channel) else {
            return Pushed::NoPage;
        };
        // Publish [P1]: the release is in `push`.
        let fill = page.push(object.slot, object.bytes);
        // Light barrier [P2]: the length is published before we look at the limit; or else the
        // drain's look [D3] comes later.
        barrier::light();
        // Look [P3], Relaxed: between the two barriers' sides, a limit from before [D1] means that
        // the drain sees our length.
        let limit = self.limit.load(Ordering::Relaxed);
        // As in `is_full`: part of the page may have been handed on.
        let is_heavy = !object.is_guess
            && object.bytes > SMALL
            && fill.bytes() >= OPEN_BYTES
            && page.bytes() >= OPEN_BYTES;
        if fill.len() >= limit || is_heavy {
            Pushed::PageFull
        } else {
            Pushed::Ok
        }
    }

    /// Returns the open page. For the owner, or under the queue's lock.
    #[inline(always)]
    pub(super) fn open_page(&self, channel: Channel) -> Option<&Page> {
        // SAFETY: an open page belongs to this buffer and is replaced by the owner under the lock
        // only; so for the owner, and for the holder of the lock, it stays.
        unsafe { self.open[channel as usize].load(Ordering::Relaxed).as_ref() }
    }

    /// Returns the cookies of the oldest and the youngest sealed page, and the bytes of all of them.
    pub(super) fn queued(&self) -> (Option<(Cookie, Cookie)>, usize) {
        let Queue { sealed, .. } = &*lock(&self.queue);
        let oldest = sealed.front().map(Page::cookie);
        let youngest = sealed.back().map(Page::cookie);
        (oldest.zip(youngest), sealed.footprint())
    }

    /// Returns whether the owner's open page in `channel` is to be sealed. Owner only.
    pub(super) fn is_full(&self, channel: Channel) -> bool {
        self.open_page(channel).is_some_and(Page::is_full)
    }

    /// Opens a page where there is none, or replaces a full one, which is returned. `fresh` is
    /// `None` if there is no memory. Owner only, under the lock of the queue, which `_locked` shows.
    pub(super) fn replace(
        &self,
        _locked: &mut Queue,
        channel: Channel,
        fresh: Option<NonNull<Page>>,
    ) -> Option<NonNull<Page>> {
        let fresh = fresh.map_or(ptr::null_mut(), NonNull::as_ptr);
        // Release and acquire would do nothing here that the lock does not do; the owner reads what
        // it wrote itself.
        let old = self.open[channel as usize].swap(fresh, Ordering::Relaxed);
        self.replaced.fetch_add(1, Ordering::Relaxed);
        NonNull::new(old)
    }

    /// Takes an empty page that the thread has kept.
    pub(super) fn take_spare(&self) -> Option<NonNull<Page>> {
        lock(&self.queue).spares.pop_front()
    }

    /// Keeps pages whose objects are freed for later use, up to `spares`, and gives the memory of
    /// others back. So a thread that retires all the time does not return pages to the allocator,
    /// which would cut them up for small objects. `note` counts what has been freed, under the
    /// lock. Owner only.
    pub(super) fn recycle<R>(
        &self,
        mut pages: PageList,
        spares: usize,
        note: impl FnOnce() -> R,
    ) -> R {
        let mut queue = lock(&self.queue);
        let noted = note();
        while queue.spares.pages() < spares
            && let Some(page) = pages.pop_front()
        {
            // SAFETY: taken out of a list that owned it.
            unsafe { page.as_ref() }.forget_objects();
            queue.spares.push_back(page);
        }
        drop(queue);
        pages.release();
        noted
    }

    /// Returns what is in the open pages, whose own memory counts as pages only, and what is in the
    /// account. Of one moment, because both change under the lock.
    pub(super) fn tallies(&self) -> (Tally, (Tally, Tally)) {
        let _queue = lock(&self.queue);
        let open = CHANNELS
            .iter()
            .filter_map(|&channel| self.open_page(channel))
            .map(|page| Tally {
                objects: page.objects(),
                pages: 1,
                footprint: page.bytes(),
            })
            .fold(Tally::default(), Tally::plus);
        (open, self.account.tallies())
    }

    /// Returns a number that changes with every append. A racy snapshot, unless under the lock and
    /// after [D2].
    pub(crate) fn progress(&self) -> u64 {
        let open = |channel| self.open_page(channel).map_or(0, |page| page.len() as u64);
        self.replaced.load(Ordering::Relaxed) << 32
            | open(Channel::Plain) << 16
            | open(Channel::Drop)
    }

    /// Returns for how many of the drain's ticks in a row the owner has retired nothing, and for
    /// how many it has sealed, and so freed, nothing. The drain calls it once a tick, under the
    /// lock.
    pub(super) fn note_tick(&self, _queue: &Queue) -> (u32, u32) {
        (
            self.idle.note(self.progress()),
            self.not_sealing.note(self.replaced.load(Ordering::Relaxed)),
        )
    }

    /// Marks the owner as reclaiming until the returned value is dropped. Returns `None` if it is
    /// already marked. Owner only.
    pub(super) fn begin_reclaiming(&self) -> Option<Reclaiming<'_>> {
        // Made only if the mark is new: dropping one clears it.
        (!self.reclaiming.swap(true, Ordering::Relaxed)).then(|| Reclaiming(&self.reclaiming))
    }

    /// Returns whether nothing at all waits here. For the drain, under the lock.
    pub(super) fn is_empty(&self, queue: &Queue) -> bool {
        // Look [D3], Acquire, in `len`: after the heavy barrier [D2], the length that an owner has
        // published which has not seen the park.
        queue.sealed.is_empty()
            && CHANNELS.iter().all(|&channel| {
                self.open_page(channel)
                    .is_none_or(|page| page.objects() == 0)
            })
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == PARKED
    }

    /// Park [D1]: the owner's next append takes the slow path, if it does not come before the heavy
    /// barrier [D2]. Returns whether that is new.
    pub(super) fn park(&self) -> bool {
        self.limit.swap(PARKED, Ordering::Relaxed) != PARKED
    }

    /// Unparks the owner: its appends take the fast path again. Returns whether that is new.
    pub(super) fn unpark(&self) -> bool {
        self.limit.swap(SLOTS, Ordering::Relaxed) == PARKED
    }

    /// Returns whether the owner takes the slow path at each append, and accounts for it.
    pub(crate) fn is_throttled(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == THROTTLED
    }

    /// Makes the owner take the slow path at each append, or no longer. Owner only.
    pub(super) fn set_throttled(&self, throttled: bool) {
        if throttled != self.is_throttled() {
            self.set_limit(if throttled { THROTTLED } else { SLOTS });
        }
    }

    /// Makes the owner free its next slice after [`SLICE_EVERY`] more objects if `more` is due, and
    /// otherwise none before its next page. Owner only.
    pub(super) fn schedule_slice(&self, more: bool) {
        if !self.is_throttled() {
            let len = self.open_page(Channel::Plain).map_or(0, Page::len);
            let next = (len + SLICE_EVERY).clamp(THROTTLED + 1, SLOTS);
            self.set_limit(if more { next } else { SLOTS });
        }
    }

    /// Returns whether the owner takes the slow path to free a slice.
    pub(super) fn has_slice_scheduled(&self) -> bool {
        (THROTTLED + 1..SLOTS).contains(&self.limit.load(Ordering::Relaxed))
    }

    /// Changes the limit, unless the owner is parked [D1], when each append takes the slow path
    /// anyway. Owner only.
    fn set_limit(&self, limit: usize) {
        let seen = self.limit.load(Ordering::Relaxed);
        if seen != PARKED && seen != limit {
            let _ = self
                .limit
                .compare_exchange(seen, limit, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Charges the owner's section for an object: at least for its part of a page, whose slots
    /// small objects fill before its bytes. Owner only.
    pub(super) fn charge(&self, object: Added) {
        let add = |sum: &AtomicUsize, bytes| {
            let before = sum.load(Ordering::Relaxed);
            sum.store(before.saturating_add(bytes), Ordering::Relaxed);
        };
        add(&self.charged_weight, object.weight.max(SMALL));
        add(&self.charged_count, object.counted);
        if object.by_service {
            self.charged_for_service.store(true, Ordering::Relaxed);
        }
    }

    /// Returns what the present section, or the one that has just ended, has been charged for. Owner
    /// only.
    pub(super) fn take_charge(&self) -> Added {
        Added {
            weight: self.charged_weight.swap(0, Ordering::Relaxed),
            counted: self.charged_count.swap(0, Ordering::Relaxed),
            by_service: self.charged_for_service.swap(false, Ordering::Relaxed),
        }
    }

    /// Returns whether the heap's list has it. Owner only.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// Records the buffer's number in the heap's list. Owner only, under the lock of the
    /// list.
    pub(super) fn set_listed(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
        self.listed.store(true, Ordering::Relaxed);
    }

    /// Returns the buffer's number in the heap's list. Under the lock of that list.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Resets everything except the pages: the buffer is then parked, and in no list. Owner only.
    pub(super) fn reset(&self) {
        self.limit.store(PARKED, Ordering::Relaxed);
        self.idle.reset();
        self.not_sealing.reset();
        self.take_charge();
        self.quota.reset();
        self.listed.store(false, Ordering::Relaxed);
    }

    /// Takes all objects away, in pages that are sealed with `cookie` and noted where they were
    /// open: the owner has exited, or there are no readers any more.
    pub(super) fn take_all(&self, cookie: impl Fn() -> Cookie, note: impl Fn(&Page)) -> PageList {
        let mut queue = lock(&self.queue);
        let mut all = queue.sealed.take();
        for channel in CHANNELS {
            if let Some(page) = self.replace(&mut queue, channel, None) {
                // SAFETY: taken out of the buffer just now, so ours.
                let at = unsafe { page.as_ref() };
                if at.objects() == 0 {
                    // The thread has been idle: no reason to start a service thread.
                    queue.spares.push_back(page);
                    continue;
                }
                at.seal(cookie());
                note(at);
                all.push_back(page);
            }
        }
        queue.spares.release();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::user_code;
    use std::{alloc::Layout, mem::MaybeUninit};

    /// Or each large object would take the slow path, until there are as many as a page holds.
    #[test]
    #[cfg(not(stillpoint_loom))]
    fn what_has_been_handed_on_does_not_fill_a_page() {
        let layout = Layout::new::<[u8; 40 << 10]>();
        // Nothing looks at the block, which is not freed.
        let large = RetireRequest::memory(NonNull::dangling(), layout);
        let buffer = ThreadBuffer::new();
        let page = Page::try_new().expect("memory");
        buffer.replace(&mut lock(&buffer.queue), large.channel, Some(page));
        buffer.unpark();
        assert_eq!(buffer.append(large), Pushed::Ok);
        let mut taken = [const { MaybeUninit::uninit() }; SLOTS];
        // SAFETY: the buffer's own page.
        let at = unsafe { page.as_ref() };
        assert_eq!(at.take(&mut taken).objects, 1);
        assert_eq!(buffer.append(large), Pushed::Ok);
        assert!(!buffer.is_full(large.channel));
        assert_eq!(buffer.append(large), Pushed::PageFull);
        assert!(buffer.is_full(large.channel));
        buffer.replace(&mut lock(&buffer.queue), large.channel, None);
        at.forget_objects();
        // SAFETY: an empty page that is in no list.
        unsafe { Page::release(page) };
    }

    #[test]
    fn a_panic_takes_the_owners_mark_back() {
        let buffer = ThreadBuffer::new();
        let fails = || {
            let _reclaiming = buffer.begin_reclaiming();
            assert!(buffer.begin_reclaiming().is_none());
            assert!(
                buffer.begin_reclaiming().is_none(),
                "to ask changes nothing"
            );
            std::panic::resume_unwind(Box::new("a fault"));
        };
        assert_eq!(user_code::contained(fails), None);
        assert!(buffer.begin_reclaiming().is_some());
    }
}
