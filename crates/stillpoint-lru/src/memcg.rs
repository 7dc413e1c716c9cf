//! A tenant's state, and in the files below all that refers to tenants: the kernel's memory control
//! group, `struct mem_cgroup`.
//!
//! The files are in the order of their imports: a file imports files above it, and the last column
//! names the nearest (`tests/imports.rs` of `stillpoint`). Only `memcg.rs` re-exports others.
//! [`Memcg`] is what all handles of one tenant share, and [`Tree`](tree::Tree) what all tenants of
//! one hierarchy share. A tenant reaches its tree only as a [`Controller`], which is all that it, its
//! charges and the background reclaimer know of it.
//!
//! | file | subject | imports |
//! |---|---|---|
//! | `error.rs`, `node.rs` | errors; NUMA nodes | |
//! | `resched.rs` | when a thread that reclaims yields | |
//! | `scan_plan.rs` | how many objects a shrinker is asked to scan | |
//! | `counter.rs` | usage, and what keeps a tenant in memory | |
//! | `stock.rs` | charged bytes that each processor keeps | `counter`, `resched` |
//! | `memcg.rs` | a tenant: its place in the tree, limits, events | `counter`, `stock`, `resched` |
//! | `lists.rs` | one LRU list for each (tenant, node) | `memcg` |
//! | `background.rs` | the thread that reclaims down to the high limits | `memcg` |
//! | `charge.rs` | [`Charge`] | `memcg`, `stock` |
//! | `tenant.rs` | [`Tenant`], a handle of a tenant | `memcg`, `charge` |
//! | `shrinker.rs` | [`Shrink`], and one call of a shrinker | `tenant`, `lists`, `scan_plan` |
//! | `tree.rs` | tenants by number, their beginning and end, lists, shrinkers | `tenant`, `lists`, `shrinker`, `background` |
//! | `reclaim.rs` | a reclaim pass over a subtree | `tree`, `shrinker` |
//! | `hierarchy.rs` | [`Hierarchy`] | `tree`, `reclaim` |
//! | `registration.rs`, `pressure.rs` | [`Registration`]; passes when the system reports memory pressure | `hierarchy` |

mod background;
mod charge;
mod counter;
mod error;
mod hierarchy;
pub(crate) mod lists;
mod node;
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
    hierarchy::Hierarchy,
    node::Node,
    registration::Registration,
    shrinker::{Scope, Shrink},
    tenant::Tenant,
};

use crate::{
    levels::{HasLevel, Level},
    shrinker_map::ShrinkerMap,
};
use counter::{Account, Counter};
use resched::Resched;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint_platform::numa;
use stock::Stocks;

/// Flags in `state`: deleted, and lists reparented. Children are counted in units of [`CHILD`].
const DELETED: usize = 1;
const REPARENTED: usize = 2;
const CHILD: usize = 4;

/// An event of a tenant or of a descendant, which the tenant counts. The kernel's `memory.events`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Low,
    High,
    Max,
    Failed,
    Reclaimed,
}

/// Number of kinds of [`Event`].
const EVENTS: usize = Event::Reclaimed as usize + 1;

/// The hierarchy as its tenants see it. `hierarchy.rs` implements it, so that tenants, charges and the
/// background reclaimer need not import it.
pub(crate) trait Controller: Send + Sync {
    /// Creates a tenant below `parent`, for which the caller makes the handle.
    fn create(self: Arc<Self>, parent: &Arc<Memcg>) -> Result<Arc<Memcg>, CreateError>;

    /// Moves the lists and the deferred work of `tenant`, which is marked as deleted, to its parent.
    fn offline(&self, tenant: &Arc<Memcg>);

    /// Ends a tenant whose last handle is gone. The caller then drops the handles' hold on its memory,
    /// unless this returns false: a fork has removed a thread that held a lock, and the tenant stays.
    #[must_use]
    fn release(&self, tenant: &Arc<Memcg>) -> bool;

    /// Reclaims from `target` and its descendants until `enough` returns true or nothing more can be
    /// had. Returns the number of objects that were freed.
    fn reclaim(&self, target: &Memcg, enough: &dyn Fn() -> bool, resched: &mut Resched) -> u64;

    /// Makes the background reclaimer shrink a tenant that is above its high limit.
    fn wake_background(&self, tenant: &Memcg);
}

