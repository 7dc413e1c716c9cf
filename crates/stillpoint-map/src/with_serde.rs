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

/// Defines how a map or a set is written: pinned, and in a section for that.
macro_rules! serialize {
    ($map:ident<$($param:ident),+> as $pinned:ident by $collect:ident, $($bounds:tt)+) => {
        /// Serializes the entries that an iteration visits. Collects them first, because some formats need the
        /// length up front.
        impl<$($param),+> Serialize for $pinned<$($param),+>
        where
            $($bounds)+
        {
            fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                serializer.$collect(self.iter().collect::<Vec<_>>())
            }
        }

        /// Pins the map and serializes it in that one section.
        impl<$($param),+> Serialize for $map<$($param),+>
        where
            $($bounds)+
        {
            fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                self.pin().serialize(serializer)
            }
        }
    };
}

serialize! { HashMap<K, V, S> as PinnedHashMap by collect_map, K: Serialize, V: Serialize }
serialize! { HashSet<T, S> as PinnedHashSet by collect_seq, T: Serialize }
serialize! { BTreeMap<K, V> as PinnedBTreeMap by collect_map, K: Serialize + Ord, V: Serialize }
serialize! {
    CopyMap<K, V, S> as PinnedCopyMap by collect_map,
    K: Serialize + Copy + Hash + Eq,
    V: Serialize + Copy,
    S: BuildHasher,
}

/// Defines how a map is read: `$made` creates one with room for a number of entries.
macro_rules! deserialize {
    ($map:ident<$($param:ident),+>, |$hint:pat_param| $made:expr, $($bounds:tt)+) => {
        /// Reads a map of the global domain. Of entries with equal keys the last one stays.
        impl<'de, $($param),+> Deserialize<'de> for $map<$($param),+>
        where
            K: Deserialize<'de>,
            V: Deserialize<'de>,
            $($bounds)+
        {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(OfMap::<_, K, V>(PhantomData))
            }
        }

        impl<$($param),+> Filled<K, V> for $map<$($param),+>
        where
            $($bounds)+
        {
            fn with_hint($hint: usize) -> Self {
                $made
            }

            fn put(&self, key: K, value: V) {
                self.pin().insert(key, value);
            }
        }
    };
}

deserialize! {
    HashMap<K, V, S>, |entries| Self::with_hint(entries, S::default()),
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Default,
}
deserialize! {
    CopyMap<K, V, S>, |entries| Self::with_hint(entries, S::default()),
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher + Default,
}
deserialize! {
    BTreeMap<K, V>, |_| Self::new(),
    K: Ord + Send + 'static,
    V: Send + 'static,
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
        let set = HashSet::with_hint(hint, S::default());
        while let Some(value) = values.next_element()? {
            set.pin().insert(value);
        }
        Ok(set)
    }
}
