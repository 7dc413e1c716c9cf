//! The maps that `scale map` measures: from `u64` to `u64`, hashed, or in the order of their keys.
//!
//! Threads share a [`SharedMap`] or a [`SharedTree`], each of whose calls enters and leaves what the subject
//! protects readers with. The experiments ask a thread's handle: a reference to one, or, of the limit, a map of the
//! thread's own.

/// What all maps hash with.
pub type BuildHasher = foldhash::fast::RandomState;

/// Look-ups in a map, or by a thread's handle to one.
pub trait Lookup {
    /// Returns the key's value.
    fn get(&self, key: u64) -> Option<u64>;
}

/// A hash map that threads share.
pub trait SharedMap: Lookup + Send + Sync + Sized + 'static {
    /// Creates an empty map that is told how many entries to expect: none, if that is 0.
    fn with_capacity(capacity: usize) -> Self;

    /// Adds an entry, and returns whether the key was new. The work adds new keys only.
    fn insert(&self, key: u64, value: u64) -> bool;

    /// Takes an entry out; returns whether there was one.
    fn remove(&self, key: u64) -> bool;

    /// Replaces the key's value by the next number; returns whether there was one.
    fn update(&self, key: u64) -> bool;

    /// Returns the number of entries.
    fn count(&self) -> usize;
}

/// A hash map as it is measured.
pub trait Map: Send + Sync + Sized + 'static {
    /// Whether handles reach the same entries. Those of the limit do not.
    const IS_SHARED: bool = true;

    /// A thread's access.
    type Handle<'m>: MapHandle;

    /// Creates an empty map: see [`SharedMap::with_capacity`].
    fn with_capacity(capacity: usize) -> Self;

    /// Returns the calling thread's access, where `threads` of them have one.
    fn handle(&self, threads: usize) -> Self::Handle<'_>;
}

/// A thread's access to a hash map: see [`SharedMap`].
pub trait MapHandle: Lookup {
    fn insert(&mut self, key: u64, value: u64) -> bool;
    fn remove(&mut self, key: u64) -> bool;
    fn update(&mut self, key: u64) -> bool;
    fn count(&self) -> usize;
}

/// A map in the order of its keys that threads share.
pub trait SharedTree: Lookup + Send + Sync + Sized + 'static {
    /// Whether a key whose value is replaced is there meanwhile.
    const KEEPS_KEYS: bool = true;

    /// Creates an empty map.
    fn new() -> Self;

    /// Gives the key this value, whether or not it had one.
    fn put(&self, key: u64, value: u64);

    /// Visits the first entries from the key `from` on, at most `most`. Returns how many there were, and the
    /// sum of their values.
    fn scan(&self, from: u64, most: usize) -> (u64, u64);
}

/// A map in the order of its keys as it is measured.
pub trait OrderedMap: Send + Sync + Sized + 'static {
    /// Whether handles reach the same entries. Those of the limit do not.
    const IS_SHARED: bool = true;

    /// See [`SharedTree::KEEPS_KEYS`].
    const KEEPS_KEYS: bool;

    /// A thread's access.
    type Handle<'m>: OrderedHandle;

    /// Creates an empty map.
    fn new() -> Self;

    /// Returns the calling thread's access.
    fn handle(&self) -> Self::Handle<'_>;
}

/// A thread's access to a map in the order of its keys: see [`SharedTree`].
pub trait OrderedHandle: Lookup {
    fn put(&mut self, key: u64, value: u64);
    fn scan(&self, from: u64, most: usize) -> (u64, u64);
}

/// Defines a [`SharedMap`] of a map whose calls are those of its `pin()`: its look-up and its update are given.
#[cfg(feature = "peers")]
macro_rules! pinned_map {
    ($(#[$about:meta])* $name:ident($($map:ident)::+), |$pinned:ident, $key:ident| $get:expr, $update:expr) => {
        $(#[$about])*
        pub struct $name($($map)::+<u64, u64, $crate::map::BuildHasher>);

        impl $crate::map::Lookup for $name {
            #[inline]
            fn get(&self, $key: u64) -> Option<u64> {
                let $pinned = self.0.pin();
                $get
            }
        }

        impl $crate::map::SharedMap for $name {
            fn with_capacity(capacity: usize) -> Self {
                let hasher = $crate::map::BuildHasher::default();
                Self($($map)::+::with_capacity_and_hasher(capacity, hasher))
            }

            #[inline]
            fn insert(&self, key: u64, value: u64) -> bool {
                self.0.pin().insert(key, value).is_none()
            }

            #[inline]
            fn remove(&self, key: u64) -> bool {
                self.0.pin().remove(&key).is_some()
            }

            #[inline]
            fn update(&self, $key: u64) -> bool {
                let $pinned = self.0.pin();
                $update.is_some()
            }

            fn count(&self) -> usize {
                self.0.len()
            }
        }
    };
}
#[cfg(feature = "peers")]
pub(crate) use pinned_map;

/// Returns how many values there are, and their sum.
#[inline]
pub fn count_and_sum(values: impl Iterator<Item = u64>) -> (u64, u64) {
    values.fold((0, 0), |(count, sum): (u64, u64), value| {
        (count + 1, sum.wrapping_add(value))
    })
}

impl<L: Lookup> Lookup for &L {
    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        L::get(self, key)
    }
}

impl<M: SharedMap> Map for M {
    type Handle<'m> = &'m M;

    fn with_capacity(capacity: usize) -> Self {
        <M as SharedMap>::with_capacity(capacity)
    }

    fn handle(&self, _threads: usize) -> &M {
        self
    }
}

impl<M: SharedMap> MapHandle for &M {
    #[inline(always)]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        <M as SharedMap>::insert(self, key, value)
    }

    #[inline(always)]
    fn remove(&mut self, key: u64) -> bool {
        <M as SharedMap>::remove(self, key)
    }

    #[inline(always)]
    fn update(&mut self, key: u64) -> bool {
        <M as SharedMap>::update(self, key)
    }

    fn count(&self) -> usize {
        <M as SharedMap>::count(self)
    }
}

impl<M: SharedTree> OrderedMap for M {
    const KEEPS_KEYS: bool = <M as SharedTree>::KEEPS_KEYS;

    type Handle<'m> = &'m M;

    fn new() -> Self {
        <M as SharedTree>::new()
    }

    fn handle(&self) -> &M {
        self
    }
}

impl<M: SharedTree> OrderedHandle for &M {
    #[inline(always)]
    fn put(&mut self, key: u64, value: u64) {
        <M as SharedTree>::put(self, key, value);
    }

    #[inline(always)]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        <M as SharedTree>::scan(self, from, most)
    }
}
