//! The smallest table that a map may have. [`reserve`](crate::HashMap::reserve) raises it and
//! [`shrink_to_fit`](crate::HashMap::shrink_to_fit) takes it away, while other threads end moves.
//!
//! Each of them changes the floor and then looks at the table; a thread that ends a move replaces the
//! table and then looks at the floor. With a fence between the two, one of both sees the other's
//! change, and begins the next move. Without it both could leave that to the other: a table that was
//! reserved would never come.

use crate::table::FEWEST_BITS;
use stillpoint_platform::{
    barrier::fence_after_rmw,
    sync::{AtomicU32, Ordering},
};

/// Set beside the bits while the table is to shrink as far as its entries let it.
const FITS: u32 = 1 << 31;

#[derive(Debug)]
pub struct Floor(AtomicU32);

impl Floor {
    /// Of so many bits if the first table `stays`.
    pub fn new(bits: u32, stays: bool) -> Self {
        Self(AtomicU32::new(if stays { bits } else { FEWEST_BITS }))
    }

    /// The bits of the smallest table.
    pub fn bits(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & !FITS
    }

    /// Whether the table is to shrink to what its entries need.
    pub fn fits(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FITS != 0
    }

    /// Raises it to at least so many bits, before the caller looks at the table. Returns what it was.
    pub fn raise(&self, bits: u32) -> u32 {
        self.change(|before| (before & !FITS).max(bits)) & !FITS
    }

    /// Takes back a raise to `bits` from `before`, unless another thread has changed it since.
    pub fn take_back(&self, bits: u32, before: u32) {
        let _ =
            self.0
                .compare_exchange(bits, before.min(bits), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes it away, before the caller looks at the table: that is to shrink to what its entries need.
    pub fn remove(&self) {
        self.change(|_| FEWEST_BITS | FITS);
    }

    /// The table has shrunk to what its entries need.
    pub fn has_fitted(&self) {
        self.0.fetch_and(!FITS, Ordering::Relaxed);
    }

    fn change(&self, to: impl Fn(u32) -> u32) -> u32 {
        let changed = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                Some(to(before))
            });
        // Fence, pairs with `after_move`: the caller sees the table that the move has ended with, or
        // the thread that ended it sees the floor.
        fence_after_rmw();
        changed.unwrap_or_else(|before| before)
    }

    /// The calling thread has replaced the table, with a compare-exchange, and looks at the floor now.
    pub fn after_move(&self) -> &Self {
        // Fence, pairs with `change`: as it says.
        fence_after_rmw();
        self
    }
}
