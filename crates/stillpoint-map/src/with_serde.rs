//! The feature `serde`: `Serialize` and `Deserialize`.

use crate::{
    BTreeMap, CopyMap, HashMap, HashSet, MapGuard, OwnedMapGuard, PinnedBTreeMap, PinnedCopyMap,
    PinnedHashMap, PinnedHashSet,
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
};

/// The most entries that are reserved because the input says that so many follow.
const MOST_RESERVED: usize = 4096;

/// As that of the pinned map.
impl<P: Serialize> Serialize for MapGuard<'_, P> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        (**self).serialize(serializer)
    }
}

/// As that of the pinned map.
impl<P: Serialize> Serialize for OwnedMapGuard<'_, P> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        (**self).serialize(serializer)
    }
}

/// Writes the entries that an iteration visits. They are gathered first, because formats may want
/// their number before them.
impl<K: Serialize, V: Serialize, S> Serialize for PinnedHashMap<K, V, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_map(self.iter().collect::<Vec<_>>())
    }
}

/// As that of [`PinnedHashMap`], in one section.
impl<K: Serialize, V: Serialize, S> Serialize for HashMap<K, V, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.pin().serialize(serializer)
    }
}

/// As that of [`PinnedHashMap`].
impl<K, V, S> Serialize for PinnedCopyMap<K, V, S>
where
    K: Serialize + Copy + Hash + Eq,
    V: Serialize + Copy,
    S: BuildHasher,
{
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_map(self.iter().collect::<Vec<_>>())
    }
}

/// As that of [`PinnedCopyMap`], in one section.
impl<K, V, S> Serialize for CopyMap<K, V, S>
where
    K: Serialize + Copy + Hash + Eq,
    V: Serialize + Copy,
    S: BuildHasher,
{
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.pin().serialize(serializer)
    }
}

/// As that of [`PinnedHashMap`], in the order of the keys.
impl<K: Serialize + Ord, V: Serialize> Serialize for PinnedBTreeMap<K, V> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_map(self.iter().collect::<Vec<_>>())
    }
}

/// As that of [`PinnedBTreeMap`], in one section.
impl<K: Serialize + Ord, V: Serialize> Serialize for BTreeMap<K, V> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.pin().serialize(serializer)
    }
}

/// Writes the values that an iteration visits, gathered first.
impl<T: Serialize, S> Serialize for PinnedHashSet<T, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_seq(self.iter().collect::<Vec<_>>())
    }
}

/// As that of [`PinnedHashSet`], in one section.
impl<T: Serialize, S> Serialize for HashSet<T, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.pin().serialize(serializer)
    }
}

/// Reads a map of the global domain. Of entries with equal keys the last one stays.
impl<'de, K, V, S> Deserialize<'de> for HashMap<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq + Send + 'static,
    V: Deserialize<'de> + Send + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfMap::<_, K, V>(PhantomData))
    }
}

/// Reads a map of the global domain. Of entries with equal keys the last one stays.
impl<'de, K, V, S> Deserialize<'de> for CopyMap<K, V, S>
where
    K: Deserialize<'de> + Copy + Hash + Eq + Send + 'static,
    V: Deserialize<'de> + Copy + Send + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfMap::<_, K, V>(PhantomData))
    }
}

/// Reads a map of the global domain. Of entries with equal keys the last one stays.
impl<'de, K, V> Deserialize<'de> for BTreeMap<K, V>
where
    K: Deserialize<'de> + Ord + Send + 'static,
    V: Deserialize<'de> + Send + 'static,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfMap::<_, K, V>(PhantomData))
    }
}

/// Reads a set of the global domain. Of equal values the first one stays.
impl<'de, T, S> Deserialize<'de> for HashSet<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(OfSet(PhantomData))
    }
}

/// A map that is filled with what is read.
trait Filled<K, V> {
    fn with_hint(entries: usize) -> Self;

    /// Inserts an entry. A section each, because the input may take its time.
    fn put(&self, key: K, value: V);
}

impl<K, V, S> Filled<K, V> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Default,
{
    fn with_hint(entries: usize) -> Self {
        Self::with_hint(entries, S::default())
    }

    fn put(&self, key: K, value: V) {
        self.pin().insert(key, value);
    }
}

impl<K, V, S> Filled<K, V> for CopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher + Default,
{
    fn with_hint(entries: usize) -> Self {
        Self::with_hint(entries, S::default())
    }

    fn put(&self, key: K, value: V) {
        self.pin().insert(key, value);
    }
}

impl<K: Ord + Send + 'static, V: Send + 'static> Filled<K, V> for BTreeMap<K, V> {
    fn with_hint(_: usize) -> Self {
        Self::new()
    }

    fn put(&self, key: K, value: V) {
        self.pin().insert(key, value);
    }
}

struct OfMap<M, K, V>(PhantomData<(M, K, V)>);

impl<'de, M, K, V> Visitor<'de> for OfMap<M, K, V>
where
    M: Filled<K, V>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
{
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<M, A::Error> {
        let map = M::with_hint(entries.size_hint().unwrap_or(0).min(MOST_RESERVED));
        while let Some((key, value)) = entries.next_entry()? {
            map.put(key, value);
        }
        Ok(map)
    }
}

struct OfSet<T, S>(PhantomData<HashSet<T, S>>);

impl<'de, T, S> Visitor<'de> for OfSet<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + 'static,
    S: BuildHasher + Default,
{
    type Value = HashSet<T, S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let hint = values.size_hint().unwrap_or(0).min(MOST_RESERVED);
        let set = HashSet {
            map: HashMap::with_hint(hint, S::default()),
        };
        while let Some(value) = values.next_element()? {
            set.pin().insert(value);
        }
        Ok(set)
    }
}
