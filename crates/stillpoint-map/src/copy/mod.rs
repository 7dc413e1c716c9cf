//! A map of `Copy` keys and values, which lie in the buckets.
//!
//! The machine: `spill` (entries that have no slot), `epochs` (when a slot may be written again),
//! `bucket`, `table`, `moving` (one table to another), `core` (a map without its hasher and its
//! domain) and `walk` (all of its entries). The interface: `map` with `change` and `traits`,
//! `pinned` and `iter`. What does not depend on where entries lie comes from the parent.

mod bucket;
#[cfg(not(stillpoint_loom))]
mod change;
mod core;
mod epochs;
#[cfg(not(stillpoint_loom))]
mod iter;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod map;
mod moving;
#[cfg(not(stillpoint_loom))]
mod pinned;
mod spill;
mod table;
#[cfg(not(stillpoint_loom))]
mod traits;
mod walk;

#[cfg(not(stillpoint_loom))]
pub use {
    change::CopyCompute,
    iter::{CopyIntoIter, CopyIter, CopyKeys, CopyValues},
    map::CopyMap,
    pinned::CopyMapRef,
};
