//! A tree of tenants, with the lists and the shrinkers that know them.
//!
//! Tenants are found by their numbers, through an array that is read in sections (`slots.rs`). Lists and shrinkers are few, and are kept
//! as whole vectors that are replaced ([`Rcu`]): who iterates over them keeps what it has found, and holds up nobody that comes or goes.
//! All of it is changed under one lock, `numbers`.
//!
//! # A tenant's number
//!
//! It is an index into the lists' arrays. All of them have room for it before anybody has the tenant: [`Shared::take_number`] grows
//! them one after the other and, if there is no memory for one, gives the number back; those that have grown stay as they are.
//! A number is used again when no handle of its tenant is left, and so nobody who could look something up by it; by then the
//! lists under it are gone.

use super::{
    background::Background,
    error::CreateError,
    ledger::MOST_SHRINKERS,
    lists::Lists,
    reclaim::{self, Pace},
    shrinker::{Registered, Registration, Shrink, TooManyShrinkers},
    slots::{OutOfMemory, Replaced, Slots},
    statistics::Relieved,
    stock::Stocks,
    tenant::{Inner, Tenant},
};
use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint::{Rcu, global, internal::retire_shared, read_lock};
use stillpoint_platform::{
    fork::{AtForkHandle, ForkReset},
    memory,
    sync::{Mutex, MutexGuard, lock},
};

/// Tenants that there is room for at first.
const FIRST_ROOM: usize = 16;

/// How hard [`Hierarchy::relieve`] tries at last where nothing is charged, so that there is no telling when it is enough. At the usual cost that
/// round frees half of what the gentler ones have left: a quarter, an eighth and so on were theirs. Together they free 1 - 1/2 * 3/4 * 7/8 * ... = 71 %.
const HARDEST_SWEEP: u32 = 2;

/// A tree of [`Tenant`]s, and the shrinkers and LRU lists that serve them: most programs have one. The kernel's control-group hierarchy.
///
/// A handle: cloning it names the same tree, which lives for as long as any handle of it or of one of its tenants does.
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
#[derive(Clone, PartialEq, Eq)]
pub struct Hierarchy {
    root: Tenant,
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

    /// The same; `None` if there is no memory for the arrays in it.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        Some(Self { root: Tenant::root(Shared::new()?).ok()? })
    }

    /// The tenant that all others are below.
    #[must_use]
    pub fn root(&self) -> &Tenant {
        &self.root
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.root.inner().shared
    }

    /// Registers a shrinker: from now on it is asked when memory is short. The kernel's `shrinker_register()`.
    ///
    /// Does not wait for passes under way, which may not ask it yet.
    ///
    /// # Errors
    ///
    /// If there are 1,024 already.
    ///
    /// # Panics
    ///
    /// If [`Shrink::per_tenant`] does.
    pub fn register(&self, shrinker: Arc<impl Shrink>) -> Result<Registration, TooManyShrinkers> {
        let registered = self.shared().list(shrinker)?;
        Ok(Registration::new(Arc::clone(self.shared()), registered))
    }

    /// Frees memory: a quarter of what is charged, or, if nothing is, about 71 % of what each shrinker of the usual cost has (42 % at twice that
    /// cost, nearly all at none: [`Shrink::seeks`](super::Shrink::seeks)). What a [pressure watch](super::PressureWatch) does when it is told. The
    /// kernel's `drop_caches`, in part.
    ///
    /// Runs on the calling thread, with a break after every 500 us; does not wait for grace periods. Inside a shrinker it does nothing.
    pub fn relieve(&self) -> Relieved {
        let usage = self.root.inner().counter().usage();
        self.relieve_to(usage - usage / 4)
    }

    /// As [`Hierarchy::relieve`], until no more than `target` bytes are charged.
    pub fn relieve_to(&self, target: u64) -> Relieved {
        let root = self.root.inner();
        let usage = || root.counter().usage();
        let before = usage();
        let mut pace = Pace::background();
        let objects = if before == 0 {
            reclaim::sweep(root, HARDEST_SWEEP, &mut pace)
        } else {
            self.shared().stocks().drain(None);
            let objects = reclaim::reclaim(root, target, &mut pace);
            self.shared().stocks().drain(None);
            objects
        };
        Relieved { objects, bytes: before.saturating_sub(usage()) }
    }

    /// How many tenants there are that somebody has a handle of, the root included.
    #[must_use]
    pub fn tenants(&self) -> usize {
        let mut tenants = 0;
        self.shared().for_each_tenant(|_| tenants += 1);
        tenants
    }

    pub(super) fn new_lists(&self) -> Result<Arc<Lists>, OutOfMemory> {
        self.shared().new_lists()
    }

    pub(super) fn forget_lists(root: &Tenant, lists: &Arc<Lists>) {
        root.inner().shared.forget_lists(lists);
    }
}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hierarchy").field("tenants", &self.tenants()).field("root", &self.root.statistics()).finish()
    }
}

