//! Shrinkers: who can free memory, how they are registered, and how much each is asked for.

use super::{
    calls::Calls,
    hierarchy::Shared,
    ledger::Entry,
    lru::ListLru,
    reclaim::{Pace, Part},
    tenant::{Inner, Tenant},
};
use std::{
    cell::Cell,
    error::Error,
    fmt,
    mem::ManuallyDrop,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use stillpoint_platform::user_code;

/// A NUMA node of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub(super) usize);

impl Node {
    /// All nodes. A machine without NUMA has one.
    pub fn all() -> impl Iterator<Item = Node> {
        (0..stillpoint_platform::numa::count()).map(Node)
    }

    /// The node of the processor that runs the calling thread at this moment.
    #[must_use]
    pub fn current() -> Node {
        Node(stillpoint_platform::numa::current())
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
/// and drop charges, register shrinkers and end registrations, its own too; charges that would have to reclaim fail, and to reclaim does
/// nothing. If it panics that ends the call, and is counted. What it says is not trusted: see [`Shrink::count`] and [`Shrink::scan`].
///
/// It is dropped once its registration has ended and no pass knows it any more, which may be on a thread that reclaims: a panic of its
/// destructor is contained.
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
    ///
    /// Called once, by [`Hierarchy::register`](super::Hierarchy::register), out of which it may panic.
    fn per_tenant(&self) -> bool {
        true
    }
}

/// Objects that a shrinker is asked about in one go, at most: so that one which lies about its count does not hold up a pass.
const MOST_SCANNED: u64 = 1 << 20;

/// Nobody has more objects than that.
const MOST_OBJECTS: u64 = 1 << 60;

pub(super) struct Registered {
    /// Dropped by our `drop`, which contains it.
    shrinker: ManuallyDrop<Arc<dyn Shrink>>,
    pub(super) per_tenant: bool,
    pub(super) number: usize,
    calls: Calls,
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
        self.0.calls.leave();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: taken once, and not used after this.
        let shrinker = unsafe { ManuallyDrop::take(&mut self.shrinker) };
        // The last to know it may be a pass, whose thread must survive.
        user_code::panics(user_code::NO_DOMAIN, || drop(shrinker));
    }
}

impl Registered {
    /// For a shrinker that has been asked whether its memory is `per_tenant`.
    pub(super) fn new(shrinker: Arc<dyn Shrink>, per_tenant: bool, number: usize) -> Self {
        let (told, panics) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { shrinker: ManuallyDrop::new(shrinker), per_tenant, number, calls: Calls::new(), told, panics }
    }

    /// Begins a call, unless the registration has ended.
    fn enter(&self) -> Option<Call<'_>> {
        self.calls.enter().then(|| {
            CALLING.set(self);
            Call(self)
        })
    }

    /// Whether the calling thread is inside a call.
    fn is_calling(&self) -> bool {
        ptr::eq(CALLING.get(), self)
    }

    /// In the child of a fork: calls of threads that are no more are over.
    pub(super) fn reset_in_child(&self) {
        self.calls.reset_in_child(self.is_calling());
    }

    /// What `work` returns; `None` if it panics.
    fn contained<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let result = user_code::run(user_code::NO_DOMAIN, work);
        if result.is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// As [`Registered::contained`]; `None` as well if the registration has ended meanwhile, by `work` itself, say: nothing more is asked then,
    /// nor remembered under a number that may be another's.
    fn asked<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.contained(work).filter(|_| !self.calls.is_ending())
    }

    /// How many objects the shrinker has, and clears its bit if there are none.
    fn freeable(&self, scope: &Scope<'_>, entry: Entry, told: bool) -> Option<u64> {
        let ledger = scope.tenant.inner().ledger();
        let count = || self.asked(|| self.shrinker.count(scope) as u64);
        let mut freeable = count()?;
        if freeable == 0 && told {
            ledger.clear(entry);
            let again = count(); // [B4]
            if self.calls.is_ending() {
                return None;
            }
            // It may have said 0, or panicked, for another reason than that there is nothing.
            let lists = scope.tenant.inner().shared.lists();
            let has_some = || lists.iter().any(|lists| lists.has_for(self.number, scope.tenant.number(), scope.node.0));
            if again != Some(0) || has_some() {
                ledger.mark(entry);
            }
            freeable = again?;
        }
        Some(freeable.min(MOST_OBJECTS))
    }

    /// Asks for a share of `part` of what can be freed: the smaller `priority`, the larger. Stops early once there is `enough`. How many objects
    /// were freed. The kernel's `do_shrink_slab()`.
    pub(super) fn shrink(&self, scope: &Scope<'_>, priority: u32, part: Part, pace: &mut Pace, enough: &dyn Fn() -> bool) -> u64 {
        let ledger = scope.tenant.inner().ledger();
        let entry = Entry::of(scope.node.0, self.number);
        // Acquire, pairs with `covers`: where a clear bit counts, the lists have been told to set it.
        let told = self.told.load(Ordering::Acquire);
        if told && !ledger.is_marked(entry) {
            return 0;
        }
        let Some(_call) = self.enter() else { return 0 };
        let Some(freeable @ 1..) = self.freeable(scope, entry, told) else { return 0 };
        let Some((batch, seeks)) = self.asked(|| (self.shrinker.batch().max(1) as u64, self.shrinker.seeks())) else { return 0 };
        let plan = Plan::new(freeable, part.of(freeable), ledger.take_deferred(entry), priority, seeks);

        let (mut left, mut scanned, mut freed) = (plan.total, 0, 0);
        while left > 0 && (left >= batch || left >= freeable) && scanned < MOST_SCANNED {
            let objects = left.min(batch);
            // `None` for a panic, too.
            let Some(some) = self.contained(|| self.shrinker.scan(scope, objects as usize)).flatten() else { break };
            freed += (some as u64).min(objects);
            scanned += objects;
            left -= objects;
            if self.calls.is_ending() {
                break;
            }
            pace.breathe();
            if enough() {
                break;
            }
        }
        if !self.calls.is_ending() {
            ledger.defer(entry, plan.deferred_after(scanned));
        }
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
    /// For `freeable` objects, of which so many are `unprotected`. What was put off was counted of those already.
    fn new(freeable: u64, unprotected: u64, deferred: u64, priority: u32, seeks: u32) -> Self {
        let most = freeable.saturating_mul(2);
        let delta = match seeks {
            // Costs nothing to make again: half of it goes, whatever the pressure.
            0 => unprotected / 2,
            seeks => (unprotected >> priority) * 4 / u64::from(seeks),
        };
        Self { total: (deferred >> priority).saturating_add(delta).min(most), due: deferred.saturating_add(delta), most }
    }

    /// What is put off.
    fn deferred_after(&self, scanned: u64) -> u64 {
        self.due.saturating_sub(scanned).min(self.most)
    }
}

