//! [`Hierarchy`]: a handle of a tree of tenants, and what a tenant asks of its tree.

use super::{Controller, Memcg, Tenant, error::CreateError, reclaim, resched::Resched, tree::Tree};
use crate::statistics::Reclaimed;
use std::{fmt, sync::Arc};

/// How hard [`Hierarchy::reclaim`] tries at last where nothing is charged, so that there is no
/// telling when it is enough. At the usual cost that round frees half of what the gentler ones have
/// left: a quarter, an eighth and so on were theirs. Together they free 1 - 1/2 * 3/4 * 7/8 * ... =
/// 71 %.
const LAST_SWEEP_PRIORITY: u32 = 2;

/// A tree of [`Tenant`]s, and the shrinkers and LRU lists that serve them: most programs have one.
/// The kernel's control-group hierarchy.
///
/// A handle: cloning it names the same tree, which lives for as long as any handle of it or of one
/// of its tenants does.
///
/// ```
/// use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node};
/// use std::sync::Arc;
/// let hierarchy = Hierarchy::new();
/// let alice = hierarchy.root().create()?;
/// let lru = ListLru::for_tenants(&hierarchy);
/// assert!(lru.add(&alice, Arc::new(Entry::new("page"))));
/// assert_eq!(lru.count_one(&alice, Node::current()), 1);
/// assert_eq!(lru.walk(usize::MAX, |_page| Isolate::Removed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Hierarchy {
    root: Tenant,
    tree: Arc<Tree>,
}

impl Hierarchy {
    /// A hierarchy with a root and nothing else. Starts no thread.
    ///
    /// # Panics
    ///
    /// If there is no memory for it.
    #[must_use]
    pub fn new() -> Self {
        Self::try_new().expect("there is memory for a few hundred bytes")
    }

    /// Like [`Hierarchy::new`]; `None` without memory for its arrays.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        let tree = Tree::new()?;
        let root = Tenant::new(tree.new_tenant(tree.take_number().ok()?, None));
        Some(Self { root, tree })
    }

    /// The tenant that all others are below.
    #[must_use]
    pub fn root(&self) -> &Tenant {
        &self.root
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Frees memory: a quarter of what is charged, or, if nothing is, about 71 % of what each
    /// shrinker of the usual cost has (42 % at twice that cost, nearly all at none:
    /// [`Shrink::seeks`](super::Shrink::seeks)). What a [pressure watch](crate::PressureWatch) does
    /// when it is told. The kernel's `drop_caches`, in part.
    ///
    /// Runs on the calling thread, with a break after every 500 us; does not wait for grace
    /// periods. Inside a shrinker it does nothing.
    pub fn reclaim(&self) -> Reclaimed {
        let usage = self.root.memcg().usage();
        self.reclaim_to(usage - usage / 4)
    }

    /// Like [`Hierarchy::reclaim`], until no more than `target` bytes are charged.
    pub fn reclaim_to(&self, target: u64) -> Reclaimed {
        let root = self.root.memcg();
        let usage = || root.usage();
        let before = usage();
        let mut resched = Resched::background();
        let objects = if before == 0 {
            reclaim::sweep(&self.tree, root, LAST_SWEEP_PRIORITY, &mut resched)
        } else {
            self.tree.stocks().drain(None);
            let objects = reclaim::reclaim(&self.tree, root, target, &mut resched);
            self.tree.stocks().drain(None);
            objects
        };
        Reclaimed {
            objects,
            bytes: before.saturating_sub(usage()),
        }
    }

    /// The number of tenants that have a handle, the root included.
    #[must_use]
    pub fn tenants(&self) -> usize {
        let mut tenants = 0;
        self.tree.for_each_tenant(|_| tenants += 1);
        tenants
    }
}

impl PartialEq for Hierarchy {
    /// Returns true if both are handles of the same tree.
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Eq for Hierarchy {}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hierarchy")
            .field("tenants", &self.tenants())
            .field("root", &self.root.statistics())
            .finish()
    }
}

impl Controller for Tree {
    fn create(self: Arc<Self>, parent: &Arc<Memcg>) -> Result<Arc<Memcg>, CreateError> {
        Tree::create(&self, parent)
    }

    fn offline(&self, tenant: &Arc<Memcg>) {
        self.offline(tenant);
    }

    fn release(&self, tenant: &Arc<Memcg>) {
        self.release(tenant);
    }

    fn reclaim(&self, target: &Memcg, goal: u64, resched: &mut Resched) {
        reclaim::reclaim(self, target, goal, resched);
    }

    fn wake_background(&self, tenant: &Memcg) {
        self.background()
            .tell(tenant, || Some(Arc::clone(self.handle_of(tenant)?.memcg())));
    }
}
