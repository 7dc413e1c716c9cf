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
//! It is an index into the lists' arrays. All of them have space for it before the tenant is
//! returned: [`Tree::take_number`] grows them one after the other and, if there is no memory for
//! one, gives the number back; those that have grown stay as they are. A number is used again when
//! no handle of its tenant is left, and so nothing is looked up by it; by then the lists under it
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
    slots::{OutOfMemory, Slots, sections::Replaced},
};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint::{Rcu, global, internal::retire_shared, read_lock};
use stillpoint_platform::{fork::AtForkHandle, fork_mutex::ForkMutex, sync::MutexGuard};

/// Tenants that there is room for at first.
const FIRST_ROOM: usize = 16;

/// What a hierarchy's tenants share.
#[derive(Debug)]
pub(crate) struct Tree {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    id: u64,
    pub(super) tenants: Slots<Memcg>,
    /// How many tenants all arrays have room for. Changed under `numbers`.
    room: AtomicUsize,
    lists: Rcu<Vec<Arc<Lists>>>,
    shrinkers: Rcu<Vec<Arc<Registered>>>,
    pub(super) numbers: ForkMutex<Numbers>,
    pub(super) stocks: Stocks,
    pub(super) background: Arc<Background>,
}

#[derive(Debug)]
pub(super) struct Numbers {
    /// Tenants' numbers below `next` that are free.
    free: Vec<u32>,
    next: u32,
    /// Which shrinkers' numbers are taken.
    shrinkers: [u64; MAX_SHRINKERS / 64],
}

/// Sets a bit of a bit map.
fn set(bits: &mut [u64], bit: usize) {
    bits[bit / 64] |= 1 << (bit % 64);
}

