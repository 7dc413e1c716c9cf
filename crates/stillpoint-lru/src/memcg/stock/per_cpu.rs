//! One processor's stock: some tenants' charged bytes behind a flag.

use super::{BATCH, MAX};
use crate::memcg::{Memcg, counter};
use std::{
    cell::UnsafeCell,
    mem, ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Tenants in a per-CPU stock.
pub(crate) const ENTRIES: usize = 4;

/// How often a waiter for a per-CPU stock yields before it sleeps, and for how long it sleeps.
const YIELDS: u32 = 64;
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedCharge {
    /// Alive while `bytes` is not 0.
    pub(crate) tenant: *const Memcg,
    pub(crate) bytes: u64,
}

pub(crate) const EMPTY: CachedCharge = CachedCharge {
    tenant: ptr::null(),
    bytes: 0,
};

#[derive(Debug)]
pub(crate) struct PerCpuStock {
    pub(crate) taken: AtomicBool,
    /// How many threads wait for the flag: meanwhile charges, which can do without, do not take it.
    pub(crate) waiting: AtomicUsize,
    /// While the flag is taken: the taker's.
    pub(crate) entries: UnsafeCell<[CachedCharge; ENTRIES]>,
}

// SAFETY: the entries are used under the flag; tenants are Send and Sync.
unsafe impl Send for PerCpuStock {}
// SAFETY: as for Send.
unsafe impl Sync for PerCpuStock {}

/// The flag, taken. No reference: when the flag is free, what lies on the per-CPU stock may be
/// taken off, and with the last of it the per-CPU stock may go. Until then it stays: a caller that
/// takes the flag has something that keeps it.
pub(crate) struct StockGuard(pub(crate) *const PerCpuStock);

impl PerCpuStock {
    /// Tries once, for a caller that can do without: waiters come first.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<StockGuard> {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            None
        } else {
            self.try_take_now()
        }
    }

    #[inline]
    pub(crate) fn try_take_now(&self) -> Option<StockGuard> {
        // Acquire, pairs with `drop`: the entries are as the last taker left them.
        (!self.taken.swap(true, Ordering::Acquire)).then(|| StockGuard(self))
    }

    /// For a caller that cannot.
    pub(crate) fn take(&self) -> StockGuard {
        self.try_take_now().unwrap_or_else(|| self.wait())
    }

    /// Waits for the holder of the flag, and not for the charges that come after. It is held for
    /// some tens of instructions, or until the lock of `levels.rs` is to be had, unless its thread
    /// has lost its processor. That may be one that has to make way for this one: where priorities
    /// are strict (SCHED_FIFO), it runs when this one sleeps and not when it yields.
    #[cold]
    pub(crate) fn wait(&self) -> StockGuard {
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

impl StockGuard {
    #[inline]
    pub(crate) fn entries(&mut self) -> &mut [CachedCharge; ENTRIES] {
        // SAFETY: the flag is ours.
        unsafe { &mut *(*self.0).entries.get() }
    }

    #[inline]
    pub(crate) fn of(&mut self, tenant: *const Memcg) -> Option<&mut CachedCharge> {
        self.entries()
            .iter_mut()
            .find(|entry| ptr::eq(entry.tenant, tenant))
    }

    /// Adds to what is in stock for `tenant`. Returns what is too much.
    ///
    /// # Safety
    ///
    /// See [`Stocks::give`](super::Stocks::give).
    #[inline]
    pub(crate) unsafe fn put(&mut self, tenant: *const Memcg, bytes: u64) -> Surplus {
        if let Some(entry) = self.of(tenant) {
            // An entry without bytes may be of a freed tenant whose memory this one now has; so the
            // pointer is replaced.
            *entry = CachedCharge {
                tenant,
                bytes: entry.bytes + bytes,
            };
            if entry.bytes <= MAX {
                return Surplus(EMPTY);
            }
            let surplus = entry.bytes - BATCH;
            entry.bytes = BATCH;
            return Surplus::of(CachedCharge {
                tenant,
                bytes: surplus,
            });
        }
        // The first entry is the newest; the last one makes room.
        let entries = self.entries();
        entries.rotate_right(1);
        Surplus::of(mem::replace(
            &mut entries[0],
            CachedCharge { tenant, bytes },
        ))
    }
}

impl Drop for StockGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the per-CPU stock stays until the flag is free. Release, pairs with `try_take`:
        // what we did with the entries happens before the next taker's.
        unsafe { (*self.0).taken.store(false, Ordering::Release) };
    }
}

/// What did not fit in a per-CPU stock. It is not to be used any more: a thread that has emptied
/// all per-CPU stocks must not meet it. Its tenant, which may go with it, is let go of with nothing
/// held.
#[must_use]
pub(crate) struct Surplus(pub(crate) CachedCharge);

impl Surplus {
    /// Under the flag, and off the per-CPU stock.
    #[inline]
    pub(crate) fn of(entry: CachedCharge) -> Self {
        if entry.bytes > 0 {
            // SAFETY: charged, taken off the per-CPU stock by us alone, and so is its tenant alive.
            unsafe { counter::subtract(entry.tenant, entry.bytes) };
        }
        Self(entry)
    }

    #[inline]
    pub(crate) fn release(self) {
        if self.0.bytes > 0 {
            // SAFETY: as in `of`, which has done the first half.
            unsafe { counter::release(self.0.tenant, self.0.bytes) };
        }
    }
}
