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

/// What each change adds: the bits of the smallest table are below. So a thread knows its own change
/// from another one to the same bits.
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

    /// After one more change. What is beside the number of changes stays.
    fn changed(self) -> Self {
        Self((self.0.wrapping_add(CHANGE) & !FITS) | (self.0 & FITS))
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

    /// Raises it to at least so many bits, before the caller looks at the table.
    pub fn raise(&self, bits: u32) -> Raise {
        let raise = |before: State| before.with_bits(before.bits().max(bits)).changed();
        let before = self
            .change(|before| Some(raise(before)))
            .unwrap_or_else(|same| same);
        let to = raise(before);
        Raise { before, to }
    }

    /// Takes a raise back, unless another thread has raised or removed the floor since. Returns
    /// whether the caller has lowered it: that looks at the table, as the table may be larger than it
    /// is to be.
    pub fn take_back(&self, Raise { before, to }: Raise) -> bool {
        // The table may have fitted meanwhile.
        let is_last = |now: State| now.0 & !FITS == to.0 & !FITS;
        let lower = |now: State| is_last(now).then(|| now.with_bits(before.bits()).changed());
        self.change(lower).is_ok()
    }

    /// Takes it away, before the caller looks at the table: that is to shrink to what its entries need.
    pub fn remove(&self) {
        let remove = |before: State| State(before.with_bits(FEWEST_BITS).changed().0 | FITS);
        let _ = self.change(|before| Some(remove(before)));
    }

    /// The table is what its entries need, as of the look at the floor that has returned `seen`. Unless
    /// the floor was changed since: the thread that did looks at the table after it.
    pub fn has_fitted(&self, seen: State) {
        let _ =
            self.0
                .compare_exchange(seen.0, seen.0 & !FITS, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn change(&self, to: impl Fn(State) -> Option<State>) -> Result<State, State> {
        let changed = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                to(State(before)).map(|to| to.0)
            });
        // Fence, pairs with `after_move`: the caller sees the table that the move has ended with, or
        // the thread that ended it sees the floor.
        fence_after_rmw();
        changed.map(State).map_err(State)
    }

    /// The calling thread has replaced the table, with a compare-exchange, and looks at the floor now.
    pub fn after_move(&self) -> State {
        // Fence, pairs with `change`: as it says.
        fence_after_rmw();
        self.state()
    }
}

/// A change by [`Floor::raise`].
#[derive(Debug)]
pub struct Raise {
    before: State,
    to: State,
}
