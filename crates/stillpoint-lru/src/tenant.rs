//! Tenants: the tree, its limits, and how one comes and goes. Charging is in `charge.rs`.

use super::{
    charge::Charge,
    counter::{self, Counter},
    error::{ChargeError, CreateError, DeleteError},
    hierarchy::Shared,
    ledger::Ledger,
    lists::keep_for_readers,
    reclaim::{self, Pace},
};
use std::{
    fmt, iter,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint_platform::numa;

/// In `state`: deleted; and what it had is its heir's. Children are counted four times over.
const DELETED: usize = 1;
const BURIED: usize = 2;
const CHILD: usize = 4;

/// Somebody whose memory is accounted for, and may be limited: a node of a tree. The kernel's memory control group.
///
/// A handle: cloning it names the same tenant. The tenant is deleted by [`Tenant::delete`] or with its last handle; a child keeps its
/// parent. What a deleted tenant had on LRU lists goes to its nearest ancestor; what is still charged to it stays charged, to it and so to
/// its ancestors, until it is given back.
///
/// | limit | what it does |
/// |---|---|
/// | [min](Tenant::set_min) | while the tenant uses no more, nobody reclaims from it |
/// | [low](Tenant::set_low) | the same, unless there is nothing else to reclaim from |
/// | [high](Tenant::set_high) | past it, a background thread reclaims from the tenant |
/// | [max](Tenant::set_max) | a charge that would pass it reclaims first, and fails if that does not help |
///
/// Limits are bytes, may be changed at any time, and count for a tenant together with all that are below it. A child's protection (min,
/// low) is worth what its parent's is: where children claim more together than the parent has, they get shares of it. One that is
/// directly below the tenant that is reclaimed from has its own in full.
///
/// ```
/// use stillpoint_lru::Hierarchy;
/// let hierarchy = Hierarchy::new();
/// let alice = hierarchy.root().create()?;
/// alice.set_max(1 << 20);
/// let session = alice.create()?;
/// let charge = session.charge(600_000)?;
/// assert_eq!((session.usage(), alice.usage()), (600_000, 600_000));
/// assert!(session.charge(600_000).is_err(), "there is nothing that could be reclaimed");
/// drop(charge);
/// assert_eq!(alice.usage(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tenant {
    inner: Arc<Inner>,
    /// What it takes to count, so that counters need not touch what is charged all the time: the tenant's number, and its hierarchy's.
    number: u32,
    hierarchy: u64,
}

/// How often something has happened to a tenant or below it. The kernel's `memory.events`.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) low: AtomicU64,
    pub(super) high: AtomicU64,
    pub(super) max: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) reclaimed: AtomicU64,
}

#[derive(Debug)]
struct Limits {
    min: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
}

pub(super) struct Inner {
    /// Small, and used again once the last handle is gone.
    number: u32,
    /// Handles, and children that have handles.
    handles: AtomicUsize,
    state: AtomicUsize,
    counter: Counter,
    limits: Limits,
    pub(super) events: Events,
    ledger: Ledger,
    /// Where the next reclaim of this subtree begins, so that it is not always the same one that is first.
    pub(super) turn: AtomicUsize,
    /// Whether the background reclaimer has been told.
    pub(super) queued: AtomicBool,
    pub(super) shared: Arc<Shared>,
    parent: Option<Arc<Inner>>,
}

impl Inner {
    fn new(number: u32, shared: Arc<Shared>, parent: Option<Arc<Inner>>) -> Arc<Self> {
        let inner = Arc::new(Self {
            number,
            handles: AtomicUsize::new(1),
            state: AtomicUsize::new(0),
            counter: Counter::new(),
            limits: Limits { min: AtomicU64::new(0), low: AtomicU64::new(0), high: AtomicU64::new(u64::MAX) },
            events: Events::default(),
            ledger: Ledger::new(numa::count()),
            turn: AtomicUsize::new(0),
            queued: AtomicBool::new(false),
            shared,
            parent,
        });
        inner.counter.keep(Arc::clone(&inner));
        inner
    }

