//! A tenant's handle: what views of it share, and what of it outlives it.

use crate::statistics::{Counters, Event};
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
    /// What of its counts the tenant above has counted as its own, once it has been deleted.
    pub settled: [AtomicU64; Event::ALL.len()],
    /// What the statistics page calls it.
    pub identity: Identity,
    pub published: Published,
}

/// What the statistics page calls a view.
#[derive(Debug)]
pub struct Identity {
    /// Unique among all views of all caches. The high half says which cache it is.
    pub number: u64,
    /// The cache's name, of the root alone; it may be empty.
    pub name: Box<str>,
}

/// The bits of [`Identity::number`] that tell the views of a cache apart.
const VIEW_BITS: u32 = 32;

impl Identity {
    /// That of a view below `parent`, or of a whole cache.
    fn new(name: &str, parent: Option<&Self>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = match parent {
            Some(parent) => parent.cache() << VIEW_BITS | next & ((1 << VIEW_BITS) - 1),
            None => next << VIEW_BITS,
        };
        Self {
            number,
            name: name.into(),
        }
    }

    /// The cache's number.
    pub fn cache(&self) -> u64 {
        self.number >> VIEW_BITS
    }

    /// Whether that is the number of another view of the same cache.
    pub fn is_beside(&self, number: u64) -> bool {
        number != self.number && number >> VIEW_BITS == self.cache()
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
            identity: Identity::new(cache, parent.as_deref().map(|parent| &parent.identity)),
            parent,
            counters: Counters::default(),
            deleted: AtomicBool::new(false),
            settled: Default::default(),
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
