//! Charges in stock: bytes that have been charged to a tenant already, kept on each processor for its next charges.
//!
//! Without it every charge would write a counter of every ancestor, which all processors share. A processor's shelf has room for a few
//! tenants, behind a flag: a thread may be moved to another processor at any instruction, so the shelf is merely likely to be its
//! own. A charge that fits never waits for the flag: where it is taken, or waited for, the charge does without the stock.
//!
//! Bytes in stock count as charged to their tenant (`counter.rs`), so they hold it in memory; a tenant that has none there is not
//! looked at, only compared with.
//!
//! A tenant that goes is marked as deleted first, and then its bytes are taken off all shelves. A charge that puts bytes on a shelf looks at the
//! mark under the flag: either it comes before the shelf is cleared, or it sees the mark.
//!
//! # Refusals and limits
//!
//! What is in stock is charged and not in use: no charge is refused for it. One that would be refused takes all shelves first and gives
//! back what is there, and is refused only if the bytes do not fit then. Bytes are on their way between counters and a shelf only
//! under its flag, so there are none then. A limit is changed in the same way, because charges are made at a shelf, too.

use super::{
    counter,
    levels::{HasLevel, Refused},
    reclaim::is_reclaiming,
    tenant::Inner as Tenant,
};
use crossbeam_utils::CachePadded;
use std::{
    cell::UnsafeCell,
    mem::{self, ManuallyDrop},
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use stillpoint_platform::{
    cpu, memory,
    sync::{Mutex, lock},
};

/// What is charged at a time, in bytes, where a limit allows.
pub(super) const BATCH: u64 = 16 << 10;

/// What a tenant may have in stock on a processor.
const MOST: u64 = 2 * BATCH;

/// Tenants on a shelf.
const ENTRIES: usize = 4;

/// How often a waiter for a shelf yields before it sleeps, and for how long it sleeps.
const YIELDS: u32 = 64;
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Alive while `bytes` is not 0.
    tenant: *const Tenant,
    bytes: u64,
}

const EMPTY: Entry = Entry { tenant: ptr::null(), bytes: 0 };

#[derive(Debug)]
struct Shelf {
    taken: AtomicBool,
    /// How many wait for the flag: meanwhile it is not taken by a charge, which can do without.
    waiting: AtomicUsize,
    /// While the flag is taken: the taker's.
    entries: UnsafeCell<[Entry; ENTRIES]>,
}

// SAFETY: the entries are used under the flag; tenants are Send and Sync.
unsafe impl Send for Shelf {}
// SAFETY: as for Send.
unsafe impl Sync for Shelf {}

/// The flag, taken. No reference: when the flag is free, what lies on the shelf may be taken off, and with the last of it the shelf may go.
/// Until then it stays: a caller that takes the flag has something that keeps it.
struct Taken(*const Shelf);

impl Shelf {
    /// For a caller that can do without: waiters come first.
    #[inline]
    fn try_take(&self) -> Option<Taken> {
        if self.waiting.load(Ordering::Relaxed) > 0 { None } else { self.try_take_now() }
    }

    #[inline]
    fn try_take_now(&self) -> Option<Taken> {
        // Acquire, pairs with `drop` of Taken: the entries are as the last taker left them.
        (!self.taken.swap(true, Ordering::Acquire)).then(|| Taken(self))
    }

    /// For a caller that cannot.
    fn take(&self) -> Taken {
        self.try_take_now().unwrap_or_else(|| self.wait())
    }

