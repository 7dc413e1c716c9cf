//! Keys to items, in memory: tenants with limits, expiry, eviction. Knows no protocol and no sockets.
//!
//! Imports run one way: a file imports only files above it in this table, or before it in its row.
//!
//! | file | subject |
//! |---|---|
//! | `clock`, `config`, `error`, `requests` | what callers say and are told, and the counts that statistics are read from |
//! | `work`, `digits`, `prefixes` | a count of what a thread has done; numbers as values; values by prefixes of keys |
//! | `class`, `access`, `layout`, `word` | sizes of segments; the word of an item that changes, an item in memory; what the index has for it |
//! | `rcu` | sections and grace periods: the global domain's or, as `model_rcu`, a model's |
//! | `memory`, `pool` | memory from the system; limbo, where freed segments wait for readers |
//! | `index` | the hash table |
//! | `stage`, `segment`, `lists` | where a segment is in its life; segments; their order, and which is evicted |
//! | `ceiling`, `limit`, `flush`, `forgotten` | limits that fall; flushes that are due; items that are gone by their prefixes |
//! | `common` | what tenants share, and what a tenant keeps |
//! | `table`, `key_space`, `evict` | what an index takes; a key space: open segments, storing; what becomes of the items of a segment |
//! | `unfinished`, `state` | values that are arriving; what handles of a tenant refer to |
//! | `background/signal`, `limits`, `search` | the jobs of the background, and what it is asked for |
//! | `item`, `draft`, `tenant` | the interface of a tenant |
//! | `inner`, `background`, `store` | a store without its interface; when each job is due, and what bounds it; the interface of a store |
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
//! In this order: the store's tenants; the store's limit, or a tenant's; `Table::held` (an index's
//! charges); `KeySpace::keep` (where copies go); the index's growth; a bucket (of two, that which is split
//! before the new one); limbo and the spare memory. A stripe's open segment is locked with nothing else. What is held while a tenant is
//! flushed is locked in sections only: so its holder waits for no reader. User code runs in the section
//! that an item was found in; while an eviction is told, `KeySpace::keep` is held.

mod access;
cfg_if::cfg_if! {
    if #[cfg(not(stillpoint_loom))] {
        mod background;
        mod digits;
        mod draft;
        mod error;
        mod evict;
        mod forgotten;
        mod inner;
        mod item;
        mod limit;
        mod lists;
        mod prefixes;
        mod requests;
        mod segment;
        mod common;
        mod key_space;
        mod state;
        #[expect(clippy::module_inception, reason = "it is the type's name")]
        mod store;
        mod table;
        mod tenant;
        mod unfinished;
        mod work;
        #[cfg(test)]
        mod tests;

        pub use {
            background::search::{Search, SearchStatistics},
            draft::Draft,
            error::{Outcome, Refused, TenantError},
            item::{Item, Pin},
            requests::{
                Arithmetic, Condition, Cursor, Invalidate, Mode, Number, StoreStatistics, TenantStatistics,
            },
            store::Store,
            tenant::Tenant,
        };

        pub(crate) use {
            prefixes::Prefixes,
            work::{add as add_work, done as work_done},
        };

        #[cfg(all(test, feature = "metrics"))]
        pub(crate) use tenant::LOOKS;
    }
}
mod ceiling;
mod class;
mod clock;
mod config;
mod flush;
mod index;
mod layout;
mod memory;
#[cfg_attr(stillpoint_loom, path = "model_pool.rs")]
mod pool;
#[cfg_attr(stillpoint_loom, path = "model_rcu.rs")]
mod rcu;
mod stage;
mod word;

pub use clock::{Clock, ManualClock};
pub use config::{Config, Evicted, ITEM_MAX, KEY_MAX, Limits, OnEvict};
#[cfg(all(test, stillpoint_loom))]
mod loom_tests;
