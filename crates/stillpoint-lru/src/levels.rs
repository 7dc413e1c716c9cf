//! Usage against limits: a charge counts at every level of the tree, from a tenant up to the root,
//! or at none.
//!
//! What is refused is never counted, not even for a moment: no other charge is refused because of
//! it, and no peak shows it. So a charge is first decided and then counted.
//!
//! * If one level has a limit, that level decides, by a compare-and-exchange; the charge is added to
//!   the others afterwards. If none has, the root decides, against [`MAX_USAGE`].
//! * If several have, the charge takes the lock of the hierarchy. It is compared with the limits
//!   below the topmost one, and then the topmost decides as above. A level below the topmost limit
//!   is below it for every charge that counts there, so all of those take the lock, and a usage that
//!   was compared can only have fallen.
//!
//! Uncharging takes no lock: each level has the bytes back as soon as they are subtracted there.
//!
//! # Limits that change
//!
//! A limit changes only while no charge is under way; otherwise two charges might take different
//! levels as decisive. A charge is made at a per-CPU stock (`stock.rs`) or under the lock; a limit is
//! changed with all per-CPU stocks and the lock held. So all accesses are relaxed: the per-CPU stocks
//! and the lock order accesses of limits, and each counter has its own modification order.

use std::ptr;
use stillpoint_platform::{
    fork_mutex::ForkMutex,
    sync::{AtomicU64, Ordering},
};

/// Largest usage of a subtree, whatever its limit: twice this still fits the count of what keeps a
/// tenant (`counter.rs`). The room above it in `usage` is for charges that one level has decided
/// and another is about to refuse because of this bound.
pub(crate) const MAX_USAGE: u64 = 1 << 62;

/// Largest charge in bytes.
pub(crate) const MAX_CHARGE: u64 = 1 << 48;

/// A subtree's usage and limit.
#[derive(Debug)]
pub(crate) struct Level {
    usage: AtomicU64,
    peak: AtomicU64,
    max: AtomicU64,
}

/// A tenant, as far as its level and its high limit are concerned.
pub(crate) trait HasLevel {
    fn level(&self) -> &Level;

    /// Returns the high limit: [`charge`] reports that the usage is past it.
    fn high(&self) -> u64;
}

/// The reason why nothing was charged: at one instant, the level's `usage` and the bytes together
/// were more than `max`.
#[derive(Debug)]
pub(crate) struct Refused<'a, T> {
    pub(crate) at: &'a T,
    pub(crate) usage: u64,
    pub(crate) max: u64,
}

impl<'a, T: HasLevel> Refused<'a, T> {
    /// Called while limits do not change.
    #[cold]
    fn at(at: &'a T, usage: u64) -> Self {
        Self {
            at,
            usage,
            max: at.level().most(),
        }
    }
}

impl Level {
    /// Creates a level with no usage and no limit.
    pub(crate) fn new() -> Self {
        Self {
            usage: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            max: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn usage(&self) -> u64 {
        self.usage.load(Ordering::Relaxed)
    }

    /// Returns the largest usage so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets the limit. Called while no charge is under way: see the head of this file.
    pub(crate) fn set_max(&self, bytes: u64) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    fn is_limited(&self) -> bool {
        self.max() < MAX_USAGE
    }

    /// Returns the largest usage that is allowed.
    fn most(&self) -> u64 {
        self.max().min(MAX_USAGE)
    }

    /// Returns `usage + bytes`, or `Err(usage)` if that is too much.
    fn fits(&self, usage: u64, bytes: u64) -> Result<u64, u64> {
        let sum = usage.saturating_add(bytes);
        if sum <= self.most() {
            Ok(sum)
        } else {
            Err(usage)
        }
    }

    /// Adds `bytes` if they fit, and returns the new usage; otherwise returns `Err(usage)`.
    #[inline(always)]
    fn decide(&self, bytes: u64) -> Result<u64, u64> {
        let mut usage = self.usage();
        loop {
            let sum = self.fits(usage, bytes)?;
            // Fails only if another thread charged or uncharged meanwhile: lock-free.
            match self
                .usage
                .compare_exchange_weak(usage, sum, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    if sum > self.peak() {
                        self.peak.fetch_max(sum, Ordering::Relaxed);
                    }
                    return Ok(sum);
                }
                Err(now) => usage = now,
            }
        }
    }

    /// Adds `bytes` that have been decided, and returns the new usage.
    ///
    /// # Errors
    ///
    /// The usage before, if the new one is more than [`MAX_USAGE`], which no machine has. The caller
    /// subtracts the bytes: only here has a refused charge been counted. No peak shows it.
    #[inline(always)]
    pub(crate) fn add(&self, bytes: u64) -> Result<u64, u64> {
        let usage = self.usage.fetch_add(bytes, Ordering::Relaxed);
        let sum = usage + bytes;
        // The peak is never above MAX_USAGE, so one comparison decides both.
        if sum > self.peak() {
            if sum > MAX_USAGE {
                return Err(usage);
            }
            self.peak.fetch_max(sum, Ordering::Relaxed);
        }
        Ok(sum)
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        let usage = self.usage.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(usage >= bytes, "more is given back than was charged");
    }
}

/// Charges all of `levels`, of which the root is the last, or none. If not `at_stock`, the caller
/// does not keep limits from changing, and the lock does. Returns whether a level is past its high
/// limit now.
///
/// # Errors
///
/// A level whose limit is in the way.
#[inline]
pub(crate) fn charge<'a, T: HasLevel>(
    levels: impl Iterator<Item = &'a T> + Clone,
    bytes: u64,
    at_stock: bool,
    exact: &ForkMutex<()>,
) -> Result<bool, Refused<'a, T>> {
    let known = at_stock.then(|| topmost(levels.clone()));
    match known {
        Some((decisive, 0 | 1)) => decide_and_count(levels, decisive, bytes),
        _ => charge_locked(levels, known.map(|(decisive, _)| decisive), bytes, exact),
    }
}

