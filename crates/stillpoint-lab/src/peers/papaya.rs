//! papaya: each call pins, as its documentation advises for single operations and conc-map-bench does. Each map has
//! its own collector.

use crate::map::pinned_map;
use crate::subject::{Peer, Registry};

/// Adds what it takes part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<Papaya>(Peer::new("papaya"));
}

pinned_map! {
    /// The map.
    Papaya(papaya::HashMap), |map, key| map.get(&key).copied(), map.update(key, |value| value + 1)
}
