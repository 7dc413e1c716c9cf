//! Charges in stock: bytes that have been charged to a tenant already, kept on each processor for
//! its next charges.
//!
//! Without it every charge would write a counter of every ancestor, which all processors share. A
//! processor's stock has room for a few tenants, behind a flag: a thread may be moved to another
//! processor at any instruction, so the stock that it uses is merely likely to be its processor's. A
//! charge that fits never waits for the flag: if the flag is taken, or waited for, the charge does
//! without the stock.
//!
//! Bytes in stock count as charged to their tenant (`counter.rs`), so they keep it in memory. The
//! pointer of an entry without bytes may dangle; it is only compared.
//!
//! A tenant that goes is marked as deleted first, and then its bytes are taken off all per-CPU
//! stocks. A charge that puts bytes in a per-CPU stock looks at the mark under the flag: either it
//! comes before the per-CPU stock is cleared, or it sees the mark.
//!
//! # Refusals and limits
//!
//! What is in stock is charged and not in use: no charge is refused for it. One that would be
//! refused takes all per-CPU stocks first and gives back what is there, and is refused only if the
//! bytes do not fit then. Bytes are on their way between counters and a per-CPU stock only under
//! its flag, so there are none then. A limit is changed in the same way, because charges are made
//! at a per-CPU stock, too.

use super::{
    counter::{self, Account},
    resched::is_reclaiming,
};
use crate::levels::Refused;
use crossbeam_utils::CachePadded;
use std::{
    mem::{self, ManuallyDrop},
    ptr,
    sync::Arc,
    time::Duration,
};
use stillpoint_platform::{
    cpu,
    fork_mutex::ForkMutex,
    memory,
    sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell},
};

/// Bytes that are charged at a time, where a limit allows.
const BATCH: u64 = 16 << 10;

/// Bytes that a tenant may have in stock on a processor.
const MAX: u64 = 2 * BATCH;

/// Tenants in a per-CPU stock.
const ENTRIES: usize = 4;

/// Number of times that a waiter for a per-CPU stock yields before it sleeps, and how long it sleeps.
const YIELDS: u32 = 64;
const PAUSE: Duration = Duration::from_micros(50);

/// Bytes of an account `T` that are in stock, or were.
#[derive(Debug)]
struct CachedCharge<T> {
    /// Alive while `bytes` is not 0.
    account: *const T,
    bytes: u64,
}

impl<T> CachedCharge<T> {
    const EMPTY: Self = Self {
        account: ptr::null(),
        bytes: 0,
    };
}

#[derive(Debug)]
struct PerCpuStock<T> {
    taken: AtomicBool,
    /// Number of threads that wait for the flag: meanwhile charges, which can do without, do not
    /// take it.
    waiting: AtomicUsize,
    /// Belong to the thread that has taken the flag.
    entries: UnsafeCell<[CachedCharge<T>; ENTRIES]>,
}

// SAFETY: the entries are used under the flag; accounts are Send and Sync.
unsafe impl<T: Send + Sync> Send for PerCpuStock<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send + Sync> Sync for PerCpuStock<T> {}

impl<T> PerCpuStock<T> {
    fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            entries: UnsafeCell::new([CachedCharge::EMPTY; ENTRIES]),
        }
    }

    /// Tries once, for a caller that can do without: waiters come first.
    #[inline]
    fn try_take(&self) -> Option<StockGuard<T>> {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            None
        } else {
            self.try_take_now()
        }
    }

    #[inline]
    fn try_take_now(&self) -> Option<StockGuard<T>> {
        // Acquire, pairs with `drop`: the entries are as the last taker left them. Not a swap: loom
        // cannot order the writes of failed ones.
        let taken = self
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| StockGuard(self))
    }

    /// Takes the flag, for a caller that cannot do without.
    fn take(&self) -> StockGuard<T> {
        self.try_take_now().unwrap_or_else(|| self.wait())
    }

    /// Waits for the holder of the flag, and not for the charges that come after. It is held for
    /// some tens of instructions, or until the lock of `levels.rs` is free, unless its thread has
    /// lost its processor. The waiter may have to make way for that thread: where priorities are
    /// strict (SCHED_FIFO), the other one runs if this one sleeps, and not if it yields.
    #[cold]
    fn wait(&self) -> StockGuard<T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut tries = 0;
        let taken = loop {
            if let Some(taken) = self.try_take_now() {
                break taken;
            }
            make_way(tries);
            tries = tries.saturating_add(1);
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }
}

/// Gives the processor away: after `tries` failed attempts, for a while.
#[cfg(not(stillpoint_loom))]
fn make_way(tries: u32) {
    if tries < YIELDS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(stillpoint_loom)]
