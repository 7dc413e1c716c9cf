//! An in-process cache with tenants. See [`Cache`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod cache;
mod cause;
mod clock;
mod iter;
mod limits;
mod listener;
mod load;
mod node;
mod policy;
mod put;
mod state;
mod statistics;
mod tenant;
mod wheel;

pub use builder::Builder;
pub use cache::{Cache, Ref};
pub use cause::{Cause, InsertError};
pub use iter::Iter;
pub use statistics::Statistics;
pub use stillpoint_map::{DefaultHashBuilder, Equivalent};

#[doc(hidden)]
pub use clock::ManualClock;

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
