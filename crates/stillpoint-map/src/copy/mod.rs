//! A map of `Copy` keys and values, which lie in the buckets.
//!
//! The machine: `spill` (entries that have no slot), `epochs` (when a slot may be written again),
//! `bucket`, `locked` (changes of one), `table`, `moving` (one table to another), `core` (a map without
//! its hasher and its domain) with `fast` (changes of one bucket), and `walk` (all of its entries). The
//! interface: `map` with `change`, `exclusive` and `traits`, `world` (its domain, and the callback on
//! the service thread) and `iter`. `torture` is for the torture program. What does not depend
//! on where entries lie comes from the parent.

mod bucket;
#[cfg(not(stillpoint_loom))]
mod change;
mod core;
mod epochs;
#[cfg(not(stillpoint_loom))]
mod exclusive;
mod fast;
#[cfg(not(stillpoint_loom))]
mod iter;
mod locked;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod map;
mod moving;
mod spill;
mod table;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
#[cfg(not(stillpoint_loom))]
mod torture;
#[cfg(not(stillpoint_loom))]
mod traits;
mod walk;
#[cfg(all(feature = "rayon", not(stillpoint_loom)))]
mod with_rayon;
#[cfg(not(stillpoint_loom))]
mod world;

#[cfg(all(feature = "rayon", not(stillpoint_loom)))]
pub use with_rayon::CopyParIter;
#[cfg(not(stillpoint_loom))]
pub use {
    change::CopyCompute,
    exclusive::CopyIterMut,
    iter::{CopyIntoIter, CopyIter},
    map::{CopyMap, PinnedCopyMap},
    torture::Copies,
};
