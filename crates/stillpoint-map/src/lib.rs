//! placeholder
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model build compiles only what its tests use.
#![cfg_attr(stillpoint_loom, allow(dead_code))]

mod backoff;
mod bucket;
mod core;
mod count;
#[cfg(not(stillpoint_loom))]
mod iter;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod map;
mod memory;
#[cfg(not(stillpoint_loom))]
mod pinned;
mod resize;
#[cfg(not(stillpoint_loom))]
mod set;
mod slot;
#[cfg(not(stillpoint_loom))]
mod store;
mod table;
mod walk;
mod word;

#[cfg(not(stillpoint_loom))]
pub use {
    iter::{IntoIter, Iter, Keys, Values},
    map::{
        Compute, Cursor, DefaultHashBuilder, HashMap, OccupiedError, Operation, TryReserveError,
    },
    pinned::HashMapRef,
};

/// For the torture program alone: maps whose entries do not wait for readers.
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod torture {
    pub use crate::{
        slot::spread,
        store::{Inserted, NewEntry, Policy, Sound, Store},
    };
}
