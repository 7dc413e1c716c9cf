//! A tenant's handle: what views of it share, and what of it outlives it.

use crate::statistics::{Counters, Event};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The number of the tenant that all others are below.
pub const ROOT: u32 = 0;

/// A tenant, as its views know it.
#[derive(Debug)]
pub struct Handle {
    number: u32,
    pub name: Arc<str>,
    pub parent: Option<Arc<Handle>>,
    pub counters: Counters,
    pub deleted: AtomicBool,
}

impl Handle {
    /// Counts a look-up that has found nothing. Out of line, so that a hit, beside it, takes few
    /// instructions.
    #[inline(never)]
    pub fn count_miss(&self) {
        self.counters.add(Event::Miss, 1);
    }

    /// Makes the handle of a whole cache.
    pub fn root() -> Arc<Self> {
        Self::new(ROOT, "".into(), None)
    }

    pub fn new(number: u32, name: Arc<str>, parent: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            number,
            name,
            parent,
            counters: Counters::default(),
            deleted: AtomicBool::new(false),
        })
    }

    /// Returns the tenant itself, or where it has been deleted, the nearest one above that has not. The root
    /// is never deleted. The lock of the queues is held.
    #[inline]
    pub fn live(self: &Arc<Self>) -> &Arc<Self> {
        let mut handle = self;
        while let Some(parent) = &handle.parent
            && handle.deleted.load(Ordering::Relaxed)
        {
            handle = parent;
        }
        handle
    }

    /// Returns the number of the tenant itself; `None` once it has been deleted.
    pub fn own_number(self: &Arc<Self>) -> Option<u32> {
        Arc::ptr_eq(self.live(), self).then_some(self.number)
    }

    /// Returns the number of [`live`](Self::live).
    #[inline]
    pub fn number(self: &Arc<Self>) -> u32 {
        self.live().number
    }
}
