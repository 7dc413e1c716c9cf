//! A tenant's handle: what views of it share, and what of it outlives it.

use crate::statistics::Counters;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

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
    pub fn new(number: u32, name: Arc<str>, parent: Option<Arc<Handle>>) -> Arc<Self> {
        Arc::new(Self {
            number,
            name,
            parent,
            counters: Counters::default(),
            deleted: AtomicBool::new(false),
        })
    }

    /// The tenant itself, or where it has been deleted, the nearest one above that has not. The
    /// root is never deleted. Under the lock of the queues.
    pub fn live(self: &Arc<Self>) -> Arc<Self> {
        let mut handle = self;
        while handle.deleted.load(Ordering::Relaxed)
            && let Some(parent) = &handle.parent
        {
            handle = parent;
        }
        Arc::clone(handle)
    }

    /// As [`live`](Self::live); its number.
    pub fn number(&self) -> u32 {
        match &self.parent {
            Some(parent) if self.deleted.load(Ordering::Relaxed) => parent.number(),
            _ => self.number,
        }
    }
}
