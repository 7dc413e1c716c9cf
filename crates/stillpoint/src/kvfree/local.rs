//! One thread's share of a heap: two open pages, and the sealed ones that wait for their grace periods.
//!
//! The owner appends to an open page without a lock or an atomic read-modify-write. Everybody else (the service thread's drain,
//! statistics) takes the queue's lock and sees an open page up to its published length, while the owner goes on appending.
//!
//! # Parking
//!
//! The drain has to look at a thread now and then only while the thread retires. Once it finds nothing new, it parks the thread,
//! and when all are parked it sleeps for good; the owner's next append must then say so.
//!
//! ```text
//!   owner   len = n + 1 [P1]; light [P2]; if n + 1 >= limit [P3]: attend (and there: limit = SLOTS, kick)
//!   drain   limit = 0 [D1]; heavy [D2]; if len moved [D3]: limit = SLOTS, stay
//! ```
//!
//! P2 and D2 are the asymmetric pair: the drain sees the new length or the owner sees the limit 0. One heavy barrier serves all
//! the threads that a tick parks. The same comparison tells the owner that its page is full, so it costs nothing.

use super::{
    page::{Page, PageList, SLOTS},
    slot::{Slot, footprint},
};
use crate::{
    gp::Cookie,
    platform::{
        barrier,
        owned_mutex::OwnedMutex,
        sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, lock},
    },
};
use std::{
    alloc::Layout,
    mem,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Where an object goes: freed wherever its page happens to be, or on the service thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Freeing runs no user code, or code that its author has declared plain.
    Plain = 0,
    /// Freeing runs a destructor, which may take locks that the retiring thread holds.
    Drop = 1,
}

pub(super) const CHANNELS: [Channel; 2] = [Channel::Plain, Channel::Drop];

/// An open page is sealed early when its objects take up this much.
pub(super) const OPEN_BYTES: usize = 64 << 10;

/// Objects up to this size cannot reach [`OPEN_BYTES`] before the page is full.
const SMALL: usize = OPEN_BYTES / SLOTS;

/// An object that is being retired.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetireRequest {
    pub(super) channel: Channel,
    pub(super) slot: Slot,
    /// What the object takes up.
    pub(super) bytes: usize,
}

impl RetireRequest {
    /// A boxed object: dropped on the service thread if dropping it does anything.
    #[inline(always)]
    pub(crate) fn boxed<T>(object: NonNull<T>) -> Self {
        let channel = if mem::needs_drop::<T>() { Channel::Drop } else { Channel::Plain };
        Self { channel, slot: Slot::boxed(object), bytes: footprint(size_of::<T>()) }
    }

    /// A boxed object that may be dropped wherever its page happens to be.
    #[inline(always)]
    pub(crate) fn boxed_plain<T>(object: NonNull<T>) -> Self {
        Self { channel: Channel::Plain, ..Self::boxed(object) }
    }

    /// A reference to a shared object: dropped on the service thread.
    pub(crate) fn shared<T>(object: Arc<T>) -> Self {
        let slot = Slot::shared(object);
        Self { channel: Channel::Drop, slot, bytes: slot.bytes() }
    }

    /// A block of the C library's `malloc()`.
    #[cfg(unix)]
    #[inline(always)]
    pub(crate) fn malloced(block: NonNull<u8>, bytes: usize) -> Self {
        Self { channel: Channel::Plain, slot: Slot::malloced(block, bytes), bytes: footprint(bytes) }
    }

