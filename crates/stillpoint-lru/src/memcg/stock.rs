//! Charges in stock: bytes that have been charged to a tenant already, kept on each processor for
//! its next charges.
//!
//! Without it every charge would write a counter of every ancestor, which all processors share. A
//! processor's stock has room for a few tenants, behind a flag: a thread may be moved to another
//! processor at any instruction, so the per-CPU stock is merely likely to be its own. A charge that
//! fits never waits for the flag: where it is taken, or waited for, the charge does without the
//! stock.
//!
//! Bytes in stock count as charged to their tenant (`counter.rs`), so they hold it in memory; a
//! tenant that has none there is not looked at, only compared with.
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

pub(super) mod per_cpu;

use super::{Memcg, counter, resched::is_reclaiming};
use crate::levels::{HasLevel, Refused};
use crossbeam_utils::CachePadded;
use per_cpu::{CachedCharge, EMPTY, ENTRIES, PerCpuStock, StockGuard, Surplus};
use std::{
    cell::UnsafeCell,
    mem::{self, ManuallyDrop},
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize},
};
use stillpoint_platform::{cpu, fork_mutex::ForkMutex, memory};

/// What is charged at a time, in bytes, where a limit allows.
pub(crate) const BATCH: u64 = 16 << 10;

/// What a tenant may have in stock on a processor.
const MAX: u64 = 2 * BATCH;

/// The per-CPU stocks of a hierarchy.
#[derive(Debug)]
pub(crate) struct Stocks {
    pub(super) per_cpu: Box<[CachePadded<PerCpuStock>]>,
    /// Taken by a thread that takes all per-CPU stocks, before the first.
    pub(super) all: ForkMutex<()>,
    /// For charges that per-CPU stocks do not do for: see `levels.rs`. Taken after per-CPU stocks.
    pub(super) exact: ForkMutex<()>,
}

