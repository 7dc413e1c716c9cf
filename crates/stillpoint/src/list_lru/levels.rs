//! Usage against limits: a charge counts at every level of the tree, from a tenant up to the root, or at none.
//!
//! What is refused is never counted, not even for a moment: nobody else is refused because of it, and no peak shows it. So a charge is first
//! decided and then counted.
//!
//! * Where one level has a limit (or none), that level decides, by a compare-and-exchange; the others are added to afterwards. Where none
//!   has, the root decides, against [`MOST_USAGE`].
//! * Where several have, the charge takes the lock of the hierarchy. Those below the topmost limit are compared with, and then the
//!   topmost decides as above. A level below the topmost limit is below it for all who charge it, so all of those have the lock, and
//!   what was compared with can only have become less.
//!
//! Giving back takes no lock: each level has it as soon as it is subtracted there.
//!
//! # Limits that change
//!
//! A limit changes only while no charge is under way, or a charge might count one level as decisive and another charge another one. A charge
//! is made at a shelf (`stock.rs`) or under the lock; who changes a limit has all shelves and the lock. So all accesses are relaxed:
//! shelves and lock order those of limits, and of a counter each operation sees what came before it in its own order.

use crate::platform::sync::{AtomicU64, Mutex, Ordering, lock};
use std::ptr;

/// No subtree uses more, whatever its limit says: twice this fits the count of what keeps a tenant (`counter.rs`). Above it in `usage` do
/// all charges fit that have been decided at one level and are about to be refused by another for this.
pub(super) const MOST_USAGE: u64 = 1 << 62;

/// What a subtree uses, and may.
#[derive(Debug)]
pub(super) struct Level {
    usage: AtomicU64,
    peak: AtomicU64,
    max: AtomicU64,
}

/// What has a level: a tenant.
pub(super) trait HasLevel {
    fn level(&self) -> &Level;
}

/// Why nothing was charged: `usage` at this level, at one instant, and the bytes are more than `max`.
#[derive(Debug)]
pub(super) struct Refused<'a, T> {
    pub(super) at: &'a T,
    pub(super) usage: u64,
    pub(super) max: u64,
}

impl Level {
    /// Nothing used, no limit.
    pub(super) fn new() -> Self {
        Self { usage: AtomicU64::new(0), peak: AtomicU64::new(0), max: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn usage(&self) -> u64 {
        self.usage.load(Ordering::Relaxed)
    }

    /// The most that `usage` has been.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// While no charge is under way: see the head of this file.
    pub(super) fn set_max(&self, bytes: u64) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    fn is_limited(&self) -> bool {
        self.max() < MOST_USAGE
    }

    /// How many bytes fit, in all.
    fn most(&self) -> u64 {
        self.max().min(MOST_USAGE)
    }

    /// The usage with `bytes` more, or else the usage that they do not fit beside.
    fn fits(&self, usage: u64, bytes: u64) -> Result<u64, u64> {
        let sum = usage.saturating_add(bytes);
        if sum <= self.most() { Ok(sum) } else { Err(usage) }
    }

    /// Adds `bytes` if they fit.
    fn decide(&self, bytes: u64) -> Result<(), u64> {
        let mut usage = self.usage();
        loop {
            let sum = self.fits(usage, bytes)?;
            // Fails where others have charged or given back meanwhile, and not because they are slow.
            match self.usage.compare_exchange_weak(usage, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.raise_peak(sum);
                    return Ok(());
                }
                Err(now) => usage = now,
            }
        }
    }

    /// Adds `bytes` that have been decided.
    pub(super) fn add(&self, bytes: u64) -> u64 {
        let sum = self.usage.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.raise_peak(sum);
        sum
    }

    fn raise_peak(&self, usage: u64) {
        if usage > self.peak() {
            self.peak.fetch_max(usage, Ordering::Relaxed);
        }
    }

    pub(super) fn subtract(&self, bytes: u64) {
        let usage = self.usage.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(usage >= bytes, "more is given back than was charged");
    }
}

/// Charges all of `levels`, of which the root is the last one, or none. `at_shelf`: whether the caller keeps limits from changing;
/// else the lock does.
///
/// # Errors
///
/// A level whose limit is in the way.
pub(super) fn charge<'a, T: HasLevel>(
    levels: impl Iterator<Item = &'a T> + Clone, bytes: u64, at_shelf: bool, exact: &Mutex<()>,
) -> Result<(), Refused<'a, T>> {
    let mut guard = (!at_shelf).then(|| lock(exact));
    let mut decisive = None;
    let mut limited = false;
    for at in levels.clone() {
        if at.level().is_limited() {
            if limited && guard.is_none() {
                guard = Some(lock(exact));
            }
            limited = true;
            decisive = Some(at);
        } else if !limited {
            decisive = Some(at);
        }
    }
    let decisive = decisive.expect("there is a root");
    let refused = |at: &'a T, usage| Refused { at, usage, max: at.level().most() };
    if guard.is_some() {
        for at in levels.clone().filter(|at| at.level().is_limited()) {
            at.level().fits(at.level().usage(), bytes).map_err(|usage| refused(at, usage))?;
        }
    }
    decisive.level().decide(bytes).map_err(|usage| refused(decisive, usage))?;
    for at in levels.clone().filter(|at| !ptr::eq(*at, decisive)) {
        let sum = at.level().add(bytes);
        if sum > MOST_USAGE {
            // No machine has so much. Here alone a charge that is refused has been counted.
            decisive.level().subtract(bytes);
            for charged in levels.filter(|at| !ptr::eq(*at, decisive)) {
                charged.level().subtract(bytes);
                if ptr::eq(charged, at) {
                    break;
                }
            }
            return Err(refused(at, sum - bytes));
        }
    }
    Ok(())
}
