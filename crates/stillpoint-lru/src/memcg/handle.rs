//! [`Tenant`]: a counted handle of a [`Memcg`]. What it does is in `tenant.rs`, what happens when the last one goes in `offline.rs`.

use super::{Memcg, error::CreateError, tree::Tree};
use std::{fmt, sync::Arc, sync::atomic::Ordering};

/// A node of a tree whose memory use is accounted for and may be limited. The kernel's memory
/// control group.
///
/// A handle: cloning it names the same tenant. The tenant is deleted by [`Tenant::delete`] or with
/// its last handle; a child keeps its parent. What a deleted tenant had on LRU lists goes to its
/// nearest ancestor; what is still charged to it stays charged, to it and so to its ancestors,
/// until it is given back.
///
/// | limit | what it does |
/// |---|---|
/// | [min](Tenant::set_min) | while the tenant uses no more, it is never reclaimed from |
/// | [low](Tenant::set_low) | the same, unless there is nothing else to reclaim from |
/// | [high](Tenant::set_high) | past it, a background thread reclaims from the tenant |
/// | [max](Tenant::set_max) | a charge that would pass it reclaims first, and fails if that does not help |
///
/// Limits are bytes, may be changed at any time, and count for a tenant together with all that are
/// below it. A child's protection (min, low) is worth what its parent's is: where children claim
/// more together than the parent has, they get shares of it. One that is directly below the tenant
/// that is reclaimed from has its own in full.
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
    pub(super) memcg: Arc<Memcg>,
    /// What counting needs, so that it need not touch the cache lines that charges write: the
    /// tenant's number, and its hierarchy's.
    number: u32,
    hierarchy: u64,
}

impl Memcg {
    /// A handle, unless the last one has been dropped.
    pub(crate) fn handle(self: &Arc<Self>) -> Option<Tenant> {
        let up = |handles: usize| (handles > 0).then_some(handles + 1);
        let taken = self
            .handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, up);
        taken.ok().map(|_| Tenant::new(Arc::clone(self)))
    }
}

impl Tenant {
    pub(crate) fn root(tree: Arc<Tree>) -> Result<Self, CreateError> {
        let number = tree.take_number()?;
        let memcg = Memcg::new(number, tree, None);
        memcg.tree.publish(&memcg);
        Ok(Self::new(memcg))
    }

    /// For a handle that has been counted.
    pub(super) fn new(memcg: Arc<Memcg>) -> Self {
        Self {
            number: memcg.number,
            hierarchy: memcg.tree.id(),
            memcg,
        }
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[inline(always)]
    pub(crate) fn hierarchy(&self) -> u64 {
        self.hierarchy
    }

    #[inline(always)]
    pub(crate) fn memcg(&self) -> &Arc<Memcg> {
        &self.memcg
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
