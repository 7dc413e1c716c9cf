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

/// Returns what `value` owns, if that is known of its type without [`Weigh`]: 0 if it is not.
fn owned_if_known<T: 'static>(value: &T) -> usize {
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
    }
    0
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
        let owned = match &self.owned {
            Some(owned) => usize::try_from(owned(key, value)).unwrap_or(usize::MAX),
            None => owned_if_known(key).saturating_add(owned_if_known(value)),
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
