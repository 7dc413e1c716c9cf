//! Counts of pages and objects: a count at one moment, and sums that other threads read.

use super::page::{Page, footprint_of};
use crate::platform::sync::{AtomicUsize, Ordering};

/// Pages, the objects in them, and the bytes of both. Sums and differences wrap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) objects: usize,
    pub(super) pages: usize,
    pub(super) footprint: usize,
}

impl Tally {
    pub(super) fn of(page: &Page) -> Self {
        Self {
            objects: page.objects(),
            pages: 1,
            footprint: footprint_of(page),
        }
    }

    /// Counts objects without a page.
    pub(super) fn of_objects(objects: usize) -> Self {
        Self {
            objects,
            ..Self::default()
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects.wrapping_add(other.objects),
            pages: self.pages.wrapping_add(other.pages),
            footprint: self.footprint.wrapping_add(other.footprint),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            objects: self.objects.wrapping_sub(other.objects),
            pages: self.pages.wrapping_sub(other.pages),
            footprint: self.footprint.wrapping_sub(other.footprint),
        }
    }
}

/// A tally that other threads read: objects, pages, footprint.
#[derive(Debug)]
pub(super) struct Sums([AtomicUsize; 3]);

impl Sums {
    pub(super) fn new() -> Self {
        Self([0; 3].map(AtomicUsize::new))
    }

    /// Adds without a read-modify-write. For the only writer.
    pub(super) fn add(&self, tally: Tally) {
        let changes = [tally.objects, tally.pages, tally.footprint];
        for (sum, change) in self.0.iter().zip(changes) {
            let before = sum.load(Ordering::Relaxed);
            // Release, pairs with `load`: a thread that sees objects counted as freed sees what
            // their destructors did, and the objects counted as sealed.
            sum.store(before.wrapping_add(change), Ordering::Release);
        }
    }

    /// Like [`Sums::add`], where there are several writers.
    pub(super) fn add_beside_others(&self, tally: Tally) {
        let changes = [tally.objects, tally.pages, tally.footprint];
        for (sum, change) in self.0.iter().zip(changes) {
            // Release, pairs with `load`: as in `add`.
            sum.fetch_add(change, Ordering::Release);
        }
    }

    pub(super) fn load(&self) -> Tally {
        // Acquire, pairs with `add` and `add_beside_others`: what is counted as freed has been
        // freed, destructors included.
        let [objects, pages, footprint] = self.0.each_ref().map(|sum| sum.load(Ordering::Acquire));
        Tally {
            objects,
            pages,
            footprint,
        }
    }

    pub(super) fn reset(&self, objects: usize) {
        for (sum, value) in self.0.iter().zip([objects, 0, 0]) {
            sum.store(value, Ordering::Relaxed);
        }
    }
}
