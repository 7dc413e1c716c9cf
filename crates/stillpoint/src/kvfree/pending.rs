//! Pages that wait for their grace periods, in the order of these.
//!
//! They come from many threads, and not in that order: what an idle thread left was sealed long before what is taken over with it. Were they
//! freed in the order in which they came, what is due would wait for the readers of what is not.
//!
//! A page is looked for its place from the youngest end, as most belong there, and pages that come together in one walk: that costs what comes and what is
//! younger than the oldest of that, not all that waits.

use super::page::{Page, PageList};
use crate::gp::Cookie;
use std::ptr::{self, NonNull};

/// Sealed pages, oldest cookie first; those of one cookie in the order in which they came. It owns them.
#[derive(Debug)]
pub(super) struct PendingPages {
    first: *mut Page,
    last: *mut Page,
}

// SAFETY: it owns its pages; their objects are Send, as `retire` makes its caller promise.
unsafe impl Send for PendingPages {}

impl PendingPages {
    pub(super) const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// The oldest cookie.
    pub(super) fn oldest(&self) -> Option<Cookie> {
        self.page(self.first).map(Page::cookie)
    }

    /// The youngest cookie.
    pub(super) fn youngest(&self) -> Option<Cookie> {
        self.page(self.last).map(Page::cookie)
    }

    fn page(&self, at: *mut Page) -> Option<&Page> {
        // SAFETY: null, or a page in the list, which is valid and the list's.
        unsafe { at.as_ref() }
    }

    /// Takes over `pages`, in whatever order they are.
    pub(super) fn add(&mut self, mut pages: PageList) {
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

    /// The page behind `at`; behind null, the first.
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
        let oldest = self.page(self.first).filter(|oldest| is_due(oldest.cookie()))?;
        let (page, next) = (NonNull::from(oldest), oldest.next());
        match self.page(next) {
            None => self.last = ptr::null_mut(),
            Some(next) => next.set_previous(ptr::null_mut()),
        }
        self.first = next;
        Some(page)
    }

    /// Takes all out, oldest first.
    pub(super) fn take(&mut self) -> PageList {
        let mut all = PageList::new();
        while let Some(page) = self.pop_due(|_| true) {
            all.push_back(page);
        }
        all
    }
}

impl Drop for PendingPages {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "a list with pages in it is handed on, never dropped");
    }
}

/// The first `count` of `pages` by their cookies, those of one cookie in the order in which they were.
fn sorted(pages: &mut PageList, count: usize) -> PageList {
    let count = count.min(pages.pages());
    let mut merged = PageList::new();
    if count <= 1 {
        pages.pop_front().into_iter().for_each(|page| merged.push_back(page));
        return merged;
    }
    let mut early = sorted(pages, count / 2);
    let mut late = sorted(pages, count - count / 2);
    loop {
        let is_late_first = match (early.front(), late.front()) {
            (Some(early), Some(late)) => !late.cookie().at_least(early.cookie()),
            (early, _) => early.is_none(),
        };
        let next = if is_late_first { late.pop_front() } else { early.pop_front() };
        let Some(page) = next else { return merged };
        merged.push_back(page);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
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
