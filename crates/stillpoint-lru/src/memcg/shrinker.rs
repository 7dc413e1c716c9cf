//! Shrinkers: the trait, and a call of a registered one.

use super::{
    Tenant,
    lists::Lists,
    node::Node,
    resched::Resched,
    scan_plan::{MAX_OBJECTS, ScanPlan, Unprotected},
};
use crate::{calls::Calls, shrinker_map::Index};
use std::{
    cell::Cell,
    fmt,
    mem::ManuallyDrop,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use stillpoint_platform::user_code;

/// Whose memory a shrinker is asked about, and where.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Scope<'a> {
    /// The tenant whose memory is to be reclaimed.
    pub tenant: &'a Tenant,
    /// The node whose memory is to be reclaimed.
    pub node: Node,
}

/// Frees memory on request. The kernel's `struct shrinker`.
///
/// Called by any thread that reclaims, several at once, with no lock of this library held. It may
/// add items to lists and delete them, drop charges, register shrinkers and end registrations, even
/// its own; charges that would have to reclaim fail, and reclaiming does nothing. A panic ends the
/// call and is counted. Its answers are not trusted: see [`Shrink::count`] and [`Shrink::scan`].
///
/// It is dropped once its registration has ended and no pass knows it any more, perhaps on a thread
/// that reclaims: a panic of its destructor is contained.
pub trait Shrink: Send + Sync + 'static {
    /// Returns about how many objects could be freed; 0 if there is nothing to do. The kernel's
    /// `count_objects`.
    ///
    /// Called far more often than `scan`, so it should be cheap:
    /// [`ListLru::count_one`](crate::ListLru::count_one). A pass scans at most twice as many, and
    /// at most about a million, whatever this says.
    fn count(&self, scope: &Scope<'_>) -> usize;

    /// Looks at up to `objects` objects and frees what can be freed. Returns how many it freed, or
    /// `None` if it cannot work now (the kernel's `SHRINK_STOP`). The kernel's `scan_objects`. See
    /// [`ListLru::walk_one`](crate::ListLru::walk_one).
    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize>;

    /// Returns what it costs to make an object again: 2 is usual, more spares this shrinker, 0 is no
    /// cost. The kernel's `seeks`.
    fn seeks(&self) -> u32 {
        2
    }

    /// Returns how many objects a `scan` should look at, at least 1; fewer are deferred until there
    /// are that many. The kernel's `SHRINK_BATCH`.
    fn batch(&self) -> usize {
        128
    }

    /// Returns whether the memory belongs to tenants. If not, the shrinker is asked only in passes
    /// over the whole hierarchy, with the root as tenant.
    ///
    /// Called once, by [`Hierarchy::register`](super::Hierarchy::register), to whose caller a panic
    /// of it goes.
    fn per_tenant(&self) -> bool {
        true
    }
}

/// Number of objects that a shrinker is asked to scan in one call, at most, so that a shrinker that
/// lies about its count does not hold up a pass.
const MAX_SCANNED: u64 = 1 << 20;

pub(crate) struct Registered {
    /// Dropped by our `drop`, which contains it.
    shrinker: ManuallyDrop<Arc<dyn Shrink>>,
    pub(crate) per_tenant: bool,
    pub(crate) number: usize,
    calls: Calls,
    /// True if the shrinker maps say where it may find something.
    uses_map: AtomicBool,
    panics: AtomicU64,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("number", &self.number)
            .finish_non_exhaustive()
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
    /// Registers a shrinker that has been asked whether its memory is `per_tenant`.
    pub(crate) fn new(shrinker: Arc<dyn Shrink>, per_tenant: bool, number: usize) -> Self {
        Self {
            shrinker: ManuallyDrop::new(shrinker),
            per_tenant,
            number,
            calls: Calls::new(),
            uses_map: AtomicBool::new(false),
            panics: AtomicU64::new(0),
        }
    }

