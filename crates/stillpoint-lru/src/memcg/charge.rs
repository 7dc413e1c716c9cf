//! [`Charge`]: charges from stock or from the counters, and reclaims if a limit is reached.

use super::{
    Event, Memcg,
    counter::Account,
    error::ChargeError,
    resched::{Resched, is_reclaiming},
    stock::Stocks,
};
use crate::levels::{MAX_CHARGE, Refused};
use std::{
    fmt,
    mem::{self, ManuallyDrop},
    sync::Arc,
    thread,
    time::Duration,
};
use stillpoint::{
    global,
    internal::{can_wait, wait_until},
};
use stillpoint_platform::clock;

/// Number of attempts of a charge that meets a limit; the first only gives back what is in stock.
const ATTEMPTS: u32 = 5;

/// Longest time in total that a charge waits for reclaimed objects to be freed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Interval between two looks at the usage during that wait.
const LOOK: Duration = Duration::from_millis(1);

/// Bytes charged to a tenant; dropping it uncharges them.
///
/// Keep it in the object that the bytes are for: then they are given back when the object is really
/// freed, perhaps after a grace period. Made by [`Tenant::charge`](super::Tenant::charge). Dropping
/// it costs some ten nanoseconds. It may outlive every handle of its tenant.
#[must_use = "the bytes are given back as soon as the charge is dropped"]
pub struct Charge {
    /// The pointer of its `Arc`, alive while `bytes` is not 0: see `counter.rs`.
    tenant: *const Memcg,
    bytes: u64,
}

// SAFETY: the tenant is Send and Sync, and kept by the bytes.
unsafe impl Send for Charge {}
// SAFETY: as for Send.
unsafe impl Sync for Charge {}

impl Charge {
    #[inline]
    pub(crate) fn new(tenant: &Arc<Memcg>, bytes: usize) -> Result<Self, ChargeError> {
        Self::take(tenant.live(), bytes as u64)
    }

    #[inline]
    fn take(tenant: &Arc<Memcg>, bytes: u64) -> Result<Self, ChargeError> {
        if bytes > 0 && !tenant.stocks.take(tenant, bytes) {
            charge(tenant, bytes)?;
        }
        Ok(Self {
            tenant: Arc::as_ptr(tenant),
            bytes,
        })
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // It came from a usize.
        self.bytes as usize
    }

    /// Charges more bytes, or gives some back, so that the charge is of `bytes`. See
    /// [`Tenant::charge`](super::Tenant::charge) for the cost.
    ///
    /// # Errors
    ///
    /// If more cannot be charged; the charge is then as before. Also if the charge is of 0 bytes,
    /// which belong to no tenant.
    pub fn resize(&mut self, bytes: usize) -> Result<(), ChargeError> {
        let bytes = bytes as u64;
        if self.bytes == 0 && bytes > 0 {
            return Err(ChargeError::NoTenant);
        }
        if bytes > self.bytes {
            // SAFETY: there are bytes, so the tenant is alive. This borrows their reference.
            let tenant = ManuallyDrop::new(unsafe { Arc::from_raw(self.tenant) });
            mem::forget(Self::take(&tenant, bytes - self.bytes)?);
            self.bytes = bytes;
        } else {
            let less = self.bytes - bytes;
            // Before the rest is given back, which may end the tenant.
            self.bytes = bytes;
            drop(Self {
                tenant: self.tenant,
                bytes: less,
            });
        }
        Ok(())
    }
}

impl Drop for Charge {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: there are bytes, so the tenant is alive.
            let stocks = unsafe { Arc::as_ptr(&(*self.tenant).stocks) };
            // SAFETY: the bytes are this charge's, and it ends.
            unsafe { Stocks::give(stocks, self.tenant, self.bytes) };
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Charges what the stock does not have, and reclaims if a limit is reached.
#[cold]
#[inline(never)]
fn charge(tenant: &Arc<Memcg>, bytes: u64) -> Result<(), ChargeError> {
    if bytes > MAX_CHARGE {
        return Err(ChargeError::TooLarge);
    }
    let is_high = tenant.stocks.charge(tenant, bytes).or_else(|refused| {
        let level = refused.at;
        level.count(Event::Max, 1);
        make_room(tenant, bytes, &refused).inspect_err(|error| {
            if let ChargeError::OverLimit { .. } = error {
                level.count(Event::Failed, 1);
            }
        })
    })?;
    if is_high {
        tenant.and_ancestors().for_each(Memcg::wake_if_high);
    }
    Ok(())
}

/// Charges after reclaiming. Returns whether a tenant is past its high limit now.
#[cold]
#[inline(never)]
fn make_room(tenant: &Memcg, bytes: u64, first: &Refused<'_, Memcg>) -> Result<bool, ChargeError> {
    // Too large even for an unused tenant; refuse without draining the stocks.
    if bytes > first.max {
        return Err(over(first, bytes));
    }
    let stocks = &tenant.stocks;
    let deadline = clock::now() + clock::nanos(PATIENCE);
    for _ in 0..ATTEMPTS {
        let refused = match stocks.charge_exact(tenant, bytes) {
            Ok(is_high) => return Ok(is_high),
            Err(refused) => refused,
        };
        let level = refused.at;
        let Some(goal) = refused.max.checked_sub(bytes) else {
            return Err(over(&refused, bytes));
        };
        if is_reclaiming() {
            return Err(ChargeError::InShrinker);
        }
        if !can_wait() {
            return Err(ChargeError::InSection);
        }
        let before = level.usage();
        let enough = || level.usage() <= goal;
        level
            .controller
            .reclaim(level, &enough, &mut Resched::direct());
        stocks.drain(None);
        if level.usage() > goal {
            wait_for_frees(deadline, || level.usage() <= goal);
        }
        if level.usage() >= before {
            break;
        }
    }
    stocks
        .charge_exact(tenant, bytes)
        .map_err(|refused| over(&refused, bytes))
}

/// Waits until retired objects are freed: until there is `enough`, none is left, or time is up.
fn wait_for_frees(deadline: clock::Nanos, enough: impl Fn() -> bool) {
    let waits = || {
        let statistics = global().statistics();
        statistics.objects_pending > 0 || statistics.callbacks_pending > 0
    };
    if !waits() {
        return;
    }
    // The usual delay; objects that another thread frees afterwards take some milliseconds more.
    // Whether the grace period has ended or not, the usage is read again.
    let _ = wait_until(global(), global().start_poll(), deadline);
    while !enough() && waits() && clock::now() < deadline {
        thread::sleep(LOOK);
    }
}

fn over(refused: &Refused<'_, Memcg>, bytes: u64) -> ChargeError {
    ChargeError::OverLimit {
        requested: bytes,
        usage: refused.usage,
        max: refused.max,
    }
}
