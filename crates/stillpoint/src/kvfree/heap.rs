//! A domain's deferred frees: what the retiring thread does. When it frees, ends a grace period or waits is `pace`'s.

use super::{
    local::{CHANNELS, Channel, Pushed, Queue, RetireRequest, ThreadBuffer},
    page::{PAGE_BYTES, Page, PageList, footprint_of},
    policy::{Policy, start_for_page},
    slot::Slot,
    throttle::longest_wait_for_page,
};
use crate::{
    gp::{Engine, Haste, Record, Waited},
    platform::{
        clock, fork, memory,
        sync::{Arc, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, lock},
        thread, user_code,
    },
};
use std::ptr::NonNull;

/// What a new domain allows to wait.
pub(crate) const DEFAULT_BUDGET: usize = 8 << 20;

/// How waiting pages are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DrainPolicy {
    /// Each page when its own grace period has ended, by the thread that filled it. What a program wants.
    #[default]
    PerPage = 0,
    /// All pages that wait together, after one more grace period, by the service thread, without a budget: what `kvfree_rcu()`
    /// did before its grace periods were polled page by page. For comparison; under a flood its memory grows without bound.
    WholeBatch = 1,
}

/// What becomes of an object where no page can be had to remember it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNoPage {
    /// Its retirer waits for a grace period, where it may, and frees it: the single-argument kvfree_rcu()'s way out.
    Block,
    /// It is given back at once: it can be remembered otherwise.
    Fail,
}

/// Who frees a sealed page of plain objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reclaimer {
    Owner,
    Service,
}

/// Objects each of which a callback of its own will free, for want of a page, and what they take up. Their callbacks know it.
#[derive(Debug)]
pub(super) struct Chained {
    objects: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    freed: AtomicU64,
}

impl Default for Chained {
    fn default() -> Self {
        Self { objects: AtomicUsize::new(0), bytes: AtomicUsize::new(0), freed: AtomicU64::new(0) }
    }
}

/// What such a callback takes up, beside its object.
const CHAINED_BYTES: usize = 96;

#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) domain: u64,
    policy: AtomicU32,
    budget: AtomicUsize,
    /// What sealed pages and their objects take up.
    pub(super) weight: AtomicUsize,
    objects: AtomicUsize,
    pages: AtomicUsize,
    /// What waits without a page.
    pub(super) chained: Arc<Chained>,
    leaked: AtomicU64,
    /// Threads that are not parked: those that retire.
    pub(super) active: AtomicUsize,
    pub(super) assists: AtomicU64,
    pub(super) waits: AtomicU64,
    /// How long those waits might have been, together: for tests, which cannot rely on how long they were.
    #[cfg(test)]
    pub(crate) waits_granted: AtomicU64,
    inline_waits: AtomicU64,
    freed: AtomicU64,
    panicked: AtomicU64,
    /// By their numbers.
    pub(super) locals: Mutex<Vec<Arc<ThreadBuffer>>>,
    /// For threads whose own share is gone, at their very end.
    late: Mutex<Option<Arc<ThreadBuffer>>>,
    /// Pages for the service thread: those with destructors, those of threads that have gone.
    pub(super) service_queue: Mutex<PageList>,
    pub(super) drain: super::drain::Drain,
}

impl Heap {
    pub(crate) fn new(domain: u64) -> Self {
        Self {
            domain,
            policy: AtomicU32::new(DrainPolicy::default() as u32),
            budget: AtomicUsize::new(DEFAULT_BUDGET),
            weight: AtomicUsize::new(0),
            objects: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            chained: Arc::new(Chained::default()),
            leaked: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            assists: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            #[cfg(test)]
            waits_granted: AtomicU64::new(0),
            inline_waits: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            locals: Mutex::new(Vec::new()),
            late: Mutex::new(None),
            service_queue: Mutex::new(PageList::new()),
            drain: super::drain::Drain::new(),
        }
    }

