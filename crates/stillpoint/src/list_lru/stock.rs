//! Charges in stock: bytes that have been charged to a tenant already, kept on each processor for its next charges.
//!
//! Without it every charge would write a counter of every ancestor, which all processors share. A processor's shelf has room for a few
//! tenants, behind a flag: a thread may be moved to another processor at any instruction, so the shelf is merely likely to be its
//! own. Nobody waits for the flag on the way to a charge; who finds it taken does without the stock.
//!
//! Bytes in stock count as charged to their tenant (`counter.rs`), so they hold it in memory; a tenant that has none there is not
//! looked at, only compared with.
//!
//! A tenant that goes is marked as deleted first, and then its bytes are taken off all shelves. Who puts bytes on a shelf looks at the
//! mark under the flag: either it comes before the one who clears the shelf, or it sees the mark.

use super::{counter, reclaim::is_reclaiming, tenant::Inner as Tenant};
use crate::platform::{cpu, memory};
use crossbeam_utils::CachePadded;
use std::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// What is charged at a time, in bytes, where a limit allows.
pub(super) const BATCH: u64 = 16 << 10;

/// What a tenant may have in stock on a processor.
const MOST: u64 = 2 * BATCH;

/// Tenants on a shelf.
const ENTRIES: usize = 4;

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
    /// While the flag is taken: the taker's.
    entries: UnsafeCell<[Entry; ENTRIES]>,
}

// SAFETY: the entries are used under the flag; tenants are Send and Sync.
unsafe impl Send for Shelf {}
// SAFETY: as for Send.
unsafe impl Sync for Shelf {}

/// The flag, taken.
struct Taken<'a>(&'a Shelf);

impl Shelf {
    #[inline]
    fn try_take(&self) -> Option<Taken<'_>> {
        (!self.taken.swap(true, Ordering::Acquire)).then(|| Taken(self))
    }

    fn take(&self) -> Taken<'_> {
        loop {
            match self.try_take() {
                Some(taken) => return taken,
                // Held for some ten instructions, unless its thread has lost its processor.
                None => thread::yield_now(),
            }
        }
    }
}

impl Taken<'_> {
    #[inline]
    fn entries(&mut self) -> &mut [Entry; ENTRIES] {
        // SAFETY: the flag is ours.
        unsafe { &mut *self.0.entries.get() }
    }

    #[inline]
    fn of(&mut self, tenant: &Tenant) -> Option<&mut Entry> {
        self.entries().iter_mut().find(|entry| ptr::eq(entry.tenant, tenant))
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

/// What did not fit on a shelf: the caller gives it back, with nothing held.
#[must_use]
pub(super) struct Surplus(Entry);

impl Surplus {
    pub(super) fn uncharge(self) {
        if self.0.bytes > 0 {
            // SAFETY: charged, taken off the shelf by us alone, and so is its tenant alive.
            unsafe { counter::uncharge(self.0.tenant, self.0.bytes) };
        }
    }
}

/// The shelves of a hierarchy.
#[derive(Debug)]
pub(super) struct Stocks(Box<[CachePadded<Shelf>]>);

impl Stocks {
    /// `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        let shelf = || CachePadded::new(Shelf { taken: AtomicBool::new(false), entries: UnsafeCell::new([EMPTY; ENTRIES]) });
        memory::try_several(cpu::count(), shelf).map(Self)
    }

    #[inline]
    fn shelf(&self) -> Option<Taken<'_>> {
        self.0[cpu::current() % self.0.len()].try_take()
    }

    /// Takes `bytes` from stock, if there are so many for `tenant`.
    #[inline]
    pub(super) fn take(&self, tenant: &Tenant, bytes: u64) -> bool {
        let Some(mut shelf) = self.shelf() else { return false };
        match shelf.of(tenant) {
            Some(entry) if entry.bytes >= bytes => {
                entry.bytes -= bytes;
                true
            }
            _ => false,
        }
    }

    /// Puts bytes that are charged to `tenant` into stock. What is too much is given back.
    #[inline]
    pub(super) fn give(&self, tenant: &Tenant, bytes: u64) -> Surplus {
        let all = Surplus(Entry { tenant, bytes });
        // Who reclaims wants to see what it has reclaimed.
        if bytes > BATCH || is_reclaiming() {
            return all;
        }
        let Some(mut shelf) = self.shelf() else { return all };
        if tenant.is_deleted() {
            return all;
        }
        if let Some(entry) = shelf.of(tenant) {
            entry.bytes += bytes;
            let surplus = if entry.bytes > MOST { entry.bytes - BATCH } else { 0 };
            entry.bytes -= surplus;
            return Surplus(Entry { tenant, bytes: surplus });
        }
        // The first entry is the newest; the last one makes room.
        let entries = shelf.entries();
        entries.rotate_right(1);
        Surplus(std::mem::replace(&mut entries[0], Entry { tenant, bytes }))
    }

    /// Gives back what is in stock: all of it, or `only` a tenant's.
    pub(super) fn drain(&self, only: Option<&Tenant>) {
        for shelf in &self.0 {
            let mut taken = shelf.take();
            let drained = taken.entries().map(|entry| match only {
                Some(tenant) if !ptr::eq(entry.tenant, tenant) => EMPTY,
                _ => entry,
            });
            for (entry, drained) in taken.entries().iter_mut().zip(&drained) {
                if drained.bytes > 0 {
                    *entry = EMPTY;
                }
            }
            drop(taken);
            drained.into_iter().for_each(|entry| Surplus(entry).uncharge());
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
        self.0.iter().map(shelf).sum()
    }

    /// In the child of a fork: empties shelves that a thread that is no more was at. Its bytes stay charged.
    pub(super) fn in_child(&self) {
        for shelf in &self.0 {
            if shelf.taken.load(Ordering::Relaxed) {
                // SAFETY: the only thread, which is not at a shelf: no foreign code runs there.
                unsafe { *shelf.entries.get() = [EMPTY; ENTRIES] };
                shelf.taken.store(false, Ordering::Relaxed);
            }
        }
    }
}
