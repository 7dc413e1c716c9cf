//! Shrinkers: who can free memory, how they are registered, and how much each is asked for.

use super::{
    hierarchy::Shared,
    ledger::Entry,
    lru::ListLru,
    reclaim::Pace,
    tenant::{Inner, Tenant},
};
use crate::platform::{event::Event, user_code};
use std::{
    cell::Cell,
    error::Error,
    fmt, ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// A NUMA node of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub(super) usize);

impl Node {
    /// All nodes. A machine without NUMA has one.
    pub fn all() -> impl Iterator<Item = Node> {
        (0..crate::platform::numa::count()).map(Node)
    }

    /// The node of the processor that runs the calling thread at this moment.
    #[must_use]
    pub fn current() -> Node {
        Node(crate::platform::numa::current())
    }

    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// What a shrinker is asked about.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Scope<'a> {
    /// Whose memory.
    pub tenant: &'a Tenant,
    /// Where.
    pub node: Node,
}

/// Something that can free memory when it is asked to. The kernel's `struct shrinker`.
///
/// Called by any thread that reclaims, several at once, with nothing of this library held. It may add to lists and take from them,
/// and drop charges; charges that would have to reclaim fail, and to reclaim does nothing. If it panics that ends the call, and is
/// counted. What it says is not trusted: see [`Shrink::count`] and [`Shrink::scan`].
pub trait Shrink: Send + Sync + 'static {
    /// About how many objects could be freed; 0 if there is nothing to do. The kernel's `count_objects`.
    ///
    /// Called far more often than `scan`, so it should be cheap: [`ListLru::count_one`]. A pass scans at most twice as many, and at most
    /// about a million, whatever this says.
    fn count(&self, scope: &Scope<'_>) -> usize;

    /// Looks at up to `objects` objects and frees what can be freed; how many it freed, or `None` if it cannot work now (the kernel's
    /// `SHRINK_STOP`). The kernel's `scan_objects`. See [`ListLru::walk_one`].
    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize>;

    /// What it costs to make an object again: 2 is usual, more spares this shrinker, 0 means nothing at all. The kernel's `seeks`.
    fn seeks(&self) -> u32 {
        2
    }

    /// How many objects a `scan` should look at; less than that is put off until it has come together. At least 1. The kernel's
    /// `SHRINK_BATCH`.
    fn batch(&self) -> usize {
        128
    }

    /// Whether the memory belongs to tenants. If not, it is asked in passes over the whole hierarchy alone, with the root as tenant.
    fn per_tenant(&self) -> bool {
        true
    }
}

/// In `state`: no new calls. Calls under way are counted twice over.
const GONE: usize = 1;
const CALL: usize = 2;

/// Objects that a shrinker is asked about in one go, at most: so that one which lies about its count does not hold up a pass.
const MOST_SCANNED: u64 = 1 << 20;

/// Nobody has more objects than that.
const MOST_OBJECTS: u64 = 1 << 60;

pub(super) struct Registered {
    shrinker: Arc<dyn Shrink>,
    pub(super) number: usize,
    state: AtomicUsize,
    idle: Event,
    /// Whether the ledgers say where it may find something.
    told: AtomicBool,
    panics: AtomicU64,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("number", &self.number).finish_non_exhaustive()
    }
}

thread_local! {
    /// The shrinker that this thread is calling; null for none. They do not nest: see `reclaim.rs`.
    static CALLING: Cell<*const Registered> = const { Cell::new(ptr::null()) };
}

/// A call under way: the registration's end waits for it.
struct Call<'a>(&'a Registered);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        CALLING.set(ptr::null());
        if self.0.state.fetch_sub(CALL, Ordering::AcqRel) == CALL | GONE {
            self.0.idle.signal_after_rmw();
        }
    }
}

impl Registered {
    pub(super) fn new(shrinker: Arc<dyn Shrink>, number: usize) -> Self {
        let (state, idle) = (AtomicUsize::new(0), Event::new());
        Self { shrinker, number, state, idle, told: AtomicBool::new(false), panics: AtomicU64::new(0) }
    }

