//! The peers of a build without any (the feature `peers`): no experiment finds one.

use crate::choice::Choice;
use crate::subject::Registry;

/// Registers none.
pub fn register(_to: &mut impl Registry) {}

/// Returns the peers that were chosen: none can be.
pub fn available(chosen: &Choice) -> Choice {
    chosen.clone()
}

/// Returns the names of peers that other builds have: none that could be built in.
pub fn missing(_experiment: &str) -> &'static [&'static str] {
    &[]
}
