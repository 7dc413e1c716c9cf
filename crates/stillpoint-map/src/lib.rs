//! Concurrent maps whose readers take no lock and write nothing that other threads read:
//! [`HashMap`] and [`HashSet`], [`CopyMap`] for keys and values that are [`Copy`], and [`BTreeMap`]
//! in the order of its keys. They stand on [`stillpoint`]'s grace periods.
//!
//! * A look-up costs a section, a hash, a cache line of the table and the entry. It never blocks,
//!   allocates, retries without bound, or does another thread's work.
//! * It returns a plain reference, valid for the section. It holds no lock, so it cannot deadlock.
//! * Tables grow and shrink a few buckets at a time. No insert pays for the whole table, and a map
//!   that has lost most of its entries returns the memory, even if no thread uses it.
//! * Removed values are dropped promptly, after a grace period. Unreclaimed memory has a budget.
//!
//! ```
//! use stillpoint_map::HashMap;
//!
//! let stock: HashMap<&str, u32> = HashMap::new();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let stock = stock.pin();
//!         stock.insert("apple", 3);
//!         stock.update("apple", |number| number - 1);
//!     });
//!     scope.spawn(|| {
//!         // Sees none, 3 or 2, and waits for no other thread.
//!         let stock = stock.pin();
//!         assert!(stock.get("apple").is_none_or(|number| (2..=3).contains(number)));
//!     });
//! });
//! assert_eq!(stock.pin().get("apple"), Some(&2));
//! ```
//!
//! Pin a map first, for a section, and call the methods of the pinned map:
//!
//! * `map.pin().get(&key)`: a section for this call;
//! * `let map = map.pin();`: a section for all calls that follow;
//! * [`map.with_guard(&guard)`](HashMap::with_guard): the section of a guard, for several maps;
//! * [`map.pin_owned()`](HashMap::pin_owned): a section that async tasks may hold across an
//!   `.await`.
//!
//! The map itself has `len`, the constructors, and the methods of std's maps that take the map by
//! value or by `&mut`: `get_mut`, `iter_mut`, `retain`, `drain`, and a `remove` that returns the value.
//!
//! [`HashMap`]'s page has all that a user needs: sections and guards, the counterparts of calls of
//! papaya, dashmap and a locked map, guarantees, costs, memory, async tasks, signals, forks and
//! limits.
//!
//! [`CopyMap`] is for small keys and values without destructors: its entries are stored in the
//! table, so a look-up reads one place in memory instead of two, and returns a copy.
//!
//! [`BTreeMap`] keeps any keys that are [`Ord`] in order: ranges, the first and the last entry,
//! iterators in both directions. Its look-ups and iterations take no lock and never restart.
//!
//! # When not to use it
//!
//! * If several keys must change together, or an iteration must see one version: use a lock, or an
//!   [`Rcu<std::collections::HashMap>`](stillpoint::Rcu), whose readers see one version.
//! * If one thread uses the map: std's is faster and smaller. Here entries lie outside the
//!   table.
//! * If values are large and replaced often: an update allocates the whole entry. Put an atomic or
//!   a lock into the value, or an `Arc`.
//! * As a cache: nothing is evicted.
//!
//! # Features
//!
//! None is on by default.
//!
//! * `serde`: `Serialize` and `Deserialize` for maps and sets.
//! * `rayon`: `FromParallelIterator`, `ParallelExtend`, and parallel iteration of a map, a set or a
//!   [`BTreeMap`]'s range in its section.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model build compiles only what its tests use.
#![cfg_attr(stillpoint_loom, allow(dead_code))]
// The files, from the machine to the interface.
//
// The machine, which knows no types of keys and values, and has the models:
// - `section`: types that prove that a section is open, or that no other thread reaches a bucket;
// - `word`, `slot`, `bucket`: a bucket's tags, an entry's pointer, a chain with its readers and its lock;
// - `memory`, `slab`, `used`: memory of tables, memory of entries, the parts of a table that have had entries;
// - `table`, `pages`, `floor`, `split`, `resize`: a table, and moving one table to another;
// - `backoff`, `count`, `driving`, `growth`: waiting for a lock; the number of entries; whose turn it is to move one
//   map's table; a map's tables, when they move and who moves them (for both hash maps);
// - `core`, `chain`, `walk`: a map without types and its changes; iteration.
//
// The interface:
// - `domain`, `driver`, `root`, `reclaim`, `pinned`: a map's domain, what the service thread moves, a map's core with
//   its domain, what is freed later, a map in a section;
// - `outcome`, `entry`, `entries`, `owned`, `store`, `iter`: entries and changes with types;
// - `map` with `upsert`, `key_source`, `make`, `change`, `set`, `exclusive` and `traits`; `nodes`, for C.
//
// `tree` is the ordered map, and `copy` the map of copies, each from its nodes or buckets to its interface.

