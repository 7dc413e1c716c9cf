//! A tenant's state, and beside it (in the files below) all that refers to it: the kernel's memory
//! control group, `struct mem_cgroup`.
//!
//! [`Memcg`] is what all handles of one tenant share, and [`Tree`] what all tenants of one
//! hierarchy share. Both refer to the lists, the shrinkers, the stock and the background reclaimer,
//! which refer to tenants; so those are children of this module, and import one another only
//! downwards:
//!
//! | file | subject | imports |
//! |---|---|---|
//! | `memcg.rs` | a tenant's state: its place in the tree, limits, events | |
//! | `handle.rs` | [`Tenant`], a handle of it | |
//! | `counter.rs` | usage, and what keeps a tenant in memory | |
//! | `resched.rs` | when a thread that reclaims yields | |
//! | `node.rs`, `error.rs` | NUMA nodes; errors | |
//! | `lists.rs` | one LRU list for each (tenant, node) | |
//! | `stock.rs` | charged bytes that each processor keeps | `counter`, `resched` |
//! | `scan_plan.rs`, `shrinker.rs` | the trait, and one call of a shrinker | `handle`, `resched` |
//! | `reclaim.rs` | a reclaim pass over a subtree | `shrinker`, `handle`, `resched` |
//! | `background.rs` | the thread that reclaims down to the high limits | `reclaim` |
//! | `tree.rs` | tenants by number, lists, shrinkers, stock, background | all of the above |
//! | `offline.rs` | the end of a tenant: what it leaves goes to its parent | `tree`, `lists`, `counter` |
//! | `charge.rs`, `tenant.rs`, `hierarchy.rs`, `pressure.rs` | what a program calls | all of the above |
//! | `fork.rs` | what a child of a fork resets | all of the above |

mod background;
mod charge;
mod counter;
mod error;
mod fork;
mod handle;
mod hierarchy;
pub(crate) mod lists;
mod node;
mod offline;
mod reclaim;
mod registration;
mod resched;
mod scan_plan;
mod shrinker;
mod stock;
mod tenant;
mod tree;

#[cfg(target_os = "linux")]
pub(crate) mod pressure;
pub use {
    charge::Charge,
    error::{ChargeError, CreateError, DeleteError, TooManyShrinkers},
    handle::Tenant,
    hierarchy::Hierarchy,
    node::Node,
    registration::Registration,
    shrinker::{Scope, Shrink},
};

use crate::shrinker_map::ShrinkerMap;
use counter::Counter;
use std::{
    fmt, iter,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint_platform::numa;
use tree::Tree;

/// Flags in `state`: deleted, and lists reparented. Children are counted in units of [`CHILD`].
const DELETED: usize = 1;
const REPARENTED: usize = 2;
const CHILD: usize = 4;

/// What is counted that happens to a tenant or below it. The kernel's `memory.events`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Low,
    High,
    Max,
    Failed,
    Reclaimed,
}

/// How many kinds of [`Event`] there are.
const EVENTS: usize = Event::Reclaimed as usize + 1;

#[derive(Debug)]
struct Limits {
    min: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
}

pub(crate) struct Memcg {
    /// Small, and used again once the last handle is gone.
    number: u32,
    /// Handles, and children that have handles.
    handles: AtomicUsize,
    state: AtomicUsize,
    counter: Counter,
    limits: Limits,
    events: [AtomicU64; EVENTS],
    shrinker_map: ShrinkerMap,
    /// Where the next reclaim of this subtree begins, so that it is not always the same one that is
    /// first.
    pub(crate) turn: AtomicUsize,
    /// Set while the tenant is in the background reclaimer's queue.
    pub(crate) queued: AtomicBool,
    pub(crate) tree: Arc<Tree>,
    parent: Option<Arc<Memcg>>,
}

impl Memcg {
    pub(super) fn new(number: u32, tree: Arc<Tree>, parent: Option<Arc<Memcg>>) -> Arc<Self> {
        let memcg = Arc::new(Self {
            number,
            handles: AtomicUsize::new(1),
            state: AtomicUsize::new(0),
            counter: Counter::new(),
            limits: Limits {
                min: AtomicU64::new(0),
                low: AtomicU64::new(0),
                high: AtomicU64::new(u64::MAX),
            },
            events: Default::default(),
            shrinker_map: ShrinkerMap::new(numa::count()),
            turn: AtomicUsize::new(0),
            queued: AtomicBool::new(false),
            tree,
            parent,
        });
        memcg.counter.keep(Arc::clone(&memcg));
        memcg
    }

    /// Counts an event, `times` times.
    pub(crate) fn count(&self, event: Event, times: u64) {
        self.events[event as usize].fetch_add(times, Ordering::Relaxed);
    }

    fn happened(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(crate) fn is_deleted(&self) -> bool {
        // Acquire, pairs with `delete` and `release`: a thread that turns to the parent sees what
        // was done before the deletion.
        self.state.load(Ordering::Acquire) & DELETED != 0
    }

    pub(crate) fn has_children(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= CHILD
    }

    /// This one, or, if it has been deleted, its nearest ancestor that has not. The root is never
    /// deleted.
    #[inline]
    pub(crate) fn live(self: &Arc<Self>) -> &Arc<Self> {
        let mut at = self;
        while at.is_deleted() {
            at = at
                .parent
                .as_ref()
                .expect("the root is not deleted before all its descendants are gone");
        }
        at
    }

    #[inline]
    pub(crate) fn and_ancestors(&self) -> impl Iterator<Item = &Self> + Clone {
        iter::successors(Some(self), |tenant| tenant.parent.as_deref())
    }

    pub(crate) fn parent(&self) -> Option<&Memcg> {
        self.parent.as_deref()
    }

    /// Returns whether this is `other` or below it.
    pub(crate) fn is_within(&self, other: &Memcg) -> bool {
        self.and_ancestors()
            .any(|tenant| std::ptr::eq(tenant, other))
    }

    #[inline]
    pub(crate) fn counter(&self) -> &Counter {
        &self.counter
    }

    pub(crate) fn shrinker_map(&self) -> &ShrinkerMap {
        &self.shrinker_map
    }

    pub(crate) fn max(&self) -> u64 {
        self.counter.level().max()
    }

    pub(crate) fn high(&self) -> u64 {
        self.limits.high.load(Ordering::Relaxed)
    }

    pub(crate) fn low(&self) -> u64 {
        self.limits.low.load(Ordering::Relaxed)
    }

    pub(crate) fn min(&self) -> u64 {
        self.limits.min.load(Ordering::Relaxed)
    }
}

impl Drop for Memcg {
    /// Tenants above that go with this one do so one after the other, and not each inside the one
    /// before: a tree may be deeper than any stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut memcg) = above.and_then(Arc::into_inner) {
            above = memcg.parent.take();
        }
    }
}

impl fmt::Debug for Memcg {
    /// Without the ancestors, of which there may be any number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memcg")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
