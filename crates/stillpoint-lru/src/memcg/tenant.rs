//! What a program does with a tenant: create and delete, charge and reclaim, set limits, read
//! statistics. Charging is in `charge.rs`.

use super::{
    CHILD, DELETED, Event, Memcg, Tenant,
    charge::Charge,
    error::{ChargeError, CreateError, DeleteError},
    reclaim,
    resched::Resched,
};
use crate::statistics::TenantStatistics;
use std::sync::{Arc, atomic::Ordering};

impl Tenant {
    /// A new tenant below this one, without limits of its own.
    ///
    /// Takes locks; may grow the arrays of the hierarchy's lists. The kernel's `mkdir` in the
    /// control-group file system.
    ///
    /// # Errors
    ///
    /// If this one has been deleted; if there is no memory for larger arrays, in which case nothing
    /// has changed but that some of the arrays may have become larger already.
    pub fn create(&self) -> Result<Tenant, CreateError> {
        let parent = &self.memcg;
        let count = |state: usize| (state & DELETED == 0).then_some(state + CHILD);
        // Needs no partner: which of this and `delete` comes first, the word alone decides.
        parent
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count)
            .map_err(|_| CreateError::ParentDeleted)?;
        let number = parent.tree.take_number().inspect_err(|_| {
            // Needs no partner: there is no child, and the word alone tells `delete` so.
            parent.state.fetch_sub(CHILD, Ordering::AcqRel);
        })?;
        // The child's: given back with its last handle.
        parent.handles.fetch_add(1, Ordering::Relaxed);
        let (tree, above) = (Arc::clone(&parent.tree), Some(Arc::clone(parent)));
        let memcg = Memcg::new(number, tree, above);
        memcg.tree.publish(&memcg);
        Ok(Self::new(memcg))
    }

    /// Deletes the tenant: its items on LRU lists go to its nearest ancestor, later charges and
    /// additions too. Handles stay valid.
    ///
    /// Takes about ten nanoseconds for each item that moves, and holds no list's lock for more than
    /// a microsecond. What the tenant leaves is freed after a grace period, and counts against the
    /// global domain's budget: a thread that deletes tenants faster than they are freed waits,
    /// outside of sections, as in [`Domain::retire`](stillpoint::Domain::retire). The kernel's
    /// `rmdir`. To delete it again does nothing.
    ///
    /// # Errors
    ///
    /// If it is the root, or has children that have not been deleted.
    pub fn delete(&self) -> Result<(), DeleteError> {
        if self.memcg.parent.is_none() {
            return Err(DeleteError::Root);
        }
        // Acquire, pairs with `offline`: what deleted children left has come here. Release, with
        // `is_deleted`.
        match self
            .memcg
            .state
            .compare_exchange(0, DELETED, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => self.memcg.offline(),
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

    /// The tenant above; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Tenant> {
        self.memcg.parent.as_ref()?.handle()
    }

    /// Charges `bytes` to this tenant and its ancestors, until the charge is dropped: keep it
    /// beside the memory that it is for, so that it is given back when that is freed.
    ///
    /// Either all these tenants are charged or none is. It is refused only if at some instant of
    /// the call the bytes in use by a tenant, its stock aside, left too little; never because of a
    /// concurrent charge that is itself refused.
    ///
    /// Some ten nanoseconds from the stock that each processor keeps. Where a max is in the way:
    /// reclaims from the tenant whose max it is, waits for a grace period if that does not help
    /// (because what was reclaimed is freed after one), a tenth of a second at most in all, and
    /// tries again a few times. Inside a section of the global domain, a callback or a shrinker it
    /// does neither. The kernel's `try_charge()`.
    ///
    /// # Errors
    ///
    /// If it cannot be met; nothing is charged then. Never waits for ever.
    #[inline]
    pub fn charge(&self, bytes: usize) -> Result<Charge, ChargeError> {
        Charge::new(&self.memcg, bytes)
    }

    /// Bytes that are charged to this tenant and below it. Looks at every processor's stock; exact
    /// at rest.
    #[must_use]
    pub fn usage(&self) -> u64 {
        self.memcg
            .counter
            .usage()
            .saturating_sub(self.memcg.tree.stocks().of_subtree(&self.memcg))
    }

    /// Tries to reclaim `bytes` from this tenant and below it, whatever it uses. Returns how many
    /// bytes its usage has fallen by.
    ///
    /// Calls shrinkers on this thread; does not wait. Inside a shrinker it does nothing. The
    /// kernel's `memory.reclaim`.
    pub fn reclaim(&self, bytes: u64) -> u64 {
        let before = self.memcg.counter.usage();
        reclaim::reclaim(
            &self.memcg,
            before.saturating_sub(bytes),
            &mut Resched::direct(),
        );
        before.saturating_sub(self.memcg.counter.usage())
    }

    /// Sets the min limit: while the tenant uses no more than this, it is never reclaimed from. 0
    /// by default. The kernel's `memory.min`.
    pub fn set_min(&self, bytes: u64) {
        self.memcg.limits.min.store(bytes, Ordering::Relaxed);
    }

    /// Sets the low limit: while the tenant uses no more than this, it is reclaimed from only if
    /// nothing else is left. 0 by default. The kernel's `memory.low`.
    pub fn set_low(&self, bytes: u64) {
        self.memcg.limits.low.store(bytes, Ordering::Relaxed);
    }

    /// Sets the high limit: past it the background reclaimer starts, and brings the usage down to a
    /// 256th less; charges still succeed. `u64::MAX` (none) by default. The kernel's `memory.high`.
    ///
    /// Below the present usage, it does so at once.
    pub fn set_high(&self, bytes: u64) {
        self.memcg.limits.high.store(bytes, Ordering::Relaxed);
        self.memcg.tree.background().wake_if_high(&self.memcg);
    }

    /// Sets the max limit: a charge that would pass it reclaims, and fails if that is not enough.
    /// `u64::MAX` (none) by default. The kernel's `memory.max`.
    ///
    /// Waits for charges under way, for some microseconds, and empties the stocks of all
    /// processors.
    ///
    /// If the limit is below the present usage, this call reclaims on the calling thread and
    /// returns the usage that is still above the limit: 0 if all is well. Until enough is
    /// uncharged, charges fail.
    pub fn set_max(&self, bytes: u64) -> u64 {
        self.memcg.tree.stocks().set_max(&self.memcg, bytes);
        if self.memcg.counter.usage() > bytes {
            reclaim::reclaim(&self.memcg, bytes, &mut Resched::direct());
        }
        self.memcg.counter.usage().saturating_sub(bytes)
    }

    /// The tenant's usage, limits and event counts.
    #[must_use]
    pub fn statistics(&self) -> TenantStatistics {
        let of = |event| self.memcg.happened(event);
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