    /// Begins a call, unless the registration has ended.
    fn enter(&self) -> Option<Call<'_>> {
        self.calls.enter().then(|| {
            CALLING.set(self);
            Call(self)
        })
    }

    /// Returns whether the calling thread is inside a call.
    fn is_calling(&self) -> bool {
        ptr::eq(CALLING.get(), self)
    }

    /// Ends the registration: no call begins afterwards, and none is under way except the calling
    /// thread's, if it is inside one.
    pub(crate) fn end_calls(&self) {
        self.calls.end(self.is_calling());
    }

    /// From now on, asks the shrinker only where the shrinker maps say that there may be something.
    pub(crate) fn use_map(&self) {
        // Release, pairs with `shrink`: the lists set bits before clear ones count.
        self.uses_map.store(true, Ordering::Release);
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// In the child of a fork: forgets the calls of lost threads.
    pub(crate) fn reset_in_child(&self) {
        self.calls.reset_in_child(self.is_calling());
    }

    /// Runs `work` and returns its result; `None` if it panics, which is counted.
    fn catch_panic<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let result = user_code::run(user_code::NO_DOMAIN, work);
        if result.is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Like [`Registered::catch_panic`]; also returns `None` if the registration has ended meanwhile,
    /// by `work` itself, say: nothing more is asked then, nor remembered under a number that may be
    /// another's.
    fn call<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.catch_panic(work).filter(|_| !self.calls.is_ending())
    }

    /// Returns how many objects the shrinker has, and clears its bit if there are none.
    fn freeable(
        &self,
        scope: &Scope<'_>,
        index: Index,
        uses_map: bool,
        lists: &impl Fn() -> Vec<Arc<Lists>>,
    ) -> Option<u64> {
        let shrinker_map = &scope.tenant.memcg().shrinker_map;
        let count = || self.call(|| self.shrinker.count(scope) as u64);
        let mut freeable = count()?;
        if freeable == 0 && uses_map {
            shrinker_map.clear_bit(index);
            // The second look: see the head of `shrinker_map.rs`.
            let again = count();
            if self.calls.is_ending() {
                return None;
            }
            // It may have said 0, or panicked, although it has something.
            let has_some = |lists: &Arc<Lists>| {
                lists.has_for(self.number, scope.tenant.number(), scope.node.0)
            };
            if again != Some(0) || lists().iter().any(has_some) {
                shrinker_map.set_bit(index);
            }
            freeable = again?;
        }
        Some(freeable.min(MAX_OBJECTS))
    }

    /// Asks for a share of `part` of what can be freed, which is larger for a smaller `priority`.
    /// Stops early once there is `enough`. `lists` returns the hierarchy's. Returns how many objects
    /// were freed. The kernel's `do_shrink_slab()`.
    pub(crate) fn shrink(
        &self,
        scope: &Scope<'_>,
        priority: u32,
        part: Unprotected,
        resched: &mut Resched,
        enough: &dyn Fn() -> bool,
        lists: &impl Fn() -> Vec<Arc<Lists>>,
    ) -> u64 {
        let shrinker_map = &scope.tenant.memcg().shrinker_map;
        let index = Index::of(scope.node.0, self.number);
        // Acquire, pairs with `use_map`: where a clear bit counts, the lists have been told to set
        // it.
        let uses_map = self.uses_map.load(Ordering::Acquire);
        if uses_map && !shrinker_map.is_set(index) {
            return 0;
        }
        let Some(_call) = self.enter() else { return 0 };
        let Some(freeable @ 1..) = self.freeable(scope, index, uses_map, lists) else {
            return 0;
        };
        let Some((batch, seeks)) =
            self.call(|| (self.shrinker.batch().max(1) as u64, self.shrinker.seeks()))
        else {
            return 0;
        };
        let plan = ScanPlan::new(
            freeable,
            part.of(freeable),
            shrinker_map.take_deferred(index),
            priority,
            seeks,
        );
        let (mut left, mut scanned, mut freed) = (plan.total, 0, 0);
        while left > 0 && (left >= batch || left >= freeable) && scanned < MAX_SCANNED {
            let objects = left.min(batch);
            // `None` for a panic, too.
            let Some(some) = self
                .catch_panic(|| self.shrinker.scan(scope, objects as usize))
                .flatten()
            else {
                break;
            };
            freed += (some as u64).min(objects);
            scanned += objects;
            left -= objects;
            if self.calls.is_ending() {
                break;
            }
            resched.cond_resched();
            if enough() {
                break;
            }
        }
        if !self.calls.is_ending() {
            shrinker_map.defer(index, plan.deferred_after(scanned));
        }
        freed
    }
}
