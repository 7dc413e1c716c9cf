//! [`Tenant`]: a counted handle of a [`Memcg`], and what a program does with it.

use super::{
    DELETED, Event, Memcg,
    charge::Charge,
    counter::Account,
    error::{ChargeError, CreateError, DeleteError},
    resched::Resched,
};
use crate::{
    levels::HasLevel,
    statistics::{Reclaimed, TenantStatistics},
};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

/// A node of a tree whose memory use is accounted for and may be limited. The kernel's memory
/// control group.
///
/// This is a handle; a clone names the same tenant. The tenant is deleted by [`Tenant::delete`] or
/// with its last handle; a child keeps its parent. The items that a deleted tenant had on LRU lists
/// go to its nearest ancestor; bytes charged to it stay charged, to it and so to its ancestors, until
/// they are given back.
///
/// | limit | what it does |
/// |---|---|
/// | [min](Tenant::set_min) | while the tenant uses no more, it is never reclaimed from |
/// | [low](Tenant::set_low) | the same, unless there is nothing else to reclaim from |
/// | [high](Tenant::set_high) | past it, a background thread reclaims from the tenant |
/// | [max](Tenant::set_max) | a charge that would pass it reclaims first, and fails if that does not help |
///
/// Limits are in bytes, may be changed at any time, and apply to a tenant with its descendants. The
/// protection (min, low) of children is limited by their parent's: if they claim more together than
/// the parent has, they get shares of it. Children of the tenant that is reclaimed from have theirs
/// in full.
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
    memcg: Arc<Memcg>,
    /// Copies of the tenant's number and of its hierarchy's address: counting reads them here, not in
    /// the cache lines that charges write.
    number: u32,
    hierarchy: usize,
}

impl Tenant {
    /// Makes a handle that has been counted.
    pub(super) fn new(memcg: Arc<Memcg>) -> Self {
        Self {
            number: memcg.number,
            hierarchy: memcg.hierarchy(),
            memcg,
        }
    }

    /// Makes another handle of the tenant, unless the last one has been dropped.
    pub(super) fn of(memcg: &Arc<Memcg>) -> Option<Self> {
        memcg.get().then(|| Self::new(Arc::clone(memcg)))
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[inline(always)]
    pub(crate) fn hierarchy(&self) -> usize {
        self.hierarchy
    }

    #[inline(always)]
    pub(crate) fn memcg(&self) -> &Arc<Memcg> {
        &self.memcg
    }

    /// Creates a tenant below this one, without limits.
    ///
    /// Takes locks; may grow the arrays of the hierarchy's lists. The kernel's `mkdir` in the
    /// control-group file system.
    ///
    /// # Errors
    ///
    /// If this tenant has been deleted; if there is no memory for larger arrays, some of which may
    /// have grown all the same.
    pub fn create(&self) -> Result<Tenant, CreateError> {
        let controller = Arc::clone(&self.memcg.controller);
        controller.create(&self.memcg).map(Self::new)
    }

    /// Deletes the tenant: its items on LRU lists go to its nearest ancestor, and so do later charges
    /// and additions. Handles stay valid.
    ///
    /// Takes about ten nanoseconds for each item that moves, and holds no list's lock for more than
    /// a microsecond. What the tenant leaves is freed after a grace period, and counts against the
    /// global domain's budget: a thread that deletes tenants faster than they are freed waits,
    /// outside of sections, as in [`Domain::retire`](stillpoint::Domain::retire). Deleting a tenant
    /// again does nothing. The kernel's `rmdir`.
    ///
    /// # Errors
    ///
    /// If it is the root, or has children that have not been deleted.
    pub fn delete(&self) -> Result<(), DeleteError> {
        if self.memcg.parent.is_none() {
            return Err(DeleteError::Root);
        }
        // Acquire, pairs with `offline`: what deleted children left has come here. Release, pairs
        // with `is_deleted`. Relaxed where it fails: nothing else is read.
        match self
            .memcg
            .state
            .compare_exchange(0, DELETED, Ordering::AcqRel, Ordering::Relaxed)
        {
            Ok(_) => self.memcg.controller.offline(&self.memcg),
            Err(state) if state & DELETED != 0 => {}
            Err(_) => return Err(DeleteError::HasChildren),
        }
        Ok(())
    }

    /// Returns whether it has been deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.memcg.is_deleted()
    }

