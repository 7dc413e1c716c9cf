//! What waits for the service thread: sealed pages, in the order of their grace periods.
//!
//! They come from many threads, and not in that order: what an idle thread left was sealed long
//! before what is adopted with it. In the order of arrival, pages that are due would wait for the readers
//! of pages that are not.
//!
//! The search for a page's place begins at the youngest end, where most belong, and pages that arrive
//! together are placed in one walk: it passes the new pages and those that are younger than the oldest of
//! them. The service thread walks once a pass, as does a thread that frees on demand what others have left
//! (`on_demand.rs`). A thread that hands pages over only appends them to those that have arrived.
//! Otherwise, when a thousand threads exit behind one stuck reader, each would walk the pages of all
//! the others.
//!
//! Two things are not in this order: the sealed pages of a thread that frees them itself (`buffer.rs`),
//! and objects that callbacks free because there was no memory for a page (`oom.rs`). Callbacks run in the
//! order in which they were queued, may be delayed, and have a separate barrier.

use super::page::{Page, PageList};
use crate::{
    gp::Cookie,
    platform::{
        clock::Nanos,
        sync::{AtomicU64, Ordering},
    },
};
use std::ptr::{self, NonNull};

/// The service thread's pages, and its progress through them. Its lock is held for moments, and no
/// other is taken under it.
#[derive(Debug)]
pub(super) struct Pending {
    /// The pages that have arrived since the last pass. A thread that adds one kicks the service
    /// thread.
    pub(super) arrived: PageList,
    /// The pages in the order of their cookies. The service thread frees them, and threads that ask
    /// for it (`on_demand.rs`).
    pub(super) pages: PendingPages,
    /// The time of the service thread's next look at the threads that retire.
    pub(super) next_tick: Nanos,
    pub(super) flush: Option<Flush>,
    /// How many pages other threads have taken out of `pages` and are freeing (`on_demand.rs`). A
    /// flush waits for them. Meanwhile they take no pages but the flush's, so that it ends.
    freeing: u32,
    /// The grace period that all pages of a whole batch wait for: see [`Pending::batch`].
    batch: Option<Cookie>,
}

/// A flush under way: number `ticket` is done with once no page is pending, or being freed, whose
/// cookie is `youngest` or older. That is all that was pending when it began; what came later and
/// is no younger is due at the same time at the latest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flush {
    pub(super) ticket: u64,
    pub(super) youngest: Option<Cookie>,
}

impl Flush {
    fn includes(self, cookie: Cookie) -> bool {
        self.youngest
            .is_some_and(|youngest| youngest.at_least(cookie))
    }
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            arrived: PageList::new(),
            pages: PendingPages::new(),
            next_tick: 0,
            flush: None,
            freeing: 0,
            batch: None,
        }
    }

    /// Puts what has arrived in order with the rest.
    pub(super) fn sort(&mut self) {
        self.pages.add(self.arrived.take());
    }

    /// Takes all out, oldest first.
    pub(super) fn take(&mut self) -> PageList {
        self.sort();
        self.pages.take()
    }

    /// Returns, for whole batches, the grace period that decides about the oldest page and about
    /// all pages that were sealed before it was started, whatever their own cookies say. `start`
    /// starts one for a new batch.
    pub(super) fn batch(&mut self, start: impl FnOnce() -> Cookie) -> Option<Cookie> {
        let oldest = self.pages.oldest()?;
        if !self.batch.is_some_and(|batch| batch.at_least(oldest)) {
            self.batch = Some(start());
        }
        self.batch
    }

    /// Takes the oldest page out for a thread that is not the service thread, if its cookie `is_due`
    /// and the flush under way, if there is one, includes it. The thread frees it, and calls
    /// [`Pending::note_freed`].
    pub(super) fn take_due(
        &mut self,
        is_due: impl FnOnce(Cookie) -> bool,
    ) -> Option<NonNull<Page>> {
        let flush = self.flush;
        let may_go = |cookie| flush.is_none_or(|flush| flush.includes(cookie)) && is_due(cookie);
        let page = self.pages.pop_due(may_go)?;
        self.freeing += 1;
        Some(page)
    }

    /// Notes that a page which was taken has been freed. Returns whether the service thread may now be able to
    /// end the flush under way.
    pub(super) fn note_freed(&mut self) -> bool {
        self.freeing -= 1;
        self.freeing == 0 && self.flush.is_some()
    }

    /// Ends the flush under way if all its pages are freed. Returns its ticket.
    pub(super) fn end_flush(&mut self) -> Option<u64> {
        let oldest = self.pages.oldest();
        let has_ended = |flush: &mut Flush| {
            self.freeing == 0 && !oldest.is_some_and(|oldest| flush.includes(oldest))
        };
        self.flush.take_if(has_ended).map(|flush| flush.ticket)
    }
}