    pub(crate) fn policy(&self) -> DrainPolicy {
        if self.policy.load(Ordering::Relaxed) == DrainPolicy::PerPage as u32 {
            DrainPolicy::PerPage
        } else {
            DrainPolicy::WholeBatch
        }
    }

    pub(crate) fn set_policy(&self, policy: DrainPolicy) {
        self.policy.store(policy as u32, Ordering::Relaxed);
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    pub(crate) fn set_budget(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            freed: self.freed.load(Ordering::Relaxed) + self.chained.freed.load(Ordering::Relaxed),
            leaked: self.leaked.load(Ordering::Relaxed),
            assists: self.assists.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            inline_waits: self.inline_waits.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }

    /// A share for the calling thread; `None` if there is no memory to list it.
    pub(crate) fn join(&self) -> Option<Arc<ThreadBuffer>> {
        let local = Arc::new(ThreadBuffer::new());
        self.list(&local).then_some(local)
    }

    /// Whether there was memory for it. The list may be large, and those who free take its lock: nobody waits for memory under it.
    fn list(&self, local: &Arc<ThreadBuffer>) -> bool {
        let mut locals = lock(&self.locals);
        let listed = memory::refusable(|| locals.try_reserve(1)).is_ok();
        if listed {
            local.set_number(locals.last().map_or(1, |last| last.number() + 1));
            locals.push(Arc::clone(local));
        }
        listed
    }

    /// Gives a share up: what waits in it is handed to the service thread.
    pub(crate) fn leave<P: Policy>(&self, engine: &Engine<P>, local: &Arc<ThreadBuffer>) {
        // So that a flush, or the end of the domain, waits until the pages are in the service queue.
        let freeing = local.freeing.lock();
        let (sealed, opened) = local.take_all(|| start_for_page(engine), |page| self.note_sealed(page));
        let left = !(sealed.is_empty() && opened.is_empty());
        let mut service_queue = lock(&self.service_queue);
        service_queue.append(sealed);
        service_queue.append(opened);
        drop(service_queue);
        drop(freeing);
        // Only now, so that statistics see each object in one place or the other.
        lock(&self.locals).retain(|other| !Arc::ptr_eq(other, local));
        self.note_parked(local.park());
        if left {
            engine.kick();
        }
    }

    /// Retires an object. `Err` if there is no memory to remember it by, and no waiting for a grace period
    /// here, or none wanted: the object is then still the caller's.
    ///
    /// # Safety
    ///
    /// New readers cannot find the object; nobody else frees it; it may be freed on any thread. `local` is the calling thread's
    /// own, and `record` is the one through which it reads, if it has one.
    #[inline(always)]
    pub(crate) unsafe fn retire<P: Policy>(
        &self, engine: &Engine<P>, local: &Arc<ThreadBuffer>, record: Option<&Record>, object: RetireRequest,
        on_no_page: OnNoPage,
    ) -> Result<(), Slot> {
        match local.append(object) {
            Pushed::Ok => Ok(()),
            appended => self.see_to(engine, local, record, object, appended, on_no_page),
        }
    }

    /// The rest of a retire whose append was not the usual one.
    #[cold]
    #[inline(never)]
    pub(crate) fn see_to<P: Policy>(
        &self, engine: &Engine<P>, local: &Arc<ThreadBuffer>, record: Option<&Record>, object: RetireRequest, appended: Pushed,
        on_no_page: OnNoPage,
    ) -> Result<(), Slot> {
        match appended {
            Pushed::Ok => Ok(()),
            Pushed::PageFull => {
                self.attend(engine, local, record, &object);
                Ok(())
            }
            Pushed::NoPage => self.retire_without_page(engine, local, record, object, on_no_page),
        }
    }

    fn retire_without_page<P: Policy>(
        &self, engine: &Engine<P>, local: &Arc<ThreadBuffer>, record: Option<&Record>, object: RetireRequest,
        on_no_page: OnNoPage,
    ) -> Result<(), Slot> {
        // What is not listed has no pages: nobody would find them.
        let is_listed = !local.is_to_be_listed() || self.list(local);
        local.set_to_be_listed(!is_listed);
        self.ensure_reserve();
        if is_listed && let Some(fresh) = local.new_page() {
            let old = local.replace(&mut lock(&local.queue), object.channel, Some(fresh));
            debug_assert!(old.is_none(), "there was no open page");
            let appended = local.append(object);
            debug_assert_ne!(appended, Pushed::NoPage);
            if appended == Pushed::PageFull {
                self.attend(engine, local, record, &object);
            }
            return Ok(());
        }
        let waits = on_no_page == OnNoPage::Block && self.may_wait(engine);
        if waits && engine.wait_for(engine.start(), thread::token(), None, Haste::Normal) == Waited::Ended {
            self.inline_waits.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the grace period has ended, the object is ours, and nobody else will free it.
            let panicked = user_code::panics(self.domain, || unsafe { object.slot.free() });
            self.panicked.fetch_add(u64::from(panicked), Ordering::Relaxed);
            self.freed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        Err(object.slot)
    }

    /// Retires from a thread whose thread-local state is gone.
    ///
    /// # Safety
    ///
    /// As for [`Heap::retire`].
    pub(crate) unsafe fn retire_late<P: Policy>(&self, engine: &Engine<P>, object: RetireRequest) -> Result<(), Slot> {
        let mut late = lock(&self.late);
        if late.is_none() {
            *late = self.join();
        }
        let Some(local) = late.clone() else {
            return Err(object.slot);
        };
        // SAFETY: whoever holds the lock is the share's owner. The record is unknown, so waiting must be ruled out: the thread
        // may be inside a section.
        let appended = match local.append(object) {
            Pushed::NoPage => {
                self.ensure_reserve();
                let Some(fresh) = local.new_page() else {
                    return Err(object.slot);
                };
                local.replace(&mut lock(&local.queue), object.channel, Some(fresh));
                local.append(object)
            }
            appended => appended,
        };
        if appended == Pushed::PageFull {
            // Nobody paces this share, so its pages are the service thread's.
            self.seal_full_pages(engine, &local, Reclaimer::Service);
            self.unpark(engine, &local);
        }
        Ok(())
    }

    /// Has an object freed by a callback of its own: what could not be remembered otherwise, by a thread that cannot wait, as it is inside a
    /// section or a callback. It counts against the budget, and a section is paced for it at its end. If there is no memory for that either,
    /// it is never freed: nobody may wait for memory in a section that others may wait for.
    ///
    /// # Safety
    ///
    /// As for [`Heap::retire`].
    #[cold]
    #[cfg(not(stillpoint_loom))]
    pub(crate) unsafe fn chain<P: Policy>(&self, engine: &Engine<P>, reader: Option<(&Record, &ThreadBuffer)>, slot: Slot) {
        let bytes = slot.bytes() + CHAINED_BYTES;
        let chained = Arc::clone(&self.chained);
        self.chained.objects.fetch_add(1, Ordering::Relaxed);
        self.chained.bytes.fetch_add(bytes, Ordering::Relaxed);
        let queued = engine.try_call(move || {
            let process = fork::process();
            let done = Done { chained: &chained, process, bytes };
            // SAFETY: a grace period after the retire, once, and on a thread that may free it, by the caller's promise.
            unsafe { slot.free() };
            drop(done);
        });
        if !queued {
            self.chained.objects.fetch_sub(1, Ordering::Relaxed);
            self.chained.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.leaked.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            user_code::tell(self.domain, || {
                tracing::error!("no memory to remember a retired object by, and no waiting for any here: it is never freed");
            });
        }
        if let Some((record, local)) = reader
            && record.is_reading()
            && self.is_over_budget()
        {
            local.note_in_section(bytes);
            record.defer_to_unlock();
        }
    }

    /// Sees to what the append of `object` has found: full pages, a parked thread, the pace.
    fn attend<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer, record: Option<&Record>, object: &RetireRequest) {
        let sealed = self.seal_full_pages(engine, local, Reclaimer::Owner);
        self.unpark(engine, local);
        engine.ensure_service();
        let _ = engine.note_service(clock::now());
        if let Some(record) = record.filter(|record| record.is_reading()) {
            if local.attends_to_each() {
                local.note_in_section(object.bytes);
                record.defer_to_unlock();
            } else if sealed > 0 {
                local.note_in_section(object.bytes);
            }
        }
        if sealed > 0 {
            self.pace(engine, local, record, longest_wait_for_page(sealed));
        }
    }

    fn unpark<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer) {
        if local.is_parked() && self.note_unparked(local.unpark()) {
            engine.kick();
        }
    }