    #[inline(always)]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(super) fn is_deleted(&self) -> bool {
        // Acquire, pairs with `delete` and `end`: who turns to the parent does so after what the deleter had done.
        self.state.load(Ordering::Acquire) & DELETED != 0
    }

    pub(super) fn has_children(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= CHILD
    }

    /// This one, or, if it has been deleted, its nearest ancestor that has not. The root is never deleted.
    #[inline]
    pub(super) fn live(self: &Arc<Self>) -> &Arc<Self> {
        let mut at = self;
        while at.is_deleted() {
            at = at.parent.as_ref().expect("the root is not deleted before all its descendants are gone");
        }
        at
    }

    #[inline]
    pub(super) fn and_ancestors(&self) -> impl Iterator<Item = &Self> + Clone {
        iter::successors(Some(self), |tenant| tenant.parent.as_deref())
    }

    pub(super) fn parent(&self) -> Option<&Inner> {
        self.parent.as_deref()
    }

    /// Whether this is `other` or below it.
    pub(super) fn is_within(&self, other: &Inner) -> bool {
        self.and_ancestors().any(|tenant| std::ptr::eq(tenant, other))
    }

    #[inline]
    pub(super) fn counter(&self) -> &Counter {
        &self.counter
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn max(&self) -> u64 {
        self.counter.level().max()
    }

    pub(super) fn high(&self) -> u64 {
        self.limits.high.load(Ordering::Relaxed)
    }

    pub(super) fn low(&self) -> u64 {
        self.limits.low.load(Ordering::Relaxed)
    }

    pub(super) fn min(&self) -> u64 {
        self.limits.min.load(Ordering::Relaxed)
    }

    /// A handle, unless the last one has been dropped.
    pub(super) fn handle(self: &Arc<Self>) -> Option<Tenant> {
        let up = |handles: usize| (handles > 0).then_some(handles + 1);
        let taken = self.handles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, up);
        taken.ok().map(|_| Tenant::new(Arc::clone(self)))
    }

    /// Marked as deleted by the caller: hands on what it has.
    fn bury(self: &Arc<Self>) {
        let mut buried = Vec::new();
        for lists in self.shared.all_lists() {
            lists.reparent(self, &mut buried);
        }
        keep_for_readers(buried);
        self.shared.stocks().drain(Some(self));
        let parent = self.parent.as_ref().expect("the root is not deleted");
        self.ledger.bequeath(&parent.live().ledger);
        // Release, pairs with `end`: all has been handed on for who sees it buried.
        self.state.fetch_or(BURIED, Ordering::AcqRel);
        // Release, pairs with `delete`: the parent has what we leave before it can be deleted itself.
        parent.state.fetch_sub(CHILD, Ordering::AcqRel);
    }

    /// The last handle is gone.
    fn end(self: &Arc<Self>) {
        // In the child of a fork it may have been deleted by a thread that vanished before it was buried.
        // Acquire, pairs with `bury`: what was buried has been handed on. Release, with `is_deleted`.
        let state = self.state.fetch_or(DELETED, Ordering::AcqRel);
        if self.parent.is_none() {
            // Nothing goes into stock any more.
            self.shared.stocks().drain(Some(self));
        } else if state & BURIED == 0 {
            self.bury();
        }
        self.shared.release_number(self.number);
        // SAFETY: once, by the last handle; `self` keeps the tenant until this function returns.
        unsafe { counter::no_more_handles(Arc::as_ptr(self)) };
    }

    /// A tenant that ends gives back its parent's handle, and so on: one after the other, as a tree may be deeper than any stack. `self`
    /// keeps them all.
    fn drop_handle(self: &Arc<Self>) {
        let mut at = Some(self);
        // Release and acquire, pairs with `drop_handle` of other threads: what was done through other handles is done before the end.
        while let Some(tenant) = at.filter(|tenant| tenant.handles.fetch_sub(1, Ordering::AcqRel) == 1) {
            tenant.end();
            at = tenant.parent.as_ref();
        }
    }
}

impl Drop for Inner {
    /// Tenants above that go with this one do so one after the other, and not each inside the one before: a tree may be deeper than any stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut inner) = above.and_then(Arc::into_inner) {
            above = inner.parent.take();
        }
    }
}

impl fmt::Debug for Inner {
    /// Without the ancestors, of which there may be any number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Tenant {
    pub(super) fn root(shared: Arc<Shared>) -> Result<Self, CreateError> {
        let number = shared.take_number()?;
        let inner = Inner::new(number, shared, None);
        inner.shared.publish(&inner);
        Ok(Self::new(inner))
    }

    /// For a handle that has been counted.
    fn new(inner: Arc<Inner>) -> Self {
        Self { number: inner.number, hierarchy: inner.shared.id(), inner }
    }

