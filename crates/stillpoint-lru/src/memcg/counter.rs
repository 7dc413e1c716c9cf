//! A tenant's usage, and the reference count that keeps the tenant alive while it is charged.
//!
//! Two counts a tenant. The usage is hierarchical: a charge is added to every ancestor's
//! (`levels.rs`). `own` says what keeps the tenant itself: the bytes charged to it directly, those
//! in stock included, and its handles, which count as one. When it gets to 0 nothing refers to the
//! tenant by a charge any more, and the reference that stands for all of them is given back. So a
//! charge is a plain pointer and a length, and costs no reference count of its own.

use super::Memcg;
use crate::levels::{self, HasLevel, Level, Refused};
use crossbeam_utils::CachePadded;
use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};
use stillpoint_platform::fork_mutex::ForkMutex;

/// A charge of more is refused.
pub(crate) const MAX_CHARGE: u64 = 1 << 48;

/// In `own`: the handles. Bytes are counted twice over.
const HANDLES: u64 = 1;

/// See the head of this file. Written at every charge that the stock cannot meet, so in a cache
/// line of its own.
#[derive(Debug)]
pub(crate) struct Counter(CachePadded<Counts>);

#[derive(Debug)]
struct Counts {
    level: Level,
    own: AtomicU64,
    /// The reference that stands for what `own` counts, as `Arc::into_raw` gave it.
    whole: AtomicPtr<Memcg>,
}

impl Counter {
    /// Nothing charged; there is a handle.
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(Counts {
            level: Level::new(),
            own: AtomicU64::new(HANDLES),
            whole: AtomicPtr::new(ptr::null_mut()),
        }))
    }

    /// Hands the reference to `tenant`, whose counter this is and which is not shared yet, to
    /// `own`.
    pub(crate) fn keep(&self, tenant: Arc<Memcg>) {
        self.0
            .whole
            .store(Arc::into_raw(tenant).cast_mut(), Ordering::Relaxed);
    }

    /// What the subtree uses, what is in stock for it included.
    pub(crate) fn usage(&self) -> u64 {
        self.0.level.usage()
    }

    pub(crate) fn level(&self) -> &Level {
        &self.0.level
    }
}

impl HasLevel for Memcg {
    #[inline]
    fn level(&self) -> &Level {
        self.counter().level()
    }

    #[inline]
    fn high(&self) -> u64 {
        Self::high(self)
    }
}

/// Charges `tenant` and its ancestors, all or none: [`levels::charge`]. Whether one of them is past
/// its high limit now.
///
/// # Errors
///
/// The tenant whose limit is in the way.
#[inline]
pub(crate) fn charge<'a>(
    tenant: &'a Memcg,
    bytes: u64,
    at_stock: bool,
    exact: &ForkMutex<()>,
) -> Result<bool, Refused<'a, Memcg>> {
    let is_high = levels::charge(tenant.and_ancestors(), bytes, at_stock, exact)?;
    tenant
        .counter()
        .0
        .own
        .fetch_add(2 * bytes, Ordering::Relaxed);
    Ok(is_high)
}

/// Gives back what was charged.
///
/// # Safety
///
/// `tenant` is alive, and `bytes` were [charged](charge) to it, which no other call gives back. It
/// may be freed by this.
pub(crate) unsafe fn uncharge(tenant: *const Memcg, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        subtract(tenant, bytes);
        release(tenant, bytes);
    }
}

/// The first half of [`uncharge`]: subtracts the usage. The bytes still keep the tenant alive.
///
/// # Safety
///
/// See [`uncharge`]; it is called once for the same bytes.
pub(crate) unsafe fn subtract(tenant: *const Memcg, bytes: u64) {
    // SAFETY: the caller's promise.
    let tenant = unsafe { &*tenant };
    for level in tenant.and_ancestors() {
        level.level().subtract(bytes);
    }
}

/// The second half of [`uncharge`]: drops the bytes' hold on the tenant.
///
/// # Safety
///
/// See [`uncharge`]; it is called once for the same bytes, after [`subtract`].
pub(crate) unsafe fn release(tenant: *const Memcg, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { put(tenant, 2 * bytes) };
}

/// The last handle is gone.
///
/// # Safety
///
/// Once for each tenant, which is alive and may be gone afterwards.
pub(crate) unsafe fn put_handles(tenant: *const Memcg) {
    // SAFETY: the caller's promise.
    unsafe { put(tenant, HANDLES) };
}

/// # Safety
///
/// `amount` is part of what `own` counts, and no other call gives it back.
unsafe fn put(tenant: *const Memcg, amount: u64) {
    // SAFETY: `own` is not 0, so the reference below is still held.
    let counts = &unsafe { &*tenant }.counter().0;
    let whole = counts.whole.load(Ordering::Relaxed);
    // Release and acquire, pairs with `put` of other threads: whatever was done for other charges
    // and handles is done before the end.
    if counts.own.fetch_sub(amount, Ordering::AcqRel) == amount {
        // SAFETY: left to what `own` counts, by `keep`, and that was the last of it.
        drop(unsafe { Arc::from_raw(whole) });
    }
}
