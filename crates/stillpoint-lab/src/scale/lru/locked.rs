//! The lists as the kernel had them before: one lock for an LRU's lists of all tenants, which
//! counting takes too; and without one.
//!
//! The lists are those of `intrusive-collections`, which have the same steps as the library's: an
//! item is in an `Arc` with its link beside it, and each tenant's list is allocated by itself, as
//! in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use intrusive_collections::{LinkedList, LinkedListAtomicLink, intrusive_adapter};

use super::profile;
use super::workload::{MOVED, Place, RESIDENTS, Subject};

/// Items that a pass looks at under one hold of the lock. The kernel's `SHRINK_BATCH`.
const BATCH: usize = 128;

/// A lock around something.
pub trait Lock<T>: Sync {
    fn new(value: T) -> Self;
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R;
}

/// The guard of an attempt to lock, or else of a `lock` whose wait is counted.
#[inline]
fn profiled<G>(attempt: Option<G>, lock: impl FnOnce() -> G) -> G {
    attempt.unwrap_or_else(|| {
        profile::waiting();
        let guard = lock();
        profile::waited();
        guard
    })
}

macro_rules! locks {
    ($($lock:ty),+) => {$(
        impl<T: Send> Lock<T> for $lock {
            fn new(value: T) -> Self {
                Self::new(value)
            }

            #[inline]
            fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
                let mut guard = profiled(self.try_lock(), || self.lock());
                work(&mut guard)
            }
        }
    )+};
}
locks!(spin::mutex::SpinMutex<T>, parking_lot::Mutex<T>);

/// What is on the lists.
pub struct Item {
    link: LinkedListAtomicLink,
    _number: usize,
}

impl Item {
    fn new(number: usize) -> Arc<Self> {
        Arc::new(Self {
            link: LinkedListAtomicLink::new(),
            _number: number,
        })
    }
}

intrusive_adapter!(Linked = Arc<Item>: Item { link => LinkedListAtomicLink });

/// A tenant's list.
struct One {
    list: LinkedList<Linked>,
    count: usize,
}

/// The lists of one LRU.
#[allow(
    clippy::vec_box,
    reason = "each is allocated by itself, so that no two share a cache line"
)]
pub struct Tenants(Vec<Box<One>>);

impl Tenants {
    fn new(tenants: usize) -> Self {
        let one = |_| {
            let mut one = Box::new(One {
                list: LinkedList::new(Linked::new()),
                count: 0,
            });
            (0..RESIDENTS).for_each(|resident| one.add(Item::new(resident)));
            one
        };
        Self((0..tenants).map(one).collect())
    }
}

impl One {
    fn add(&mut self, item: Arc<Item>) {
        self.list.push_back(item);
        self.count += 1;
    }

    /// # Safety
    ///
    /// The item is on this list.
    unsafe fn delete(&mut self, item: &Item) -> Option<Arc<Item>> {
        self.count -= 1;
        // SAFETY: the caller's promise.
        unsafe { self.list.cursor_mut_from_ptr(item) }.remove()
    }

    /// Makes the oldest items the newest ones.
    fn rotate(&mut self, limit: usize) {
        for _ in 0..limit.min(self.count) {
            if let Some(oldest) = self.list.pop_front() {
                self.list.push_back(oldest);
            }
        }
    }
}

/// An LRU each.
pub struct Lists<L> {
    lists: Vec<L>,
    tenants: usize,
    items: Vec<Vec<Arc<Item>>>,
}

/// Locks that spin: the kernel's own kind.
pub type Spinlocks = Lists<spin::mutex::SpinMutex<Tenants>>;

/// Locks that sleep.
pub type Mutexes = Lists<parking_lot::Mutex<Tenants>>;

impl<L: Lock<Tenants>> Subject for Lists<L> {
    fn new(lists: usize, tenants: usize, mutators: usize) -> Self {
        let lists = (0..lists).map(|_| L::new(Tenants::new(tenants))).collect();
        let items = (0..mutators)
            .map(|_| (0..MOVED).map(Item::new).collect())
            .collect();
        Self {
            lists,
            tenants,
            items,
        }
    }

    #[inline]
    fn count(&self, place: Place) -> usize {
        self.lists[place.list].with(|tenants| tenants.0[place.tenant].count)
    }

    fn add(&self, place: Place, mutator: usize, item: usize) {
        let item = Arc::clone(&self.items[mutator][item]);
        self.lists[place.list].with(|tenants| tenants.0[place.tenant].add(item));
    }

    fn delete(&self, place: Place, mutator: usize, item: usize) {
        let item = &self.items[mutator][item];
        // SAFETY: a mutator deletes where it has added.
        let deleted =
            self.lists[place.list].with(|tenants| unsafe { tenants.0[place.tenant].delete(item) });
        assert!(deleted.is_some(), "it is where the mutator put it");
    }

    fn reclaim_pass(&self) {
        for list in &self.lists {
            let mut tenant = 0;
            while tenant < self.tenants {
                list.with(|tenants| {
                    let mut left = BATCH;
                    while left > 0 && tenant < self.tenants {
                        tenants.0[tenant].rotate(left);
                        left = left.saturating_sub(tenants.0[tenant].count.max(1));
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
        Self(
            (0..lists)
                .map(|_| (0..tenants).map(|_| AtomicUsize::new(RESIDENTS)).collect())
                .collect(),
        )
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