    pub(super) fn per_tenant(&self) -> bool {
        self.shrinker.per_tenant()
    }

    /// Begins a call, unless the registration has ended.
    fn enter(&self) -> Option<Call<'_>> {
        if self.state.fetch_add(CALL, Ordering::AcqRel) & GONE != 0 {
            self.state.fetch_sub(CALL, Ordering::AcqRel);
            return None;
        }
        CALLING.set(self);
        Some(Call(self))
    }

    /// No call begins after this, and none is under way but, perhaps, the one that the calling thread is in.
    fn end(&self) {
        self.state.fetch_or(GONE, Ordering::AcqRel);
        let own = if ptr::eq(CALLING.get(), self) { CALL } else { 0 };
        loop {
            let waiter = self.idle.prepare();
            if self.state.load(Ordering::Acquire) <= GONE | own {
                waiter.leave();
                return;
            }
            // Calls that found it gone add to the count for a moment, and do not signal: the bound is for those.
            waiter.sleep(Some(crate::platform::clock::now() + 1_000_000));
        }
    }

    /// In the child of a fork: calls of threads that are no more are over.
    pub(super) fn in_child(&self) {
        let own = if ptr::eq(CALLING.get(), self) { CALL } else { 0 };
        self.state.store(self.state.load(Ordering::Relaxed) & GONE | own, Ordering::Relaxed);
        self.idle.in_child();
    }

    /// What `work` returns; 0 if it panics.
    fn contained<R: Default>(&self, work: impl FnOnce() -> R) -> R {
        let mut result = R::default();
        if user_code::panics(user_code::NO_DOMAIN, || result = work()) {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Asks for a share of what can be freed: the smaller `priority`, the larger. Stops early once there is `enough`. How many objects
    /// were freed. The kernel's `do_shrink_slab()`.
    pub(super) fn shrink(&self, scope: &Scope<'_>, priority: u32, pace: &mut Pace, enough: &dyn Fn() -> bool) -> u64 {
        let ledger = scope.tenant.inner().ledger();
        let entry = Entry::of(scope.node.0, self.number);
        let told = self.told.load(Ordering::Acquire);
        if told && !ledger.is_marked(entry) {
            return 0;
        }
        let Some(_call) = self.enter() else { return 0 };
        let count = || self.contained(|| self.shrinker.count(scope)) as u64;
        let mut freeable = count();
        if freeable == 0 && told {
            ledger.clear(entry);
            freeable = count(); // [B4]
            // It may have said 0 for another reason than that there is nothing.
            let lists = scope.tenant.inner().shared.lists();
            if freeable > 0 || lists.iter().any(|lists| lists.has_for(self.number, scope.tenant.number(), scope.node.0)) {
                ledger.mark(entry);
            }
        }
        if freeable == 0 {
            return 0;
        }
        let freeable = freeable.min(MOST_OBJECTS);
        let deferred = ledger.take_deferred(entry);
        let batch = self.contained(|| self.shrinker.batch()).max(1) as u64;
        let plan = Plan::new(freeable, deferred, priority, self.contained(|| self.shrinker.seeks()));

        let (mut left, mut scanned, mut freed) = (plan.total, 0, 0);
        while left > 0 && (left >= batch || left >= freeable) && scanned < MOST_SCANNED {
            let objects = left.min(batch);
            // `None` for a panic, too.
            let Some(some) = self.contained(|| self.shrinker.scan(scope, objects as usize)) else { break };
            freed += (some as u64).min(objects);
            scanned += objects;
            left -= objects;
            pace.breathe();
            if enough() {
                break;
            }
        }
        ledger.defer(entry, plan.deferred_after(scanned));
        freed
    }
}

/// How much a shrinker is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Objects to scan.
    total: u64,
    /// All that there is to do, now or later.
    due: u64,
    most: u64,
}

