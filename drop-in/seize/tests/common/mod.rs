//! Objects that count their drops.

use seize::{Collector, reclaim};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts its drops.
pub struct Counted(pub Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub struct Drops(pub Arc<AtomicUsize>);

impl Drops {
    pub fn one(&self) -> *mut Counted {
        Box::into_raw(Box::new(Counted(Arc::clone(&self.0))))
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Retires one.
    pub fn retire(&self, collector: &Collector) {
        // SAFETY: out of a box, and no thread knows it.
        unsafe { collector.retire(self.one(), reclaim::boxed) };
    }
}

/// Reclaims everything of a collector that this thread alone uses.
pub fn reclaim_all(collector: &Collector) {
    // SAFETY: by the tests' own: no other thread uses it, and guards are not used.
    unsafe { collector.reclaim_all() };
}
