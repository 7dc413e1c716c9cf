//! The word of an item that changes: when it was used last, how often (its heat), its marks. The upper
//! bits, which options the item has, never change.
//!
//! Readers write it without a lock, and may lose each other's heat. The win and the stale mark are set
//! under the lock of the item's bucket, under which the item is copied, too: so no copy loses them.
//!
//! An item becomes stale together with a change of its CAS value, in two steps. A reader loads the CAS
//! value first: if it loads the new one, it also sees the mark. If it sees the mark, the CAS value that
//! it loaded may be the old one; under the lock it loads the new one.

use stillpoint_platform::sync::{AtomicU32, Ordering};

const TIME: u32 = (1 << 24) - 1;
const HEAT_SHIFT: u32 = 24;
const HEAT: u32 = 3 << HEAT_SHIFT;
/// A reader has found the item.
pub const FETCHED: u32 = 1 << 26;
/// A client has been told to compute the value again.
pub const WIN: u32 = 1 << 27;
/// The value is marked as stale.
pub const STALE: u32 = 1 << 28;

/// The highest heat.
pub const HEAT_MAX: u32 = 3;

/// The word.
#[derive(Debug)]
#[repr(transparent)]
pub struct Access(AtomicU32);

impl Access {
    /// Returns the bits of an item that is written in that second, with these marks and options.
    pub fn first_bits(now: u32, rest: u32) -> u32 {
        (now & TIME) | rest
    }

    /// Creates a word with these bits.
    #[cfg(stillpoint_loom)]
    pub fn new(bits: u32) -> Self {
        Self(AtomicU32::new(bits))
    }

    /// For a copy, before it is published.
    #[cfg(stillpoint_loom)]
    pub fn set_bits(&self, bits: u32) {
        self.0.store(bits, Ordering::Relaxed);
    }

    #[inline]
    pub fn bits(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// [`WIN`], [`STALE`], [`FETCHED`].
    #[inline]
    pub fn marks(&self) -> u32 {
        self.bits() & (WIN | STALE | FETCHED)
    }

    /// Sets the win mark, under the lock of the bucket. Returns whether it was not set before.
    pub fn win(&self) -> bool {
        self.0.fetch_or(WIN, Ordering::Relaxed) & WIN == 0
    }

    /// Marks the value as stale and removes the win mark, so that the next reader wins. The caller holds
    /// the lock of the bucket, and calls [`CasWord::set`] afterwards.
    pub fn set_stale(&self) {
        let stale = |bits: u32| Some((bits & !WIN) | STALE);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, stale);
    }

    /// Returns the second of the last access, as of `now`.
    pub fn last_access(&self, now: u32) -> u32 {
        now - (now.wrapping_sub(self.bits()) & TIME).min(now)
    }

    pub fn heat(&self) -> u32 {
        (self.bits() & HEAT) >> HEAT_SHIFT
    }

    /// Lowers the heat.
    pub fn cool(&self) {
        let cooler = |bits: u32| (bits & HEAT != 0).then(|| bits - (1 << HEAT_SHIFT));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, cooler);
    }

    /// Records an access. Writes nothing if nothing changes: if the item is hot and was accessed in this
    /// second.
    #[inline]
    pub fn touch(&self, now: u32) {
        let bits = self.bits();
        let heat = if bits & HEAT == HEAT {
            0
        } else {
            1 << HEAT_SHIFT
        };
        let new = ((bits & !TIME) + heat) | FETCHED | (now & TIME);
        if new != bits {
            // One that fails has lost against another access.
            let _ = self
                .0
                .compare_exchange(bits, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The bits of a copy with so much less heat.
    pub fn cooler_bits(bits: u32, cooler: u32) -> u32 {
        let heat = ((bits & HEAT) >> HEAT_SHIFT).saturating_sub(cooler);
        (bits & !HEAT) | heat << HEAT_SHIFT
    }
}

/// The low half of an item's CAS value.
#[derive(Debug)]
#[repr(transparent)]
pub struct CasWord(AtomicU32);

impl CasWord {
    /// Creates a word with these bits.
    #[cfg(stillpoint_loom)]
    pub fn new(bits: u32) -> Self {
        Self(AtomicU32::new(bits))
    }

    #[inline]
    pub fn get(&self) -> u32 {
        // Acquire, pairs with `set`: one that finds the new value sees the stale mark.
        self.0.load(Ordering::Acquire)
    }

    /// Sets the value, under the lock of the bucket, after [`Access::set_stale`].
    pub fn set(&self, bits: u32) {
        // Release, pairs with `get`.
        self.0.store(bits, Ordering::Release);
    }
}
