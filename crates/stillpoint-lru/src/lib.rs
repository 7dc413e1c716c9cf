//! LRU lists per tenant, shrinkers, tenants with limits, and memory pressure: the kernel's
//! `list_lru`, shrinkers, memory control groups and PSI for user-space programs.
//!
//! * [`ListLru`] has a list for each ([`Tenant`], [`Node`]); counting its items takes no lock.
//! * A [`Shrink`]er reports how much it could free, and frees some of it on request.
//! * A [`Tenant`] is charged for what it uses; its limits decide when its shrinkers run and when a
//!   charge fails.
//! * A [`PressureWatch`] runs all shrinkers when the system reports memory pressure.
//!
//! The example `tenant_lists` puts them together; it is meant to be copied.
//!
//! Everything here belongs to the global domain of [`stillpoint`]: lists and arrays are freed after
//! its grace periods.
//!
//! # Costs
//!
//! | | about |
//! |---|---|
//! | [`ListLru::count_one`] | a nanosecond or two beyond a section; writes nothing |
//! | [`ListLru::add`], [`ListLru::del`] | 30 ns, under the lock of one list |
//! | [`Tenant::charge`] and its end | 20 ns, from stock |
//! | a tenant | 550 bytes, and 8 for each lru; some 200 for each list that it uses |
//!
//! # Threads, signals, fork
//!
//! All types may be used on any thread, and none in signal handlers. In the child of a fork, lists,
//! tenants and shrinkers go on working if no other thread was changing them at the fork. Otherwise
//! counts and drops work there, and an operation that needs the lock of a lost thread ends the
//! process with a message. Charges of objects that the child never frees stay charged. Background
//! reclaimers start again when they are needed; pressure watches do not.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model build compiles only what its tests use.
#![cfg_attr(stillpoint_loom, allow(dead_code))]
// Five files know no tenants: `link` (which list an item is on), `shrinker_map` (which shrinkers have
// something), `levels` (usage and limits), `slots` (an array that grows under its readers) and `calls`
// (calls of a shrinker). `memcg` is built on them and has all that refers to tenants; `lru`, the lists
// as a program sees them, is built on `memcg`. Each imports only earlier ones. The models check the
// five, and of `memcg` the two files that do not know `Memcg`: `counter` and `stock`.

mod calls;
mod levels;
mod link;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod lru;
#[cfg(not(stillpoint_loom))]
mod memcg;
#[cfg(stillpoint_loom)]
mod memcg {
    pub(crate) mod counter;
    mod resched;
    pub(crate) mod stock;
}
mod shrinker_map;
mod slots;
mod statistics;
#[cfg(all(target_os = "linux", not(stillpoint_loom)))]
pub use memcg::pressure::{Pressure, PressureError, PressureWatch};
pub use statistics::{Reclaimed, TenantStatistics};
#[cfg(not(stillpoint_loom))]
pub use {
    lru::{Entry, Isolate, ListLru},
    memcg::{
        Charge, ChargeError, CreateError, DeleteError, Hierarchy, Node, Registration, Scope,
        Shrink, Tenant, TooManyShrinkers,
    },
};

/// Hooks with which the lab tortures arrays and measures locks. It tests the code that a program gets, so
/// they are behind no feature. Not part of the stable interface.
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod lab {
    pub use crate::{link::watch_waits, lru::GrowingArray};
}

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