/// What a hierarchy's tenants share.
#[derive(Debug)]
pub(super) struct Shared {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    id: u64,
    tenants: Slots<Inner>,
    /// How many tenants all arrays have room for. Changed under `numbers`.
    room: AtomicUsize,
    lists: Rcu<Vec<Arc<Lists>>>,
    shrinkers: Rcu<Vec<Arc<Registered>>>,
    numbers: Mutex<Numbers>,
    stocks: Stocks,
    background: Arc<Background>,
}

#[derive(Debug)]
struct Numbers {
    /// Tenants' numbers below `next` that are free.
    free: Vec<u32>,
    next: u32,
    /// Which shrinkers' numbers are taken.
    shrinkers: [u64; MOST_SHRINKERS / 64],
}

impl ForkReset for Shared {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.stocks.reset_in_child();
            self.background.reset_in_child();
        }
        // SAFETY: no user code runs under this lock. Whoever held it, numbers that were free may be lost, and nothing else: `room` is
        // above all that are taken.
        unsafe {
            if self.numbers.try_lock().is_err() {
                let next = self.room.load(Ordering::Relaxed) as u32;
                self.numbers.reinit(Numbers { free: Vec::new(), next, shrinkers: [0; MOST_SHRINKERS / 64] });
                let numbers = &mut *lock(&self.numbers);
                self.each_shrinker(|shrinker| set(&mut numbers.shrinkers, shrinker.number));
            }
        }
        let mut registered = [0; MOST_SHRINKERS / 64];
        // SAFETY: the only thread.
        unsafe {
            self.each_shrinker(|shrinker| {
                shrinker.reset_in_child();
                set(&mut registered, shrinker.number);
            });
            // Whoever was ending a registration may have vanished before its lists forgot it.
            for lists in self.lists.peek() {
                lists.keep_shrinker_if(|number| registered[number / 64] & 1 << (number % 64) != 0);
            }
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

fn set(bits: &mut [u64], bit: usize) {
    bits[bit / 64] |= 1 << (bit % 64);
}

impl Shared {
    fn new() -> Option<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shared = Arc::new(Self {
            place: AtForkHandle::reserve(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            tenants: Slots::new(),
            room: AtomicUsize::new(0),
            lists: Rcu::new(Vec::new()),
            shrinkers: Rcu::new(Vec::new()),
            numbers: Mutex::new(Numbers { free: Vec::new(), next: 0, shrinkers: [0; MOST_SHRINKERS / 64] }),
            stocks: Stocks::new()?,
            background: Background::new(),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its fields to be dropped.
        unsafe { shared.place.occupy(&*shared) };
        Some(shared)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn stocks(&self) -> &Stocks {
        &self.stocks
    }

    pub(super) fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// The lists that there are at this moment.
    pub(super) fn lists(&self) -> Vec<Arc<Lists>> {
        self.lists.load_cloned()
    }

    /// The shrinkers that there are at this moment.
    pub(super) fn shrinkers(&self) -> Vec<Arc<Registered>> {
        self.shrinkers.load_cloned()
    }

    /// All lists but those that are made after this, by one who sees whatever the caller has done before: under the lock under which they
    /// are published.
    pub(super) fn all_lists(&self) -> Vec<Arc<Lists>> {
        self.lists_at_rest(&lock(&self.numbers)).to_vec()
    }

    /// The lists, without a section, whose end may wait and run destructors: nothing of that is for one who has the lock.
    fn lists_at_rest<'a>(&'a self, _numbers: &'a MutexGuard<'_, Numbers>) -> &'a [Arc<Lists>] {
        // SAFETY: replaced under the lock.
        unsafe { self.lists.peek() }
    }

    /// The same of shrinkers.
    fn shrinkers_at_rest<'a>(&'a self, _numbers: &'a MutexGuard<'_, Numbers>) -> &'a [Arc<Registered>] {
        // SAFETY: as above.
        unsafe { self.shrinkers.peek() }
    }

    /// # Safety
    ///
    /// The calling thread is the only one. It need not be able to read: the domain may not have been put in order yet.
    unsafe fn each_shrinker(&self, each: impl FnMut(&Registered)) {
        // SAFETY: the caller's promise.
        unsafe { self.shrinkers.peek() }.iter().map(|shrinker| &**shrinker).for_each(each);
    }

    /// A number for a new tenant, for which all arrays have room.
    pub(super) fn take_number(&self) -> Result<u32, CreateError> {
        // Dropped after the lock.
        let mut replaced = Vec::new();
        let mut numbers = lock(&self.numbers);
        if let Some(number) = numbers.free.pop() {
            return Ok(number);
        }
        let number = numbers.next;
        self.make_room(&numbers, number as usize + 1, &mut replaced).map_err(|OutOfMemory| CreateError::OutOfMemory)?;
        // Room for it when it comes back, so that giving it back cannot fail.
        let more = (number as usize + 1).saturating_sub(numbers.free.len());
        memory::refusable(|| numbers.free.try_reserve(more)).map_err(|_| CreateError::OutOfMemory)?;
        numbers.next = number.checked_add(1).ok_or(CreateError::OutOfMemory)?;
        Ok(number)
    }

    /// The arrays that larger ones replace go into `replaced`, to be dropped with no lock held: readers may need it.
    fn make_room(
        &self, numbers: &MutexGuard<'_, Numbers>, tenants: usize, replaced: &mut Vec<Replaced>,
    ) -> Result<(), OutOfMemory> {
        let room = self.room.load(Ordering::Relaxed);
        if tenants <= room {
            return Ok(());
        }
        let larger = tenants.max(2 * room).max(FIRST_ROOM);
        let all = self.lists_at_rest(numbers);
        memory::refusable(|| replaced.try_reserve_exact(all.len() + 1)).map_err(|_| OutOfMemory)?;
        replaced.push(self.tenants.reserve(larger)?);
        for lists in all {
            replaced.push(lists.reserve(larger)?);
        }
        self.room.store(larger, Ordering::Relaxed);
        Ok(())
    }

    /// Has a new tenant found by its number.
    pub(super) fn publish(&self, tenant: &Arc<Inner>) {
        let _numbers = lock(&self.numbers);
        self.tenants.put(tenant.number() as usize, Arc::clone(tenant));
    }

    /// Nobody has a handle of tenant `number` any more, and there are no lists under that number.
    pub(super) fn release_number(&self, number: u32) {
        let taken = {
            let mut numbers = lock(&self.numbers);
            let taken = self.tenants.take(number as usize);
            numbers.free.push(number);
            taken
        };
        // A section may have found it.
        if let Some(tenant) = taken {
            retire_shared(global(), tenant);
        }
    }

    /// Calls `each` for every tenant that somebody has a handle of, inside a section.
    pub(super) fn for_each_tenant(&self, mut each: impl FnMut(&Inner)) {
        let guard = read_lock();
        for index in 0..self.tenants.len() {
            if let Some(tenant) = self.tenants.find(index, &guard) {
                each(tenant);
            }
        }
    }

    /// Calls `each` with a handle of every tenant, outside of sections: to drop one may be its tenant's end.
    pub(super) fn for_each_tenant_handle(&self, each: impl FnMut(Tenant)) {
        self.for_tenant_handles(0..usize::MAX, each);
    }

    /// Numbers that tenants have, or have had: from 0 to this.
    pub(super) fn tenant_numbers(&self) -> usize {
        self.tenants.len()
    }

    /// The same for tenants with these numbers.
    pub(super) fn for_tenant_handles(&self, numbers: Range<usize>, mut each: impl FnMut(Tenant)) {
        for index in numbers.start..numbers.end.min(self.tenants.len()) {
            let tenant = self.tenants.get(index, &read_lock());
            if let Some(handle) = tenant.as_ref().and_then(Inner::handle) {
                each(handle);
            }
        }
    }

    /// A handle of `tenant`, unless the last one has been dropped.
    pub(super) fn handle_of(&self, tenant: &Inner) -> Option<Tenant> {
        let found = self.tenants.get(tenant.number() as usize, &read_lock())?;
        if std::ptr::eq(&*found, tenant) { found.handle() } else { None }
    }

    fn new_lists(&self) -> Result<Arc<Lists>, OutOfMemory> {
        let numbers = lock(&self.numbers);
        let lists = Lists::new(self.id, self.room.load(Ordering::Relaxed))?;
        let mut all = self.lists_at_rest(&numbers).to_vec();
        all.push(Arc::clone(&lists));
        let old = self.lists.swap(all);
        // Dropping it may wait for readers, which must not wait for us.
        drop(numbers);
        drop(old);
        Ok(lists)
    }

    fn forget_lists(&self, lists: &Arc<Lists>) {
        let numbers = lock(&self.numbers);
        let mut all = self.lists_at_rest(&numbers).to_vec();
        all.retain(|other| !Arc::ptr_eq(other, lists));
        let old = self.lists.swap(all);
        drop(numbers);
        drop(old);
    }

    fn list(&self, shrinker: Arc<dyn Shrink>) -> Result<Arc<Registered>, TooManyShrinkers> {
        // Once, and before the lock: it is user code.
        let per_tenant = shrinker.per_tenant();
        let mut numbers = lock(&self.numbers);
        let free = (0..MOST_SHRINKERS).find(|number| numbers.shrinkers[number / 64] & 1 << (number % 64) == 0);
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
    pub(super) fn unlist(&self, registered: &Arc<Registered>) {
        let numbers = lock(&self.numbers);
        let mut all = self.shrinkers_at_rest(&numbers).to_vec();
        all.retain(|other| !Arc::ptr_eq(other, registered));
        let old = self.shrinkers.swap(all);
        drop(numbers);
        drop(old);
    }

    pub(super) fn release_shrinker(&self, number: usize) {
        lock(&self.numbers).shrinkers[number / 64] &= !(1 << (number % 64));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.background.stop();
    }
}
