//! An in-process cache with tenants. Hits take no lock. Limits are in bytes, entries or a unit of the
//! program, hold for each tenant, and may be changed at any time; one load serves all callers that miss
//! a key at a time; entries expire. [`Cache`]'s page has the guarantees and costs.
//!
//! ```
//! use stillpoint_cache::Cache;
//!
//! let pages: Cache<String, String> = Cache::builder().max_bytes(64 << 20).build();
//! let page = pages.get_with("/help".to_owned(), || "how to".to_owned());
//! assert_eq!(page, "how to");
//!
//! let customer = pages.tenant("acme"); // the same cache, with separate limits
//! customer.set_min(1 << 20); // never taken by others
//! customer.set_max(16 << 20);
//! customer.insert("/acme".to_owned(), "hello".to_owned());
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
// Models are about the life of an entry: `node` and `state`. The map has its own.
#![cfg_attr(
    stillpoint_loom,
    allow(dead_code, unreachable_pub, reason = "the interface is left out")
)]
// `policy` (what goes next) and `wheel` (what has expired) know neither keys nor locks. `node` has
// the rule by which entries are shared, `state` what the lock guards: tenants, with their limits
// in `state/limits`. `settings`, `weigh`, `flight` and `memory` are parts of `cache`. On that `builder`, `put`
// and `remove` (changing), `load`, `limits`, `iter`, `bytes` and `shrinker`, as a program sees them. `service` is
// the service thread, `watcher` the files that it follows, `visit` what it does in a cache, `container` the
// source of a limit that no program has set. `arena` has byte values. No module of these imports one that comes
// later here.

#[cfg_attr(stillpoint_loom, allow(unused_imports))]
mod arena;
#[cfg(not(stillpoint_loom))]
mod builder;
#[cfg(not(stillpoint_loom))]
mod bytes;
#[cfg(not(stillpoint_loom))]
mod cache;
#[cfg(not(stillpoint_loom))]
mod clock;
#[cfg(not(stillpoint_loom))]
mod container;
#[cfg(not(stillpoint_loom))]
mod flight;
#[cfg(not(stillpoint_loom))]
mod iter;
#[cfg(not(stillpoint_loom))]
mod limits;
#[cfg(not(stillpoint_loom))]
mod listener;
#[cfg(not(stillpoint_loom))]
mod load;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod memory;
mod node;
mod policy;
#[cfg(not(stillpoint_loom))]
mod put;
mod removal;
#[cfg(not(stillpoint_loom))]
mod remove;
#[cfg(not(stillpoint_loom))]
mod service;
#[cfg(not(stillpoint_loom))]
mod settings;
#[cfg(not(stillpoint_loom))]
mod shared;
#[cfg(not(stillpoint_loom))]
mod shrinker;
mod state;
mod statistics;
mod tenant;
#[cfg(not(stillpoint_loom))]
mod visit;
#[cfg(not(stillpoint_loom))]
mod watcher;
#[cfg(not(stillpoint_loom))]
mod weigh;
mod wheel;

pub use removal::{Cause, InsertError};
pub use statistics::Statistics;
#[cfg(not(stillpoint_loom))]
pub use {
    arena::{Arena, ArenaStatistics, Bytes, NoMemory},
    builder::{Builder, Complete, Counted, InBytes, Unweighed, Weighed},
    cache::{Cache, Ref},
    clock::ManualClock,
    iter::Iter,
    shrinker::Shrinker,
    stillpoint::Weigh,
    stillpoint_map::{DefaultHashBuilder, Equivalent},
};

/// Functions for the lab alone: they free entries and bytes without waiting for readers, which
/// torture has to catch in the code that a program gets. No part of the stable interface.
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod lab {
    pub use crate::{bytes::move_and_overwrite, remove::drop_at_once};
}

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
