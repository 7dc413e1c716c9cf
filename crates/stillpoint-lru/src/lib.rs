//! LRU lists per tenant, shrinkers, tenants with limits, and memory pressure: from "the machine is short of memory" to "these are the
//! least recently used objects of the tenant that has too much".
//!
//! * [`ListLru`] has a list for each ([`Tenant`], [`Node`]); what is on it is counted without a lock.
//! * A [`Shrink`]er says how much it could free, and frees some of it when it is asked.
//! * A [`Tenant`] is charged for what it uses; its limits say when its shrinkers are asked, and when a charge fails.
//! * A [`PressureWatch`] asks all shrinkers when the system says that memory is short.
//!
//! The example `tenant_cache` puts them together; it is meant to be copied.
//!
//! Everything here belongs to the global domain of [`stillpoint`]: lists and arrays that are no longer used are freed after its grace periods.
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
//! All of it is for any thread; nothing is for signal handlers. In the child of a fork lists, tenants and shrinkers work on: items stay where they
//! are, but one that another thread was adding or taking off at that instant may be on no list, and never freed. Charges of
//! objects that are never freed there stay charged; bytes that another thread was just taking from or putting into stock stay charged too. A tenant that another thread
//! was deleting stays half deleted until its last handle goes. Background reclaimers start again when they are needed; pressure watches do not.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model checks what is compiled for it, not what uses that.
#![cfg_attr(stillpoint_loom, allow(dead_code))]
// The files: `link`, `ledger`, `levels`, `slots` and `calls`, which are model-checked; `lists`, `lru`, `walk`, the lists from below; `counter`, `stock`,
// `charge`, `error`, what is used; `shrinker`, `reclaim`, `background`, `pressure` and `source`, how it is got back; `tenant` and `hierarchy`, who know
// all of them.

#[cfg(not(stillpoint_loom))]
mod background;
mod calls;
#[cfg(not(stillpoint_loom))]
mod charge;
#[cfg(not(stillpoint_loom))]
mod counter;
#[cfg(not(stillpoint_loom))]
mod error;
#[cfg(not(stillpoint_loom))]
mod growing;
#[cfg(not(stillpoint_loom))]
mod hierarchy;
mod ledger;
mod levels;
mod link;
#[cfg(not(stillpoint_loom))]
mod lists;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod lru;
#[cfg(all(target_os = "linux", not(stillpoint_loom)))]
mod pressure;
#[cfg(not(stillpoint_loom))]
mod reclaim;
#[cfg(not(stillpoint_loom))]
mod shrinker;
mod slots;
#[cfg(all(target_os = "linux", not(stillpoint_loom)))]
mod source;
#[cfg(not(stillpoint_loom))]
mod stock;
#[cfg(not(stillpoint_loom))]
mod tenant;
#[cfg(not(stillpoint_loom))]
mod walk;

#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub use growing::GrowingArray;
#[cfg(all(target_os = "linux", not(stillpoint_loom)))]
pub use pressure::{Pressure, PressureError, PressureWatch};
#[cfg(not(stillpoint_loom))]
pub use {
    charge::Charge,
    error::{ChargeError, CreateError, DeleteError},
    hierarchy::{Hierarchy, Relieved},
    lru::{Entry, ListLru},
    shrinker::{Node, Registration, Scope, Shrink, TooManyShrinkers},
    tenant::{Tenant, TenantStatistics},
    walk::Isolate,
};

/// The code in the package's README.md compiles, and does what it says.
#[cfg(all(doctest, not(stillpoint_loom)))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Watches the locks of LRU lists: for measurements. No part of the stable interface.
#[doc(hidden)]
pub trait Probe: 'static {
    /// The calling thread is about to take a list's lock.
    #[inline(always)]
    fn acquiring() {}

    /// Somebody else has it.
    #[inline(always)]
    fn waiting() {}

    /// The calling thread has it, after that.
    #[inline(always)]
    fn waited() {}
}

/// Watches nothing, at no cost.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Unwatched {}

impl Probe for Unwatched {}
