//! The slow path of a retire, and what becomes of a page: it is opened, sealed, and reclaimed.
//!
//! The fast path is an append to the thread's open page (`buffer.rs`). [`Heap::retire_slow`]
//! continues according to its result:
//!
//! | the append | because | so |
//! |---|---|---|
//! | was not made | it is the thread's first in the global domain | it is made now |
//! | found no page | it is the first, or there was no memory when the last page was sealed | one is opened; past the budget, back-pressure; without memory, `oom.rs` |
//! | says that the page is full | it is | it is sealed with the cookie of the next grace period, and queued; back-pressure; then pages are reclaimed |
//! | the same | the service thread has parked the thread | the thread is unparked |
//! | the same | more is due, and the page has reached the limit | the next slice is freed |
//! | the same | the thread is throttled | the section is charged for the object (`throttle.rs`) |
//!
//! A thread whose thread-local state is gone has no buffer. Such threads share one, whose pages are
//! the service thread's.
//!
//! The service thread frees large pages, too: returning a hash table of 256 MiB to the system takes
//! longer than a retire may.
//!
//! # Slices
//!
//! A thread frees its own pages itself, where the allocator's cache is warm, in slices of [`SLICE`]
//! objects, so that no retire takes as long as a whole page, unless the thread is past its bound: then
//! it frees as many bytes as it adds. The first slice comes when a page is sealed, after
//! back-pressure (`throttle.rs`). While more is due, the limit of the open page
//! (`buffer.rs`) makes the next one come after half as many appends at most: it is reckoned by the
//! plain page, and holds for both. So the queue becomes shorter.
//! The slots of a slice are copied, and their page stays in the queue: the service thread may take
//! it over meanwhile. Past the budget, a thread that is to wait for the service thread first frees
//! its own pages.

use super::{
    buffer::{Added, PAGES_PER_SLICE, Pushed, SLICE, ThreadBuffer},
    heap::Heap,
    oom::{NoPage, OnNoPage},
    page::{Page, PageList, SLOTS, Tally, footprint_of, free_slots},
    policy::{Policy, name_for_page},
    request::{CHANNELS, Channel, RetireRequest},
};
use crate::{
    gp::{Engine, Record},
    platform::{
        clock, fork,
        sync::{Arc, Ordering, lock},
    },
    trace,
};
use std::{
    mem::MaybeUninit,
    ptr::{self, NonNull},
};

/// A thread that retires: the record through which it reads, and its buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retirer<'a> {
    pub(crate) record: &'a Record,
    pub(crate) buffer: &'a Arc<ThreadBuffer>,
}

/// Which thread frees a sealed page of plain objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reclaimer {
    Owner,
    Service,
}

impl Heap {
    /// Retires an object that the fast path has not, or does what the fast path left to do:
    /// `pushed` is the result of the append, if it was made. `retirer` is the calling thread. `Err`
    /// if there is no memory, and `on_no_page` leaves that to the caller.
    ///
    /// # Safety
    ///
    /// New readers cannot find the object; nothing else frees it; it may be freed on any thread.
    #[cold]
    pub(crate) unsafe fn retire_slow<P: Policy>(
        &self,
        engine: &Engine<P>,
        retirer: Retirer<'_>,
        object: RetireRequest,
        pushed: Option<Pushed>,
        on_no_page: OnNoPage,
    ) -> Result<(), NoPage> {
        let (pushed, opened) = match pushed {
            Some(Pushed::PageFull) => (Pushed::PageFull, false),
            _ => self.append_to_some_page(retirer.buffer, object),
        };
        match pushed {
            Pushed::Ok if !opened => Ok(()),
            Pushed::Ok | Pushed::PageFull => {
                let record = Some(retirer.record);
                self.finish_append(engine, retirer.buffer, record, &object, opened);
                Ok(())
            }
            // SAFETY: the caller's promise; no page has the object.
            Pushed::NoPage => unsafe {
                let (record, buffer) = (Some(retirer.record), Some(&**retirer.buffer));
                self.retire_without_page(engine, record, buffer, object, on_no_page)
            },
        }
    }

