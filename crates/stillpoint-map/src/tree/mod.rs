//! The ordered map: a B+-tree of leaves whose slots are filled once.
//!
//! | file | what |
//! |---|---|
//! | `order` | a leaf's word: its entries, in order |
//! | `gate` | a node's lock, and whether it is dead |
//! | `node` | leaves and inner nodes |
//! | `search` | the way from the root to a key |
//! | `spare` | memory for nodes |
//! | `core` | a tree without types |
//! | `change` | inserts, removals, divisions |
//! | `merge` | merges |
//! | `hint` | numbers in the order of keys |
//! | `entry` | a key and its value |
//! | `store`, `alter` | a tree with types, in a domain, and its changes |
//! | `owned` | the entries of a map that was given up |
//! | `walk`, `cursor` | walks, without types and with them |
//! | `map`, `edit`, `compute`, `exclusive`, `iter`, `traits`, `with_rayon` | the interface |
//!
//! Reasons are in `docs/design/026-ordered-map.md`.

#[cfg(not(stillpoint_loom))]
mod alter;
mod change;
#[cfg(not(stillpoint_loom))]
mod compute;
mod core;
#[cfg(not(stillpoint_loom))]
mod cursor;
#[cfg(not(stillpoint_loom))]
mod edit;
#[cfg(not(stillpoint_loom))]
mod entry;
#[cfg(not(stillpoint_loom))]
mod exclusive;
mod gate;
#[cfg(not(stillpoint_loom))]
mod hint;
#[cfg(not(stillpoint_loom))]
mod iter;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod map;
mod merge;
mod node;
mod order;
#[cfg(not(stillpoint_loom))]
mod owned;
mod search;
mod spare;
#[cfg(not(stillpoint_loom))]
mod store;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
#[cfg(not(stillpoint_loom))]
pub mod torture;
#[cfg(not(stillpoint_loom))]
mod traits;
mod walk;
#[cfg(all(feature = "rayon", not(stillpoint_loom)))]
mod with_rayon;

#[cfg(all(feature = "rayon", not(stillpoint_loom)))]
pub use with_rayon::ParRange;
#[cfg(not(stillpoint_loom))]
pub use {
    exclusive::{IterMut, OccupiedEntry},
    iter::{IntoIter, Iter},
    map::{BTreeMap, PinnedBTreeMap},
};