    /// Returns the tenant above; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Tenant> {
        Self::of(self.memcg.parent.as_ref()?)
    }

    /// Charges `bytes` to this tenant and its ancestors, until the charge is dropped: keep it
    /// beside the memory that it is for, so that it is given back when that is freed.
    ///
    /// Either all these tenants are charged or none is. A charge is refused only if, at some instant
    /// of the call, the bytes in use by a tenant, its stock not included, left too little room; never
    /// because of a concurrent charge that is itself refused.
    ///
    /// Takes some ten nanoseconds from the stock that each processor keeps. If a max is in the way,
    /// it reclaims from the tenant whose max it is, waits for a grace period if that does not help
    /// (because what was reclaimed is freed after one), a tenth of a second at most in all, and
    /// tries again a few times. Inside a section of the global domain, a callback or a shrinker it
    /// neither reclaims nor waits. The kernel's `try_charge()`.
    ///
    /// # Errors
    ///
    /// If there is no room, nothing is charged.
    #[inline]
    pub fn charge(&self, bytes: usize) -> Result<Charge, ChargeError> {
        Charge::new(&self.memcg, bytes)
    }

    /// Returns the bytes that are charged to this tenant and its descendants. Looks at every
    /// processor's stock; exact at rest.
    #[must_use]
    pub fn usage(&self) -> u64 {
        let in_stock = self.memcg.stocks.of_subtree(&self.memcg);
        self.memcg.usage().saturating_sub(in_stock)
    }

    /// Tries to reclaim `bytes` from this tenant and its descendants, whatever their usage. Returns
    /// by how many bytes its usage has fallen.
    ///
    /// Calls shrinkers on this thread; does not wait. Does nothing inside a shrinker. The kernel's
    /// `memory.reclaim`.
    pub fn reclaim(&self, bytes: u64) -> u64 {
        self.reclaim_while(bytes, || true).bytes
    }

    /// Like [`Tenant::reclaim`], but ends early once `goes_on` returns false. `goes_on` is asked after
    /// each call of [`Shrink::scan`](super::Shrink::scan) that has not reached the goal, and at some
    /// other moments. It may sleep: no lock of this library is held, but dropping the
    /// [`Registration`](super::Registration) of the shrinker waits meanwhile. Inside it the thread
    /// still counts as reclaiming: [`Tenant::set_max`] and [`Tenant::reclaim`] reclaim nothing.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use stillpoint_lru::Hierarchy;
    /// let tenant = Hierarchy::new().root().create()?;
    /// let _charge = tenant.charge(1 << 20)?;
    /// // No shrinker is registered that could free anything.
    /// let until = Instant::now() + Duration::from_millis(5);
    /// let reclaimed = tenant.reclaim_while(1 << 20, || Instant::now() < until);
    /// assert_eq!((reclaimed.objects, reclaimed.bytes), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reclaim_while(&self, bytes: u64, goes_on: impl Fn() -> bool) -> Reclaimed {
        let before = self.memcg.usage();
        let goal = before.saturating_sub(bytes);
        let objects = self.reclaim_until(&|| self.memcg.usage() <= goal || !goes_on());
        Reclaimed {
            objects,
            bytes: before.saturating_sub(self.memcg.usage()),
        }
    }

    /// Sets the min limit: while the tenant uses no more than this, it is never reclaimed from. 0
    /// by default. The kernel's `memory.min`.
    pub fn set_min(&self, bytes: u64) {
        self.memcg.min.store(bytes, Ordering::Relaxed);
    }

    /// Sets the low limit: while the tenant uses no more than this, it is reclaimed from only if
    /// nothing else is left. 0 by default. The kernel's `memory.low`.
    pub fn set_low(&self, bytes: u64) {
        self.memcg.low.store(bytes, Ordering::Relaxed);
    }

    /// Sets the high limit: past it, charges still succeed, and the background reclaimer brings the
    /// usage down to a 256th less. `u64::MAX` (none) by default. The kernel's `memory.high`.
    ///
    /// If the usage is above the new limit, the reclaimer begins at once.
    pub fn set_high(&self, bytes: u64) {
        self.memcg.high.store(bytes, Ordering::Relaxed);
        self.memcg.wake_if_high();
    }

    /// Sets the max limit: a charge that would pass it reclaims, and fails if that is not enough.
    /// `u64::MAX` (none) by default. The kernel's `memory.max`.
    ///
    /// Waits for charges under way, for some microseconds, and empties the stocks of all
    /// processors.
    ///
    /// If the limit is below the present usage, this call reclaims on the calling thread, and
    /// returns by how many bytes the usage is still above the limit. Until that is 0, charges fail.
    pub fn set_max(&self, bytes: u64) -> u64 {
        self.memcg.stocks.set_max(&self.memcg, bytes);
        if self.memcg.usage() > bytes {
            self.reclaim_until(&|| self.memcg.usage() <= bytes);
        }
        self.memcg.usage().saturating_sub(bytes)
    }

    fn reclaim_until(&self, enough: &dyn Fn() -> bool) -> u64 {
        let mut resched = Resched::direct();
        let controller = &self.memcg.controller;
        controller.reclaim(&self.memcg, enough, &mut resched)
    }

    /// Returns the tenant's usage, limits and event counts.
    #[must_use]
    pub fn statistics(&self) -> TenantStatistics {
        let of = |event| self.memcg.events[event as usize].load(Ordering::Relaxed);
        TenantStatistics {
            usage: self.usage(),
            peak: self.memcg.counter.level().peak(),
            min: self.memcg.min(),
            low: self.memcg.low(),
            high: self.memcg.high(),
            max: self.memcg.max(),
            low_events: of(Event::Low),
            high_events: of(Event::High),
            max_events: of(Event::Max),
            failed_charges: of(Event::Failed),
            objects_reclaimed: of(Event::Reclaimed),
        }
    }
}

impl Clone for Tenant {
    fn clone(&self) -> Self {
        self.memcg.handles.fetch_add(1, Ordering::Relaxed);
        Self::new(Arc::clone(&self.memcg))
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.memcg.put();
    }
}

impl PartialEq for Tenant {
    /// Returns true if both are handles of the same tenant.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memcg, &other.memcg)
    }
}

impl Eq for Tenant {}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("number", &self.memcg.number)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
