//! Domains whose retirers say when objects are freed: those of another library's interface, whose
//! users rely on where destructors run.
//!
//! A retire never frees, waits or ends a grace period, and neither does the end of a section. Full
//! pages queue up with their thread, plain or not; the thread frees them where it asks for it
//! ([`Heap::free_some`], [`Heap::flush_own`]). What it does not come back for is the service
//! thread's, as everywhere (`drain.rs`); that thread adopts what is open of a slow one as well,
//! because such a thread may ask for nothing for minutes.
//!
//! There is no throttle: nothing holds a thread back. Past its share, or past the budget, a thread
//! that asks frees more,
//! and is told to yield if a reader holds its pages up. So the budget is a target, and no bound.

use super::{
    account::Freed,
    buffer::{Channel, ThreadBuffer},
    heap::Heap,
    page::Page,
    policy::Policy,
    retire::Reclaimer,
};
use crate::{
    gp::{Engine, Flavour, Progress},
    platform::{
        clock, fork,
        sync::{Ordering, lock},
        thread,
    },
};
use std::ptr::NonNull;

/// What a domain does around frees that no thread has asked for: it calls what it is given, or, if
/// no user code may run any more, leaves it.
pub type Around = fn(&mut dyn FnMut());

/// How many pages a thread frees for each one that it fills, and how many once the domain is past
/// its budget.
const PAGES: usize = 2;
const PAGES_PAST_BUDGET: usize = 8;

/// What a call of `free_some` leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing that is due.
    Nothing,
    /// Pages that are due.
    Due,
    /// Too much, which a reader holds up.
    HeldUp,
}

impl Heap {
    /// Has objects freed on demand only. Before the domain is used.
    pub(crate) fn set_on_demand(&self, around: Around) {
        let set = self.on_demand.set(around);
        debug_assert!(set.is_ok(), "a domain is made once");
    }

    pub(super) fn frees_on_demand(&self) -> bool {
        self.on_demand.get().is_some()
    }

    /// Frees a few pages of the calling thread that are due, and past the budget others' as well.
    /// Tries to end the grace period of its oldest page, once. A call from within a destructor does
    /// nothing.
    pub(crate) fn free_some<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) -> Left {
        let Some(_reclaiming) = buffer.begin_reclaiming() else {
            return Left::Nothing;
        };
        let _ = engine.note_service(clock::now());
        let (oldest, youngest, queued) = {
            let queue = lock(&buffer.queue);
            (
                queue.sealed.front().map(Page::cookie),
                queue.sealed.back().map(Page::cookie),
                queue.sealed.footprint(),
            )
        };
        let Some((oldest, youngest)) = oldest.zip(youngest) else {
            return Left::Nothing;
        };
        let over = queued >= self.thread_share() || self.is_over_budget(buffer, 0);
        if !engine.has_ended(oldest)
            && engine.assist(oldest, youngest, thread::token(), true) != Progress::Ended
        {
            return if over { Left::HeldUp } else { Left::Nothing };
        }
        let pages = if over { PAGES_PAST_BUDGET } else { PAGES };
        if !self.free_own(engine, buffer, pages) {
            return Left::Nothing;
        }
        if over {
            self.free_pending(engine, buffer, 1);
        }
        let oldest = lock(&buffer.queue).sealed.front().map(Page::cookie);
        if oldest.is_some_and(|oldest| engine.has_ended(oldest)) {
            Left::Due
        } else {
            Left::Nothing
        }
    }

    /// Seals what the calling thread has retired, tries to end its grace period, and frees all that
    /// is due; where the thread has nothing, what others have left. A call from within a destructor
    /// seals, and frees nothing.
    pub(crate) fn flush_own<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer) {
        if buffer
            .open_page(Channel::Plain)
            .is_some_and(|page| page.objects() > 0)
        {
            self.seal(engine, buffer, Channel::Plain, Reclaimer::Owner);
        }
        let Some(_reclaiming) = buffer.begin_reclaiming() else {
            return;
        };
        let newest = || lock(&buffer.queue).sealed.back().map(Page::cookie);
        if let Some(cookie) = newest() {
            // However far this comes: the pages' own cookies say which are due.
            let _ = engine.recheck(cookie, thread::token());
            if !self.free_own(engine, buffer, usize::MAX) {
                return;
            }
        }
        if newest().is_none() {
            let cookie = {
                let mut pending = lock(&self.pending);
                pending.sort();
                pending.pages.youngest()
            };
            if let Some(cookie) = cookie {
                let _ = engine.recheck(cookie, thread::token()); // The same.
                self.free_pending(engine, buffer, usize::MAX);
            }
        }
    }

    /// Frees up to so many pages that are due and wait for the service thread.
    fn free_pending<P: Policy>(&self, engine: &Engine<P>, buffer: &ThreadBuffer, pages: usize) {
        // A flush waits for it, as for pages of our own.
        let _freeing = buffer.freeing.lock();
        let process = fork::process();
        for _ in 0..pages {
            let Some(page) = self.take_oldest_due(engine) else {
                return;
            };
            // SAFETY: the page was ours alone in `pending`, its grace period has ended, and
            // objects that are retired here may be freed on any thread.
            unsafe { self.free_counted(engine, page) };
            self.reserve.put(page);
            if fork::process() != process {
                return;
            }
        }
    }

    /// Frees a page on a thread that has not been asked to: inside a section where objects are
    /// freed on demand, because all that are freed on demand are, and if the domain's [`Around`]
    /// lets it.
    ///
    /// # Safety
    ///
    /// As for [`Heap::free`].
    pub(super) unsafe fn free_unasked<P: Policy>(&self, engine: &Engine<P>, page: NonNull<Page>) {
        let Some(around) = self.on_demand.get() else {
            // SAFETY: the caller's promise.
            return unsafe { self.free_counted(engine, page) };
        };
        let record = engine.register(thread::token(), Flavour::Thread);
        record.lock();
        let mut left = Some(page);
        around(&mut || {
            if let Some(page) = left.take() {
                // SAFETY: the caller's promise; `left` gives the page once.
                unsafe { self.free_counted(engine, page) };
            }
        });
        record.unlock();
        record.depart();
        if let Some(page) = left {
            // SAFETY: the caller's promise.
            self.leak(engine, unsafe { page.as_ref() });
        }
    }

    /// Leaves a page's objects where they are for ever.
    fn leak<P: Policy>(&self, engine: &Engine<P>, page: &Page) {
        let leaked = Freed::of(page);
        page.forget_objects();
        let objects = leaked.tally.objects as u64;
        self.leaked.fetch_add(objects, Ordering::Relaxed);
        if self.note_leaked(leaked) {
            engine.signal_waiters();
        }
    }
}