    /// Like [`Heap::retire_slow`], for a thread without a buffer: its thread-local state is gone, or
    /// there is no memory for one. `record` is the thread's, if it still has that.
    ///
    /// # Safety
    ///
    /// As for [`Heap::retire_slow`].
    #[cold]
    pub(crate) unsafe fn retire_unbuffered<P: Policy>(
        &self,
        engine: &Engine<P>,
        record: Option<&Record>,
        object: RetireRequest,
        pushed: Option<Pushed>,
        on_no_page: OnNoPage,
    ) -> Result<(), NoPage> {
        // Otherwise the object would be retired twice. A reader that counts for itself may still
        // have the buffer of a thread that ends, which has no page any more.
        assert!(
            matches!(pushed, None | Some(Pushed::NoPage)),
            "a thread that has appended has a buffer"
        );
        if record.is_none() && self.append_at_threads_end(engine, object) {
            return Ok(());
        }
        // SAFETY: the caller's promise; no page has the object.
        unsafe { self.retire_without_page(engine, record, None, object, on_no_page) }
    }

    /// Appends, and opens a page for that if there is none and there is memory. Also returns
    /// whether it has opened one.
    fn append_to_some_page(
        &self,
        buffer: &Arc<ThreadBuffer>,
        object: RetireRequest,
    ) -> (Pushed, bool) {
        match buffer.append(object) {
            Pushed::NoPage if self.open_page(buffer, object.channel) => {
                (buffer.append(object), true)
            }
            pushed => (pushed, false),
        }
    }

    /// Opens a page. Returns whether there was memory for one.
    fn open_page(&self, buffer: &Arc<ThreadBuffer>, channel: Channel) -> bool {
        self.line.reserve.fill();
        // The drain does not find the pages of a buffer that is not listed.
        if !buffer.is_listed() && !self.list(buffer) {
            return false;
        }
        let Some(fresh) = self.new_page(buffer, channel) else {
            return false;
        };
        let old = buffer.replace(&mut lock(&buffer.queue), channel, Some(fresh));
        debug_assert!(old.is_none(), "there was no open page");
        true
    }

    /// Returns an empty page for the owner of `buffer`. One for objects with destructors may come from
    /// the reserve, to which the service thread gives those that it frees; a thread keeps the plain
    /// pages that it frees itself.
    pub(super) fn new_page(
        &self,
        buffer: &ThreadBuffer,
        channel: Channel,
    ) -> Option<NonNull<Page>> {
        let reserved = || match channel {
            Channel::Plain => None,
            Channel::Drop => self.line.reserve.take_spare(),
        };
        buffer.take_spare().or_else(reserved).or_else(Page::try_new)
    }

    /// Appends to the buffer that threads at their end share. Nothing throttles them: they may be
    /// inside a section, and their record is not known. Returns whether there was memory for a
    /// page.
    fn append_at_threads_end<P: Policy>(&self, engine: &Engine<P>, object: RetireRequest) -> bool {
        let mut shared = lock(&self.threads_end);
        if shared.is_none() {
            *shared = self.join();
        }
        // The holder of the lock is the buffer's owner.
        let Some(buffer) = &*shared else { return false };
        let (pushed, _) = self.append_to_some_page(buffer, object);
        if pushed == Pushed::PageFull {
            for channel in CHANNELS {
                if buffer.is_full(channel) {
                    self.seal(engine, buffer, channel, Reclaimer::Service);
                }
            }
            self.unpark(engine, buffer);
        }
        pushed != Pushed::NoPage
    }