fn make_way(_: u32) {
    stillpoint_platform::model::thread::yield_now();
}

/// The flag, taken. A pointer and not a reference: once the flag is free, another thread may take out the
/// entries, and these may be all that keeps the stocks in memory. While the flag is taken, the caller has
/// something that keeps them.
struct StockGuard<T>(*const PerCpuStock<T>);

impl<T> StockGuard<T> {
    #[inline]
    fn entries(&mut self) -> &mut [CachedCharge<T>; ENTRIES] {
        // SAFETY: the flag is ours.
        unsafe { (*self.0).entries.with_mut(|entries| &mut *entries) }
    }

    #[inline]
    fn of(&mut self, account: *const T) -> Option<&mut CachedCharge<T>> {
        let mut entries = self.entries().iter_mut();
        entries.find(|entry| ptr::eq(entry.account, account))
    }
}

impl<T: Account> StockGuard<T> {
    /// Adds to what is in stock for `account`. Returns what is too much.
    ///
    /// # Safety
    ///
    /// See [`Stocks::give`].
    #[inline]
    unsafe fn put(&mut self, account: *const T, bytes: u64) -> Surplus<T> {
        if let Some(entry) = self.of(account) {
            // The pointer is replaced, too: an entry without bytes may be of a freed tenant whose
            // memory this one now has.
            *entry = CachedCharge {
                account,
                bytes: entry.bytes + bytes,
            };
            if entry.bytes <= MAX {
                return Surplus(CachedCharge::EMPTY);
            }
            let bytes = entry.bytes - BATCH;
            entry.bytes = BATCH;
            return Surplus::of(CachedCharge { account, bytes });
        }
        // The first entry is the newest; the last one makes room.
        let entries = self.entries();
        entries.rotate_right(1);
        Surplus::of(mem::replace(
            &mut entries[0],
            CachedCharge { account, bytes },
        ))
    }
}

impl<T> Drop for StockGuard<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the per-CPU stock stays until the flag is free. Release, pairs with
        // `try_take_now`: what we did with the entries happens before the next taker's.
        unsafe { (*self.0).taken.store(false, Ordering::Release) };
    }
}

/// Bytes that did not fit in a per-CPU stock. They are no longer counted as usage: a thread that has
/// emptied all per-CPU stocks must not meet them. They still keep their tenant alive.
/// [Releasing](Surplus::release) them may free the tenant, and the stocks with it. So the flag of their
/// stock must be free by then. (`with_stocks_empty` holds flags meanwhile; its caller keeps those stocks.)
#[must_use]
struct Surplus<T>(CachedCharge<T>);

impl<T: Account> Surplus<T> {
    /// Subtracts an entry that was taken off a per-CPU stock whose flag is held.
    #[inline]
    fn of(entry: CachedCharge<T>) -> Self {
        if entry.bytes > 0 {
            // SAFETY: charged, and taken off the per-CPU stock by us alone, so the tenant is alive.
            unsafe { counter::subtract(entry.account, entry.bytes) };
        }
        Self(entry)
    }

    #[inline]
    fn release(self) {
        if self.0.bytes > 0 {
            // SAFETY: as in `of`, which has done the first half.
            unsafe { counter::release(self.0.account, self.0.bytes) };
        }
    }
}

/// The per-CPU stocks of a hierarchy, whose tenants are `T`s.
#[derive(Debug)]
pub(crate) struct Stocks<T> {
    per_cpu: Box<[CachePadded<PerCpuStock<T>>]>,
    /// Taken before the first per-CPU stock by a thread that takes all of them.
    all: ForkMutex<()>,
    /// The lock of `levels.rs`. Taken after per-CPU stocks.
    exact: ForkMutex<()>,
}

