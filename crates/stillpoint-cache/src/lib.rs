//! An in-process cache with tenants. Hits take no lock. Limits are in bytes, in entries or in a unit
//! that the program chooses. Each tenant has limits, which may be changed at any time. Callers that
//! miss a key at the same time share one load. Entries may expire. [`Cache`]'s page has the
//! guarantees and costs.
//!
//! ```
//! use stillpoint_cache::Cache;
//!
//! let pages: Cache<String, String> = Cache::builder().max_bytes(64 << 20).build();
//! let page = pages.get_with("/help", || "how to".to_owned());
//! assert_eq!(page, "how to");
//!
//! let customer = pages.tenant("acme"); // the same cache, with separate limits
//! customer.set_min(1 << 20); // never taken by others
//! customer.set_max(16 << 20);
//! customer.insert("/acme".to_owned(), "hello".to_owned());
//! ```
//!
//! # Limits
//!
//! | | weight of an entry |
//! |---|---|
//! | [`max_bytes`](Builder::max_bytes), [`with_bytes`](Cache::with_bytes) | its memory, with the cache's overhead; keys and values implement [`Weigh`], or a [weigher](Builder::weigher) returns the bytes that they own |
//! | [`max_entries`](Builder::max_entries), [`with_entries`](Cache::with_entries) | 1 |
//! | [`max_weight`](Builder::max_weight) | the result of a function, in a unit that the program chooses |
//! | none of them | as with `max_bytes`; the limit follows the memory limit of the process's container |
//!
//! Each [tenant](Cache::tenant) has a min, low, high and max in the same unit.
//!
//! # Calls
//!
//! | to | call |
//! |---|---|
//! | look up | [`get`](Cache::get) clones the value, [`get_ref`](Cache::get_ref) borrows it, [`peek`](Cache::peek) does not count as a use |
//! | load | [`get_with`](Cache::get_with), [`try_get_with`](Cache::try_get_with), [`optionally_get_with`](Cache::optionally_get_with), [`try_get_with_ttl`](Cache::try_get_with_ttl); in a task, their `_async` forms |
//! | insert | [`insert`](Cache::insert), [`try_insert`](Cache::try_insert) if a refusal matters, [`insert_with_ttl`](Cache::insert_with_ttl), [`insert_if_absent`](Cache::insert_if_absent), [`replace`](Cache::replace) to get the old value; `extend`, `collect` |
//! | compute from the old value | [`entry`](Cache::entry): [`and_upsert_with`](EntrySelector::and_upsert_with), [`and_compute_with`](EntrySelector::and_compute_with) |
//! | remove | [`remove`](Cache::remove), [`take`](Cache::take), [`invalidate_all`](Cache::invalidate_all), [`invalidate_entries_if`](Cache::invalidate_entries_if) |
//! | protect from eviction | [`pin`](Cache::pin), [`unpin`](Cache::unpin) |
//! | visit or count entries | [`iter`](Cache::iter), [`for_each`](Cache::for_each), [`statistics`](Cache::statistics) |
//! | free memory when it is short | [`shrinker`](Cache::shrinker); values of type [`Bytes`], whose memory returns to the system |
//!
//! # From moka
//!
//! | moka | here |
//! |---|---|
//! | `moka::future::Cache` | the same [`Cache`]: [`get_with_async`](Cache::get_with_async); `get` and `insert` never wait |
//! | `Cache::new(1000)`, `max_capacity` | [`Cache::with_entries`], [`max_entries`](Builder::max_entries) |
//! | `max_capacity` and a `weigher` of `u32` | [`max_bytes`](Builder::max_bytes), which counts keys, values and the cache's own memory; for another unit [`max_weight`](Builder::max_weight) |
//! | `Expiry` | [`expire_after`](Builder::expire_after), [`insert_with_ttl`](Cache::insert_with_ttl), [`try_get_with_ttl`](Cache::try_get_with_ttl); [`Ref::time_left`] |
//! | `get_with(key, ...)`, `get_with_by_ref(&key, ...)` | [`get_with`](Cache::get_with)`(&key, ...)`; likewise the other loads |
//! | `try_get_with`: `Arc<E>`; `optionally_get_with` | the same |
//! | `entry(key)`, `entry_by_ref(&key)` | [`entry`](Cache::entry)`(&key)`; its methods have `_async` forms; an [`Op`] can set the time to live |
//! | `or_default`, `or_optionally_insert_with`, `or_insert_with_if` | [`or_insert_with`](EntrySelector::or_insert_with), [`optionally_get_with`](Cache::optionally_get_with), [`and_compute_with`](EntrySelector::and_compute_with) |
//! | an `insert` during `and_compute_with` is overwritten | it stays, and the computed value is dropped, unless the inserted entry has been evicted by then |
//! | `invalidate`, `remove` | [`remove`](Cache::remove), [`take`](Cache::take) |
//! | `invalidate_entries_if`, applied later | [applied at once](Cache::invalidate_entries_if); returns the number of entries removed |
//! | `run_pending_tasks` | [`run_pending`](Cache::run_pending), for expired entries only; only tests need it |
//! | a mocked clock, `weighted_size` | [`ManualClock`]; [`weighted_bytes`](Cache::weighted_bytes), exact |
//!
//! # From quick_cache
//!
//! | quick_cache | here |
//! |---|---|
//! | `Cache::new(1000)` | [`Cache::with_entries`] |
//! | `with_weighter` | [`max_weight`](Builder::max_weight); for bytes [`max_bytes`](Builder::max_bytes) |
//! | `get_or_insert_with`, `get_or_insert_async` | [`try_get_with`](Cache::try_get_with), [`try_get_with_async`](Cache::try_get_with_async): an error goes to the callers that waited, too |
//! | `get_value_or_guard`, `entry` | [`entry`](Cache::entry), whose functions run outside of locks |
//! | `replace`, only if there is an entry | [`and_compute_with`](EntrySelector::and_compute_with) with [`Op::Nop`] for `None` |
//! | `peek` | [`peek`](Cache::peek), which borrows the value; [`Ref::time_left`] |
//! | `remove`, which returns the value | [`take`](Cache::take), which clones it; [`remove`](Cache::remove) does not |
//! | `retain` | [`invalidate_entries_if`](Cache::invalidate_entries_if), with the condition reversed |
//! | `clear`, `set_capacity` | [`invalidate_all`](Cache::invalidate_all), [`set_max_bytes`](Cache::set_max_bytes) |
//! | `Lifecycle` | [`eviction_listener`](Builder::eviction_listener), [`is_pinned`](Builder::is_pinned) |
//! | `len`, `weight`, `hits`, `misses` | [`entry_count`](Cache::entry_count), [`weighted_bytes`](Cache::weighted_bytes), [`statistics`](Cache::statistics) |
//! | a capacity for each shard | one limit for all: an entry may be as large as the cache |
#![cfg_attr(docsrs, feature(doc_cfg))]
// The models check the life of an entry: `node` and `state`. The map has its own models.
#![cfg_attr(
    stillpoint_loom,
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the interface is left out"
    )
)]
// The order of the files. Each imports only files above it, as a test of `stillpoint` (`imports.rs`) checks.
// - `policy`, `wheel`: what to evict next, what has expired; they know neither keys nor locks;
// - `arena`: memory of byte values;
// - `statistics`, `tenant`, `removal`: counters, a tenant's handle, why an entry left;
// - `node`, `state`: the rule by which entries are shared; what the lock guards: tenants, and in `state/limits`
//   the choice of the tenant that gives way;
// - `container`: the limit of a cache for which the program sets none;
// - `watcher`, `service`: the files that the service thread follows, and the thread;
// - `clock`, `listener`, `shared`, `weigh`, `flight`, `memory`: parts of `cache`;
// - `cache`, `builder`, `put`, `remove`, `load`, `entry`, `limits`, `iter`, `bytes`: the interface;
// - `visit`, `shrinker`: what the service thread and the shrinkers do in a cache.

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
mod entry;
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
    entry::{CompResult, Entry, EntrySelector, Op},
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
