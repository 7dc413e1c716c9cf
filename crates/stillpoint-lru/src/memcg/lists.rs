//! The lists of one [`ListLru`](crate::ListLru): one for each (tenant, node) that has ever had an
//! item there.
//!
//! They are found through an array of slots (`slots.rs`), `nodes` of them for each tenant's number;
//! a list that was never used takes one empty slot. The array grows when a tenant gets a number that
//! it has no room for (`tree.rs`), before that tenant is returned.
//!
//! # A tenant that goes
//!
//! The tenant is marked as deleted first, so that an addition from now on turns to its parent.
//! [`Lists::reparent`] then moves its items over, some at a time, each under the locks of both
//! lists (the child's first), and marks the list dead under its lock: a thread that had found it
//! and waited for the lock looks again. A list is made only under `change`, where the mark is
//! looked at; `reparent` takes `change` after the mark was set. So no list comes after the last
//! look.

use super::{Memcg, counter::Account};
use crate::{
    link::{Link, List, Refused},
    shrinker_map::Index,
    slots::{
        OutOfMemory, Slots,
        sections::{Global, Replaced},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use std::{
    mem,
    panic::{self, AssertUnwindSafe},
    thread,
};
use stillpoint::{global, internal::retire_shared};
use stillpoint_platform::{
    fork::{AtForkHandle, ForkReset},
    fork_mutex::ForkMutex,
    numa,
};

/// Number of items that move under one hold of the locks.
const MOVED_AT_A_TIME: usize = 64;

/// A list, and its tenant.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct One {
    pub(crate) list: List,
    /// `None` in an lru without tenants.
    tenant: Option<Arc<Memcg>>,
    node: usize,
}

impl One {
    fn new(lru_id: u64, tenant: Option<Arc<Memcg>>, node: usize) -> Arc<Self> {
        let one = Arc::new(Self {
            list: List::new(lru_id),
            tenant,
            node,
        });
        one.list.init();
        one
    }
}

/// All lists of one lru.
#[derive(Debug)]
pub(crate) struct Lists {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    slots: Slots<One>,
    /// Address of the hierarchy whose tenants have lists here; 0 for an lru without tenants.
    hierarchy: usize,
    /// The lists' `lru_id`, which no other lru has.
    lru_id: u64,
    nodes: usize,
    /// The number of the shrinker that is notified of items, plus 1; 0 for none. Changed under
    /// `change`.
    shrinker: AtomicUsize,
    /// Held while a list is made or goes, and while the array grows.
    change: ForkMutex<()>,
    /// In the child of a fork: whether another thread held `change` or the lock of a list.
    is_lost: AtomicBool,
}

impl Lists {
    /// Creates lists for the tenants of the hierarchy at `hierarchy` (0: for none), with room for
    /// `tenants`.
    pub(crate) fn new(hierarchy: usize, tenants: usize) -> Result<Arc<Self>, OutOfMemory> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let nodes = numa::count();
        let slots = Slots::new();
        // There was none.
        drop(slots.reserve(tenants * nodes)?);
        let lists = Arc::new(Self {
            place: AtForkHandle::reserve(),
            slots,
            hierarchy,
            lru_id: NEXT.fetch_add(1, Ordering::Relaxed),
            nodes,
            shrinker: AtomicUsize::new(0),
            change: ForkMutex::new(()),
            is_lost: AtomicBool::new(false),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { lists.place.occupy(&*lists) };
        Ok(lists)
    }

    pub(crate) fn hierarchy(&self) -> usize {
        self.hierarchy
    }

    pub(crate) fn lru_id(&self) -> u64 {
        self.lru_id
    }

    /// Returns whether a fork has removed a thread that held a lock here.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns the number of tenants for whose lists there is room.
    pub(crate) fn tenants(&self) -> usize {
        self.slots.len() / self.nodes
    }

    /// Makes room for `tenants`. The caller drops what is returned with no lock held.
    pub(crate) fn reserve(&self, tenants: usize) -> Result<Replaced, OutOfMemory> {
        let _change = self.change.lock();
        self.slots
            .reserve(tenants.checked_mul(self.nodes).ok_or(OutOfMemory)?)
    }

    /// Returns the index of the list of `node` of tenant number `tenant`.
    #[inline(always)]
    pub(crate) fn index(&self, tenant: u32, node: usize) -> usize {
        tenant as usize * self.nodes + node
    }

    /// Returns the list at `index`, for as long as the section.
    #[inline(always)]
    pub(crate) fn find<'a, S>(&'a self, index: usize, section: &'a Global<S>) -> Option<&'a One> {
        self.slots.find(index, section)
    }

    /// Like [`Lists::find`], to keep.
    pub(crate) fn get<S>(&self, index: usize, section: &Global<S>) -> Option<Arc<One>> {
        self.slots.get(index, section)
    }

    /// Puts a link on the list of `node` of `tenant`, whose number is `number`, or, if the tenant
    /// has been deleted, on that of its nearest ancestor that has not. Returns `false` if it is on a
    /// list already.
    ///
    /// If the tenant's list is alive, this does not ask whether the tenant has been deleted: while a
    /// deletion is under way, an item that is added in time moves to the parent with the others.
    ///
    /// # Safety
    ///
    /// See [`Locked::append`](crate::link::Locked::append).
    #[inline]
    pub(crate) unsafe fn add(
        &self,
        tenant: Option<&Arc<Memcg>>,
        number: u32,
        node: usize,
        link: *const Link,
    ) -> bool {
        let mut number = number;
        loop {
            let guard = Global::begin();
            match self.find(self.index(number, node), &guard) {
                Some(one) if !one.list.looks_dead() => {
                    let locked = one.list.lock();
                    // SAFETY: the caller's promise.
                    let appended = unsafe { locked.append(link) };
                    // Under the lock: `tell_shrinker` sets it and then looks at each list under its
                    // lock.
                    let shrinker = self.shrinker.load(Ordering::Relaxed);
                    drop(locked);
                    match appended {
                        Ok(first) => {
                            if first {
                                one.tell(shrinker);
                            }
                            return true;
                        }
                        Err(Refused::Linked) => return false,
                        Err(Refused::Dead) => {}
                    }
                }
                Some(_) => {}
                None => {
                    drop(guard);
                    let owner = tenant.map(Memcg::live);
                    // A deleted tenant's list is gone; its parent's list has its items.
                    if owner.map_or(0, |owner| owner.number()) == number {
                        self.install(owner, node);
                    }
                }
            }
            number = tenant.map_or(0, |tenant| tenant.live().number());
        }
    }

    /// Makes the list, unless there is one by now or the tenant has been deleted. The caller looks
    /// again.
    #[cold]
    fn install(&self, tenant: Option<&Arc<Memcg>>, node: usize) {
        let _change = self.change.lock();
        if !tenant.is_some_and(|tenant| tenant.is_deleted()) {
            self.one(tenant, node);
        }
    }

    /// Returns the list, and makes it if need be. Called under `change`.
    fn one(&self, tenant: Option<&Arc<Memcg>>, node: usize) -> &One {
        let index = self.index(tenant.map_or(0, |tenant| tenant.number()), node);
        // SAFETY: the lock is held.
        let found = |lists: &Self| unsafe { lists.slots.peek(index).map(std::ptr::from_ref) };
        let one = found(self).unwrap_or_else(|| {
            self.slots
                .put(index, One::new(self.lru_id, tenant.cloned(), node));
            found(self).expect("put there just now")
        });
        // SAFETY: as long as the lock is held it is not taken out.
        unsafe { &*one }
    }

    /// Moves the items of a tenant that has been marked as deleted to its nearest ancestor that has
    /// not. Adds the lists to `dead`: they must be kept until a grace period has ended.
    pub(crate) fn reparent(&self, tenant: &Arc<Memcg>, dead: &mut Vec<Arc<One>>) {
        let _change = self.change.lock();
        for node in 0..self.nodes {
            let index = self.index(tenant.number(), node);
            // SAFETY: the lock is held.
            let Some(one) = (unsafe { self.slots.peek(index) }) else {
                continue;
            };
            let heir = self.one(Some(tenant.live()), node);
            loop {
                let child = one.list.lock();
                let parent = heir.list.lock();
                if !child.move_to(&parent, MOVED_AT_A_TIME) {
                    child.mark_dead();
                    break;
                }
            }
            if heir.list.count() > 0 {
                heir.tell(self.shrinker.load(Ordering::Relaxed));
            }
            dead.extend(self.slots.take(index));
        }
    }

    /// Returns true if `shrinker` covers these lists and the tenant has items on the node's list.
    pub(crate) fn has_for(&self, shrinker: usize, tenant: u32, node: usize) -> bool {
        self.shrinker.load(Ordering::Relaxed) == shrinker + 1
            && self
                .find(self.index(tenant, node), &Global::begin())
                .is_some_and(|one| one.list.count() > 0)
    }

    /// From now on, maintains shrinker number `shrinker`'s bits in the tenants' shrinker maps.
    /// Returns false if another shrinker covers these lists.
    pub(crate) fn tell_shrinker(&self, shrinker: usize) -> bool {
        let _change = self.change.lock();
        let told = self.shrinker.load(Ordering::Relaxed);
        if told != 0 && told != shrinker + 1 {
            return false;
        }
        self.shrinker.store(shrinker + 1, Ordering::Relaxed);
        // SAFETY: the lock is held.
        for index in 0..unsafe { self.slots.peek_len() } {
            // SAFETY: the lock is held.
            if let Some(one) = unsafe { self.slots.peek(index) } {
                // What was added under the list's lock before this is counted; what is added later
                // finds the shrinker.
                drop(one.list.lock());
                if one.list.count() > 0 {
                    one.tell(shrinker + 1);
                }
            }
        }
        true
    }

    /// Undoes [`Lists::tell_shrinker`].
    pub(crate) fn forget_shrinker(&self, shrinker: usize) {
        let _change = self.change.lock();
        if self.shrinker.load(Ordering::Relaxed) == shrinker + 1 {
            self.shrinker.store(0, Ordering::Relaxed);
        }
    }

    /// Takes all items off, calls `take` for each with no lock held, and leaves no lists.
    pub(crate) fn clear(&self, mut take: impl FnMut(*const Link)) {
        let mut dead = Vec::new();
        let mut panicked = None;
        {
            let _change = self.change.lock();
            // SAFETY: the lock is held.
            let len = unsafe { self.slots.peek_len() };
            dead.extend((0..len).filter_map(|index| self.slots.take(index)));
        }
        for one in &dead {
            loop {
                let mut taken = [std::ptr::null(); MOVED_AT_A_TIME];
                let mut count = 0;
                let locked = one.list.lock();
                while let Some(link) = locked.first().filter(|_| count < taken.len()) {
                    // SAFETY: on the list, whose lock is held.
                    taken[count] = locked.remove(unsafe { &*link });
                    count += 1;
                }
                if count == 0 {
                    locked.mark_dead();
                    break;
                }
                drop(locked);
                for &link in &taken[..count] {
                    // The rest must go, too: links that stay would name freed lists.
                    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| take(link))) {
                        // The payload's own destructor may panic, too.
                        mem::forget(panicked.replace(payload));
                    }
                }
            }
        }
        keep_for_readers(dead);
        if let Some(payload) = panicked {
            if thread::panicking() {
                mem::forget(payload)
            } else {
                panic::resume_unwind(payload)
            }
        }
    }
}