impl Tree {
    pub(crate) fn new() -> Option<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let tree = Arc::new(Self {
            place: AtForkHandle::reserve(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            tenants: Slots::new(),
            room: AtomicUsize::new(0),
            lists: Rcu::new(Vec::new()),
            shrinkers: Rcu::new(Vec::new()),
            numbers: ForkMutex::new(Numbers {
                free: Vec::new(),
                next: 0,
                shrinkers: [0; MAX_SHRINKERS / 64],
            }),
            stocks: Stocks::new()?,
            background: Background::new(),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { tree.place.occupy(&*tree) };
        Some(tree)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether a fork has removed a thread that held a lock of the hierarchy: drops then leak
    /// what they would have to take out.
    pub(crate) fn has_lost_lock(&self) -> bool {
        self.numbers.is_lost()
            || self
                .lists
                .read(|lists| lists.iter().any(|lists| lists.is_lost()))
    }

    pub(crate) fn stocks(&self) -> &Stocks {
        &self.stocks
    }

    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// The lists that there are at this moment.
    pub(crate) fn lists(&self) -> Vec<Arc<Lists>> {
        self.lists.load_cloned()
    }

    /// The shrinkers that there are at this moment.
    pub(crate) fn shrinkers(&self) -> Vec<Arc<Registered>> {
        self.shrinkers.load_cloned()
    }

    /// All lists except those made after this call, whose makers see what the caller did before it:
    /// read under the lock that publishes them.
    pub(crate) fn all_lists(&self) -> Vec<Arc<Lists>> {
        self.lists_at_rest(&self.numbers.lock()).to_vec()
    }

    /// The lists, without a section: the end of a section may wait and run destructors, which must
    /// not happen under the lock.
    fn lists_at_rest<'a>(&'a self, _numbers: &'a MutexGuard<'_, Numbers>) -> &'a [Arc<Lists>] {
        // SAFETY: replaced under the lock.
        unsafe { self.lists.peek() }
    }

    /// The same of shrinkers.
    fn shrinkers_at_rest<'a>(
        &'a self,
        _numbers: &'a MutexGuard<'_, Numbers>,
    ) -> &'a [Arc<Registered>] {
        // SAFETY: as above.
        unsafe { self.shrinkers.peek() }
    }

    /// # Safety
    ///
    /// The calling thread is the only one. It need not be able to read: the domain may not have
    /// been put in order yet.
    pub(super) unsafe fn each_shrinker(&self, each: impl FnMut(&Registered)) {
        // SAFETY: the caller's promise.
        unsafe { self.shrinkers.peek() }
            .iter()
            .map(|shrinker| &**shrinker)
            .for_each(each);
    }

    /// A number for a new tenant, for which all arrays have room.
    pub(crate) fn take_number(&self) -> Result<u32, CreateError> {
        // Dropped after the lock.
        let mut replaced = Vec::new();
        let mut numbers = self.numbers.lock();
        if let Some(number) = numbers.free.pop() {
            return Ok(number);
        }
        let number = numbers.next;
        self.make_room(&numbers, number as usize + 1, &mut replaced)
            .map_err(|OutOfMemory| CreateError::OutOfMemory)?;
        // Room for it when it comes back, so that giving it back cannot fail.
        let more = (number as usize + 1).saturating_sub(numbers.free.len());
        numbers
            .free
            .try_reserve(more)
            .map_err(|_| CreateError::OutOfMemory)?;
        numbers.next = number.checked_add(1).ok_or(CreateError::OutOfMemory)?;
        Ok(number)
    }

    /// The arrays that larger ones replace go into `replaced`, to be dropped with no lock held:
    /// readers may need it.
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
        let all = self.lists_at_rest(numbers);
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

    /// Publishes a new tenant under its number.
    pub(crate) fn publish(&self, tenant: &Arc<Memcg>) {
        let _numbers = self.numbers.lock();
        self.tenants
            .put(tenant.number() as usize, Arc::clone(tenant));
    }

    /// There is no handle of tenant `number` any more, and there are no lists under that number.
    pub(crate) fn release_number(&self, number: u32) {
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
        let guard = read_lock();
        for index in 0..self.tenants.len() {
            if let Some(tenant) = self.tenants.find(index, &guard) {
                each(tenant);
            }
        }
    }

    /// Calls `each` with a handle of every tenant, outside of sections: dropping one may end its
    /// tenant.
    pub(crate) fn for_each_tenant_handle(&self, each: impl FnMut(Tenant)) {
        self.for_tenant_handles(0..usize::MAX, each);
    }

    /// Numbers that tenants have, or have had: from 0 to this.
    pub(crate) fn tenant_numbers(&self) -> usize {
        self.tenants.len()
    }

    /// The same for tenants with these numbers.
    pub(crate) fn for_tenant_handles(&self, numbers: Range<usize>, mut each: impl FnMut(Tenant)) {
        for index in numbers.start..numbers.end.min(self.tenants.len()) {
            let tenant = self.tenants.get(index, &read_lock());
            if let Some(handle) = tenant.as_ref().and_then(Memcg::handle) {
                each(handle);
            }
        }
    }

    /// A handle of `tenant`, unless the last one has been dropped.
    pub(crate) fn handle_of(&self, tenant: &Memcg) -> Option<Tenant> {
        let found = self.tenants.get(tenant.number() as usize, &read_lock())?;
        if std::ptr::eq(&*found, tenant) {
            found.handle()
        } else {
            None
        }
    }

    pub(super) fn add_lists(&self) -> Result<Arc<Lists>, OutOfMemory> {
        let numbers = self.numbers.lock();
        let lists = Lists::new(self.id, self.room.load(Ordering::Relaxed))?;
        let mut all = self.lists_at_rest(&numbers).to_vec();
        all.push(Arc::clone(&lists));
        let old = self.lists.swap(all);
        // Dropping it may wait for readers, which must not wait for us.
        drop(numbers);
        drop(old);
        Ok(lists)
    }

    pub(super) fn remove_lists(&self, lists: &Arc<Lists>) {
        let numbers = self.numbers.lock();
        let mut all = self.lists_at_rest(&numbers).to_vec();
        all.retain(|other| !Arc::ptr_eq(other, lists));
        let old = self.lists.swap(all);
        drop(numbers);
        drop(old);
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
        set(&mut numbers.shrinkers, number);
        let registered = Arc::new(Registered::new(shrinker, per_tenant, number));
        let mut all = self.shrinkers_at_rest(&numbers).to_vec();
        all.push(Arc::clone(&registered));
        let old = self.shrinkers.swap(all);
        drop(numbers);
        drop(old);
        Ok(registered)
    }

    /// No pass that begins from now on finds the shrinker.
    pub(crate) fn remove_shrinker(&self, registered: &Arc<Registered>) {
        let numbers = self.numbers.lock();
        let mut all = self.shrinkers_at_rest(&numbers).to_vec();
        all.retain(|other| !Arc::ptr_eq(other, registered));
        let old = self.shrinkers.swap(all);
        drop(numbers);
        drop(old);
    }

    pub(crate) fn release_shrinker(&self, number: usize) {
        self.numbers.lock().shrinkers[number / 64] &= !(1 << (number % 64));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.background.stop();
    }
}