mod backoff;
mod bucket;
mod chain;
#[cfg(not(stillpoint_loom))]
mod change;
mod copy;
mod core;
mod count;
#[cfg(not(stillpoint_loom))]
mod domain;
#[cfg(not(stillpoint_loom))]
mod driver;
mod driving;
#[cfg(not(stillpoint_loom))]
mod entries;
#[cfg(not(stillpoint_loom))]
mod entry;
#[cfg(not(stillpoint_loom))]
mod exclusive;
mod floor;
mod growth;
#[cfg(not(stillpoint_loom))]
mod iter;
#[cfg(not(stillpoint_loom))]
mod key_source;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(not(stillpoint_loom))]
mod make;
#[cfg(not(stillpoint_loom))]
mod map;
mod memory;
#[cfg(doctest)]
mod misuse;
#[cfg(not(stillpoint_loom))]
mod nodes;
#[cfg(not(stillpoint_loom))]
mod outcome;
#[cfg(not(stillpoint_loom))]
mod owned;
mod pages;
#[cfg(not(stillpoint_loom))]
mod pinned;
#[cfg(not(stillpoint_loom))]
mod reclaim;
mod resize;
#[cfg(not(stillpoint_loom))]
mod root;
mod section;
#[cfg(not(stillpoint_loom))]
mod set;
mod slab;
mod slot;
mod split;
#[cfg(not(stillpoint_loom))]
mod store;
mod table;
#[cfg(not(stillpoint_loom))]
mod traits;
mod tree;
#[cfg(not(stillpoint_loom))]
mod upsert;
mod used;
mod walk;
#[cfg(all(feature = "rayon", not(stillpoint_loom)))]
mod with_rayon;
#[cfg(all(feature = "serde", not(stillpoint_loom)))]
mod with_serde;
mod word;

pub use equivalent::Equivalent;
#[cfg(all(feature = "rayon", not(stillpoint_loom)))]
#[cfg_attr(docsrs, doc(cfg(feature = "rayon")))]
pub use {
    copy::CopyParIter,
    tree::ParRange as BTreeParRange,
    with_rayon::{ParIter, ParValues},
};
#[cfg(not(stillpoint_loom))]
pub use {
    copy::{CopyCompute, CopyIntoIter, CopyIter, CopyIterMut, CopyMap, PinnedCopyMap},
    exclusive::IterMut,
    iter::{IntoIter, Iter, Keys, Values},
    map::{Cursor, DefaultHashBuilder, HashMap, PinnedHashMap},
    outcome::{Compute, OccupiedError, Operation, TryReserveError},
    pinned::{MapGuard, OwnedMapGuard},
    set::{HashSet, PinnedHashSet},
    tree::{
        BTreeMap, IntoIter as BTreeIntoIter, Iter as BTreeIter, IterMut as BTreeIterMut,
        OccupiedEntry as BTreeOccupiedEntry, PinnedBTreeMap,
    },
};

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What the crates of Stillpoint that stand on this one need beyond its interface. No part of the
/// stable interface.
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        entries::Entries,
        entry::{Entry, Found, NewEntry},
        memory::prefetch,
        nodes::{Exhausted, Node, NodeIter, Nodes},
        section::Live,
        slab::memory::{Memory as Region, REGION},
        slot::{mix, spread},
        store::{PinnedStore, Policy, Sound, Store},
    };
}

/// What models of those crates need.
#[cfg(stillpoint_loom)]
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        memory::prefetch,
        slab::memory::{Memory as Region, REGION},
    };
}

/// What the lab and tests need beyond the interface: maps whose entries do not wait for readers, which
/// torture has to catch, and maps that refuse what they have no memory for. The lab tortures the code
/// that a program gets, so this is behind no feature. No part of the stable interface.
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod lab {
    pub use crate::tree::torture::{Inserted as OrderedInserted, Ordered};
    pub use crate::{
        copy::Copies,
        slot::spread,
        store::{Inserted, Policy, Sound, Store},
    };
}