    /// A block of the global allocator.
    #[inline(always)]
    pub(crate) fn memory(block: NonNull<u8>, layout: Layout) -> Self {
        Self { channel: Channel::Plain, slot: Slot::memory(block, layout), bytes: footprint(layout.size()) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Ok,
    /// Done, and something is to be seen to: a page is full, or the thread was parked.
    PageFull,
    /// Not done: there is no open page.
    NoPage,
}

#[derive(Debug)]
pub(crate) struct ThreadBuffer {
    /// [D1], [P3] An append that makes a page this long must attend: SLOTS, or 1 while the owner attends to each, or 0 while parked.
    limit: AtomicUsize,
    /// The open pages. Replaced by the owner, under the lock; so the owner may read them without, and the holder of the lock too.
    open: [AtomicPtr<Page>; 2],
    /// Pages that the owner has replaced, for telling whether it is active, and whether it frees.
    replaced: AtomicU64,
    /// Of `progress`.
    idle: Looks,
    /// Of `replaced`.
    not_sealing: Looks,
    /// The owner is freeing pages; a retire from within goes without.
    busy: AtomicBool,
    /// Held by the owner while it frees pages that it has taken off the queue, so that a flush can wait for that.
    pub(super) freeing: OwnedMutex,
    pub(super) queue: Mutex<Queue>,
    /// What the owner has added in its present section, as far as it has attended. Owner only.
    in_section: AtomicUsize,
    /// The heap does not list this share any more. Owner only.
    unlisted: AtomicBool,
    /// Where in the heap's list: under its lock, in which a later one has a greater number.
    number: AtomicU64,
}

/// What the drain's looks at a number have found.
#[derive(Debug)]
struct Looks {
    seen: AtomicU64,
    unchanged: AtomicU32,
}

impl Looks {
    fn new() -> Self {
        Self { seen: AtomicU64::new(0), unchanged: AtomicU32::new(0) }
    }

    /// How many looks in a row, this one included, have found it unchanged.
    fn note(&self, now: u64) -> u32 {
        if self.seen.swap(now, Ordering::Relaxed) == now {
            self.unchanged.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.forget();
            0
        }
    }

    fn forget(&self) {
        self.unchanged.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Sealed pages of the plain channel, oldest first.
    pub(super) sealed: PageList,
    spares: PageList,
}

/// The owner is freeing pages, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Queue {
    /// Gives the memory of empty pages back.
    pub(super) fn release_spares(&mut self) {
        while let Some(spare) = self.spares.pop_front() {
            // SAFETY: an empty page that is in no list any more.
            unsafe { Page::release(spare) };
        }
    }
}

impl ThreadBuffer {
    /// A parked share without pages.
    pub(super) fn new() -> Self {
        Self {
            limit: AtomicUsize::new(0),
            open: CHANNELS.map(|_| AtomicPtr::new(ptr::null_mut())),
            replaced: AtomicU64::new(0),
            idle: Looks::new(),
            not_sealing: Looks::new(),
            busy: AtomicBool::new(false),
            freeing: OwnedMutex::new(),
            queue: Mutex::new(Queue { sealed: PageList::new(), spares: PageList::new() }),
            in_section: AtomicUsize::new(0),
            unlisted: AtomicBool::new(false),
            number: AtomicU64::new(0),
        }
    }

    /// Appends an object. Owner only.
    #[inline(always)]
    pub(crate) fn append(&self, object: RetireRequest) -> Pushed {
        let Some(page) = self.open_page(object.channel) else {
            return Pushed::NoPage;
        };
        let fill = page.push(object.slot, object.bytes); // [P1]
        barrier::light(); // [P2]
        let limit = self.limit.load(Ordering::Relaxed); // [P3]
        if fill.len() >= limit || (object.bytes > SMALL && fill.bytes() >= OPEN_BYTES) { Pushed::PageFull } else { Pushed::Ok }
    }

    /// The open page. For the owner, or under the queue's lock.
    #[inline(always)]
    pub(super) fn open_page(&self, channel: Channel) -> Option<&Page> {
        // SAFETY: an open page belongs to this share and is replaced by the owner under the lock only; so for the owner, and for
        // who holds the lock, it stays.
        unsafe { self.open[channel as usize].load(Ordering::Relaxed).as_ref() }
    }

    /// Whether the owner's open page in `channel` is to be sealed. Owner only.
    pub(super) fn is_full(&self, channel: Channel) -> bool {
        self.open_page(channel).is_some_and(|page| page.len() == SLOTS || page.bytes() >= OPEN_BYTES)
    }

    /// Opens a page where there is none, or replaces a full one, which is returned. `fresh` may be `None`, for want of memory.
    /// Owner only.
    pub(super) fn replace(&self, _queue: &mut Queue, channel: Channel, fresh: Option<NonNull<Page>>) -> Option<NonNull<Page>> {
        let fresh = fresh.map_or(ptr::null_mut(), NonNull::as_ptr);
        // Release and acquire would do nothing here that the lock does not do; the owner reads what it wrote itself.
        let old = self.open[channel as usize].swap(fresh, Ordering::Relaxed);
        self.replaced.fetch_add(1, Ordering::Relaxed);
        NonNull::new(old)
    }

    /// An empty page: a spare one or a new one. Owner only, without the lock.
    pub(super) fn new_page(&self) -> Option<NonNull<Page>> {
        let spare = lock(&self.queue).spares.pop_front();
        spare.or_else(Page::try_new)
    }

    /// Keeps an empty page for the next ones, of which there are up to `spares`, or gives its memory back. A thread that retires all
    /// the time so leaves the allocator out of it, which would cut returned pages up for small objects. The page is the caller's.
    /// Owner only.
    pub(super) fn recycle(&self, page: NonNull<Page>, spares: usize) {
        let mut queue = lock(&self.queue);
        if queue.spares.pages() < spares {
            queue.spares.push_back(page);
        } else {
            drop(queue);
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(page) };
        }
    }

    /// A number that changes with every append. For anybody; a glimpse, unless under the lock and after [D2].
    fn progress(&self) -> u64 {
        let open = |channel| self.open_page(channel).map_or(0, |page| page.len() as u64);
        self.replaced.load(Ordering::Relaxed) << 32 | open(Channel::Plain) << 16 | open(Channel::Drop)
    }

    /// How many looks in a row, this one included, have found that the owner retired nothing since the one before, and how many that it
    /// sealed nothing, and so freed nothing. For the drain, under the lock.
    pub(super) fn looks(&self, _queue: &Queue) -> (u32, u32) {
        (self.idle.note(self.progress()), self.not_sealing.note(self.replaced.load(Ordering::Relaxed)))
    }

    /// Marks the owner as freeing pages until what is returned is dropped; `None` if it is marked. Owner only.
    pub(super) fn begin_freeing(&self) -> Option<Busy<'_>> {
        // Made only if it is wanted: dropping one takes the mark back.
        (!self.busy.swap(true, Ordering::Relaxed)).then(|| Busy(&self.busy))
    }