    #[inline(always)]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    #[inline(always)]
    pub(super) fn hierarchy(&self) -> u64 {
        self.hierarchy
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// A new tenant below this one, without limits of its own.
    ///
    /// Takes locks; may grow the arrays of the hierarchy's lists. The kernel's `mkdir` in the control-group file system.
    ///
    /// # Errors
    ///
    /// If this one has been deleted; if there is no memory for larger arrays, in which case nothing has changed but that some of the arrays
    /// may have become larger already.
    pub fn create(&self) -> Result<Tenant, CreateError> {
        let parent = &self.inner;
        let count = |state: usize| (state & DELETED == 0).then_some(state + CHILD);
        // Needs no partner: which of this and `delete` comes first, the word alone decides.
        parent.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).map_err(|_| CreateError::ParentDeleted)?;
        let number = parent.shared.take_number().inspect_err(|_| {
            // Needs no partner: there is no child, and the word alone tells `delete` so.
            parent.state.fetch_sub(CHILD, Ordering::AcqRel);
        })?;
        // The child's: given back with its last handle.
        parent.handles.fetch_add(1, Ordering::Relaxed);
        let inner = Inner::new(number, Arc::clone(&parent.shared), Some(Arc::clone(parent)));
        inner.shared.publish(&inner);
        Ok(Self::new(inner))
    }

    /// Deletes the tenant: its items on LRU lists go to its nearest ancestor, later charges and additions too. Handles stay valid.
    ///
    /// Takes about ten nanoseconds for each item that moves, and holds no list's lock for more than a microsecond. What the tenant leaves is
    /// freed after a grace period, and counts against the global domain's budget: who deletes tenants faster than they are freed waits
    /// outside of sections as in [`Domain::retire`](stillpoint::Domain::retire). The kernel's `rmdir`. To delete it again does nothing.
    ///
    /// # Errors
    ///
    /// If it is the root, or has children that have not been deleted.
    pub fn delete(&self) -> Result<(), DeleteError> {
        if self.inner.parent.is_none() {
            return Err(DeleteError::Root);
        }
        // Acquire, pairs with `bury`: what deleted children left has come here. Release, with `is_deleted`.
        match self.inner.state.compare_exchange(0, DELETED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => self.inner.bury(),
            Err(state) if state & DELETED != 0 => {}
            Err(_) => return Err(DeleteError::HasChildren),
        }
        Ok(())
    }

