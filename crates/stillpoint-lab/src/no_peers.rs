//! The peers of a build without any (the feature `peers`): no experiment finds one.

use crate::choice::Choice;
use crate::subject::Registry;

/// Registers none.
pub fn register(_to: &mut impl Registry) {}

/// The peers that were chosen: none can be.
pub fn available(chosen: &Choice) -> Choice {
    chosen.clone()
}

/// No names for `scale read`.
pub fn that_read() -> Vec<&'static str> {
    Vec::new()
}

/// No names for `scale kfree`.
pub fn that_reclaim() -> Vec<&'static str> {
    Vec::new()
}

/// No names for `scale sync`.
pub fn that_wait() -> Vec<&'static str> {
    Vec::new()
}

/// No names for `scale trace`.
pub fn that_share() -> Vec<&'static str> {
    Vec::new()
}