impl<T: Account> Stocks<T> {
    /// Returns the address by which a hierarchy is told from others as long as a tenant of it lives.
    pub(crate) fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Returns `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            per_cpu: memory::try_several(cpu::count(), || CachePadded::new(PerCpuStock::new()))?,
            all: ForkMutex::new(()),
            exact: ForkMutex::new(()),
        })
    }

    #[inline]
    fn this_cpu(&self) -> Option<StockGuard<T>> {
        self.per_cpu[cpu::current() % self.per_cpu.len()].try_take()
    }

    /// Takes `bytes` from stock. Returns false if there are not that many for `account`.
    #[inline]
    pub(crate) fn take(&self, account: &T, bytes: u64) -> bool {
        if bytes > MAX {
            return false;
        }
        let Some(mut stock) = self.this_cpu() else {
            return false;
        };
        match stock.of(account) {
            Some(entry) if entry.bytes >= bytes => {
                entry.bytes -= bytes;
                true
            }
            _ => false,
        }
    }

    /// Charges the counters, with a batch for the stock where limits allow. Returns whether a
    /// tenant is past its high limit now.
    ///
    /// # Errors
    ///
    /// The tenant whose limit is in the way. Perhaps because of what is in stock: then
    /// [`Stocks::charge_exact`] does it.
    pub(crate) fn charge<'a>(
        &self,
        account: &'a Arc<T>,
        bytes: u64,
    ) -> Result<bool, Refused<'a, T>> {
        let Some(mut stock) = self.this_cpu() else {
            return counter::charge(&**account, bytes, false, &self.exact);
        };
        // With the stock taken: a thread that has emptied it must not find, in the counters, what
        // is about to be put there.
        if bytes < BATCH
            && !account.is_deleted()
            && let Ok(is_high) = counter::charge(&**account, BATCH, true, &self.exact)
        {
            // SAFETY: charged just now; the caller's reference keeps the tenant, and so this.
            let surplus = unsafe { stock.put(Arc::as_ptr(account), BATCH - bytes) };
            drop(stock);
            surplus.release();
            return Ok(is_high);
        }
        counter::charge(&**account, bytes, true, &self.exact)
    }

    /// Charges the counters, with nothing in stock. Returns whether a tenant is past its high limit
    /// now.
    ///
    /// # Errors
    ///
    /// The tenant whose limit is in the way, with its usage at that instant, stock not included.
    pub(crate) fn charge_exact<'a>(
        &self,
        account: &'a T,
        bytes: u64,
    ) -> Result<bool, Refused<'a, T>> {
        self.with_stocks_empty(|| counter::charge(account, bytes, true, &self.exact))
    }

    /// Changes a limit, while no charge is under way.
    pub(crate) fn set_max(&self, account: &T, bytes: u64) {
        self.with_stocks_empty(|| {
            let _exact = self.exact.lock();
            account.level().set_max(bytes);
        });
    }

    /// Gives back what is in stock, and keeps all per-CPU stocks empty and taken while `work` runs:
    /// other threads charge without them, under `exact`. The caller keeps the stocks. `work` does not
    /// unwind: the flags would stay taken, and other threads would wait for them forever.
    fn with_stocks_empty<R>(&self, work: impl FnOnce() -> R) -> R {
        let _all = self.all.lock();
        for stock in &self.per_cpu {
            let mut taken = ManuallyDrop::new(stock.take());
            for entry in taken.entries().iter().filter(|entry| entry.bytes > 0) {
                // SAFETY: charged, and under the flag ours alone. The second half follows below.
                unsafe { counter::subtract(entry.account, entry.bytes) };
            }
        }
        let result = work();
        for stock in &self.per_cpu {
            // The flag is ours: taken above, by the guard that was not dropped.
            let mut taken = StockGuard(&raw const **stock);
            let drained = mem::replace(taken.entries(), [CachedCharge::EMPTY; ENTRIES]);
            drop(taken);
            drained
                .into_iter()
                .for_each(|entry| Surplus(entry).release());
        }
        result
    }

    /// Puts bytes that are charged to `account` into stock. Gives back what is too much.
    ///
    /// # Safety
    ///
    /// `this` are the stocks of `account`'s hierarchy. `account` came from [`Arc::as_ptr`]. `bytes`
    /// have been charged to it, and no other call gives them back: they keep it and its hierarchy.
    /// Both may be gone afterwards, so neither is passed as a reference.
    #[inline]
    pub(crate) unsafe fn give(this: *const Self, account: *const T, bytes: u64) {
        // A thread that reclaims looks at the usage for what it has reclaimed.
        if bytes <= BATCH && !is_reclaiming() {
            // SAFETY: the bytes are still ours, and keep it.
            if let Some(mut stock) = unsafe { (*this).this_cpu() } {
                // SAFETY: as above.
                if unsafe { !(*account).is_deleted() } {
                    // SAFETY: the caller's promise.
                    let surplus = unsafe { stock.put(account, bytes) };
                    drop(stock);
                    return surplus.release();
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { counter::uncharge(account, bytes) };
    }

    /// Gives back what is in stock: all of it, or `only` one tenant's.
    pub(crate) fn drain(&self, only: Option<&T>) {
        for stock in &self.per_cpu {
            let mut taken = stock.take();
            let drained = taken.entries().each_mut().map(|entry| {
                let is_due = only.is_none_or(|account| ptr::eq(entry.account, account));
                Surplus::of(if is_due {
                    mem::replace(entry, CachedCharge::EMPTY)
                } else {
                    CachedCharge::EMPTY
                })
            });
            drop(taken);
            drained.into_iter().for_each(Surplus::release);
        }
    }

    /// Returns the bytes in stock for `account` and its descendants.
    pub(crate) fn of_subtree(&self, account: &T) -> u64 {
        let stock = |stock: &CachePadded<PerCpuStock<T>>| -> u64 {
            let mut taken = stock.take();
            let entries = taken.entries().iter().filter(|entry| entry.bytes > 0);
            // SAFETY: bytes in stock keep their tenant alive, and stay while the flag is ours.
            entries
                .filter(|entry| unsafe { &*entry.account }.is_within(account))
                .map(|entry| entry.bytes)
                .sum()
        };
        self.per_cpu.iter().map(stock).sum()
    }

    /// In the child of a fork: empties per-CPU stocks that a lost thread was using. Their bytes
    /// stay charged, or keep their tenant alive.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one, and does not hold these: no user code runs at a per-CPU
    /// stock or under these locks.
    pub(crate) unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.all.reset_in_child();
            self.exact.reset_in_child();
        }
        for stock in &self.per_cpu {
            stock.waiting.store(0, Ordering::Relaxed);
            if stock.taken.load(Ordering::Relaxed) {
                // The flag is ours: its thread is gone.
                *StockGuard(&raw const **stock).entries() = [CachedCharge::EMPTY; ENTRIES];
            }
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::Hierarchy;
    use std::thread;

    /// Miri with `-Zmiri-address-reuse-rate=1` sees the fault: the pointer of an entry without bytes
    /// leads to freed memory.
    #[test]
    fn empty_stock_entry_has_no_tenant() {
        let hierarchy = Hierarchy::new();
        for _ in 0..8 {
            let tenant = hierarchy.root().create().unwrap();
            let mut charge = tenant.charge(100).unwrap();
            assert_eq!(tenant.usage(), 100, "usage looks at the entries in stock");
            // The rest of the batch.
            charge.resize(BATCH as usize).unwrap();
            drop(tenant);
            drop(charge);
            stillpoint::barrier();
        }
        assert_eq!(hierarchy.root().usage(), 0);
    }

    /// Otherwise, while threads charge all the time, it would get the flag only by luck.
    #[test]
    fn waiter_for_a_stock_comes_first() {
        let hierarchy = Hierarchy::new();
        let stock = &*hierarchy.root().memcg().stocks.per_cpu[0];
        let taken = stock.try_take().expect("no other thread has it");
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _taken = stock.take();
                while !enough.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
            while stock.waiting.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            drop(taken);
            let overtaken = (0..100).any(|_| stock.try_take().is_some());
            enough.store(true, Ordering::Relaxed);
            assert!(!overtaken, "others came first");
        });
        assert!(stock.try_take().is_some(), "there is no waiter any more");
    }

    #[test]
    fn charges_bypass_emptied_stocks() {
        let hierarchy = Hierarchy::new();
        let tenant = hierarchy.root().create().unwrap();
        let (memcg, stocks) = (tenant.memcg(), &tenant.memcg().stocks);
        let (first, second) = (tenant.charge(1_000).unwrap(), tenant.charge(2_000).unwrap());
        assert!(memcg.counter().usage() > 3_000, "there is none in stock");
        let third = stocks.with_stocks_empty(|| {
            assert_eq!(
                memcg.counter().usage(),
                3_000,
                "what was in stock is given back"
            );
            assert!(!stocks.take(memcg, 1));
            drop(first);
            assert_eq!(memcg.counter().usage(), 2_000, "it went into stock");
            let third = tenant.charge(500).unwrap();
            assert_eq!(memcg.counter().usage(), 2_500, "a batch was charged");
            third
        });
        drop((second, third));
        assert_eq!(tenant.usage(), 0);
    }

    /// A charge that would be refused empties the stock first, so the stock never causes a refusal.
    #[test]
    fn sibling_stock_refuses_no_charge() {
        let hierarchy = Hierarchy::new();
        hierarchy.root().set_max(BATCH);
        let (one, other) = (
            hierarchy.root().create().unwrap(),
            hierarchy.root().create().unwrap(),
        );
        let charge = one.charge(1).unwrap();
        assert_eq!(hierarchy.root().memcg().counter().usage(), BATCH);
        let all_the_rest = other.charge(BATCH as usize - 1).unwrap();
        assert!(other.charge(1).is_err());
        drop((charge, all_the_rest));
    }

    #[test]
    fn child_of_fork_has_free_stocks() {
        let hierarchy = Hierarchy::new();
        let stocks = &hierarchy.root().memcg().stocks;
        let stock = &stocks.per_cpu[0];
        mem::forget(stock.try_take().expect("no other thread has it"));
        stock.waiting.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no other thread has the hierarchy, and this one is not in there.
        unsafe { stocks.reset_in_child() };
        assert!(stock.try_take().is_some());
    }
}