    /// Whether it has been deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.inner.is_deleted()
    }

    /// The tenant above; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Tenant> {
        self.inner.parent.as_ref()?.handle()
    }

    /// Charges `bytes` to this tenant and its ancestors, until the charge is dropped: keep it beside the memory that it is for, so that it
    /// is given back when that is freed.
    ///
    /// All tenants have it at once or none has: it is refused only if at one instant of the call what was charged to a tenant and not yet given
    /// back, its stock aside, left too little; never for what others ask for and do not get.
    ///
    /// Some ten nanoseconds from the stock that each processor keeps. Where a max is in the way: reclaims from the tenant whose max
    /// it is, waits for a grace period if that does not help (because what was reclaimed is freed after one), a tenth of a second at most in
    /// all, and tries again a few times. Inside a section of the global domain, a callback or a shrinker it does neither. The
    /// kernel's `try_charge()`.
    ///
    /// # Errors
    ///
    /// If it cannot be met; nothing is charged then. Never waits for ever.
    #[inline]
    pub fn charge(&self, bytes: usize) -> Result<Charge, ChargeError> {
        Charge::new(&self.inner, bytes)
    }

    /// Bytes that are charged to this tenant and below it. Looks at every processor's stock; exact at rest.
    #[must_use]
    pub fn usage(&self) -> u64 {
        self.inner.counter.usage().saturating_sub(self.inner.shared.stocks().of_subtree(&self.inner))
    }

    /// Tries to reclaim `bytes` from this tenant and below it, whatever it uses. Returns how many bytes its usage has fallen by.
    ///
    /// Calls shrinkers on this thread; does not wait. Inside a shrinker it does nothing. The kernel's `memory.reclaim`.
    pub fn reclaim(&self, bytes: u64) -> u64 {
        let before = self.inner.counter.usage();
        reclaim::reclaim(&self.inner, before.saturating_sub(bytes), &mut Pace::direct());
        before.saturating_sub(self.inner.counter.usage())
    }

    /// While the tenant uses no more than this, nobody reclaims from it. 0 by default. The kernel's `memory.min`.
    pub fn set_min(&self, bytes: u64) {
        self.inner.limits.min.store(bytes, Ordering::Relaxed);
    }

    /// While the tenant uses no more than this, it is reclaimed from only if nothing else can be had. 0 by default. The kernel's
    /// `memory.low`.
    pub fn set_low(&self, bytes: u64) {
        self.inner.limits.low.store(bytes, Ordering::Relaxed);
    }

    /// Past this the background reclaimer sets to work; charges go on. `u64::MAX` (none) by default. The kernel's `memory.high`.
    ///
    /// Below the present usage, it does so at once.
    pub fn set_high(&self, bytes: u64) {
        self.inner.limits.high.store(bytes, Ordering::Relaxed);
        self.inner.shared.background().tell_if_high(&self.inner);
    }

    /// No charge passes this. `u64::MAX` (none) by default. The kernel's `memory.max`.
    ///
    /// Waits for charges under way, for some microseconds, and empties the stocks of all processors.
    ///
    /// Below the present usage, charges fail from now on until enough is given back, which this call sees to as far as it can: it
    /// reclaims, on this thread, and returns the usage that is left above the limit: 0 if all is well.
    pub fn set_max(&self, bytes: u64) -> u64 {
        self.inner.shared.stocks().set_max(&self.inner, bytes);
        if self.inner.counter.usage() > bytes {
            reclaim::reclaim(&self.inner, bytes, &mut Pace::direct());
        }
        self.inner.counter.usage().saturating_sub(bytes)
    }

    /// What the tenant has, may have, and has met with.
    #[must_use]
    pub fn statistics(&self) -> TenantStatistics {
        let (events, of) = (&self.inner.events, |count: &AtomicU64| count.load(Ordering::Relaxed));
        TenantStatistics {
            usage: self.usage(),
            peak: self.inner.counter.level().peak(),
            min: self.inner.min(),
            low: self.inner.low(),
            high: self.inner.high(),
            max: self.inner.max(),
            low_events: of(&events.low),
            high_events: of(&events.high),
            max_events: of(&events.max),
            failed_charges: of(&events.failed),
            objects_reclaimed: of(&events.reclaimed),
        }
    }
}

impl Clone for Tenant {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        Self::new(Arc::clone(&self.inner))
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.inner.drop_handle();
    }
}

impl PartialEq for Tenant {
    /// Whether both are handles of the same tenant.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Tenant {}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("number", &self.inner.number)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

/// What a tenant has, may have, and has met with; bytes and counts of itself and all below it. Each is read by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStatistics {
    /// Bytes charged.
    pub usage: u64,
    /// The most that has been charged at a time, what was in stock included; what was refused is not.
    pub peak: u64,
    /// [`Tenant::set_min`].
    pub min: u64,
    /// [`Tenant::set_low`].
    pub low: u64,
    /// [`Tenant::set_high`].
    pub high: u64,
    /// [`Tenant::set_max`].
    pub max: u64,
    /// Passes that reclaimed from the tenant although it was under its low limit.
    pub low_events: u64,
    /// Times that charges have passed the high limit.
    pub high_events: u64,
    /// Charges that have met the max: those that failed, and those that reclaim made room for.
    pub max_events: u64,
    /// Charges that failed because of this tenant's max.
    pub failed_charges: u64,
    /// Objects that shrinkers have freed for it.
    pub objects_reclaimed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Hierarchy, ListLru, Node};

    /// As in the child of a fork whose deleting thread has vanished between the mark and the rest.
    #[test]
    fn a_deletion_that_was_cut_short_is_done_by_the_last_handle() {
        let hierarchy = Hierarchy::new();
        let lru = ListLru::for_tenants(&hierarchy);
        let tenant = hierarchy.root().create().unwrap();
        assert!(lru.add(&tenant, Arc::new(Entry::new(1))));
        tenant.inner.state.fetch_or(DELETED, Ordering::AcqRel);
        assert!(lru.add(&tenant, Arc::new(Entry::new(2))));
        drop(tenant);
        let items: usize = Node::all().map(|node| lru.count_one(hierarchy.root(), node)).sum();
        assert_eq!((items, lru.count()), (2, 2));
        assert!(!hierarchy.root().inner.has_children());
    }
}
