//! [`ListLru`]: the lists as a program sees them. Only this file knows what the links are part of.
//!
//! The safe interface rests on three things. An item is an [`Entry`], whose link only this module
//! can touch. It is put on a list inside an `Arc`, of which the list keeps one reference, so it
//! neither moves nor dies there, whatever happens to the other references. And a link is on one
//! list at a time, because only one caller wins the exchange that claims it (`link.rs`). So there
//! is no adapter to get wrong, and the user has no safety contract to keep.
//!
//! `link.rs` does not use `intrusive-collections`: there an item does not say which list it is on, so
//! taking it off its list by the item alone, the usual case here, is unsafe; and its lists have no
//! bookmarks for walkers that release the lock.

mod entry;
mod growing_array;
mod walk;

pub use growing_array::GrowingArray;
pub use {entry::Entry, walk::Isolate};

use crate::{
    link::{Link, List},
    memcg::{
        Hierarchy, Node, Registration, Tenant,
        lists::{Lists, One},
    },
    slots::sections::Global,
};
use std::{
    alloc::{Layout, handle_alloc_error},
    fmt,
    marker::PhantomData,
    mem,
    sync::Arc,
};
use stillpoint::{Section, read_lock};
use walk::walk_list;

/// LRU lists: one for each (tenant, node), oldest first. The kernel's `struct list_lru`.
///
/// Each list has its own lock, held for one step at a time and never while user code runs. Lists
/// are made when they are first used; a list that a tenant has never used takes eight bytes.
/// Counting takes no lock: [`ListLru::count_one`].
///
/// An item belongs to the tenant that it was added for and to the node of the processor that added
/// it. Dropping the lru drops its references to the items; it may be shared by an `Arc`.
///
/// ```
/// use stillpoint_lru::{Entry, Isolate, ListLru};
/// use std::sync::Arc;
/// let lru = ListLru::new();
/// let page = Arc::new(Entry::new("page"));
/// assert!(lru.add(None, page.clone()));
/// assert!(!lru.add(None, page.clone()), "it is on the list");
/// assert!(lru.del(&page).is_some());
/// assert!(lru.del(&page).is_none(), "it is not");
/// ```
///
/// It is invariant in `T`, because items go in by `&self`:
///
/// ```compile_fail
/// use stillpoint_lru::ListLru;
/// fn shorter(lru: &ListLru<for<'a> fn(&'a str)>) -> &ListLru<fn(&'static str)> {
///     lru
/// }
/// ```
pub struct ListLru<T: Send + Sync + 'static> {
    lists: Arc<Lists>,
    /// The hierarchy whose tenants have lists here; `None` if all items are on the root's.
    hierarchy: Option<Hierarchy>,
    /// Makes it invariant in T, as items are put in through `&self`.
    items: PhantomData<fn(T) -> T>,
}