pub(crate) struct Memcg {
    /// Small, and used again once the last handle is gone.
    number: u32,
    /// Handles, and children that have handles.
    handles: AtomicUsize,
    state: AtomicUsize,
    counter: Counter,
    /// Limits in bytes; the max is the counter's.
    min: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
    events: [AtomicU64; EVENTS],
    shrinker_map: ShrinkerMap,
    /// Number of reclaims of this subtree so far: each begins with another member.
    turn: AtomicUsize,
    /// Set while the tenant is in the background reclaimer's queue.
    queued: AtomicBool,
    stocks: Arc<Stocks<Memcg>>,
    controller: Arc<dyn Controller>,
    parent: Option<Arc<Memcg>>,
}

impl Memcg {
    /// Creates a tenant that has one handle, which the caller makes.
    fn new(
        number: u32,
        controller: Arc<dyn Controller>,
        stocks: Arc<Stocks<Memcg>>,
        parent: Option<Arc<Memcg>>,
    ) -> Arc<Self> {
        counter::new_account(Self {
            number,
            handles: AtomicUsize::new(1),
            state: AtomicUsize::new(0),
            counter: Counter::new(),
            min: AtomicU64::new(0),
            low: AtomicU64::new(0),
            high: AtomicU64::new(u64::MAX),
            events: Default::default(),
            shrinker_map: ShrinkerMap::new(numa::count()),
            turn: AtomicUsize::new(0),
            queued: AtomicBool::new(false),
            stocks,
            controller,
            parent,
        })
    }

    /// Counts an event, `times` times.
    fn count(&self, event: Event, times: u64) {
        self.events[event as usize].fetch_add(times, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the address that identifies the hierarchy as long as one of its tenants lives.
    fn hierarchy(&self) -> usize {
        self.stocks.address()
    }

    fn has_children(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= CHILD
    }

    /// Returns this tenant or, if it has been deleted, its nearest ancestor that has not. The root is
    /// never deleted.
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

    /// Bytes charged to the tenant and its descendants, those in stock included.
    fn usage(&self) -> u64 {
        self.counter.usage()
    }

    fn max(&self) -> u64 {
        self.counter.level().max()
    }

    fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    fn min(&self) -> u64 {
        self.min.load(Ordering::Relaxed)
    }

    /// Makes the background reclaimer shrink the tenant if it is above its high limit.
    #[inline]
    fn wake_if_high(&self) {
        if self.usage() > self.high() {
            self.controller.wake_background(self);
        }
    }

    /// Takes another handle, unless the last one has been dropped.
    fn get(&self) -> bool {
        let up = |handles: usize| (handles > 0).then_some(handles + 1);
        self.handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, up)
            .is_ok()
    }

    /// Drops a handle. A tenant that ends drops its parent's handle, and so on, in a loop, as a tree
    /// may be deeper than any stack. `self` keeps them all.
    fn put(self: &Arc<Self>) {
        let mut at = Some(self);
        // Release and acquire, pairs with `put` of other threads: what was done through other
        // handles is done before the end.
        while let Some(tenant) =
            at.filter(|tenant| tenant.handles.fetch_sub(1, Ordering::AcqRel) == 1)
        {
            if tenant.controller.release(tenant) {
                // SAFETY: made by `Memcg::new`, and `self` keeps it. Its handles have come to 0, from
                // which nothing raises them, so this is the only time.
                unsafe { counter::put_handles(Arc::as_ptr(tenant)) };
            }
            at = tenant.parent.as_ref();
        }
    }
}

impl HasLevel for Memcg {
    #[inline]
    fn level(&self) -> &Level {
        self.counter.level()
    }

    #[inline]
    fn high(&self) -> u64 {
        self.high.load(Ordering::Relaxed)
    }
}

// SAFETY: the counter is a field, and `Memcg::new` alone makes a `Memcg`.
unsafe impl Account for Memcg {
    #[inline]
    fn counter(&self) -> &Counter {
        &self.counter
    }

    #[inline]
    fn parent(&self) -> Option<&Self> {
        self.parent.as_deref()
    }

    #[inline]
    fn is_deleted(&self) -> bool {
        // Acquire, pairs with `delete` and `release`: a thread that turns to the parent sees what
        // was done before the deletion.
        self.state.load(Ordering::Acquire) & DELETED != 0
    }
}

impl Drop for Memcg {
    /// Drops ancestors that go with this tenant one after the other, not each inside the one before:
    /// a tree may be deeper than any stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut memcg) = above.and_then(Arc::into_inner) {
            above = memcg.parent.take();
        }
    }
}

impl fmt::Debug for Memcg {
    /// Leaves out the ancestors, of which there may be any number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memcg")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
