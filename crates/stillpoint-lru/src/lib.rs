//! LRU lists per tenant, shrinkers, tenants with limits, and memory pressure: from "the machine is
//! short of memory" to "these are the least recently used objects of the tenant that has too much".
//!
//! * [`ListLru`] has a list for each ([`Tenant`], [`Node`]); what is on it is counted without a
//!   lock.
//! * A [`Shrink`]er says how much it could free, and frees some of it when it is asked.
//! * A [`Tenant`] is charged for what it uses; its limits say when its shrinkers are asked, and
//!   when a charge fails.
//! * A [`PressureWatch`] asks all shrinkers when the system says that memory is short.
//!
//! The example `tenant_cache` puts them together; it is meant to be copied.
//!
//! Everything here belongs to the global domain of [`stillpoint`]: lists and arrays that are no
//! longer used are freed after its grace periods.
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
//! All of it is for any thread; nothing is for signal handlers. In the child of a fork lists,
//! tenants and shrinkers work on: items stay where they are, but one that another thread was adding
//! or taking off at that instant may be on no list, and never freed. Charges of objects that are
//! never freed there stay charged; bytes that another thread was just taking from or putting into
//! stock stay charged too. A tenant that another thread was deleting stays half deleted until its
//! last handle goes. Background reclaimers start again when they are needed; pressure watches do
//! not.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model checks what is compiled for it, not what uses that.
#![cfg_attr(stillpoint_loom, allow(dead_code))]
// Model-checked, and without tenants: `link` (which list an item is on), `shrinker_map` (which
// shrinkers have something), `levels` (usage and limits), `slots` (an array that grows under its
// readers) and `calls` (calls of a shrinker). On them `memcg`, which has all that refers to
// tenants, and on that `lru`, the lists as a program sees them. Imports lead from the later ones to
// the earlier ones.

mod calls;
mod levels;
mod link;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod lru;
#[cfg(not(stillpoint_loom))]
mod memcg;
mod probe;
mod shrinker_map;
mod slots;
mod statistics;

#[cfg(all(target_os = "linux", not(stillpoint_loom)))]
pub use memcg::pressure::{Pressure, PressureError, PressureWatch};
#[doc(hidden)]
pub use probe::{Probe, Unwatched};
pub use statistics::{Reclaimed, TenantStatistics};
#[cfg(not(stillpoint_loom))]
pub use {
    lru::{Entry, GrowingArray, Isolate, ListLru},
    memcg::{
        Charge, ChargeError, CreateError, DeleteError, Hierarchy, Node, Registration, Scope,
        Shrink, Tenant, TooManyShrinkers,
    },
};

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
