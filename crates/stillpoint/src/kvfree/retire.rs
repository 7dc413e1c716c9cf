//! The slow path of a retire, and what becomes of a page: it is opened, sealed, and reclaimed.
//!
//! The fast path is an append to the thread's open page (`buffer.rs`). By what that came to,
//! [`Heap::retire_slow`] goes on:
//!
//! | the append | because | so |
//! |---|---|---|
//! | was not made | it is the thread's first in the global domain | it is made now |
//! | found no page | it is the first, or there was no memory when the last page was sealed | one is opened, and past the budget the thread is held back; without memory, `oom.rs` |
//! | says that the page is full | it is | it is sealed with the cookie of the next grace period, and queued; then pages are reclaimed |
//! | the same | the service thread has parked the thread | the thread is unparked, and past the budget it is held back |
//! | the same | the thread is throttled | the section is charged for the object (`throttle.rs`) |
//!
//! A thread whose thread-local state is gone has no buffer. Such threads share one, whose pages are
//! the service thread's.
//!
//! A page with a very heavy object, a hash table of 256 MiB perhaps, is the service thread's too,
//! whatever it takes to free it.
//!
//! At every seal a thread frees up to [`PAGES_PER_SEAL`] of its oldest pages, if their grace
//! periods have ended: on its own thread, where the allocator's cache is warm, and a few at a time.
//! What it does if none has is back-pressure. Past the budget it is held back, too, when it opens its
//! first page, and when it is unparked.

use super::{
    account::Freed,
    buffer::{Pushed, ThreadBuffer},
    heap::Heap,
    oom::{NoPage, OnNoPage},
    page::{PAGE_BYTES, Page, PageList, footprint_of},
    policy::{Policy, name_for_page},
    request::{CHANNELS, Channel, RetireRequest},
    throttle::Patience,
};
use crate::{
    gp::{Engine, Record},
    platform::{
        clock, fork,
        sync::{Arc, Ordering, lock},
    },
    trace,
};
use std::ptr::{self, NonNull};