impl<T: Send + Sync + 'static> ListLru<T> {
    /// Creates an lru without tenants: all items are on the same lists (one per node), whatever tenant
    /// they are added for.
    #[must_use]
    pub fn new() -> Self {
        Self::try_new(None).unwrap_or_else(|| handle_alloc_error(Layout::new::<usize>()))
    }

    /// Creates an lru with lists for each of the hierarchy's tenants.
    #[must_use]
    pub fn for_tenants(hierarchy: &Hierarchy) -> Self {
        Self::try_new(Some(hierarchy)).unwrap_or_else(|| handle_alloc_error(Layout::new::<usize>()))
    }

    /// Like [`ListLru::new`] or, with a hierarchy, [`ListLru::for_tenants`]; returns `None` if there
    /// is no memory for the arrays, of one word per tenant and node.
    #[must_use]
    pub fn try_new(hierarchy: Option<&Hierarchy>) -> Option<Self> {
        let lists = hierarchy
            .map_or_else(
                || Lists::new(0, 1),
                |hierarchy| hierarchy.tree().add_lists(),
            )
            .ok()?;
        Some(Self {
            lists,
            hierarchy: hierarchy.cloned(),
            items: PhantomData,
        })
    }

    /// Returns the index of the tenant's list.
    #[inline(always)]
    #[track_caller]
    fn index(&self, tenant: Option<&Tenant>, node: usize) -> usize {
        match tenant {
            Some(tenant) if self.lists.hierarchy() != 0 => {
                self.check(tenant);
                self.lists.index(tenant.number(), node)
            }
            // The root's number is 0.
            _ => self.lists.index(0, node),
        }
    }

    #[inline(always)]
    #[track_caller]
    fn check(&self, tenant: &Tenant) {
        if tenant.hierarchy() != self.lists.hierarchy() {
            wrong_hierarchy();
        }
    }

    /// Puts an item on `tenant`'s list of this node, as the newest; `None` names the root. The
    /// kernel's `list_lru_add()`.
    ///
    /// Returns `false` if it is on a list already, of this lru or another; the reference is then
    /// dropped. If the tenant has been deleted, its nearest ancestor gets the item. Takes some tens
    /// of nanoseconds: two atomic read-modify-writes in a section. Allocates only for the first item
    /// of a list. May wait for the list's lock, which is held only for such short steps.
    ///
    /// # Panics
    ///
    /// If the tenant is one of another hierarchy.
    #[track_caller]
    pub fn add<'t>(&self, tenant: impl Into<Option<&'t Tenant>>, item: Arc<Entry<T>>) -> bool {
        let tenant = match (tenant.into(), &self.hierarchy) {
            (Some(tenant), Some(_)) => {
                self.check(tenant);
                Some(tenant)
            }
            (None, Some(hierarchy)) => Some(hierarchy.root()),
            (_, None) => None,
        };
        let number = tenant.map_or(0, Tenant::number);
        let link = Arc::into_raw(item).cast::<Link>();
        // SAFETY: the list has the reference that was given up just now, until the item is taken
        // off.
        let added = unsafe {
            self.lists
                .add(tenant.map(Tenant::memcg), number, Node::current().0, link)
        };
        if !added {
            // SAFETY: given up just now, and not taken by the list.
            drop(unsafe { Entry::<T>::from_link(link) });
        }
        added
    }

    /// Takes an item off the list of this lru that it is on, and returns the list's reference to it;
    /// `None` if it is on none. The kernel's `list_lru_del()`.
    ///
    /// Costs as much as [`ListLru::add`]. An item that another thread is adding at this moment may
    /// count as not added yet.
    pub fn del(&self, item: &Entry<T>) -> Option<Arc<Entry<T>>> {
        let guard = read_lock();
        loop {
            let list = item.link().owner()?;
            // SAFETY: found in a link inside this section, so not freed before its end: see
            // `link.rs`.
            let list: &List = unsafe { &*list };
            if list.lru_id() != self.lists.lru_id() {
                return None;
            }
            let locked = list.lock();
            if locked.has(item.link()) {
                let link = locked.remove(item.link());
                drop(locked);
                drop(guard);
                // SAFETY: the list has this lru's id, so added as an entry of this type; the list
                // has given its reference up just now.
                return Some(unsafe { Entry::from_link(link) });
            }
        }
    }

    /// Returns the number of items that `tenant` has on `node`. The kernel's `list_lru_count_one()`.
    ///
    /// Takes no lock and writes nothing shared: a section and four loads, one or two nanoseconds
    /// beyond the section. Exact at rest; otherwise a recent value. A deleted tenant has no items.
    ///
    /// # Panics
    ///
    /// If the tenant is one of another hierarchy.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn count_one<'t>(&self, tenant: impl Into<Option<&'t Tenant>>, node: Node) -> usize {
        let guard = Global::begin();
        self.count_at(self.index(tenant.into(), node.0), &guard)
    }

    /// Like [`ListLru::count_one`], inside a section that is open already.
    ///
    /// # Panics
    ///
    /// Also if the section is not one of the global domain.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn count_one_in<'t>(
        &self,
        tenant: impl Into<Option<&'t Tenant>>,
        node: Node,
        section: &impl Section,
    ) -> usize {
        let section = Global::of(section).expect(
            "stillpoint: LRU lists belong to the global domain; begin the section with stillpoint::read_lock()",
        );
        self.count_at(self.index(tenant.into(), node.0), &section)
    }

    #[inline(always)]
    fn count_at<S>(&self, index: usize, section: &Global<S>) -> usize {
        self.lists
            .find(index, section)
            .map_or(0, |one| one.list.count())
    }

    /// Returns the number of items on `node`, of all tenants: looks at each tenant. The kernel's
    /// `list_lru_count_node()`.
    #[must_use]
    pub fn count_node(&self, node: Node) -> usize {
        let guard = Global::begin();
        (0..self.lists.tenants())
            .map(|tenant| self.count_at(self.lists.index(tenant as u32, node.0), &guard))
            .sum()
    }

    /// Returns the number of all items. The kernel's `list_lru_count()`.
    #[must_use]
    pub fn count(&self) -> usize {
        Node::all().map(|node| self.count_node(node)).sum()
    }

    /// Looks at up to `budget` items of `tenant` on `node`, oldest first, and does with each what
    /// `isolate` returns. Returns the number of items taken off. The kernel's `list_lru_walk_one()`.
    ///
    /// `isolate` runs with no lock held: it may add, delete, walk, retire and wait, and the walk
    /// sees what it did to later items. Other threads may add and delete meanwhile. A walk looks at
    /// no more items than there were at its beginning, so it ends whatever `isolate` does. If
    /// `isolate` panics, the walk ends, and all lists stay as they are at that moment.
    ///
    /// # Panics
    ///
    /// If the tenant is one of another hierarchy; if `isolate` does.
    #[track_caller]
    pub fn walk_one<'t>(
        &self,
        tenant: impl Into<Option<&'t Tenant>>,
        node: Node,
        mut budget: usize,
        mut isolate: impl FnMut(&Arc<Entry<T>>) -> Isolate,
    ) -> usize {
        self.walk_at(self.index(tenant.into(), node.0), &mut budget, &mut isolate)
    }

    /// Like [`ListLru::walk_one`], over all tenants' lists on `node`. The kernel's
    /// `list_lru_walk_node()`.
    pub fn walk_node(
        &self,
        node: Node,
        mut budget: usize,
        mut isolate: impl FnMut(&Arc<Entry<T>>) -> Isolate,
    ) -> usize {
        self.walk_all(node, &mut budget, &mut isolate)
    }

    /// Like [`ListLru::walk_one`], over all lists. The kernel's `list_lru_walk()`.
    pub fn walk(
        &self,
        mut budget: usize,
        mut isolate: impl FnMut(&Arc<Entry<T>>) -> Isolate,
    ) -> usize {
        Node::all()
            .map(|node| self.walk_all(node, &mut budget, &mut isolate))
            .sum()
    }

    fn walk_all(
        &self,
        node: Node,
        budget: &mut usize,
        isolate: &mut impl FnMut(&Arc<Entry<T>>) -> Isolate,
    ) -> usize {
        let mut removed = 0;
        for tenant in 0..self.lists.tenants() {
            if *budget == 0 {
                break;
            }
            let index = self.lists.index(tenant as u32, node.0);
            removed += self.walk_at(index, budget, isolate);
        }
        removed
    }

    fn walk_at(
        &self,
        index: usize,
        budget: &mut usize,
        isolate: &mut impl FnMut(&Arc<Entry<T>>) -> Isolate,
    ) -> usize {
        #[cfg(test)]
        WALKED.set(WALKED.get() + 1);
        let one: Option<Arc<One>> = self.lists.get(index, &Global::begin());
        one.map_or(0, |one| {
            walk_list(one, budget, isolate, |item| drop(self.del(item)))
        })
    }
}