/// A registered shrinker. Dropping it ends that: no call begins afterwards, and it waits for those under way but, inside one, the calling
/// thread's own, which is asked for nothing more. The kernel's `shrinker_free()`.
///
/// The wait ends with the calls: drop it where nothing is held that they need. So not in a read-side critical section if they wait for a grace
/// period, and not on a thread that a call joins; and two shrinkers that end each other's registrations at a time wait for each other.
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
        // Release, pairs with `shrink`: the lists set bits before clear ones count.
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
        self.registered.calls.end(self.registered.is_calling());
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
        assert_eq!(Plan::new(1000, 1000, 0, 12, 2), Plan { total: 0, due: 0, most: 2000 });
        assert_eq!(Plan::new(1000, 1000, 0, 2, 2), Plan { total: 500, due: 500, most: 2000 });
        assert_eq!(Plan::new(1000, 1000, 0, 0, 2), Plan { total: 2000, due: 2000, most: 2000 });
        // Twice as dear: half of it. Worthless: half of all.
        assert_eq!(Plan::new(1000, 1000, 0, 2, 4).total, 250);
        assert_eq!(Plan::new(1000, 1000, 0, 12, 0).total, 500);
        // Nine tenths are protected: a tenth of it.
        assert_eq!(Plan::new(1000, 100, 0, 2, 2), Plan { total: 50, due: 50, most: 2000 });
        assert_eq!(Plan::new(1000, 100, 0, 12, 0).total, 50);
        // Put-off work is shifted like the rest, and kept until it is done.
        let plan = Plan::new(1000, 1000, 400, 2, 2);
        assert_eq!((plan.total, plan.due), (600, 900));
        assert_eq!((plan.deferred_after(600), plan.deferred_after(5000)), (300, 0));
        // A liar.
        let plan = Plan::new(MOST_OBJECTS, MOST_OBJECTS, u64::MAX, 0, 1);
        assert_eq!((plan.total, plan.deferred_after(0)), (2 * MOST_OBJECTS, 2 * MOST_OBJECTS));
    }
}
