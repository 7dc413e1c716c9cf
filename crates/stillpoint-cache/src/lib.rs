//! An in-process cache with tenants: [`Cache`]'s page has all that a user needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// There is no model of it: it stands on the map, whose models are its own.
#![cfg(not(stillpoint_loom))]
// `policy` (what goes next) and `wheel` (what has expired) know neither keys nor locks. `node` has
// the rule by which entries are shared, `state` what the lock guards: tenants, with their limits
// in `state/limits`. On these `cache` (reading), `put` (changing), `load`, `limits`, `iter` and
// `shrinker`, as a program sees them.

mod builder;
mod cache;
mod cause;
mod clock;
mod fork;
mod iter;
mod limits;
mod listener;
mod load;
mod node;
mod policy;
mod put;
mod shrinker;
mod state;
mod statistics;
mod tenant;
mod wheel;

pub use builder::Builder;
pub use cache::{Cache, Ref};
pub use cause::{Cause, InsertError};
pub use iter::Iter;
pub use shrinker::Shrinker;
pub use statistics::Statistics;
pub use stillpoint_map::{DefaultHashBuilder, Equivalent};

#[doc(hidden)]
pub use clock::ManualClock;

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