    /// Waits for the holder of the flag, and not for the charges that come after. It is held for some tens of instructions, or until the lock of
    /// `levels.rs` is to be had, unless its thread has lost its processor. That may be one that has to make way for this one: where
    /// priorities are strict (SCHED_FIFO), it runs when this one sleeps and not when it yields.
    #[cold]
    fn wait(&self) -> Taken {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut yields = 0;
        let taken = loop {
            if let Some(taken) = self.try_take_now() {
                break taken;
            }
            if yields < YIELDS {
                yields += 1;
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }
}

impl Taken {
    #[inline]
    fn entries(&mut self) -> &mut [Entry; ENTRIES] {
        // SAFETY: the flag is ours.
        unsafe { &mut *(*self.0).entries.get() }
    }

    #[inline]
    fn of(&mut self, tenant: *const Tenant) -> Option<&mut Entry> {
        self.entries().iter_mut().find(|entry| ptr::eq(entry.tenant, tenant))
    }

    /// Adds to what is in stock for `tenant`. Returns what is too much.
    ///
    /// # Safety
    ///
    /// As for [`Stocks::give`].
    #[inline]
    unsafe fn put(&mut self, tenant: *const Tenant, bytes: u64) -> Surplus {
        if let Some(entry) = self.of(tenant) {
            // An entry of no bytes may be one of a tenant that is no more, whose memory is this one's now; so the pointer is replaced.
            *entry = Entry { tenant, bytes: entry.bytes + bytes };
            if entry.bytes <= MOST {
                return Surplus(EMPTY);
            }
            let surplus = entry.bytes - BATCH;
            entry.bytes = BATCH;
            return Surplus::of(Entry { tenant, bytes: surplus });
        }
        // The first entry is the newest; the last one makes room.
        let entries = self.entries();
        entries.rotate_right(1);
        Surplus::of(mem::replace(&mut entries[0], Entry { tenant, bytes }))
    }
}

impl Drop for Taken {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the shelf stays until the flag is free.
        // Release, pairs with `try_take`: what we did with the entries happens before the next taker's.
        unsafe { (*self.0).taken.store(false, Ordering::Release) };
    }
}

/// What did not fit on a shelf. It is not to be used any more: a thread that has emptied all shelves must not meet it. Its tenant, which may go with it, is
/// let go of with nothing held.
#[must_use]
struct Surplus(Entry);

impl Surplus {
    /// Under the flag, and off the shelf.
    #[inline]
    fn of(entry: Entry) -> Self {
        if entry.bytes > 0 {
            // SAFETY: charged, taken off the shelf by us alone, and so is its tenant alive.
            unsafe { counter::subtract(entry.tenant, entry.bytes) };
        }
        Self(entry)
    }

