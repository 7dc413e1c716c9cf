//! Weights of entries, and the bytes that they own.

use crate::{arena::Bytes, node::Weight};
use std::{
    any::{Any, TypeId},
    mem::needs_drop,
    sync::Arc,
};
use stillpoint::Weigh;

impl Weigh for Bytes {
    /// Returns its [`footprint`](Bytes::footprint), which clones share.
    fn heap_bytes(&self) -> usize {
        self.footprint()
    }
}

/// Bytes that a key or value with a destructor is taken to own if its type is unknown: as in the core.
const UNKNOWN: usize = 1024;

/// Returns how many bytes `value` owns, or [`UNKNOWN`] if that cannot be told without [`Weigh`].
fn owned_or_guess<T: 'static>(value: &T) -> usize {
    macro_rules! known {
        ($($type:ty),* $(,)?) => {
            let value: &dyn Any = value;
            $(if let Some(value) = value.downcast_ref::<$type>() {
                return value.heap_bytes();
            })*
        };
    }
    if needs_drop::<T>() {
        known!(
            String,
            Vec<u8>,
            Box<str>,
            Box<[u8]>,
            Arc<str>,
            Arc<[u8]>,
            Arc<String>,
            Arc<Vec<u8>>,
            Bytes
        );
        return UNKNOWN;
    }
    0
}

pub type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// The unit of a cache's limits.
pub enum Unit<K, V> {
    /// Bytes of memory.
    Bytes,
    /// Each entry weighs 1.
    Entries,
    /// The user's, by a function.
    Other(Box<Weigher<K, V>>),
}

/// The functions that weigh entries.
pub struct Scale<K, V> {
    pub unit: Unit<K, V>,
    /// Returns the bytes that key and value own; `None` if the program gave no weigher.
    pub owned: Option<Box<Weigher<K, V>>>,
}

/// Bytes that an entry is taken to need beside key and value: its head of 64 bytes, and about the mean of
/// its part of the map, ghosts and counts, whose tables are powers of two.
pub const OVERHEAD: u64 = 112;

/// Size of an entry's timer in the wheel, in bytes.
const TIMER: u64 = 32;

/// Bytes that an allocator adds to a block: glibc adds a word, and rounds up by half of its step on average.
const BLOCK: u64 = 16;

/// Returns the size of an entry in bytes, without what key and value own.
const fn fixed<K, V>() -> u64 {
    let blocks = needs_drop::<K>() as u64 + needs_drop::<V>() as u64;
    OVERHEAD + (size_of::<K>() + size_of::<V>()) as u64 + blocks * BLOCK
}

impl<K: 'static, V: 'static> Scale<K, V> {
    /// Weighs an entry.
    pub fn weigh(&self, key: &K, value: &V, expires: bool) -> Weight {
        let owned = match &self.owned {
            Some(owned) => usize::try_from(owned(key, value)).unwrap_or(usize::MAX),
            None => owned_or_guess(key).saturating_add(owned_or_guess(value)),
        };
        let weight = match &self.unit {
            Unit::Bytes => {
                let timer = if expires { TIMER } else { 0 };
                // An arena is no allocator: it has no blocks.
                let is_bytes = TypeId::of::<V>() == TypeId::of::<Bytes>();
                let fixed = fixed::<K, V>() - if is_bytes { BLOCK } else { 0 };
                (fixed + timer).saturating_add(owned as u64)
            }
            Unit::Entries => 1,
            Unit::Other(weigh) => weigh(key, value).max(1),
        };
        Weight { weight, owned }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn owned<V: 'static>(unit: Unit<u64, V>, value: &V) -> usize {
        let scale = Scale { unit, owned: None };
        scale.weigh(&1, value, false).owned
    }

    #[test]
    fn an_unknown_type_counts_as_1_kib_whatever_unit_its_weight_is_in() {
        struct Page(Vec<u8>);
        let by = |weight| Unit::Other(Box::new(move |_: &u64, _: &Page| weight));
        let page = Page(vec![0; 10_000]);
        assert_eq!(owned(by(10_000_000), &page), 1024);
        assert_eq!(owned(by(1), &page), 1024);
        assert_eq!(owned(Unit::Entries, &page), 1024);
        assert_eq!(owned(Unit::Entries, &Some(vec![0_u8; 10])), 1024);
        assert_eq!(owned(Unit::Entries, &vec![0_u8; 10]), 10);
        assert_eq!(owned(Unit::Entries, &7_u64), 0);
        let weigh = |_: &u64, _: &u64| 10_000;
        assert_eq!(owned(Unit::Other(Box::new(weigh)), &7), 0);
        // The program says how many bytes these are.
        let scale = Scale {
            unit: by(1),
            owned: Some(Box::new(|_, page| page.0.len() as u64)),
        };
        assert_eq!(scale.weigh(&1, &page, false).owned, 10_000);
    }
}
