//! What `scale map` asks of a subject: a map from `u64` whose handles threads use, each its own; a hash
//! map, or one in the order of its keys.

use std::sync::atomic::{AtomicU64, Ordering};

/// What all maps hash with.
pub type BuildHasher = foldhash::fast::RandomState;

/// What maps hold.
pub trait MapValue: Send + Sync + 'static {
    /// The value of this number.
    fn new(number: u64) -> Self;

    /// The number of this value.
    fn number(&self) -> u64;
}

impl MapValue for u64 {
    fn new(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

/// A map that threads share.
pub trait Map<V>: Send + Sync + Sized + 'static {
    /// Whether handles reach the same entries. Those of the limit do not.
    const IS_SHARED: bool = true;

    /// A thread's access.
    type Handle<'m>: MapHandle<V>;

    /// An empty map that is told how many entries to expect: none, if that is 0.
    fn with_capacity(capacity: usize) -> Self;

    /// The calling thread's access, where `threads` of them have one.
    fn handle(&self, threads: usize) -> Self::Handle<'_>;

    /// An empty map, or what the subject has instead.
    fn empty() -> impl Sized + 'static {
        Self::with_capacity(0)
    }
}

/// What a thread can ask of any map. Each call enters and leaves what the subject protects readers
/// with.
pub trait Lookup {
    /// The number of the key's value.
    fn get(&self, key: u64) -> Option<u64>;
}

/// A thread's access to a hash map.
pub trait MapHandle<V>: Lookup {
    /// Adds an entry, and returns whether the key was new. The work adds new keys only.
    fn insert(&mut self, key: u64, value: V) -> bool;

    /// Takes an entry out; returns whether there was one.
    fn remove(&mut self, key: u64) -> bool;

    /// Replaces the key's value by that of the next number; returns whether there was one.
    fn update(&mut self, key: u64) -> bool;

    /// Visits all entries: how many there are, and the sum of their numbers.
    fn count_and_sum(&self) -> (u64, u64);
}

/// A map in the order of its keys that threads share.
pub trait OrderedMap: Send + Sync + Sized + 'static {
    /// Whether handles reach the same entries. Those of the limit do not.
    const IS_SHARED: bool = true;

    /// Whether a key whose value is replaced is there meanwhile.
    const KEEPS_KEYS: bool = true;

    /// A thread's access.
    type Handle<'m>: OrderedHandle;

    /// An empty map.
    fn new() -> Self;

    /// The calling thread's access.
    fn handle(&self) -> Self::Handle<'_>;
}

/// A thread's access to a map in the order of its keys.
pub trait OrderedHandle: Lookup {
    /// Gives the key this value, whether or not it had one.
    fn put(&mut self, key: u64, value: u64);

    /// Visits the first entries from the key `from` on, at most `most`. Returns how many there were, and the
    /// sum of their numbers.
    fn scan(&self, from: u64, most: usize) -> (u64, u64);
}

/// Adds a visited entry to what [`MapHandle::count_and_sum`] returns.
#[inline]
pub fn add<V: MapValue>((count, sum): (u64, u64), value: &V) -> (u64, u64) {
    (count + 1, sum.wrapping_add(value.number()))
}

/// A value whose drop is noticed.
pub struct Counted(u64);

/// How many of them have been dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Counted {
    /// How many have been dropped so far.
    pub fn dropped() -> u64 {
        // Relaxed: a number to look at, which orders nothing.
        DROPPED.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

impl MapValue for Counted {
    fn new(number: u64) -> Self {
        Self(number)
    }

    fn number(&self) -> u64 {
        self.0
    }
}
