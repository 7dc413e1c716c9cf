//! A tenant's usage, and the reference count that keeps the tenant alive while it is charged.
//!
//! Each tenant has two counts. The usage is hierarchical: a charge is added to every ancestor's
//! (`levels.rs`). `own` says what keeps the tenant itself alive: the bytes charged to it directly,
//! those in stock included, and its handles, which together count as one. When it gets to 0, no
//! charge refers to the tenant any more, and the one reference that stood for all of them is
//! dropped. So a charge is a plain pointer and a length, without a reference count.
//!
//! What has a counter is an [`Account`]. Nothing here knows what else a tenant is.

use crate::levels::{self, HasLevel, Level, Refused};
use crossbeam_utils::CachePadded;
use std::{iter, mem, ptr, sync::Arc};
use stillpoint_platform::{
    fork_mutex::ForkMutex,
    sync::{AtomicU64, Ordering},
};

/// The part of `own` that stands for the handles. Bytes are counted twice over.
const HANDLES: u64 = 1;

/// See the head of this file. Every charge that the stock cannot meet writes it, so it has a cache
/// line to itself.
#[derive(Debug)]
pub(crate) struct Counter(CachePadded<Counts>);

#[derive(Debug)]
struct Counts {
    level: Level,
    own: AtomicU64,
}

impl Counter {
    /// Creates the counter of a tenant that has a handle and no charges.
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(Counts {
            level: Level::new(),
            own: AtomicU64::new(HANDLES),
        }))
    }

    /// Returns the bytes that the subtree uses, those in stock included.
    pub(crate) fn usage(&self) -> u64 {
        self.0.level.usage()
    }

    #[inline]
    pub(crate) fn level(&self) -> &Level {
        &self.0.level
    }
}

/// A tenant, as charges see it. Charges refer to it by the pointer of its [`Arc`].
///
/// # Safety
///
/// Each `Arc` of the type comes from [`new_account`], and `counter` always returns the same counter,
/// which no other account has.
pub(crate) unsafe trait Account: HasLevel + Sized {
    fn counter(&self) -> &Counter;

    fn parent(&self) -> Option<&Self>;

    /// Returns whether later charges go to an ancestor, so that nothing may go into stock.
    fn is_deleted(&self) -> bool;

    #[inline]
    fn and_ancestors(&self) -> impl Iterator<Item = &Self> + Clone {
        iter::successors(Some(self), |account| account.parent())
    }

    /// Returns whether this is `other` or below it.
    fn is_within(&self, other: &Self) -> bool {
        self.and_ancestors().any(|account| ptr::eq(account, other))
    }
}

/// Shares `account`, whose counter is new, and leaves one more reference to its charges and handles:
/// [`put`] drops that.
pub(crate) fn new_account<T: Account>(account: T) -> Arc<T> {
    let account = Arc::new(account);
    mem::forget(Arc::clone(&account));
    account
}

/// Charges `account` and its ancestors, all or none: [`levels::charge`]. Returns whether one of
/// them is past its high limit now.
///
/// # Errors
///
/// The account whose limit is in the way.
#[inline]
pub(crate) fn charge<'a, T: Account>(
    account: &'a T,
    bytes: u64,
    at_stock: bool,
    exact: &ForkMutex<()>,
) -> Result<bool, Refused<'a, T>> {
    let is_high = levels::charge(account.and_ancestors(), bytes, at_stock, exact)?;
    let own = &account.counter().0.own;
    own.fetch_add(2 * bytes, Ordering::Relaxed);
    Ok(is_high)
}

/// Gives back what was charged.
///
/// # Safety
///
/// `account` came from [`Arc::as_ptr`] and is alive, and `bytes` were [charged](charge) to it,
/// which no other call gives back. The call may free it.
pub(crate) unsafe fn uncharge<T: Account>(account: *const T, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        subtract(account, bytes);
        release(account, bytes);
    }
}

/// The first half of [`uncharge`]: subtracts the usage. The bytes still keep the account alive.
///
/// # Safety
///
/// See [`uncharge`]; it is called once for the same bytes.
pub(crate) unsafe fn subtract<T: Account>(account: *const T, bytes: u64) {
    // SAFETY: the caller's promise.
    for account in unsafe { &*account }.and_ancestors() {
        account.level().subtract(bytes);
    }
}

/// The second half of [`uncharge`]: drops the bytes' hold on the account.
///
/// # Safety
///
/// See [`uncharge`]; it is called once for the same bytes, after [`subtract`].
pub(crate) unsafe fn release<T: Account>(account: *const T, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { put(account, 2 * bytes) };
}

/// Drops the handles' hold on the account: the last one is gone.
///
/// # Safety
///
/// See [`uncharge`]; called once for each account.
pub(crate) unsafe fn put_handles<T: Account>(account: *const T) {
    // SAFETY: the caller's promise.
    unsafe { put(account, HANDLES) };
}

/// # Safety
///
/// See [`uncharge`]. `amount` is part of what `own` counts, and no other call gives it back.
unsafe fn put<T: Account>(account: *const T, amount: u64) {
    // SAFETY: `own` is not 0, so the reference of `new_account` is still held.
    let own = &unsafe { &*account }.counter().0.own;
    // Release and acquire, pairs with `put` of other threads: whatever was done for other charges
    // and handles is done before the end.
    if own.fetch_sub(amount, Ordering::AcqRel) == amount {
        // SAFETY: the pointer is the `Arc`'s. `new_account` left this reference to what `own` counts, and
        // that was the last of it.
        drop(unsafe { Arc::from_raw(account) });
    }
}
