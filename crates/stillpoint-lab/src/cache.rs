//! The caches that `scale cache` measures: from `u64` to `u64`, of strings, and of bytes. Threads share them.

/// What caches hash with, where they can be told.
pub type BuildHasher = foldhash::fast::RandomState;

/// A cache that threads share. Each call enters and leaves what the subject protects readers with.
pub trait Cache: Send + Sync + Sized + 'static {
    /// Creates an empty cache for this many entries, each of which weighs one.
    fn with_entries(entries: usize) -> Self;

    /// Creates an empty cache in which an entry weighs what its value says, and that is told how many to
    /// expect.
    fn with_weight(weight: u64, entries: usize) -> Self;

    /// Returns the key's value, which has been used now.
    fn get(&self, key: u64) -> Option<u64>;

    /// Adds an entry, or replaces its value.
    fn insert(&self, key: u64, value: u64);

    /// Does what the subject has put off, where it puts work off.
    fn settle(&self) {}
}

/// A thread's access to a cache: a reference to one that threads share, or, of the limit, the thread's own.
pub trait CacheHandle {
    fn get(&mut self, key: u64) -> Option<u64>;
    fn insert(&mut self, key: u64, value: u64);
}

impl<C: Cache> CacheHandle for &C {
    #[inline(always)]
    fn get(&mut self, key: u64) -> Option<u64> {
        C::get(self, key)
    }

    #[inline(always)]
    fn insert(&mut self, key: u64, value: u64) {
        C::insert(self, key, value);
    }
}

/// Returns the weight of an entry in a cache that was made [for weights](Cache::with_weight).
#[inline]
pub fn weight_of(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX).max(1)
}

/// Makes a request of a program that has a cache before something slow: returns whether it was a hit, and
/// otherwise adds the entry.
#[inline]
pub fn request(cache: &mut impl CacheHandle, key: u64, value: u64) -> bool {
    let is_hit = cache.get(key).is_some();
    if !is_hit {
        cache.insert(key, value);
    }
    is_hit
}

/// A cache of strings.
pub trait StringCache: Send + Sync + Sized + 'static {
    /// Creates an empty cache for this many entries, each of which weighs one.
    fn with_entries(entries: usize) -> Self;

    /// Adds an entry, or replaces its value.
    fn insert(&self, key: String, value: String);

    /// Returns whether there is an entry, which has been used now. Reads it where it lies, if the subject can.
    fn finds(&self, key: &str) -> bool;
}

/// A cache of bytes that can be told to be of another size while it is used.
pub trait ByteCache: Send + Sync + Sized + 'static {
    /// Creates an empty cache for this many bytes.
    fn with_bytes(bytes: u64) -> Self;

    /// Adds an entry, or replaces its value.
    fn insert(&self, key: u64, value: &[u8]);

    /// Gives it another size, and evicts what does not fit any more, now or soon.
    fn shrink(&self, bytes: u64);

    /// Returns the bytes that it says it holds.
    fn charged(&self) -> u64;
}