/// How many pages are freed for each that is sealed, while there are any to free.
const PAGES_PER_SEAL: usize = 2;

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
        // Or the object would be retired twice. A reader that counts for itself may still have the
        // buffer of a thread that ends, which has no page any more.
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

    /// Appends, and opens a page for that if there is none and there is memory. Returns whether it
    /// has, too.
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

    /// Returns whether there was memory for a page.
    fn open_page(&self, buffer: &Arc<ThreadBuffer>, channel: Channel) -> bool {
        self.reserve.fill();
        // The drain does not find the pages of a buffer that is not listed.
        if !buffer.is_listed() && !self.list(buffer) {
            return false;
        }
        let Some(fresh) = buffer.new_page() else {
            return false;
        };
        let old = buffer.replace(&mut lock(&buffer.queue), channel, Some(fresh));
        debug_assert!(old.is_none(), "there was no open page");
        true
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
            self.seal_full_pages(engine, buffer, Reclaimer::Service);
            self.unpark(engine, buffer);
        }
        pushed != Pushed::NoPage
    }

    /// Does what an append to the caller's own buffer has said there is to do, or that a page has
    /// been `opened` for.
    pub(super) fn finish_append<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        object: &RetireRequest,
        opened: bool,
    ) {
        let (sealed, is_paid) = self.seal_full_pages(engine, buffer, Reclaimer::Owner);
        let was_parked = self.unpark(engine, buffer);
        engine.ensure_service();
        if self.frees_on_demand() {
            return;
        }
        let _ = engine.note_service(clock::now());
        let patience = if sealed > 0 {
            let patience = Patience::for_page(sealed, object.bytes);
            Some(if is_paid {
                patience.without_advance()
            } else {
                patience
            })
        } else {
            self.patience_in_advance(buffer, object, opened, was_parked)
        };
        self.charge_section(buffer, record, object.bytes, patience.is_some());
        let Some(patience) = patience else { return };
        // Inside a section it waits at the end, and for the object alone; in user code that the
        // library runs it does not wait at all.
        let has_waited = self.reclaim(engine, buffer, record, patience);
        if opened && sealed == 0 && has_waited && buffer.is_throttled() {
            buffer.set_paid(object.channel, true);
        }
    }

    /// Returns for how long a thread past the budget is held back for an object that has filled no
    /// page, if at all. The one that a page was `opened` for is held back as if it had filled it:
    /// the thread may exit before it does. Its exit waits for nothing, so threads that come and go
    /// would never be held back. A thread that has been idle is held back for what it adds.
    fn patience_in_advance(
        &self,
        buffer: &ThreadBuffer,
        object: &RetireRequest,
        opened: bool,
        was_parked: bool,
    ) -> Option<Patience> {
        let patience = match (opened, was_parked) {
            (true, _) => Patience::for_page(PAGE_BYTES, object.bytes),
            (false, true) => Patience::for_object(object.bytes),
            (false, false) => return None,
        };
        let patience = match object.channel {
            Channel::Plain => patience.for_readers(),
            Channel::Drop => patience,
        };
        self.is_over_budget(buffer, object.bytes)
            .then_some(patience)
    }

    /// Work that a section has put off to its end.
    pub(crate) fn reclaim_after_section<P: Policy>(
        &self,
        engine: &Engine<P>,
        retirer: Retirer<'_>,
    ) {
        let patience = Patience::for_section(retirer.buffer.take_charge());
        let _ = self.reclaim(engine, retirer.buffer, Some(retirer.record), patience);
    }

    /// Returns whether the thread was parked.
    fn unpark<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) -> bool {
        let was_parked = buffer.is_parked() && self.note_unparked(buffer.unpark());
        if was_parked {
            engine.kick();
        }
        was_parked
    }

    /// Returns the footprint of the pages that were sealed, 0 if none was, and whether the thread
    /// has waited for one of them in advance.
    fn seal_full_pages<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        reclaimer: Reclaimer,
    ) -> (usize, bool) {
        let full = CHANNELS
            .into_iter()
            .filter(|&channel| buffer.is_full(channel));
        full.fold((0, false), |(sealed, any_paid), channel| {
            let is_paid = buffer.is_paid(channel);
            let footprint = self.seal(engine, buffer, channel, reclaimer);
            (sealed + footprint, any_paid | is_paid)
        })
    }

    /// Seals an open page, and opens another, if there is memory for one. Returns the page's
    /// footprint.
    pub(super) fn seal<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        channel: Channel,
        reclaimer: Reclaimer,
    ) -> usize {
        let fresh = buffer.new_page();
        let mut queue = lock(&buffer.queue);
        // Under the lock, so that the cookies of a queue are in order.
        let cookie = name_for_page(engine);
        let Some(full) = buffer.replace(&mut queue, channel, fresh) else {
            return 0;
        };
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
        // To give a large block back to the system takes longer than a retire may.
        let is_quick = self.frees_on_demand() || !page.is_very_heavy();
        let frees_it_here = channel == Channel::Plain && is_quick;
        if frees_it_here && reclaimer == Reclaimer::Owner && !self.frees_whole_batches() {
            queue.sealed.push_back(full);
            let named = queue.note_named(cookie, footprint);
            // One that frees on demand asks for it from inside its next section, which must not
            // hold it up.
            if self.frees_on_demand() || named >= self.named_together() {
                engine.begin(cookie);
            }
            drop(queue);
        } else {
            // At once: the service thread begins none while an older one is held up.
            engine.begin(cookie);
            // Still under the queue's lock: a flush looks at the queues first and at the pending
            // pages last, and must not miss a page that is on its way from one to the other.
            lock(&self.pending).add_one(full);
            drop(queue);
            engine.kick();
        }
        if is_relief {
            engine.signal_waiters();
        }
        footprint
    }

    /// Frees the oldest pages of the queue that are due, a few. Back-pressure comes first: if
    /// nothing is due, and too much waits, it ends a grace period, or waits for one for `patience`
    /// at most. Returns whether it has waited.
    fn reclaim<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        patience: Patience,
    ) -> bool {
        // A retire from within: the one outside goes on reclaiming.
        let Some(_reclaiming) = buffer.begin_reclaiming() else {
            return false;
        };
        let has_waited = self.apply_backpressure(engine, buffer, record, patience);
        self.free_own(engine, buffer, PAGES_PER_SEAL);
        has_waited
    }

    /// Frees up to so many pages of the calling thread that are due. Returns whether it is still
    /// the process that it was: a destructor may fork.
    pub(super) fn free_own<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        pages: usize,
    ) -> bool {
        let _freeing = buffer.freeing.lock();
        let mut due = self.take_due(engine, buffer, pages);
        let spares = self.spare_pages(buffer);
        let process = fork::process();
        while let Some(page) = due.pop_front() {
            // SAFETY: taken off our own queue after its grace period had ended; what is there may
            // be freed on this thread.
            let freed = self.note_nested(|| buffer.progress(), || unsafe { self.free(page) });
            let is_relief = buffer.recycle(page, spares, || {
                freed.is_some_and(|freed| self.note_freed_by(buffer, freed))
            });
            if is_relief {
                engine.signal_waiters();
            }
            if fork::process() != process {
                due.take().forget();
                return false;
            }
        }
        true
    }

    /// Takes up to so many of the oldest pages that are due off the queue.
    fn take_due<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        pages: usize,
    ) -> PageList {
        let mut queue = lock(&buffer.queue);
        let mut due = PageList::new();
        while due.pages() < pages
            && queue
                .sealed
                .front()
                .is_some_and(|page| engine.has_ended(page.cookie()))
            && let Some(page) = queue.sealed.pop_front()
        {
            due.push_back(page);
        }
        due
    }

    /// Frees a page's objects. If a destructor forks, what was left of them is forgotten in the
    /// child. Returns what must be counted: nothing in the child, where the page is not counted any
    /// more (see `fork.rs`).
    ///
    /// # Safety
    ///
    /// The page is the caller's alone, its grace period has ended, and its objects may be freed on
    /// this thread.
    #[must_use]
    pub(super) unsafe fn free(&self, page: NonNull<Page>) -> Option<Freed> {
        // SAFETY: the caller's promise.
        let page = unsafe { page.as_ref() };
        let freed = Freed::of(page);
        let process = fork::process();
        // SAFETY: the caller's promise.
        let panicked = unsafe { page.free_objects(self.domain) };
        trace::rcu_kvfree_page_free(
            self.domain,
            ptr::from_ref(page).addr() as u64,
            freed.tally.objects as u64,
            freed.tally.footprint as u64,
        );
        if panicked > 0 {
            self.panicked.fetch_add(panicked, Ordering::Relaxed);
        }
        (fork::process() == process).then_some(freed)
    }

    /// Like [`Heap::free`], and counts it, for a thread that has not sealed the page.
    ///
    /// # Safety
    ///
    /// As for [`Heap::free`].
    pub(super) unsafe fn free_counted<P: Policy>(&self, engine: &Engine<P>, page: NonNull<Page>) {
        // SAFETY: the caller's promise.
        let freed = unsafe { self.free(page) };
        if freed.is_some_and(|freed| self.note_freed(freed)) {
            engine.signal_waiters();
        }
    }
}
