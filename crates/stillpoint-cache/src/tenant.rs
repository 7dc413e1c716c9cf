//! A tenant's handle: what views of it share, and what of it outlives it.

use crate::statistics::Counters;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use stillpoint_platform::stats::Published;

/// A tenant, as its views know it.
#[derive(Debug)]
pub struct Handle {
    number: u32,
    /// The [`State`](crate::state::State) that has it: another one knows nothing of it.
    of: u64,
    pub name: Arc<str>,
    pub parent: Option<Arc<Handle>>,
    pub counters: Counters,
    pub deleted: AtomicBool,
    /// What the statistics page calls it.
    pub identity: Identity,
    pub published: Published,
}

/// What the statistics page calls a view.
#[derive(Debug)]
pub struct Identity {
    /// Unique among all views of all caches.
    pub number: u64,
    /// The cache's name, of the root alone; it may be empty.
    pub name: Box<str>,
}

impl Identity {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
        }
    }
}

impl Handle {
    /// That of the whole cache, with the cache's name.
    pub fn root(cache: &str) -> Arc<Self> {
        Self::with_identity(crate::state::ROOT, 0, "".into(), None, cache)
    }

    pub fn new(number: u32, of: u64, name: Arc<str>, parent: Arc<Handle>) -> Arc<Self> {
        Self::with_identity(number, of, name, Some(parent), "")
    }

    fn with_identity(
        number: u32,
        of: u64,
        name: Arc<str>,
        parent: Option<Arc<Handle>>,
        cache: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            of,
            name,
            parent,
            counters: Counters::default(),
            deleted: AtomicBool::new(false),
            identity: Identity::new(cache),
            published: Published::new(),
        })
    }

    /// The tenant itself, or where it has been deleted, the nearest one above that has not. The
    /// root is never deleted. `of` is the state that has the tenants, whose lock is held.
    pub fn live(self: &Arc<Self>, of: u64) -> &Arc<Self> {
        match &self.parent {
            Some(parent) if self.of != of || self.deleted.load(Ordering::Relaxed) => {
                parent.live(of)
            }
            _ => self,
        }
    }

    /// The number of the tenant itself; `None` once it has been deleted.
    pub fn own_number(self: &Arc<Self>, of: u64) -> Option<u32> {
        Arc::ptr_eq(self.live(of), self).then_some(self.number)
    }

    /// The number of [`live`](Self::live).
    pub fn number(self: &Arc<Self>, of: u64) -> u32 {
        self.live(of).number
    }
}