    #[inline]
    fn release(self) {
        if self.0.bytes > 0 {
            // SAFETY: as in `of`, which has done the first half.
            unsafe { counter::release(self.0.tenant, self.0.bytes) };
        }
    }
}

/// The shelves of a hierarchy.
#[derive(Debug)]
pub(super) struct Stocks {
    shelves: Box<[CachePadded<Shelf>]>,
    /// Taken by who takes all shelves, before the first.
    all: Mutex<()>,
    /// For charges that shelves do not do for: see `levels.rs`. Taken after shelves.
    exact: Mutex<()>,
}

impl Stocks {
    /// `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        let shelf = || {
            CachePadded::new(Shelf {
                taken: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                entries: UnsafeCell::new([EMPTY; ENTRIES]),
            })
        };
        let shelves = memory::try_several(cpu::count(), shelf)?;
        Some(Self { shelves, all: Mutex::new(()), exact: Mutex::new(()) })
    }

    #[inline]
    fn shelf(&self) -> Option<Taken> {
        self.shelves[cpu::current() % self.shelves.len()].try_take()
    }

    /// Takes `bytes` from stock, if there are so many for `tenant`.
    #[inline]
    pub(super) fn take(&self, tenant: &Tenant, bytes: u64) -> bool {
        if bytes > MOST {
            return false;
        }
        let Some(mut shelf) = self.shelf() else { return false };
        match shelf.of(tenant) {
            Some(entry) if entry.bytes >= bytes => {
                entry.bytes -= bytes;
                true
            }
            _ => false,
        }
    }

    /// Charges the counters, with a batch for the stock where limits allow. Whether a tenant is past its high limit now.
    ///
    /// # Errors
    ///
    /// The tenant whose limit is in the way. Perhaps because of what is in stock: then [`Stocks::charge_alone`] does it.
    pub(super) fn charge<'a>(&self, tenant: &'a Tenant, bytes: u64) -> Result<bool, Refused<'a, Tenant>> {
        let Some(mut shelf) = self.shelf() else { return counter::charge(tenant, bytes, false, &self.exact) };
        // At the shelf: who has emptied it is not to find, in the counters, what is about to lie there.
        if bytes < BATCH
            && !tenant.is_deleted()
            && let Ok(is_high) = counter::charge(tenant, BATCH, true, &self.exact)
        {
            // SAFETY: charged just now; the caller's handle keeps the tenant, and so this.
            let surplus = unsafe { shelf.put(tenant, BATCH - bytes) };
            drop(shelf);
            surplus.release();
            return Ok(is_high);
        }
        counter::charge(tenant, bytes, true, &self.exact)
    }

    /// Charges the counters, with nothing in stock. Whether a tenant is past its high limit now.
    ///
    /// # Errors
    ///
    /// The tenant whose limit is in the way, with what it used, stock not included, at that instant.
    pub(super) fn charge_alone<'a>(&self, tenant: &'a Tenant, bytes: u64) -> Result<bool, Refused<'a, Tenant>> {
        self.set_aside(|| counter::charge(tenant, bytes, true, &self.exact))
    }

    /// Changes a limit, while no charge is under way.
    pub(super) fn set_max(&self, tenant: &Tenant, bytes: u64) {
        self.set_aside(|| {
            let _exact = lock(&self.exact);
            tenant.level().set_max(bytes);
        });
    }

    /// Gives back what is in stock, and keeps all shelves empty and taken while `work` runs: others charge without, under `exact`.
    fn set_aside<R>(&self, work: impl FnOnce() -> R) -> R {
        let _all = lock(&self.all);
        for shelf in &self.shelves {
            let mut taken = ManuallyDrop::new(shelf.take());
            for entry in taken.entries().iter().filter(|entry| entry.bytes > 0) {
                // SAFETY: charged, and under the flag ours alone. The second half follows below.
                unsafe { counter::subtract(entry.tenant, entry.bytes) };
            }
        }
        let result = work();
        for shelf in &self.shelves {
            let mut taken = Taken(&raw const **shelf);
            let drained = mem::replace(taken.entries(), [EMPTY; ENTRIES]);
            drop(taken);
            drained.into_iter().for_each(|entry| Surplus(entry).release());
        }
        result
    }

    /// Puts bytes that are charged to `tenant` into stock. What is too much is given back.
    ///
    /// # Safety
    ///
    /// `this` is the stock of `tenant`'s hierarchy. So many bytes have been charged to `tenant`, and no other call gives them back: they keep it and
    /// its hierarchy. Both may be gone afterwards, so neither is passed as a reference.
    #[inline]
    pub(super) unsafe fn give(this: *const Self, tenant: *const Tenant, bytes: u64) {
        // Who reclaims wants to see what it has reclaimed.
        if bytes <= BATCH && !is_reclaiming() {
            // SAFETY: the bytes are still ours, and keep it.
            if let Some(mut shelf) = unsafe { (*this).shelf() } {
                // SAFETY: as above.
                if unsafe { !(*tenant).is_deleted() } {
                    // SAFETY: the caller's promise.
                    let surplus = unsafe { shelf.put(tenant, bytes) };
                    drop(shelf);
                    return surplus.release();
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { counter::uncharge(tenant, bytes) };
    }

    /// Gives back what is in stock: all of it, or `only` a tenant's.
    pub(super) fn drain(&self, only: Option<&Tenant>) {
        for shelf in &self.shelves {
            let mut taken = shelf.take();
            let is_due = |entry: &Entry| only.is_none_or(|tenant| ptr::eq(entry.tenant, tenant));
            let drained = taken.entries().each_mut().map(|entry| {
                let due = if is_due(entry) { mem::replace(entry, EMPTY) } else { EMPTY };
                Surplus::of(due)
            });
            drop(taken);
            drained.into_iter().for_each(Surplus::release);
        }
    }

    /// How many bytes are in stock for `tenant` and what is below it.
    pub(super) fn of_subtree(&self, tenant: &Tenant) -> u64 {
        let shelf = |shelf: &CachePadded<Shelf>| -> u64 {
            let mut taken = shelf.take();
            let entries = taken.entries().iter().filter(|entry| entry.bytes > 0);
            // SAFETY: bytes in stock keep their tenant alive, and stay while the flag is ours.
            entries.filter(|entry| unsafe { &*entry.tenant }.is_within(tenant)).map(|entry| entry.bytes).sum()
        };
        self.shelves.iter().map(shelf).sum()
    }

    /// In the child of a fork: empties shelves that a thread that is no more was at. Its bytes stay charged, or hold their tenant.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one, and not in here: no user code runs at a shelf or under these locks.
    pub(super) unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.all.reinit(());
            self.exact.reinit(());
        }
        for shelf in &self.shelves {
            shelf.waiting.store(0, Ordering::Relaxed);
            if shelf.taken.load(Ordering::Relaxed) {
                // SAFETY: the caller's promise.
                unsafe { *shelf.entries.get() = [EMPTY; ENTRIES] };
                shelf.taken.store(false, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hierarchy;

    /// To be seen by Miri with `-Zmiri-address-reuse-rate=1`: the pointer of an entry of no bytes is one to memory that was freed.
    #[test]
    fn an_entry_of_no_bytes_belongs_to_no_tenant() {
        let hierarchy = Hierarchy::new();
        for _ in 0..8 {
            let tenant = hierarchy.root().create().unwrap();
            let mut charge = tenant.charge(100).unwrap();
            assert_eq!(tenant.usage(), 100, "it looks at what is in stock, and whose that is");
            // What is left of the batch.
            charge.resize(BATCH as usize).unwrap();
            drop(tenant);
            drop(charge);
            stillpoint::barrier();
        }
        assert_eq!(hierarchy.root().usage(), 0);
    }

    /// Else, where threads charge all the time, it would get the flag by luck alone.
    #[test]
    fn who_waits_for_a_shelf_is_next() {
        let hierarchy = Hierarchy::new();
        let shelf = &*hierarchy.root().inner().shared.stocks().shelves[0];
        let taken = shelf.try_take().expect("no other thread has it");
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _taken = shelf.take();
                while !enough.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
            while shelf.waiting.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            drop(taken);
            let overtaken = (0..100).any(|_| shelf.try_take().is_some());
            enough.store(true, Ordering::Relaxed);
            assert!(!overtaken, "others came first");
        });
        assert!(shelf.try_take().is_some(), "there is no waiter any more");
    }

    #[test]
    fn in_the_child_of_a_fork_no_shelf_is_taken_or_waited_for() {
        let hierarchy = Hierarchy::new();
        let stocks = hierarchy.root().inner().shared.stocks();
        mem::forget(stocks.shelves[0].try_take().expect("no other thread has it"));
        stocks.shelves[0].waiting.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no other thread has the hierarchy, and this one is not in there.
        unsafe { stocks.reset_in_child() };
        assert!(stocks.shelves[0].try_take().is_some());
    }

    #[test]
    fn while_shelves_are_set_aside_nothing_goes_into_stock() {
        let hierarchy = Hierarchy::new();
        let tenant = hierarchy.root().create().unwrap();
        let (inner, stocks) = (tenant.inner(), tenant.inner().shared.stocks());
        let (first, second) = (tenant.charge(1_000).unwrap(), tenant.charge(2_000).unwrap());
        assert!(inner.counter().usage() > 3_000, "there is none in stock");
        let third = stocks.set_aside(|| {
            assert_eq!(inner.counter().usage(), 3_000, "what was in stock is given back");
            assert!(!stocks.take(inner, 1));
            drop(first);
            assert_eq!(inner.counter().usage(), 2_000, "it went into stock");
            let third = tenant.charge(500).unwrap();
            assert_eq!(inner.counter().usage(), 2_500, "a batch was charged");
            third
        });
        drop((second, third));
        assert_eq!(tenant.usage(), 0);
    }

    /// The charge that is refused empties the stock first: none of that is in its way.
    #[test]
    fn a_neighbours_stock_refuses_no_charge() {
        let hierarchy = Hierarchy::new();
        hierarchy.root().set_max(BATCH);
        let (one, other) = (hierarchy.root().create().unwrap(), hierarchy.root().create().unwrap());
        let charge = one.charge(1).unwrap();
        assert_eq!(hierarchy.root().inner().counter().usage(), BATCH);
        let all_the_rest = other.charge(BATCH as usize - 1).unwrap();
        assert!(other.charge(1).is_err());
        drop((charge, all_the_rest));
    }
}
