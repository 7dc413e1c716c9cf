//! The lists as the kernel had them before: one lock for an LRU's lists of all tenants, which counting takes too; and without one.
//!
//! The lists are rings of indices, with the same steps as the library's: a few stores to the neighbours, and the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::profile;
use super::workload::{MOVED, Place, RESIDENTS, Subject};

/// Items that a pass looks at under one hold of the lock. The kernel's `SHRINK_BATCH`.
const BATCH: usize = 128;

/// A lock around something.
pub trait Lock<T>: Sync {
    fn new(value: T) -> Self;
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R;
}

impl<T: Send> Lock<T> for spin::mutex::SpinMutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        profile::locking();
        let mut guard = self.lock();
        profile::locked();
        work(&mut guard)
    }
}

impl<T: Send> Lock<T> for parking_lot::Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        profile::locking();
        let mut guard = self.lock();
        profile::locked();
        work(&mut guard)
    }
}

/// The lists of one LRU. Links are indices: of a list's head, of a resident, of a mutator's item.
pub struct Rings {
    next: Vec<u32>,
    prev: Vec<u32>,
    counts: Vec<usize>,
    /// What an item holds, so that to add one takes a reference, as it does in the library.
    held: Vec<Option<Arc<usize>>>,
}

impl Rings {
    fn new(tenants: usize, mutators: usize) -> Self {
        let links = tenants * (1 + RESIDENTS) + mutators * MOVED;
        let own: Vec<u32> = (0..links as u32).collect();
        let mut rings = Self { next: own.clone(), prev: own, counts: vec![0; tenants], held: vec![None; links] };
        for tenant in 0..tenants {
            for resident in 0..RESIDENTS {
                rings.add(tenant, tenants + tenant * RESIDENTS + resident, Arc::new(resident));
            }
        }
        rings
    }

    fn item(&self, mutator: usize, item: usize) -> usize {
        self.counts.len() * (1 + RESIDENTS) + mutator * MOVED + item
    }

    fn link(&mut self, tenant: usize, link: usize) {
        let last = self.prev[tenant];
        (self.prev[link], self.next[link]) = (last, tenant as u32);
        self.next[last as usize] = link as u32;
        self.prev[tenant] = link as u32;
    }

    fn unlink(&mut self, link: usize) {
        let (older, newer) = (self.prev[link], self.next[link]);
        self.next[older as usize] = newer;
        self.prev[newer as usize] = older;
    }

    fn add(&mut self, tenant: usize, link: usize, held: Arc<usize>) {
        self.link(tenant, link);
        self.held[link] = Some(held);
        self.counts[tenant] += 1;
    }

    fn delete(&mut self, tenant: usize, link: usize) -> Option<Arc<usize>> {
        self.unlink(link);
        self.counts[tenant] -= 1;
        self.held[link].take()
    }

    /// Makes the oldest items the newest ones.
    fn rotate(&mut self, tenant: usize, limit: usize) {
        for _ in 0..limit.min(self.counts[tenant]) {
            let oldest = self.next[tenant] as usize;
            self.unlink(oldest);
            self.link(tenant, oldest);
        }
    }
}

/// An LRU each.
pub struct Lists<L> {
    lists: Vec<L>,
    tenants: usize,
    items: Vec<Vec<Arc<usize>>>,
}

/// Locks that spin: the kernel's own kind.
pub type Spinlocks = Lists<spin::mutex::SpinMutex<Rings>>;

/// Locks that sleep.
pub type Mutexes = Lists<parking_lot::Mutex<Rings>>;

impl<L: Lock<Rings>> Subject for Lists<L> {
    fn new(lists: usize, tenants: usize, mutators: usize) -> Self {
        let lists = (0..lists).map(|_| L::new(Rings::new(tenants, mutators))).collect();
        let items = (0..mutators).map(|_| (0..MOVED).map(Arc::new).collect()).collect();
        Self { lists, tenants, items }
    }

    #[inline]
    fn count(&self, place: Place) -> usize {
        self.lists[place.list].with(|rings| rings.counts[place.tenant])
    }

    fn add(&self, place: Place, mutator: usize, item: usize) {
        let held = Arc::clone(&self.items[mutator][item]);
        self.lists[place.list].with(|rings| rings.add(place.tenant, rings.item(mutator, item), held));
    }

    fn delete(&self, place: Place, mutator: usize, item: usize) {
        let held = self.lists[place.list].with(|rings| rings.delete(place.tenant, rings.item(mutator, item)));
        assert!(held.is_some(), "it is where the mutator put it");
    }

    fn reclaim_pass(&self) {
        for list in &self.lists {
            let mut tenant = 0;
            while tenant < self.tenants {
                list.with(|rings| {
                    let mut left = BATCH;
                    while left > 0 && tenant < self.tenants {
                        rings.rotate(tenant, left);
                        left = left.saturating_sub(rings.counts[tenant].max(1));
                        tenant += 1;
                    }
                });
            }
        }
    }
}

/// Counts alone, without lists, locks or tenants that may go: what the machine can do.
pub struct Nothing(Vec<Vec<AtomicUsize>>);

impl Subject for Nothing {
    fn new(lists: usize, tenants: usize, _mutators: usize) -> Self {
        Self((0..lists).map(|_| (0..tenants).map(|_| AtomicUsize::new(RESIDENTS)).collect()).collect())
    }

    #[inline]
    fn count(&self, place: Place) -> usize {
        self.0[place.list][place.tenant].load(Ordering::Relaxed)
    }

    fn add(&self, place: Place, _mutator: usize, _item: usize) {
        self.0[place.list][place.tenant].fetch_add(1, Ordering::Relaxed);
    }

    fn delete(&self, place: Place, _mutator: usize, _item: usize) {
        self.0[place.list][place.tenant].fetch_sub(1, Ordering::Relaxed);
    }

    fn reclaim_pass(&self) {
        for count in self.0.iter().flatten() {
            std::hint::black_box(count.load(Ordering::Relaxed));
        }
    }
}
