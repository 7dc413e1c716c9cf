//! What the tenants of one hierarchy share: tenants by number, the lists and the shrinkers, the
//! stock and the background reclaimer.
//!
//! Tenants are found by their numbers, through an array that is read in sections (`slots.rs`).
//! Lists and shrinkers are few, and are kept as whole vectors that are replaced ([`Rcu`]): an
//! iteration keeps what it has found, and delays no change. All of it is changed under one lock,
//! `numbers`.
//!
//! # A tenant's number
//!
//! A number is an index into the lists' arrays. All of them have space for it before the tenant is
//! returned: [`Tree::take_number`] grows them one after the other and, if there is no memory for
//! one, gives the number back; those that have grown stay as they are. A number is used again when
//! no handle of its tenant is left, so that nothing is looked up by it; by then the lists under it
//! are gone.

use super::{
    Memcg, Tenant,
    background::Background,
    error::{CreateError, TooManyShrinkers},
    lists::Lists,
    shrinker::{Registered, Shrink},
    stock::Stocks,
};
use crate::{
    shrinker_map::MAX_SHRINKERS,
    slots::{
        OutOfMemory, Slots,
        sections::{Global, Replaced},
    },
};
use std::{
    ops::Range,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use stillpoint::{Rcu, global, internal::retire_shared};
use stillpoint_platform::{
    fork::{AtForkHandle, ForkReset},
    fork_mutex::ForkMutex,
    memory, numa,
    sync::MutexGuard,
};

/// Upper bound on the bytes that a tenant takes beside its places in arrays, and more of them for each node.
const TENANT_BYTES: usize = 2 << 10;
const NODE_BYTES: usize = 256;

/// Number of tenants that there is room for at first.
const FIRST_ROOM: usize = 16;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Tree {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    tenants: Slots<Memcg>,
    /// Number of tenants that all arrays have room for. Changed under `numbers`.
    room: AtomicUsize,
    lists: Rcu<Vec<Arc<Lists>>>,
    shrinkers: Rcu<Vec<Arc<Registered>>>,
    numbers: ForkMutex<Numbers>,
    stocks: Arc<Stocks<Memcg>>,
    pub(super) background: Arc<Background>,
}

#[derive(Debug)]
struct Numbers {
    /// Numbers of tenants below `next` that are free.
    free: Vec<u32>,
    next: u32,
    /// A bit for each number of a shrinker that is taken.
    shrinkers: [u64; MAX_SHRINKERS / 64],
}

impl Tree {
    pub(crate) fn new() -> Option<Arc<Self>> {
        let tree = Arc::new(Self {
            place: AtForkHandle::reserve(),
            tenants: Slots::new(),
            room: AtomicUsize::new(0),
            lists: Rcu::new(Vec::new()),
            shrinkers: Rcu::new(Vec::new()),
            numbers: ForkMutex::new(Numbers {
                free: Vec::new(),
                next: 0,
                shrinkers: [0; MAX_SHRINKERS / 64],
            }),
            stocks: Arc::new(Stocks::new()?),
            background: Background::new(),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { tree.place.occupy(&*tree) };
        Some(tree)
    }

    /// Returns the address that the hierarchy's tenants have ([`Tenant::hierarchy`]).
    pub(crate) fn address(&self) -> usize {
        self.stocks.address()
    }

    /// Returns whether a fork has removed a thread that held a lock of the hierarchy: drops then leak
    /// what they would have to take out.
    pub(crate) fn has_lost_lock(&self) -> bool {
        self.numbers.is_lost()
            || self
                .lists
                .read(|lists| lists.iter().any(|lists| lists.is_lost()))
    }

    /// Returns all lists except those made after this call, whose makers see what the caller did
    /// before it: reads under the lock that publishes them.
    pub(crate) fn all_lists(&self) -> Vec<Arc<Lists>> {
        at_rest(&self.lists, &self.numbers.lock()).clone()
    }

    /// Returns the lists that there are at some instant of the call. Takes no lock.
    pub(super) fn present_lists(&self) -> Vec<Arc<Lists>> {
        self.lists.load_cloned()
    }

    /// Returns the shrinkers that are registered at some instant of the call. Takes no lock.
    pub(super) fn present_shrinkers(&self) -> Vec<Arc<Registered>> {
        self.shrinkers.load_cloned()
    }

    /// Returns an upper bound on the bytes that a reclaim pass takes beside its list of tenants.
    pub(super) fn pass_bytes(&self) -> usize {
        let entries = self.lists.read(Vec::len) + self.shrinkers.read(Vec::len);
        // The rest is for deferred work.
        entries * size_of::<usize>() + (1 << 10)
    }

    /// Takes a number for a new tenant, once all arrays have room for it, and there is memory for the tenant.
    pub(crate) fn take_number(&self) -> Result<u32, CreateError> {
        let number = self.reserve_number()?;
        // Checked last: retiring the arrays that were replaced may take memory.
        if memory::is_there_for(TENANT_BYTES + numa::count() * NODE_BYTES) {
            return Ok(number);
        }
        self.numbers.lock().free.push(number);
        Err(CreateError::OutOfMemory)
    }

    /// Reserves a number that all arrays and the list of free numbers have room for.
    fn reserve_number(&self) -> Result<u32, CreateError> {
        // Dropped after the lock.
        let mut replaced = Vec::new();
        let mut numbers = self.numbers.lock();
        if let Some(number) = numbers.free.pop() {
            return Ok(number);
        }
        let number = numbers.next;
        self.make_room(&numbers, number as usize + 1, &mut replaced)
            .map_err(|OutOfMemory| CreateError::OutOfMemory)?;
        // Room for the number when it comes back, so that giving it back cannot fail.
        let more = (number as usize + 1).saturating_sub(numbers.free.len());
        numbers
            .free
            .try_reserve(more)
            .map_err(|_| CreateError::OutOfMemory)?;
        numbers.next = number.checked_add(1).ok_or(CreateError::OutOfMemory)?;
        Ok(number)
    }

    /// Grows all arrays to `tenants` at least. The arrays that larger ones replace go into
    /// `replaced`, to be dropped with no lock held: readers may need it.
    fn make_room(
        &self,
        numbers: &MutexGuard<'_, Numbers>,
        tenants: usize,
        replaced: &mut Vec<Replaced>,
    ) -> Result<(), OutOfMemory> {
        let room = self.room.load(Ordering::Relaxed);
        if tenants <= room {
            return Ok(());
        }
        let larger = tenants.max(2 * room).max(FIRST_ROOM);
        let all = at_rest(&self.lists, numbers);
        replaced
            .try_reserve_exact(all.len() + 1)
            .map_err(|_| OutOfMemory)?;
        replaced.push(self.tenants.reserve(larger)?);
        for lists in all {
            replaced.push(lists.reserve(larger)?);
        }
        self.room.store(larger, Ordering::Relaxed);
        Ok(())
    }

    /// Creates the tenant of `number`, for which the caller makes the handle, and publishes it.
    pub(super) fn new_tenant(
        self: &Arc<Self>,
        number: u32,
        parent: Option<Arc<Memcg>>,
    ) -> Arc<Memcg> {
        let stocks = Arc::clone(&self.stocks);
        let memcg = Memcg::new(number, Arc::<Self>::clone(self), stocks, parent);
        let _numbers = self.numbers.lock();
        self.tenants.put(number as usize, Arc::clone(&memcg));
        memcg
    }

    /// Takes the number back of a tenant that has no handle, and no lists under that number.
    pub(super) fn release_number(&self, number: u32) {
        let taken = {
            let mut numbers = self.numbers.lock();
            let taken = self.tenants.take(number as usize);
            numbers.free.push(number);
            taken
        };
        // A section may have found it.
        if let Some(tenant) = taken {
            retire_shared(global(), tenant);
        }
    }

    /// Calls `each` for every tenant that has a handle, inside a section.
    pub(crate) fn for_each_tenant(&self, mut each: impl FnMut(&Memcg)) {
        let guard = Global::begin();
        for index in 0..self.tenants.len() {
            if let Some(tenant) = self.tenants.find(index, &guard) {
                each(tenant);
            }
        }
    }

    /// Returns the bound of the numbers that tenants have, or have had.
    pub(crate) fn tenant_numbers(&self) -> usize {
        self.tenants.len()
    }

    /// Calls `each` with a handle of every tenant with one of these numbers, outside of sections:
    /// dropping a handle may end its tenant.
    pub(crate) fn for_tenant_handles(&self, numbers: Range<usize>, mut each: impl FnMut(Tenant)) {
        for index in numbers.start..numbers.end.min(self.tenants.len()) {
            let tenant = self.tenants.get(index, &Global::begin());
            if let Some(handle) = tenant.as_ref().and_then(Tenant::of) {
                each(handle);
            }
        }
    }

    /// Makes a handle of `tenant`, unless the last one has been dropped.
    pub(crate) fn handle_of(&self, tenant: &Memcg) -> Option<Tenant> {
        let found = self
            .tenants
            .get(tenant.number() as usize, &Global::begin())?;
        Tenant::of(Some(&found).filter(|found| ptr::eq(&***found, tenant))?)
    }

    pub(crate) fn add_lists(&self) -> Result<Arc<Lists>, OutOfMemory> {
        let numbers = self.numbers.lock();
        let lists = Lists::new(self.address(), self.room.load(Ordering::Relaxed))?;
        replace(&self.lists, numbers, |all| all.push(Arc::clone(&lists)));
        Ok(lists)
    }

    pub(crate) fn remove_lists(&self, lists: &Arc<Lists>) {
        replace(&self.lists, self.numbers.lock(), |all| {
            all.retain(|other| !Arc::ptr_eq(other, lists));
        });
    }

    pub(super) fn add_shrinker(
        &self,
        shrinker: Arc<dyn Shrink>,
    ) -> Result<Arc<Registered>, TooManyShrinkers> {
        // Once, and before the lock: it is user code.
        let per_tenant = shrinker.per_tenant();
        let mut numbers = self.numbers.lock();
        let free = (0..MAX_SHRINKERS)
            .find(|number| numbers.shrinkers[number / 64] & 1 << (number % 64) == 0);
        let number = free.ok_or(TooManyShrinkers)?;
        numbers.shrinkers[number / 64] |= 1 << (number % 64);
        let registered = Arc::new(Registered::new(shrinker, per_tenant, number));
        replace(&self.shrinkers, numbers, |all| {
            all.push(Arc::clone(&registered));
        });
        Ok(registered)
    }

    /// Takes the shrinker out: no pass that begins from now on finds it.
    pub(crate) fn remove_shrinker(&self, registered: &Arc<Registered>) {
        replace(&self.shrinkers, self.numbers.lock(), |all| {
            all.retain(|other| !Arc::ptr_eq(other, registered));
        });
    }

    pub(crate) fn release_shrinker(&self, number: usize) {
        self.numbers.lock().shrinkers[number / 64] &= !(1 << (number % 64));
    }
}

/// Returns what `cell` holds, without a section: the end of a section may wait and run destructors,
/// which must not happen under the lock.
fn at_rest<'a, T>(
    cell: &'a Rcu<Vec<Arc<T>>>,
    _numbers: &'a MutexGuard<'_, Numbers>,
) -> &'a Vec<Arc<T>>
where
    Vec<Arc<T>>: Send + Sync + 'static,
{
    // SAFETY: the cells are private to this file, which replaces them under the lock only.
    unsafe { cell.peek() }
}

/// Changes what `cell` holds, and releases the lock before the old vector is dropped: that may wait
/// for readers, which must not wait for the lock.
fn replace<T>(
    cell: &Rcu<Vec<Arc<T>>>,
    numbers: MutexGuard<'_, Numbers>,
    change: impl FnOnce(&mut Vec<Arc<T>>),
) where
    Vec<Arc<T>>: Send + Sync + 'static,
{
    let mut all = at_rest(cell, &numbers).clone();
    change(&mut all);
    let old = cell.swap(all);
    drop(numbers);
    drop(old);
}

/// What threads wait for without a lock is reset here: per-CPU stocks, calls of shrinkers, and the
/// background reclaimer. Locks that another thread held are lost: an operation that needs one ends
/// the process, and drops leak ([`Tree::has_lost_lock`]).
impl ForkReset for Tree {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under the locks. This thread is the only
        // one, so the cell does not change; the domain may not be in order yet, so it cannot be
        // read in a section.
        unsafe {
            self.numbers.reset_in_child();
            self.stocks.reset_in_child();
            self.background.reset_in_child();
            let shrinkers = self.shrinkers.peek().iter();
            shrinkers.for_each(|shrinker| shrinker.reset_in_child());
        }
        // SAFETY: the only thread.
        for index in 0..unsafe { self.tenants.peek_len() } {
            // SAFETY: the only thread.
            if let Some(tenant) = unsafe { self.tenants.peek(index) } {
                tenant.queued.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.background.stop();
    }
}