/// A list that is in no slot is not reset: it is dead, and only a walk whose callback forks still has
/// it (`lru/walk.rs`).
impl ForkReset for Lists {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under these locks.
        let mut is_lost = unsafe { self.change.reset_in_child() };
        // SAFETY: the only thread.
        for index in 0..unsafe { self.slots.peek_len() } {
            // SAFETY: the only thread.
            if let Some(one) = unsafe { self.slots.peek(index) } {
                // SAFETY: as above.
                is_lost |= unsafe { one.list.reset_in_child() };
            }
        }
        self.is_lost.fetch_or(is_lost, Ordering::Relaxed);
    }
}

impl One {
    /// Sets the bit of `shrinker` (its number plus 1; 0 for none): there may be items here.
    fn tell(&self, shrinker: usize) {
        if let (Some(shrinker), Some(tenant)) = (shrinker.checked_sub(1), &self.tenant) {
            tenant.shrinker_map.set_bit(Index::of(self.node, shrinker));
        }
    }
}

/// Drops lists after a grace period: a section may have found one in a slot, or in a link that was
/// on it.
///
/// They are deferred frees, which count against the domain's budget: a thread that makes and
/// deletes tenants faster than they are freed waits.
pub(crate) fn keep_for_readers(dead: Vec<Arc<One>>) {
    dead.into_iter()
        .for_each(|one| retire_shared(global(), one));
}