/// Returns the level that decides, and the number of levels that have limits.
#[inline(always)]
fn topmost<'a, T: HasLevel>(levels: impl Iterator<Item = &'a T>) -> (&'a T, usize) {
    let mut decisive = None;
    let mut limits = 0;
    for at in levels {
        let is_limited = at.level().is_limited();
        limits += usize::from(is_limited);
        if is_limited || limits == 0 {
            decisive = Some(at);
        }
    }
    (decisive.expect("there is a root"), limits)
}

/// Charges under the lock. `decisive` is the level that decides, if it is known: it is not compared
/// with before.
#[inline(never)]
fn charge_locked<'a, T: HasLevel>(
    levels: impl Iterator<Item = &'a T> + Clone,
    decisive: Option<&'a T>,
    bytes: u64,
    exact: &ForkMutex<()>,
) -> Result<bool, Refused<'a, T>> {
    let _exact = exact.lock();
    let decisive = decisive.unwrap_or_else(|| topmost(levels.clone()).0);
    for at in levels.clone().take_while(|at| !ptr::eq(*at, decisive)) {
        if at.level().is_limited() {
            at.level()
                .fits(at.level().usage(), bytes)
                .map_err(|usage| Refused::at(at, usage))?;
        }
    }
    decide_and_count(levels, decisive, bytes)
}

/// Charges all levels, of which `decisive` decides: the others have no limits, or have been compared
/// with.
#[inline(always)]
fn decide_and_count<'a, T: HasLevel>(
    levels: impl Iterator<Item = &'a T> + Clone,
    decisive: &'a T,
    bytes: u64,
) -> Result<bool, Refused<'a, T>> {
    let sum = decisive
        .level()
        .decide(bytes)
        .map_err(|usage| Refused::at(decisive, usage))?;
    let mut is_high = sum > decisive.high();
    for at in levels.clone().filter(|at| !ptr::eq(*at, decisive)) {
        match at.level().add(bytes) {
            Ok(sum) => is_high |= sum > at.high(),
            Err(usage) => {
                decisive.level().subtract(bytes);
                for charged in levels.filter(|at| !ptr::eq(*at, decisive)) {
                    charged.level().subtract(bytes);
                    if ptr::eq(charged, at) {
                        break;
                    }
                }
                return Err(Refused::at(at, usage));
            }
        }
    }
    Ok(is_high)
}

#[cfg(test)]
impl HasLevel for Level {
    fn level(&self) -> &Level {
        self
    }

    /// So that it shows in what `charge` returns.
    fn high(&self) -> u64 {
        100
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn limited(max: u64) -> Level {
        let level = Level::new();
        level.set_max(max);
        level
    }

    #[test]
    fn charge_past_max_usage_is_undone_at_each_level() {
        const CHUNK: u64 = MAX_USAGE / 2;
        let root = Level::new();
        let middle = Level::new();
        let leaves = [limited(CHUNK), limited(CHUNK), limited(CHUNK)];
        let exact = ForkMutex::new(());
        for at_stock in [true, false] {
            let charge = |leaf: usize, bytes| {
                charge(
                    [&leaves[leaf], &middle, &root].into_iter(),
                    bytes,
                    at_stock,
                    &exact,
                )
            };
            assert!(charge(0, CHUNK).is_ok() && charge(1, CHUNK).is_ok());
            let refused = charge(2, 1).expect_err("the middle level has 2^62 already");
            assert!(ptr::eq(refused.at, &middle));
            assert_eq!((refused.usage, refused.max), (MAX_USAGE, MAX_USAGE));
            for (level, usage) in [(&leaves[2], 0), (&middle, MAX_USAGE), (&root, MAX_USAGE)] {
                assert_eq!(level.usage(), usage);
            }
            assert_eq!(
                (middle.peak(), root.peak()),
                (MAX_USAGE, MAX_USAGE),
                "what was refused shows"
            );
            for level in [&leaves[0], &leaves[1], &middle, &middle, &root, &root] {
                level.subtract(CHUNK);
            }
        }
    }

    /// At the level that decides: the one with the topmost limit, or the root.
    #[test]
    fn level_past_high_is_reported() {
        let exact = ForkMutex::new(());
        for limits in [
            [u64::MAX; 3],
            [500, u64::MAX, u64::MAX],
            [u64::MAX, 500, u64::MAX],
            [500, 500, 500],
        ] {
            for high in 0..3 {
                let levels = limits.map(limited);
                levels[high].add(100).unwrap();
                let charge = |bytes| charge(levels.iter(), bytes, true, &exact).unwrap();
                assert!(charge(1), "level {high} of {limits:?}");
                levels[high].subtract(100);
                assert!(!charge(99));
                assert!(charge(1));
            }
        }
    }
}