impl Stocks {
    /// `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        let stock = || {
            CachePadded::new(PerCpuStock {
                taken: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                entries: UnsafeCell::new([EMPTY; ENTRIES]),
            })
        };
        let per_cpu = memory::try_several(cpu::count(), stock)?;
        Some(Self {
            per_cpu,
            all: ForkMutex::new(()),
            exact: ForkMutex::new(()),
        })
    }

    #[inline]
    fn this_cpu(&self) -> Option<StockGuard> {
        self.per_cpu[cpu::current() % self.per_cpu.len()].try_take()
    }

    /// Takes `bytes` from stock, if there are so many for `tenant`.
    #[inline]
    pub(crate) fn take(&self, tenant: &Memcg, bytes: u64) -> bool {
        if bytes > MAX {
            return false;
        }
        let Some(mut stock) = self.this_cpu() else {
            return false;
        };
        match stock.of(tenant) {
            Some(entry) if entry.bytes >= bytes => {
                entry.bytes -= bytes;
                true
            }
            _ => false,
        }
    }

    /// Charges the counters, with a batch for the stock where limits allow. Whether a tenant is
    /// past its high limit now.
    ///
    /// # Errors
    ///
    /// The tenant whose limit is in the way. Perhaps because of what is in stock: then
    /// [`Stocks::charge_exact`] does it.
    pub(crate) fn charge<'a>(
        &self,
        tenant: &'a Memcg,
        bytes: u64,
    ) -> Result<bool, Refused<'a, Memcg>> {
        let Some(mut stock) = self.this_cpu() else {
            return counter::charge(tenant, bytes, false, &self.exact);
        };
        // With the stock taken: a thread that has emptied it must not find, in the counters, what
        // is about to be put there.
        if bytes < BATCH
            && !tenant.is_deleted()
            && let Ok(is_high) = counter::charge(tenant, BATCH, true, &self.exact)
        {
            // SAFETY: charged just now; the caller's handle keeps the tenant, and so this.
            let surplus = unsafe { stock.put(tenant, BATCH - bytes) };
            drop(stock);
            surplus.release();
            return Ok(is_high);
        }
        counter::charge(tenant, bytes, true, &self.exact)
    }

    /// Charges the counters, with nothing in stock. Whether a tenant is past its high limit now.
    ///
    /// # Errors
    ///
    /// The tenant whose limit is in the way, with what it used, stock not included, at that
    /// instant.
    pub(crate) fn charge_exact<'a>(
        &self,
        tenant: &'a Memcg,
        bytes: u64,
    ) -> Result<bool, Refused<'a, Memcg>> {
        self.with_stocks_empty(|| counter::charge(tenant, bytes, true, &self.exact))
    }

    /// Changes a limit, while no charge is under way.
    pub(crate) fn set_max(&self, tenant: &Memcg, bytes: u64) {
        self.with_stocks_empty(|| {
            let _exact = self.exact.lock();
            tenant.level().set_max(bytes);
        });
    }

    /// Gives back what is in stock, and keeps all per-CPU stocks empty and taken while `work` runs:
    /// others charge without, under `exact`.
    fn with_stocks_empty<R>(&self, work: impl FnOnce() -> R) -> R {
        let _all = self.all.lock();
        for stock in &self.per_cpu {
            let mut taken = ManuallyDrop::new(stock.take());
            for entry in taken.entries().iter().filter(|entry| entry.bytes > 0) {
                // SAFETY: charged, and under the flag ours alone. The second half follows below.
                unsafe { counter::subtract(entry.tenant, entry.bytes) };
            }
        }
        let result = work();
        for stock in &self.per_cpu {
            let mut taken = StockGuard(&raw const **stock);
            let drained = mem::replace(taken.entries(), [EMPTY; ENTRIES]);
            drop(taken);
            drained
                .into_iter()
                .for_each(|entry| Surplus(entry).release());
        }
        result
    }

    /// Puts bytes that are charged to `tenant` into stock. What is too much is given back.
    ///
    /// # Safety
    ///
    /// `this` is the stock of `tenant`'s hierarchy. So many bytes have been charged to `tenant`,
    /// and no other call gives them back: they keep it and its hierarchy. Both may be gone
    /// afterwards, so neither is passed as a reference.
    #[inline]
    pub(crate) unsafe fn give(this: *const Self, tenant: *const Memcg, bytes: u64) {
        // A thread that reclaims looks at the usage for what it has reclaimed.
        if bytes <= BATCH && !is_reclaiming() {
            // SAFETY: the bytes are still ours, and keep it.
            if let Some(mut stock) = unsafe { (*this).this_cpu() } {
                // SAFETY: as above.
                if unsafe { !(*tenant).is_deleted() } {
                    // SAFETY: the caller's promise.
                    let surplus = unsafe { stock.put(tenant, bytes) };
                    drop(stock);
                    return surplus.release();
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { counter::uncharge(tenant, bytes) };
    }

    /// Gives back what is in stock: all of it, or `only` a tenant's.
    pub(crate) fn drain(&self, only: Option<&Memcg>) {
        for stock in &self.per_cpu {
            let mut taken = stock.take();
            let is_due =
                |entry: &CachedCharge| only.is_none_or(|tenant| ptr::eq(entry.tenant, tenant));
            let drained = taken.entries().each_mut().map(|entry| {
                let due = if is_due(entry) {
                    mem::replace(entry, EMPTY)
                } else {
                    EMPTY
                };
                Surplus::of(due)
            });
            drop(taken);
            drained.into_iter().for_each(Surplus::release);
        }
    }

    /// How many bytes are in stock for `tenant` and what is below it.
    pub(crate) fn of_subtree(&self, tenant: &Memcg) -> u64 {
        let stock = |stock: &CachePadded<PerCpuStock>| -> u64 {
            let mut taken = stock.take();
            let entries = taken.entries().iter().filter(|entry| entry.bytes > 0);
            // SAFETY: bytes in stock keep their tenant alive, and stay while the flag is ours.
            entries
                .filter(|entry| unsafe { &*entry.tenant }.is_within(tenant))
                .map(|entry| entry.bytes)
                .sum()
        };
        self.per_cpu.iter().map(stock).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hierarchy;
    use std::{sync::atomic::Ordering, thread};

    /// To be seen by Miri with `-Zmiri-address-reuse-rate=1`: the pointer of an entry of no bytes
    /// is one to memory that was freed.
    #[test]
    fn empty_stock_entry_has_no_tenant() {
        let hierarchy = Hierarchy::new();
        for _ in 0..8 {
            let tenant = hierarchy.root().create().unwrap();
            let mut charge = tenant.charge(100).unwrap();
            assert_eq!(
                tenant.usage(),
                100,
                "it looks at what is in stock, and whose that is"
            );
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
    fn waiter_for_a_stock_comes_first() {
        let hierarchy = Hierarchy::new();
        let stock = &*hierarchy.root().memcg().tree.stocks().per_cpu[0];
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
        let (memcg, stocks) = (tenant.memcg(), tenant.memcg().tree.stocks());
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
}