#[cfg(test)]
thread_local! {
    /// Number of lists that this thread has walked.
    static WALKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Registration {
    /// Says that all the shrinker can free is on `lru`'s lists (and those of other such calls): it
    /// is then not even asked if they are empty. The kernel's `list_lru_init_memcg()`. As there, a
    /// lru tells one shrinker at a time.
    ///
    /// # Panics
    ///
    /// If `lru` is not one for the tenants of this hierarchy, or is covered by another registration
    /// that has not ended.
    #[track_caller]
    pub fn covers<T: Send + Sync + 'static>(&self, lru: &ListLru<T>) {
        self.covers_lists(&lru.lists);
    }
}

impl<T: Send + Sync + 'static> Default for ListLru<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> Drop for ListLru<T> {
    fn drop(&mut self) {
        let tree = self.hierarchy.as_ref().map(Hierarchy::tree);
        if self.lists.is_lost() || tree.is_some_and(|tree| tree.has_lost_lock()) {
            // Leaked, because items name the lists that they are on.
            mem::forget(Arc::clone(&self.lists));
            return;
        }
        if let Some(tree) = tree {
            tree.remove_lists(&self.lists);
        }
        // SAFETY: all links on these lists were added as entries of this type; the list has given
        // its reference up.
        self.lists
            .clear(|link| drop(unsafe { Entry::<T>::from_link(link) }));
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for ListLru<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListLru")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn wrong_hierarchy() -> ! {
    panic!(
        "stillpoint: the tenant is one of another hierarchy than the lists; make the lists with ListLru::for_tenants of the hierarchy \
         whose tenants use them"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::BEFORE_THE_LOCK;

    /// The tenant goes between an add's look for its list and the list's lock: the item must not stay
    /// on a dead list.
    #[test]
    fn add_while_reparenting() {
        let hierarchy = Hierarchy::new();
        let lru = ListLru::<u32>::for_tenants(&hierarchy);
        let tenant = hierarchy.root().create().unwrap();
        // So that there is a list.
        assert!(lru.add(&tenant, Arc::new(Entry::new(0))));
        let goes = tenant.clone();
        BEFORE_THE_LOCK.set(Some(Box::new(move || goes.delete().unwrap())));
        let item = Arc::new(Entry::new(1));
        assert!(lru.add(&tenant, Arc::clone(&item)));
        assert!(tenant.is_deleted());
        let in_root: usize = Node::all()
            .map(|node| lru.count_one(hierarchy.root(), node))
            .sum();
        assert_eq!(in_root, 2);
        assert!(lru.del(&item).is_some());
    }

    /// Like the test above, for a thread that removes an item.
    #[test]
    fn del_while_reparenting() {
        let hierarchy = Hierarchy::new();
        let lru = ListLru::<u32>::for_tenants(&hierarchy);
        let tenant = hierarchy.root().create().unwrap();
        let item = Arc::new(Entry::new(1));
        assert!(lru.add(&tenant, Arc::clone(&item)));
        let goes = tenant.clone();
        BEFORE_THE_LOCK.set(Some(Box::new(move || goes.delete().unwrap())));
        assert!(lru.del(&item).is_some());
        assert_eq!(lru.count(), 0);
    }

    #[test]
    fn a_walk_looks_at_no_tenant_once_its_budget_is_used_up() {
        let hierarchy = Hierarchy::new();
        let lru = ListLru::<u32>::for_tenants(&hierarchy);
        let tenants: Vec<_> = (0..20)
            .map(|_| hierarchy.root().create().unwrap())
            .collect();
        for tenant in [hierarchy.root()].into_iter().chain(&tenants) {
            assert!(lru.add(tenant, Arc::new(Entry::new(0))));
        }
        let lists = lru.lists.tenants() * Node::all().count();
        for (budget, most) in [(0, 0), (1, lists - 19), (usize::MAX, lists)] {
            WALKED.set(0);
            lru.walk(budget, |_| Isolate::Skip);
            assert!(WALKED.get() <= most, "{} with {budget}", WALKED.get());
        }
        WALKED.set(0);
        lru.walk_node(Node::current(), 0, |_| Isolate::Skip);
        assert_eq!(WALKED.get(), 0);
    }

    /// A walk's callback forks after the tenant has gone, while another thread holds the lock of the
    /// dead list: in the child the walk ends, whatever the verdict.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn walk_that_forks_while_its_dead_list_is_locked() {
        const DONE: libc::c_int = 7;
        for verdict in [
            Isolate::Removed,
            Isolate::RemovedRetry,
            Isolate::Rotate,
            Isolate::Skip,
            Isolate::Retry,
            Isolate::Stop,
        ] {
            let hierarchy = Hierarchy::new();
            let lru = ListLru::<u32>::for_tenants(&hierarchy);
            let tenant = hierarchy.root().create().unwrap();
            (0..2).for_each(|number| assert!(lru.add(&tenant, Arc::new(Entry::new(number)))));
            let list_of = |node: Node| {
                lru.lists
                    .get(lru.index(Some(&tenant), node.0), &Global::begin())
            };
            let one = Node::all().find_map(list_of).unwrap();
            let mut child = None;
            lru.walk(usize::MAX, |_| {
                if child.is_none() {
                    tenant.delete().unwrap();
                    // SAFETY: the child uses this library, whose promise is the subject here.
                    let forked = unsafe { libc::fork() };
                    if forked == 0 {
                        // SAFETY: no handler; the alarm ends the process.
                        unsafe { libc::alarm(60) };
                        // As by a thread of the parent.
                        mem::forget(one.list.lock());
                    }
                    child = Some(forked);
                }
                verdict
            });
            let (child, mut status) = (child.expect("there are items"), 0);
            if child == 0 {
                // SAFETY: ends the child without destructors.
                unsafe { libc::_exit(DONE) };
            }
            // SAFETY: a child of ours, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            let is_done = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == DONE;
            assert!(is_done, "{verdict:?}: {status}");
        }
    }
}