impl Plan {
    fn new(freeable: u64, deferred: u64, priority: u32, seeks: u32) -> Self {
        let most = freeable.saturating_mul(2);
        let delta = match seeks {
            // Costs nothing to make again: half of it goes, whatever the pressure.
            0 => freeable / 2,
            seeks => (freeable >> priority) * 4 / u64::from(seeks),
        };
        Self { total: (deferred >> priority).saturating_add(delta).min(most), due: deferred.saturating_add(delta), most }
    }

    /// What is put off.
    fn deferred_after(&self, scanned: u64) -> u64 {
        self.due.saturating_sub(scanned).min(self.most)
    }
}

/// A registered shrinker. Dropping it ends that: it waits for calls under way, unless it is dropped inside one. The kernel's
/// `shrinker_free()`.
///
/// Made by [`Hierarchy::register`](super::Hierarchy::register).
#[derive(Debug)]
#[must_use = "the shrinker is registered until this is dropped"]
pub struct Registration {
    shared: Arc<Shared>,
    registered: Arc<Registered>,
}

impl Registration {
    pub(super) fn new(shared: Arc<Shared>, registered: Arc<Registered>) -> Self {
        Self { shared, registered }
    }

    /// Says that all the shrinker can free is on `lru`'s lists (and those of other such calls): it is then not even asked where they
    /// are empty. The kernel's `list_lru_init_memcg()`. As there, a lru tells one shrinker at a time.
    ///
    /// # Panics
    ///
    /// If `lru` is not one for the tenants of this hierarchy, or is covered by another registration that has not ended.
    pub fn covers<T: Send + Sync + 'static, P: super::Probe>(&self, lru: &ListLru<T, P>) {
        let lists = lru.lists();
        assert!(
            lists.hierarchy() == self.shared.id(),
            "stillpoint: the lists are not for the tenants of the hierarchy that the shrinker is registered with; make them with \
             ListLru::for_tenants(&hierarchy)"
        );
        assert!(
            lists.tell_shrinker(self.registered.number),
            "stillpoint: the lists are covered by another registration; drop that first, or let one shrinker serve both purposes"
        );
        self.registered.told.store(true, Ordering::Release);
    }

    /// How often the shrinker has panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.registered.panics.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.unlist(&self.registered);
        self.registered.end();
        self.shared.all_lists().iter().for_each(|lists| lists.forget_shrinker(self.registered.number));
        // Nobody asks it any more; its number may be used again once nothing is remembered under it.
        self.shared.for_each_tenant(|tenant: &Inner| {
            Node::all().for_each(|node| tenant.ledger().forget(Entry::of(node.0, self.registered.number)));
        });
        self.shared.release_shrinker(self.registered.number);
    }
}

/// Why a shrinker was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyShrinkers;

impl fmt::Display for TooManyShrinkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a hierarchy has at most {} shrinkers; let one serve several caches", super::ledger::MOST_SHRINKERS)
    }
}

impl Error for TooManyShrinkers {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_kernels() {
        // 1,000 objects at the usual cost: at the lowest pressure nothing, at the highest all of them twice.
        assert_eq!(Plan::new(1000, 0, 12, 2), Plan { total: 0, due: 0, most: 2000 });
        assert_eq!(Plan::new(1000, 0, 2, 2), Plan { total: 500, due: 500, most: 2000 });
        assert_eq!(Plan::new(1000, 0, 0, 2), Plan { total: 2000, due: 2000, most: 2000 });
        // Twice as dear: half of it. Worthless: half of all.
        assert_eq!(Plan::new(1000, 0, 2, 4).total, 250);
        assert_eq!(Plan::new(1000, 0, 12, 0).total, 500);
        // Put-off work is shifted like the rest, and kept until it is done.
        let plan = Plan::new(1000, 400, 2, 2);
        assert_eq!((plan.total, plan.due), (600, 900));
        assert_eq!((plan.deferred_after(600), plan.deferred_after(5000)), (300, 0));
        // A liar.
        let plan = Plan::new(MOST_OBJECTS, u64::MAX, 0, 1);
        assert_eq!((plan.total, plan.deferred_after(0)), (2 * MOST_OBJECTS, 2 * MOST_OBJECTS));
    }
}