    pub(super) fn note_unparked(&self, changed: bool) -> bool {
        self.active.fetch_add(usize::from(changed), Ordering::Relaxed);
        changed
    }

    pub(super) fn note_parked(&self, changed: bool) {
        self.active.fetch_sub(usize::from(changed), Ordering::Relaxed);
    }

    /// What the pages that were sealed weigh; 0 if none was.
    fn seal_full_pages<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer, freer: Reclaimer) -> usize {
        let full = CHANNELS.into_iter().filter(|&channel| local.is_full(channel));
        full.map(|channel| self.seal(engine, local, channel, freer)).sum()
    }

    fn seal<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer, channel: Channel, freer: Reclaimer) -> usize {
        let fresh = local.new_page();
        let mut queue = lock(&local.queue);
        // Under the lock, so that the cookies of a queue are in order.
        let cookie = start_for_page(engine);
        let Some(full) = local.replace(&mut queue, channel, fresh) else {
            return 0;
        };
        // SAFETY: the page was open a moment ago and is the owner's.
        let page = unsafe { full.as_ref() };
        page.seal(cookie);
        self.note_sealed(page);
        let weight = footprint_of(page);
        if channel == Channel::Plain && freer == Reclaimer::Owner && self.policy() == DrainPolicy::PerPage {
            queue.sealed.push_back(full);
            return weight;
        }
        // Still under the queue's lock: a flush looks at the queues first and at the service queue last, and must not miss a page that is
        // on its way from one to the other.
        let first = self.hand_to_service(full);
        drop(queue);
        if first {
            engine.kick();
        }
        weight
    }

    /// Whether there was nothing for the service thread before.
    fn hand_to_service(&self, page: NonNull<Page>) -> bool {
        let mut service_queue = lock(&self.service_queue);
        let first = service_queue.is_empty();
        service_queue.push_back(page);
        first
    }

    /// Frees a page's objects. If a destructor forks, what was left of them is forgotten in the child.
    ///
    /// # Safety
    ///
    /// The page is the caller's alone, its grace period has ended, and its objects may be freed on this thread.
    pub(super) unsafe fn free<P: Policy>(&self, engine: &Engine<P>, page: NonNull<Page>) {
        // SAFETY: the caller's promise.
        let page = unsafe { page.as_ref() };
        let (objects, weight) = (page.objects(), footprint_of(page));
        let process = fork::process();
        // SAFETY: the caller's promise.
        let panicked = unsafe { page.free_objects(self.domain) };
        self.panicked.fetch_add(panicked, Ordering::Relaxed);
        if fork::process() != process {
            // The page is not counted here any more: see `reset_in_child`.
            return;
        }
        self.freed.fetch_add(objects as u64, Ordering::Relaxed);
        // Release, pairs with `waiting_sealed`: who finds fewer waiting sees what their destructors did.
        self.objects.fetch_sub(objects, Ordering::Release);
        self.pages.fetch_sub(1, Ordering::Release); // The same: pairs with `waiting_sealed`.
        let before = self.weight.fetch_sub(weight, Ordering::Release); // The same: pairs with `waiting_sealed`.
        if before >= self.budget() && before - weight < self.budget() {
            engine.signal_waiters();
        }
    }

    /// In the child of a fork: forgets what waits, and all shares but that of the calling thread, `own`, which lists itself again.
    ///
    /// # Safety
    ///
    /// As for [`fork::ForkReset::reset_in_child`].
    #[cfg(not(stillpoint_loom))]
    pub(crate) unsafe fn reset_in_child(&self, own: Option<&ThreadBuffer>) {
        for count in [&self.weight, &self.objects, &self.pages, &self.active, &self.chained.objects, &self.chained.bytes] {
            count.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise, for all of them; user code does not run under these locks.
        unsafe {
            self.locals.reinit(Vec::new());
            self.late.reinit(None);
            self.service_queue.reinit(PageList::new());
            self.drain.reset_in_child();
            if let Some(own) = own {
                own.reset_in_child();
            }
        }
    }

    /// A page's objects are now counted here and no longer in an open page.
    pub(super) fn note_sealed(&self, page: &Page) {
        self.objects.fetch_add(page.objects(), Ordering::Relaxed);
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.weight.fetch_add(footprint_of(page), Ordering::Relaxed);
    }

    /// What `look` sees while the lock of the threads' list and that of each thread are held.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(crate) fn with_locks_held<R>(&self, look: impl FnOnce() -> R) -> R {
        let locals = lock(&self.locals);
        let queues: Vec<_> = locals.iter().map(|local| lock(&local.queue)).collect();
        let seen = look();
        drop(queues);
        seen
    }

    /// Objects that wait, what they take up, and the pages that remember them, open ones included.
    pub(crate) fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        // Open pages first: what is sealed meanwhile is counted twice for a moment, never not at all.
        for local in lock(&self.locals).iter() {
            let _queue: &Queue = &lock(&local.queue);
            for page in CHANNELS.iter().filter_map(|&channel| local.open_page(channel)) {
                waiting.objects += page.objects() as u64;
                waiting.bytes += page.bytes() as u64;
                waiting.pages += 1;
            }
        }
        let sealed = self.waiting_sealed();
        waiting.objects += sealed.objects;
        waiting.bytes += sealed.bytes;
        waiting.pages += sealed.pages;
        waiting
    }

    /// The same without open pages, and without a lock.
    pub(crate) fn waiting_sealed(&self) -> Waiting {
        // Acquire, pairs with `free`: what is not counted any more has been freed, destructors and all.
        let pages = self.pages.load(Ordering::Acquire);
        let mut objects = self.objects.load(Ordering::Acquire); // The same: pairs with `free`.
        let mut bytes = self.weight.load(Ordering::Acquire).saturating_sub(pages * PAGE_BYTES); // And: pairs with `free`.
        objects += self.chained.objects.load(Ordering::Acquire); // Acquire, pairs with `drop` of Done.
        bytes += self.chained.bytes.load(Ordering::Relaxed);
        Waiting { objects: objects as u64, bytes: bytes as u64, pages: pages as u64 }
    }
}

/// Counts a chained object as freed, also if its destructor panics; not in the child of a fork from within that, where nothing is counted.
#[cfg(not(stillpoint_loom))]
struct Done<'a> {
    chained: &'a Chained,
    process: fork::Process,
    bytes: usize,
}

#[cfg(not(stillpoint_loom))]
impl Drop for Done<'_> {
    fn drop(&mut self) {
        if fork::process() == self.process {
            self.chained.freed.fetch_add(1, Ordering::Relaxed);
            self.chained.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            // Release, pairs with `waiting_sealed`: who finds fewer waiting sees what the destructor did.
            self.chained.objects.fetch_sub(1, Ordering::Release);
        }
    }
}

/// What waits in a heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
}

/// What has happened in a heap; see the fields of [`Statistics`](crate::Statistics).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) freed: u64,
    pub(crate) leaked: u64,
    pub(crate) assists: u64,
    pub(crate) waits: u64,
    pub(crate) inline_waits: u64,
    pub(crate) panicked: u64,
}
