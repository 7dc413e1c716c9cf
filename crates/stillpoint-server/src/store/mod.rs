//! Keys to items, in memory: tenants with limits, expiry, eviction. Knows no protocol and no sockets.
//!
//! | file | subject |
//! |---|---|
//! | `config`, `clock`, `error`, `requests` | what callers say and are told |
//! | `layout`, `access`, `word`, `class` | an item in memory, the word of it that changes; what the index has for it; sizes of segments |
//! | `memory`, `pool` | memory from the system; limbo, where freed segments wait for readers |
//! | `index` | the hash table |
//! | `segment`, `stage`, `lists`, `evict` | segments, where each is in its life, their order, what becomes of their items |
//! | `space`, `write`, `table` | a key space: open segments; storing; what its index takes |
//! | `shared`, `unfinished` | what tenants share, and what a tenant keeps; values that are arriving |
//! | `work` | a count of what a thread has done |
//! | `tenant`, `item`, `draft`, `store` | the interface |
//! | `flush`, `forgotten`, `prefixes` | flushes that are due; items that are gone by their prefixes; values by prefixes of keys |
//! | `ceiling`, `fall`, `pace` | limits that fall; how the background thread takes its time for it |
//! | `maintenance`, `crawler`, `hook` | the background thread; the search for expired items; what is told of evictions |
//! | `rcu` | sections and grace periods: the global domain's or, as `model_rcu`, a model's |
//!
//! Items lie in segments, one behind the other. A reader finds the item's address in the index, and
//! reads it where it lies, in a read-side critical section of the global domain: no lock, no count.
//! A writer appends a new item to an open segment and exchanges the index's word for it; what it
//! replaced is dead. The segment is what a tenant is charged for, what lies on `list_lru`s, and what
//! is evicted: the items that are worth it are copied to another one, and the memory is used again
//! once readers have left.
//!
//! # Locks
//!
//! In this order: the store's tenants; the store's limit, or a tenant's; `Space::keep` (where copies
//! go); the index's growth; a bucket (of two, that which is split before the new one); limbo and the
//! spare memory. A stripe's open segment is locked with nothing else. What is held while a tenant is
//! flushed is locked in sections only: so its holder waits for no reader. User code runs in the section
//! that an item was found in; while an eviction is told, `Space::keep` is held.

mod access;
mod ceiling;
mod class;
mod clock;
mod config;
#[cfg(not(stillpoint_loom))]
mod crawler;
#[cfg(not(stillpoint_loom))]
mod digits;
#[cfg(not(stillpoint_loom))]
mod draft;
#[cfg(not(stillpoint_loom))]
mod error;
#[cfg(not(stillpoint_loom))]
mod evict;
#[cfg(not(stillpoint_loom))]
mod fall;
mod flush;
#[cfg(not(stillpoint_loom))]
mod forgotten;
mod hook;
mod index;
#[cfg(not(stillpoint_loom))]
mod item;
mod layout;
#[cfg(not(stillpoint_loom))]
mod lists;
#[cfg(not(stillpoint_loom))]
mod maintenance;
mod memory;
#[cfg(not(stillpoint_loom))]
mod pace;
#[cfg_attr(stillpoint_loom, path = "model_pool.rs")]
mod pool;
#[cfg(not(stillpoint_loom))]
mod prefixes;
#[cfg_attr(stillpoint_loom, path = "model_rcu.rs")]
mod rcu;
#[cfg(not(stillpoint_loom))]
mod requests;
#[cfg(not(stillpoint_loom))]
mod segment;
#[cfg(not(stillpoint_loom))]
mod shared;
#[cfg(not(stillpoint_loom))]
mod space;
mod stage;
#[cfg(not(stillpoint_loom))]
#[expect(clippy::module_inception, reason = "it is the type's name")]
mod store;
#[cfg(not(stillpoint_loom))]
mod table;
#[cfg(not(stillpoint_loom))]
mod tenant;
#[cfg(not(stillpoint_loom))]
mod unfinished;
mod word;
#[cfg(not(stillpoint_loom))]
mod work;
#[cfg(not(stillpoint_loom))]
mod write;

pub use clock::{Clock, ManualClock};
pub use config::{Config, ITEM_MAX, KEY_MAX, Limits};
pub use hook::{Evicted, OnEvict};
#[cfg(not(stillpoint_loom))]
pub use {
    crawler::{Search, SearchStatistics},
    draft::Draft,
    error::{Outcome, Refused, TenantError},
    item::{Item, Pin},
    requests::{
        Arithmetic, Condition, Cursor, Invalidate, Mode, Number, StoreStatistics, TenantStatistics,
    },
    store::Store,
    tenant::Tenant,
};

#[cfg(not(stillpoint_loom))]
pub(crate) use {
    prefixes::Prefixes,
    work::{add as add_work, done as work_done},
};

#[cfg(all(test, feature = "metrics", not(stillpoint_loom)))]
pub(crate) use tenant::LOOKS;

#[cfg(all(test, stillpoint_loom))]
mod loom_tests;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
