//! What a tenant's subtree uses, and what holds the tenant in memory while it does.
//!
//! Two counts a tenant. `usage` is hierarchical: a charge is added to every ancestor's. `own` says what keeps the tenant itself: the
//! bytes charged to it directly, those in stock included, and its handles, which count as one. When it gets to 0 nothing refers to
//! the tenant by a charge any more, and the reference that stands for all of them is given back. So a charge is a plain
//! pointer and a length, and costs no reference count of its own.

use super::tenant::Inner as Tenant;
use crossbeam_utils::CachePadded;
use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};

/// A charge of more is refused.
pub(super) const MOST_BYTES: u64 = 1 << 48;

/// No subtree uses more, whatever its max says: twice this fits `own`, and above it in `usage` do all the charges that are about to fail.
const MOST_USAGE: u64 = 1 << 62;

/// In `own`: the handles. Bytes are counted twice over.
const HANDLES: u64 = 1;

/// See the head of this file. Written at every charge that the stock cannot meet, so in a cache line of its own.
#[derive(Debug)]
pub(super) struct Counter(CachePadded<Counts>);

#[derive(Debug)]
struct Counts {
    usage: AtomicU64,
    peak: AtomicU64,
    own: AtomicU64,
    /// The reference that stands for what `own` counts, as `Arc::into_raw` gave it.
    whole: AtomicPtr<Tenant>,
}

impl Counter {
    /// Nothing charged; there is a handle.
    pub(super) fn new() -> Self {
        Self(CachePadded::new(Counts {
            usage: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            own: AtomicU64::new(HANDLES),
            whole: AtomicPtr::new(ptr::null_mut()),
        }))
    }

    /// Leaves `tenant`, whose counter this is and which nobody else has yet, to what `own` counts.
    pub(super) fn keep(&self, tenant: Arc<Tenant>) {
        self.0.whole.store(Arc::into_raw(tenant).cast_mut(), Ordering::Relaxed);
    }

    /// What the subtree uses, what is in stock for it included.
    pub(super) fn usage(&self) -> u64 {
        self.0.usage.load(Ordering::Relaxed)
    }

    /// The most that `usage` has been, about.
    pub(super) fn peak(&self) -> u64 {
        self.0.peak.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) -> u64 {
        let usage = self.0.usage.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if usage > self.0.peak.load(Ordering::Relaxed) {
            self.0.peak.fetch_max(usage, Ordering::Relaxed);
        }
        usage
    }

    fn subtract(&self, bytes: u64) {
        let usage = self.0.usage.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(usage >= bytes, "more is given back than was charged");
    }
}

/// Charges `tenant` and its ancestors, all or none.
///
/// # Errors
///
/// The tenant whose limit is in the way.
pub(super) fn charge(tenant: &Tenant, bytes: u64) -> Result<(), &Tenant> {
    for level in tenant.and_ancestors() {
        if level.counter().add(bytes) > level.max().min(MOST_USAGE) {
            // Others may have failed because of what was added here for a moment: they try again, or reclaim a little early.
            for charged in tenant.and_ancestors() {
                charged.counter().subtract(bytes);
                if ptr::eq(charged, level) {
                    break;
                }
            }
            return Err(level);
        }
    }
    tenant.counter().0.own.fetch_add(2 * bytes, Ordering::Relaxed);
    Ok(())
}

/// Gives back what was charged.
///
/// # Safety
///
/// `tenant` is alive, and so many bytes have been [charged](charge) to it that nobody else gives back. It may be gone afterwards.
pub(super) unsafe fn uncharge(tenant: *const Tenant, bytes: u64) {
    {
        // SAFETY: the caller's promise.
        let tenant = unsafe { &*tenant };
        tenant.and_ancestors().for_each(|level| level.counter().subtract(bytes));
    }
    // SAFETY: the caller's promise.
    unsafe { give_back(tenant, 2 * bytes) };
}

/// The last handle is gone.
///
/// # Safety
///
/// Once for each tenant, which is alive and may be gone afterwards.
pub(super) unsafe fn no_more_handles(tenant: *const Tenant) {
    // SAFETY: the caller's promise.
    unsafe { give_back(tenant, HANDLES) };
}

/// # Safety
///
/// `amount` is part of what `own` counts, and nobody else gives it back.
unsafe fn give_back(tenant: *const Tenant, amount: u64) {
    // Release and acquire: whatever was done for other charges and handles is done before the end.
    // SAFETY: `own` is not 0, so the reference below is still held.
    let counts = &unsafe { &*tenant }.counter().0;
    let whole = counts.whole.load(Ordering::Relaxed);
    if counts.own.fetch_sub(amount, Ordering::AcqRel) == amount {
        // SAFETY: left to what `own` counts, by `keep`, and that was the last of it.
        drop(unsafe { Arc::from_raw(whole) });
    }
}