/// Flushes that have been asked for, and the last one that is done with.
#[derive(Debug)]
pub(super) struct Flushes {
    wanted: AtomicU64,
    done: AtomicU64,
}

impl Flushes {
    pub(super) fn new() -> Self {
        Self {
            wanted: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Asks for a flush. Returns its ticket.
    pub(super) fn ask(&self) -> u64 {
        // Release, pairs with `wanted`: what was retired before this is seen by the pass that
        // serves the ticket.
        self.wanted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the ticket of the last flush that was asked for, if it is not done. For the service thread.
    pub(super) fn wanted(&self) -> Option<u64> {
        // Acquire, pairs with `ask`: the pass sees all that was retired before the tickets that it
        // serves.
        let wanted = self.wanted.load(Ordering::Acquire);
        (wanted != self.done.load(Ordering::Relaxed)).then_some(wanted)
    }

    /// Notes that all flushes up to `ticket` are done. For the service thread.
    pub(super) fn finish(&self, ticket: u64) {
        // Release, pairs with `is_done`: a thread that sees the ticket done sees what the
        // destructors did.
        self.done.store(ticket, Ordering::Release);
    }

    pub(super) fn is_done(&self, ticket: u64) -> bool {
        // Acquire, pairs with `finish`: the destructors happen before the flush returns.
        self.done.load(Ordering::Acquire) >= ticket
    }

    /// Forgets all flushes that were asked for.
    pub(super) fn reset(&self) {
        self.done
            .store(self.wanted.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Sealed pages, oldest cookie first; those of one cookie in the order in which they came. It owns
/// them.
#[derive(Debug)]
pub(super) struct PendingPages {
    first: *mut Page,
    last: *mut Page,
}

// SAFETY: it owns its pages; their objects are Send, as `retire` makes its caller promise.
unsafe impl Send for PendingPages {}

impl PendingPages {
    pub(super) const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Returns the oldest cookie.
    pub(super) fn oldest(&self) -> Option<Cookie> {
        self.page(self.first).map(Page::cookie)
    }

    /// Returns the youngest cookie.
    pub(super) fn youngest(&self) -> Option<Cookie> {
        self.page(self.last).map(Page::cookie)
    }

    fn page(&self, at: *mut Page) -> Option<&Page> {
        // SAFETY: null, or a page in the list, which is valid and the list's.
        unsafe { at.as_ref() }
    }

    /// Takes over `pages`, in any order.
    fn add(&mut self, mut pages: PageList) {
        if !pages.is_sorted() {
            pages = sorted(&mut pages, usize::MAX);
        }
        let mut before = self.last;
        while let Some(page) = pages.pop_front() {
            // SAFETY: the page is ours, and in no list at this moment.
            let cookie = unsafe { page.as_ref() }.cookie();
            while let Some(at) = self.page(before)
                && !cookie.at_least(at.cookie())
            {
                before = at.previous();
            }
            while let next = self.after(before)
                && let Some(at) = self.page(next)
                && cookie.at_least(at.cookie())
            {
                before = next;
            }
            self.insert(page, before);
            before = page.as_ptr();
        }
    }

    /// Returns the page behind `at`; behind null, the first.
    fn after(&self, at: *mut Page) -> *mut Page {
        self.page(at).map_or(self.first, Page::next)
    }

    fn insert(&mut self, page: NonNull<Page>, before: *mut Page) {
        let next = self.after(before);
        // SAFETY: the page is ours.
        let at = unsafe { page.as_ref() };
        at.set_next(next);
        at.set_previous(before);
        match self.page(before) {
            None => self.first = page.as_ptr(),
            Some(before) => before.set_next(page.as_ptr()),
        }
        match self.page(next) {
            None => self.last = page.as_ptr(),
            Some(next) => next.set_previous(page.as_ptr()),
        }
    }

    /// Takes the oldest page out, if its cookie `is_due`.
    pub(super) fn pop_due(&mut self, is_due: impl FnOnce(Cookie) -> bool) -> Option<NonNull<Page>> {
        // The list's own pointer, and not one made from a reference: the page may be freed through
        // it.
        let page = NonNull::new(self.first)?;
        // SAFETY: a page in the list is valid and the list's.
        let oldest = unsafe { page.as_ref() };
        if !is_due(oldest.cookie()) {
            return None;
        }
        let next = oldest.next();
        match self.page(next) {
            None => self.last = ptr::null_mut(),
            Some(next) => next.set_previous(ptr::null_mut()),
        }
        self.first = next;
        Some(page)
    }

    /// Takes all out, oldest first.
    fn take(&mut self) -> PageList {
        let mut all = PageList::new();
        while let Some(page) = self.pop_due(|_| true) {
            all.push_back(page);
        }
        all
    }
}

impl Drop for PendingPages {
    fn drop(&mut self) {
        debug_assert!(
            self.is_empty(),
            "a list with pages in it is handed on, never dropped"
        );
    }
}

/// Returns the first `count` of `pages` by their cookies, those of one cookie in the order in which
/// they were.
fn sorted(pages: &mut PageList, count: usize) -> PageList {
    let count = count.min(pages.pages());
    let mut merged = PageList::new();
    if count <= 1 {
        pages
            .pop_front()
            .into_iter()
            .for_each(|page| merged.push_back(page));
        return merged;
    }
    let mut early = sorted(pages, count / 2);
    let mut late = sorted(pages, count - count / 2);
    loop {
        let is_late_first = match (early.front(), late.front()) {
            (Some(early), Some(late)) => !late.cookie().at_least(early.cookie()),
            (early, _) => early.is_none(),
        };
        let next = if is_late_first {
            late.pop_front()
        } else {
            early.pop_front()
        };
        let Some(page) = next else { return merged };
        merged.push_back(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gp::Seq;
    use proptest::prelude::*;

    /// Shortly before the numbers wrap.
    const FIRST: Seq = Seq::from_bits(u64::MAX - (9 << 16));

    fn cookie(age: u8) -> Cookie {
        Cookie::new((0..age).fold(FIRST, |seq, _| seq.next()))
    }

    fn sealed(age: u8) -> NonNull<Page> {
        let page = Page::try_new().expect("memory");
        // SAFETY: made just now.
        unsafe { page.as_ref() }.seal(cookie(age));
        page
    }

    fn release(page: NonNull<Page>) {
        // SAFETY: an empty page that is in no list any more.
        unsafe { Page::release(page) };
    }

    /// A flush waits for the pages that threads have taken before it and from under it. Meanwhile
    /// they take no younger ones: else they could hold it up for ever.
    #[test]
    fn a_flush_waits_for_what_has_been_taken() {
        let mut pending = Pending::new();
        let arrive = |pending: &mut Pending, age| {
            pending.arrived.push_back(sealed(age));
            pending.sort();
        };
        let take = |pending: &mut Pending| pending.take_due(|_| true).map(release);
        arrive(&mut pending, 1);
        assert!(take(&mut pending).is_some());
        arrive(&mut pending, 2);
        pending.flush = Some(Flush {
            ticket: 7,
            youngest: pending.pages.youngest(),
        });
        arrive(&mut pending, 3);
        assert_eq!(pending.end_flush(), None, "a page is there");
        assert!(take(&mut pending).is_some());
        assert!(take(&mut pending).is_none(), "it is younger");
        assert_eq!(pending.end_flush(), None, "two are being freed");
        assert!(!pending.note_freed());
        assert_eq!(pending.end_flush(), None);
        assert!(pending.note_freed());
        assert_eq!(pending.end_flush(), Some(7));
        assert!(take(&mut pending).is_some());
        assert!(!pending.note_freed(), "no flush is under way");
    }

    proptest! {
        /// Batches of pages come, and what is due goes, whatever is in front of it.
        #[test]
        fn pages_go_by_their_cookies(batches in prop::collection::vec((prop::collection::vec(0..20_u8, 0..12), 0..20_u8), 0..12)) {
            let mut pending = PendingPages::new();
            // What should be there: cookies and pages, in the order in which they should go.
            let mut model: Vec<(u8, NonNull<Page>)> = Vec::new();
            for (ages, ended) in batches {
                let mut batch = PageList::new();
                for age in ages {
                    let page = sealed(age);
                    batch.push_back(page);
                    model.push((age, page));
                }
                model.sort_by_key(|&(age, _)| age);
                pending.add(batch);
                while let Some(page) = pending.pop_due(|at| cookie(ended).at_least(at)) {
                    prop_assert_eq!(page, model.remove(0).1);
                    release(page);
                }
                prop_assert!(model.first().is_none_or(|&(age, _)| age > ended), "what is due has stayed");
                prop_assert_eq!(pending.oldest(), model.first().map(|&(age, _)| cookie(age)));
                prop_assert_eq!(pending.youngest(), model.last().map(|&(age, _)| cookie(age)));
            }
            let mut rest = pending.take();
            for (_, page) in model {
                prop_assert_eq!(rest.pop_front(), Some(page));
                release(page);
            }
            prop_assert!(rest.is_empty() && pending.is_empty());
        }
    }
}
