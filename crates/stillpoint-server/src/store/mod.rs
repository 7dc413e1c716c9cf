//! Keys to items, in memory: tenants with limits, expiry, eviction. Knows no protocol and no sockets.
//!
//! | file | subject |
//! |---|---|
//! | `config`, `clock`, `error`, `requests` | what callers say and are told |
//! | `layout`, `word`, `class` | an item in memory; what the index has for it; sizes of segments |
//! | `memory`, `pool` | memory from the system; limbo, where freed segments wait for readers |
//! | `index` | the hash table |
//! | `segment`, `lists`, `evict` | segments, their order, what becomes of their items |
//! | `space`, `write`, `table` | a key space: open segments; storing; what its index takes |
//! | `shared` | what tenants share, and what a tenant keeps |
//! | `tenant`, `item`, `draft`, `store` | the interface |
//! | `fall`, `pace` | limits that fall; how the background thread takes its time for it |
//! | `maintenance`, `crawler`, `hook` | the background thread; the search for expired items; what is told of evictions |
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
//! spare memory. A stripe's open segment is locked with nothing else, and so is what is held while a
//! tenant is flushed: the latter in sections too, so its holder waits for no reader. User code runs
//! in the section that an item was found in; while an eviction is told, `Space::keep` is held.

mod class;
mod clock;
mod config;
mod crawler;
mod digits;
mod draft;
mod error;
mod evict;
mod fall;
mod hook;
mod index;
mod item;
mod layout;
mod lists;
mod maintenance;
mod memory;
mod pace;
mod pool;
mod requests;
mod segment;
mod shared;
mod space;
#[expect(clippy::module_inception, reason = "it is the type's name")]
mod store;
mod table;
mod tenant;
mod word;
mod write;

pub use clock::{Clock, ManualClock};
pub use config::{Config, ITEM_MAX, KEY_MAX, Limits};
pub use crawler::{Search, SearchStatistics};
pub use draft::Draft;
pub use error::{Outcome, Refused, TenantError};
pub use hook::{Evicted, OnEvict};
pub use item::{Item, Pin};
pub use requests::{
    Arithmetic, Condition, Cursor, Invalidate, Mode, Number, StoreStatistics, TenantStatistics,
};
pub use store::Store;
pub use tenant::Tenant;

#[cfg(test)]
mod tests;
