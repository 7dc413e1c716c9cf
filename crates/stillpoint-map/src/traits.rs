//! The traits of std for `HashMap`, and macros that implement them for all maps and sets.

use crate::{
    iter::{IntoIter, Iter, Keys, Values},
    map::{HashMap, PinnedHashMap},
};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    ops::Index,
};

/// Defines how a map or a set is visited by `for`, and shown.
macro_rules! show {
    (
        $map:ident<$($param:ident),+> as $pinned:ident, visits $item:ty, by $iter:ty,
        with $debug:ident of $($shown:ident: $trait:path),+; $($bounds:tt)*
    ) => {
        impl<'g, $($param),+> IntoIterator for &'g $pinned<$($param),+>
        where
            $($bounds)*
        {
            type Item = $item;
            type IntoIter = $iter;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }

        impl<$($param),+> fmt::Debug for $pinned<$($param),+>
        where
            $($shown: $trait,)+
            $($bounds)*
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.$debug().entries(self).finish()
            }
        }

        impl<$($param),+> fmt::Debug for $map<$($param),+>
        where
            $($shown: $trait,)+
            $($bounds)*
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.pin().fmt(f)
            }
        }
    };
}
pub(crate) use show;

/// Defines how a map or a set is filled: made of an iterator or an array, and extended by owned entries and by
/// references to them, by a shared reference and by value.
macro_rules! extend {
    (
        $map:ident<$($param:ident),+> of $item:ty, |$pinned:ident, $entry:pat_param| $insert:expr,
        and of $lent:ty, |$borrowed:pat_param| $copied:expr, where $($copy:ident: $trait:path),+;
        made by $make:expr, where $made:ident: $default:path, and of arrays $($own:ident),+;
        $($bounds:tt)+
    ) => {
        impl<$($param),+> FromIterator<$item> for $map<$($param),+>
        where
            $made: $default,
            $($bounds)+
        {
            /// Makes one in the global domain. One with a hasher begins with room for what the iterator says it has,
            /// and shrinks when that goes.
            ///
            /// # Panics
            ///
            /// If no table can have room for that many: "capacity overflow".
            fn from_iter<I: IntoIterator<Item = $item>>(entries: I) -> Self {
                let entries = entries.into_iter();
                let mut map: Self = ($make)(entries.size_hint().0);
                map.extend(entries);
                map
            }
        }

        impl<$($own),+, const N: usize> From<[$item; N]> for $map<$($own),+>
        where
            Self: FromIterator<$item>,
        {
            fn from(entries: [$item; N]) -> Self {
                Self::from_iter(entries)
            }
        }

        impl<$($param),+> Extend<$item> for &$map<$($param),+>
        where
            $($bounds)+
        {
            /// Inserts the entries, with a section for each, because the iterator may take its time.
            fn extend<I: IntoIterator<Item = $item>>(&mut self, entries: I) {
                for $entry in entries {
                    let $pinned = self.pin();
                    $insert;
                }
            }
        }

        impl<$($param),+> Extend<$item> for $map<$($param),+>
        where
            $($bounds)+
        {
            fn extend<I: IntoIterator<Item = $item>>(&mut self, entries: I) {
                (&*self).extend(entries);
            }
        }

        impl<'a, $($param),+> Extend<$lent> for &$map<$($param),+>
        where
            $($copy: $trait,)+
            $($bounds)+
        {
            /// Inserts copies of the entries.
            fn extend<I: IntoIterator<Item = $lent>>(&mut self, entries: I) {
                self.extend(entries.into_iter().map(|$borrowed| $copied));
            }
        }

        impl<'a, $($param),+> Extend<$lent> for $map<$($param),+>
        where
            $($copy: $trait,)+
            $($bounds)+
        {
            fn extend<I: IntoIterator<Item = $lent>>(&mut self, entries: I) {
                (&*self).extend(entries);
            }
        }
    };
}
pub(crate) use extend;

show! {
    HashMap<K, V, S> as PinnedHashMap, visits (&'g K, &'g V), by Iter<'g, K, V>,
    with debug_map of K: fmt::Debug, V: fmt::Debug;
}

impl<K, V, S, Q> Index<&Q> for PinnedHashMap<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ?Sized,
{
    type Output = V;

    /// Returns the value of a key, as [`get`](Self::get) does. Only a pinned map has this: its section lasts as
    /// long as the result.
    ///
    /// ```
    /// let map = stillpoint_map::HashMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.pin()["a"], 1);
    /// ```
    ///
    /// # Panics
    ///
    /// If the map has no such key.
    #[track_caller]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry found for key")
    }
}

impl<K: Clone, V: Clone, S: Clone> Clone for HashMap<K, V, S> {
    /// Clones each entry that an iteration visits, into a map of the same domain, which shrinks like one
    /// that has grown to them. Takes the lock of each bucket in turn, for some nanoseconds; clones keys
    /// and values without a lock. Does not hash or compare keys.
    fn clone(&self) -> Self {
        Self {
            store: self.store.cloned(),
            hasher: self.hasher.clone(),
        }
    }
}

impl<K, V, S> PartialEq for HashMap<K, V, S>
where
    K: Hash + Eq,
    V: PartialEq,
    S: BuildHasher,
{
    /// Compares the entries that an iteration visits; exact while no thread changes either map.
    fn eq(&self, other: &Self) -> bool {
        let (here, there) = (self.pin(), other.pin());
        here.len() == there.len()
            && here
                .iter()
                .all(|(key, value)| there.get(key) == Some(value))
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}

extend! {
    HashMap<K, V, S> of (K, V), |map, (key, value)| map.insert(key, value),
    and of (&'a K, &'a V), |(key, value)| (*key, *value), where K: Copy, V: Copy;
    made by |entries| Self::with_hint(entries, S::default()), where S: Default, and of arrays K, V;
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher,
}

impl<K, V, S> IntoIterator for HashMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(mut self) -> IntoIter<K, V> {
        IntoIter(self.store.take())
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Takes the map apart, and returns its keys.
    pub fn into_keys(self) -> Keys<IntoIter<K, V>> {
        Keys(self.into_iter())
    }

    /// Takes the map apart, and returns its values.
    pub fn into_values(self) -> Values<IntoIter<K, V>> {
        Values(self.into_iter())
    }
}