    /// Does the work that an append to the caller's own buffer has reported, or that is due because
    /// the append has `opened` a page.
    pub(super) fn finish_append<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        object: &RetireRequest,
        opened: bool,
    ) {
        if !opened && buffer.has_slice_scheduled() && !buffer.is_full(object.channel) {
            // A retire from within: the one outside goes on reclaiming.
            if let Some(_reclaiming) = buffer.begin_reclaiming() {
                self.free_slice(engine, buffer);
            }
            return;
        }
        let sealed = CHANNELS
            .into_iter()
            .filter(|&channel| buffer.is_full(channel))
            .filter_map(|channel| self.seal(engine, buffer, channel, Reclaimer::Owner))
            .reduce(Added::plus);
        self.unpark(engine, buffer);
        engine.ensure_service();
        if self.frees_on_demand() {
            return;
        }
        let _ = engine.note_service(clock::now());
        // A page with destructors is the service thread's already while it is open.
        let is_dropped = object.channel == Channel::Drop;
        let by_service = is_dropped || sealed.is_some_and(|sealed| sealed.by_service);
        let added = sealed.or_else(|| {
            (opened && self.is_over_budget(buffer, 0)).then(|| Added::opened(is_dropped))
        });
        if let Some(added) = added {
            self.reclaim(engine, buffer, record, added);
        }
        self.charge_section(buffer, record, object.bytes, by_service, added);
    }

    /// Does the work that a section has put off to its end.
    pub(crate) fn reclaim_after_section<P: Policy>(
        &self,
        engine: &Engine<P>,
        retirer: Retirer<'_>,
    ) {
        let added = retirer.buffer.take_charge();
        self.reclaim(engine, retirer.buffer, Some(retirer.record), added);
    }

    fn unpark<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) {
        if buffer.is_parked() && self.note_unparked(buffer.unpark()) {
            engine.kick();
        }
    }

    /// Seals an open page, if there is one, and opens another, if there is memory for one.
    /// Returns what it has sealed.
    pub(super) fn seal<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        channel: Channel,
        reclaimer: Reclaimer,
    ) -> Option<Added> {
        let fresh = self.new_page(buffer, channel);
        let mut queue = lock(&buffer.queue);
        // Under the lock, so that the cookies of a queue are in order.
        let cookie = name_for_page(engine);
        let full = buffer.replace(&mut queue, channel, fresh)?;
        // SAFETY: the page was open a moment ago and is the owner's.
        let page = unsafe { full.as_ref() };
        page.seal(cookie);
        let is_relief = self.note_sealed_by(buffer, page);
        let footprint = footprint_of(page);
        trace::rcu_kvfree_page_seal(
            self.domain,
            full.as_ptr().addr() as u64,
            page.objects() as u64,
            footprint as u64,
            cookie.seq().number(),
        );
        let is_for_all =
            channel == Channel::Plain && (self.frees_on_demand() || !self.is_large(page.bytes()));
        let by_service =
            !is_for_all || reclaimer == Reclaimer::Service || self.frees_whole_batches();
        if !by_service {
            queue.sealed.push_back(full);
            let named = queue.note_named(cookie, footprint);
            // A thread that frees on demand asks for that inside its next section, which must not
            // hold the grace period up.
            if self.frees_on_demand() || named >= self.named_together() {
                engine.begin(cookie);
            }
            drop(queue);
        } else {
            // At once: the service thread begins none while an older one is held up.
            engine.begin(cookie);
            // Still under the queue's lock: a flush looks at the queues first and at the pending
            // pages last, and must not miss a page that is on its way from one to the other.
            lock(&self.line.pending).arrived.push_back(full);
            drop(queue);
            engine.kick();
        }
        if is_relief {
            engine.signal_waiters();
        }
        Some(Added::filled(footprint, by_service))
    }

    /// Frees a slice of what is due in the queue; under pressure, at least as many bytes as were `added`.
    /// Back-pressure comes first.
    fn reclaim<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        added: Added,
    ) {
        // A retire from within: the one outside goes on reclaiming.
        let Some(_reclaiming) = buffer.begin_reclaiming() else {
            return;
        };
        let section = record.filter(|record| record.is_reading());
        let is_held_back = self.hold_back(engine, buffer, section, added);
        // Inside a section a page that is not held back does not end throttling by itself: pages of
        // the other channel may be held back.
        if is_held_back || section.is_none() || !self.is_under_pressure(buffer) {
            buffer.set_throttled(is_held_back);
        }
        let mut more = self.free_own(engine, buffer, SLICE);
        // A slice of small objects may hold fewer bytes than the page that was sealed.
        if more && !added.by_service && self.is_under_pressure(buffer) {
            // Counts what is freed: the queue may stay as long as it is, because destructors may retire again.
            let freed = || buffer.account.freed.load().footprint;
            let before = freed();
            while more && freed().wrapping_sub(before) < added.counted {
                more = self.free_own(engine, buffer, SLOTS);
            }
        }
        buffer.schedule_slice(more);
    }

    /// Frees a slice of what is due in the calling thread's queue, and schedules the next.
    fn free_slice<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) {
        let more = self.free_own(engine, buffer, SLICE);
        buffer.schedule_slice(more);
    }

    /// Frees up to `most` objects of the calling thread's oldest pages, of [`PAGES_PER_SLICE`] at
    /// most, if they are due. Returns whether more is due; false in the child of a fork by a
    /// destructor.
    pub(super) fn free_own<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        most: usize,
    ) -> bool {
        let mut slots = [const { MaybeUninit::uninit() }; SLOTS];
        // A flush waits for objects that are not in the queue any more.
        let _freeing = buffer.freeing.lock();
        let (mut taken, mut emptied) = (Tally::default(), PageList::new());
        let more = {
            let mut queue = lock(&buffer.queue);
            loop {
                let oldest = queue.sealed.front();
                let Some(oldest) = oldest.filter(|oldest| engine.has_ended(oldest.cookie())) else {
                    break false;
                };
                if taken.objects == most || emptied.pages() == PAGES_PER_SLICE {
                    break true;
                }
                let slots = &mut slots[taken.objects..most];
                let page = ptr::from_ref(oldest).addr() as u64;
                let part = queue.sealed.take_front(slots, &mut emptied);
                let (objects, footprint) = (part.objects as u64, part.footprint as u64);
                trace::rcu_kvfree_page_free(self.domain, page, objects, footprint);
                taken = taken.plus(part);
            }
        };
        let process = fork::process();
        // SAFETY: `take_front` has written these, and taken them off our own queue after their grace
        // period had ended; what is there may be freed on this thread.
        let free = || unsafe { free_slots(self.domain, &slots[..taken.objects]) };
        let panicked = self.note_nested(|| buffer.progress(), free);
        if panicked > 0 {
            self.panicked.fetch_add(panicked, Ordering::Relaxed);
        }
        // In the child of a fork they are not counted any more: see `fork.rs`.
        if fork::process() != process {
            emptied.forget();
            return false;
        }
        let spares = if emptied.is_empty() {
            0
        } else {
            self.spare_pages(buffer)
        };
        if buffer.recycle(emptied, spares, || self.note_freed_by(buffer, taken)) {
            engine.signal_waiters();
        }
        more
    }

    /// Frees a page's objects, and counts them, for a thread that has not sealed the page. If a
    /// destructor forks, what was left of them is forgotten in the child, where the page is not
    /// counted any more (see `fork.rs`).
    ///
    /// # Safety
    ///
    /// The page is the caller's alone, its grace period has ended, and its objects may be freed on
    /// this thread.
    pub(super) unsafe fn free_counted<P: Policy>(&self, engine: &Engine<P>, page: NonNull<Page>) {
        // SAFETY: the caller's promise.
        let page = unsafe { page.as_ref() };
        let freed = Tally::of(page);
        let process = fork::process();
        // SAFETY: the caller's promise.
        let panicked = unsafe { page.free_objects(self.domain) };
        trace::rcu_kvfree_page_free(
            self.domain,
            ptr::from_ref(page).addr() as u64,
            freed.objects as u64,
            freed.footprint as u64,
        );
        if panicked > 0 {
            self.panicked.fetch_add(panicked, Ordering::Relaxed);
        }
        if fork::process() == process && self.note_gone(freed, freed.objects) {
            engine.signal_waiters();
        }
    }
}