    /// Whether nothing at all waits here. For the drain, under the lock.
    pub(super) fn is_empty(&self, queue: &Queue) -> bool {
        queue.sealed.is_empty() && CHANNELS.iter().all(|&channel| self.open_page(channel).is_none_or(|page| page.objects() == 0))
    }

    pub(super) fn is_parked(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == 0
    }

    /// [D1] The owner's next append will attend. Whether that is new.
    pub(super) fn park(&self) -> bool {
        self.limit.swap(0, Ordering::Relaxed) != 0
    }

    /// The owner appends by itself again. Whether that is new.
    pub(super) fn unpark(&self) -> bool {
        self.limit.swap(SLOTS, Ordering::Relaxed) == 0
    }

    /// Whether the owner attends to each object that it appends.
    pub(crate) fn attends_to_each(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == 1
    }

    /// Has the owner attend to each object that it appends, or to full pages only. Not while it is parked [D1], when it attends anyway.
    /// Owner only.
    pub(super) fn attend_to_each(&self, each: bool) {
        let (from, to) = if each { (SLOTS, 1) } else { (1, SLOTS) };
        let _ = self.limit.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes note of an object that the owner has added in a section, as its part of a page: small ones fill one before their bytes do.
    /// Owner only.
    pub(super) fn note_in_section(&self, bytes: usize) {
        let before = self.in_section.load(Ordering::Relaxed);
        self.in_section.store(before.saturating_add(bytes.max(SMALL)), Ordering::Relaxed);
    }

    /// What the present section has added, or the one that has just ended. Owner only.
    pub(super) fn take_from_section(&self) -> usize {
        self.in_section.swap(0, Ordering::Relaxed)
    }

    /// In the child of a fork by the owner: forgets what waits, and parks. The heap, which has forgotten its list of shares, lists this
    /// one again at the next append: that finds no open page, and so goes the unusual way.
    ///
    /// # Safety
    ///
    /// As for [`fork::ForkReset::reset_in_child`](crate::platform::fork::ForkReset::reset_in_child). Owner only.
    #[cfg(not(stillpoint_loom))]
    pub(super) unsafe fn reset_in_child(&self) {
        let mut spares = PageList::new();
        for open in &self.open {
            if let Some(page) = NonNull::new(open.swap(ptr::null_mut(), Ordering::Relaxed)) {
                // SAFETY: taken out of the share just now, so ours.
                unsafe { page.as_ref() }.forget_objects();
                spares.push_back(page);
            }
        }
        self.limit.store(0, Ordering::Relaxed);
        self.idle.forget();
        self.not_sealing.forget();
        self.in_section.store(0, Ordering::Relaxed);
        self.unlisted.store(true, Ordering::Relaxed);
        // SAFETY: the caller's promise; user code does not run under this lock.
        unsafe { self.queue.reinit(Queue { sealed: PageList::new(), spares }) };
        // SAFETY: the caller's promise. The owner may be in the middle of its turn, and `busy`.
        unsafe { self.freeing.reset_in_child() };
    }

    /// Whether the heap has to list this share again. Owner only.
    pub(super) fn is_to_be_listed(&self) -> bool {
        self.unlisted.load(Ordering::Relaxed)
    }

    /// The same, or that it has. Owner only.
    pub(super) fn set_to_be_listed(&self, is_to_be: bool) {
        self.unlisted.store(is_to_be, Ordering::Relaxed);
    }

    /// Under the lock of the heap's list.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Under the lock of the heap's list.
    pub(super) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Takes all pages away, sealed with `cookie` and noted where they were open: the owner is gone, or nobody reads any more.
    pub(super) fn take_all(&self, cookie: impl Fn() -> Cookie, note: impl Fn(&Page)) -> (PageList, PageList) {
        let mut queue = lock(&self.queue);
        let mut opened = PageList::new();
        for channel in CHANNELS {
            if let Some(page) = self.replace(&mut queue, channel, None) {
                // SAFETY: taken out of the share just now, so ours.
                let at = unsafe { page.as_ref() };
                at.seal(cookie());
                note(at);
                opened.push_back(page);
            }
        }
        queue.release_spares();
        (queue.sealed.take(), opened)
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::platform::user_code;

    #[test]
    fn a_panic_takes_the_owners_mark_back() {
        let local = ThreadBuffer::new();
        let fails = || {
            let _busy = local.begin_freeing();
            assert!(local.begin_freeing().is_none());
            assert!(local.begin_freeing().is_none(), "to ask changes nothing");
            std::panic::resume_unwind(Box::new("a fault"));
        };
        assert_eq!(user_code::contained(fails), None);
        assert!(local.begin_freeing().is_some());
    }
}
