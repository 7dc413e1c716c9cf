//! What entries weigh, and what they own.

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

/// What a key or value of an unknown type with a destructor is taken to own, in bytes: as in the core.
const UNKNOWN: usize = 1024;

/// Returns what `value` owns, in bytes; `None` if that is not known of its type without [`Weigh`].
fn owned_if_known<T: 'static>(value: &T) -> Option<usize> {
    macro_rules! known {
        ($($type:ty),* $(,)?) => {
            let value: &dyn Any = value;
            $(if let Some(value) = value.downcast_ref::<$type>() {
                return Some(value.heap_bytes());
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
        return None;
    }
    Some(0)
}

pub type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// What a cache's limits are in.
pub enum Unit<K, V> {
    /// Bytes of memory.
    Bytes,
    /// Each entry weighs 1.
    Entries,
    /// The user's, by a function.
    Other(Box<Weigher<K, V>>),
}

/// How entries are weighed.
pub struct Scale<K, V> {
    pub unit: Unit<K, V>,
    /// What key and value own, in bytes; `None` if no one has said.
    pub owned: Option<Box<Weigher<K, V>>>,
}

/// What an entry is taken to need beside key and value: 64 bytes of its own, and about the mean of what
/// the map, ghosts and counts have for it, whose tables are powers of two.
pub const OVERHEAD: u64 = 112;

/// What the wheel has for an entry that expires, in bytes.
const TIMER: u64 = 32;

/// What an allocator adds to a block, in bytes: glibc a word, and half of what it rounds up to.
const BLOCK: u64 = 16;

/// Returns what an entry takes beside what key and value own, in bytes.
const fn fixed<K, V>() -> u64 {
    let blocks = needs_drop::<K>() as u64 + needs_drop::<V>() as u64;
    OVERHEAD + (size_of::<K>() + size_of::<V>()) as u64 + blocks * BLOCK
}

impl<K: 'static, V: 'static> Scale<K, V> {
    /// Weighs an entry.
    pub fn weigh(&self, key: &K, value: &V, expires: bool) -> Weight {
        let (owned, is_known) = match &self.owned {
            Some(owned) => (saturated(owned(key, value)), true),
            None => {
                let [key, value] = [owned_if_known(key), owned_if_known(value)];
                let is_known = key.is_some() && value.is_some();
                let [key, value] = [key, value].map(|owned| owned.unwrap_or(UNKNOWN));
                (key.saturating_add(value), is_known)
            }
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
        let owned = match &self.unit {
            // The program's weight is the best that is known.
            Unit::Other(_) if !is_known => owned.max(saturated(weight)),
            _ => owned,
        };
        Weight { weight, owned }
    }
}

fn saturated(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn owned<V: 'static>(unit: Unit<u64, V>, value: &V) -> usize {
        let scale = Scale { unit, owned: None };
        scale.weigh(&1, value, false).owned
    }

    #[test]
    fn what_an_unknown_type_owns_counts_as_its_weight_and_as_1_kib_at_least() {
        struct Page(#[expect(dead_code, reason = "it is dropped")] Vec<u8>);
        let by = |weight| Unit::Other(Box::new(move |_: &u64, _: &Page| weight));
        let page = Page(vec![0; 10_000]);
        assert_eq!(owned(by(10_000), &page), 10_000);
        assert_eq!(owned(by(1), &page), 1024);
        assert_eq!(owned(Unit::Entries, &page), 1024);
        assert_eq!(owned(Unit::Entries, &Some(vec![0_u8; 10])), 1024);
        assert_eq!(owned(Unit::Entries, &vec![0_u8; 10]), 10);
        assert_eq!(owned(Unit::Entries, &7_u64), 0);
        let weigh = |_: &u64, _: &u64| 10_000;
        assert_eq!(owned(Unit::Other(Box::new(weigh)), &7), 0);
    }
}
