//! The smallest table that a map may have. [`reserve`](crate::PinnedHashMap::reserve) raises it and
//! [`shrink_to_fit`](crate::PinnedHashMap::shrink_to_fit) takes it away, while other threads end moves.
//!
//! Each of them changes the floor and then looks at the table; a thread that ends a move replaces the
//! table and then looks at the floor. With a fence between the two, one of both sees the other's
//! change, and begins the next move. Without it both could leave that to the other: a table that was
//! reserved would never come.

use crate::table::FEWEST_BITS;
use stillpoint_platform::{
    barrier::fence_after_rmw,
    sync::{AtomicU64, Ordering},
};

/// Set while the table is to shrink as far as its entries let it.
const FITS: u64 = 1 << 63;

/// The step of the number of changes, above the bits of the smallest table: a thread sees that the floor
/// was changed even if it is the same again.
const CHANGE: u64 = 1 << 8;

/// A value of the floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(u64);

impl State {
    /// The bits of the smallest table.
    pub fn bits(self) -> u32 {
        (self.0 & (CHANGE - 1)) as u32
    }

    /// Whether the table is to shrink to what its entries need, but not below the smallest.
    pub fn fits(self) -> bool {
        self.0 & FITS != 0
    }

    fn with_bits(self, bits: u32) -> Self {
        Self((self.0 & !(CHANGE - 1)) | u64::from(bits))
    }
}

#[derive(Debug)]
pub struct Floor(AtomicU64);

impl Floor {
    /// Of so many bits if the first table `stays`.
    pub fn new(bits: u32, stays: bool) -> Self {
        Self(AtomicU64::new(
            if stays { bits } else { FEWEST_BITS }.into(),
        ))
    }

    pub fn state(&self) -> State {
        State(self.0.load(Ordering::Relaxed))
    }

    /// Raises it to at least `bits`, before the caller looks at the table.
    pub fn raise(&self, bits: u32) {
        self.change(|before| before.with_bits(before.bits().max(bits)));
    }

    /// Takes it away, before the caller looks at the table: that is to shrink to what its entries need.
    pub fn remove(&self) {
        self.change(|before| State(before.with_bits(FEWEST_BITS).0 | FITS));
    }

    /// The table is what its entries need, as of the look at the floor that has returned `seen`. Unless
    /// the floor was changed since: the thread that did looks at the table after it.
    pub fn has_fitted(&self, seen: State) {
        let _ =
            self.0
                .compare_exchange(seen.0, seen.0 & !FITS, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn change(&self, to: impl Fn(State) -> State) {
        let change = |before| Some(to(State(before)).0.wrapping_add(CHANGE));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        // Fence, pairs with `after_move`: the caller sees the table that the move has ended with, or
        // the thread that ended it sees the floor.
        fence_after_rmw();
    }

    /// The calling thread has replaced the table, with a compare-exchange, and looks at the floor now.
    pub fn after_move(&self) -> State {
        // Fence, pairs with `change`: as it says.
        fence_after_rmw();
        self.state()
    }
}
