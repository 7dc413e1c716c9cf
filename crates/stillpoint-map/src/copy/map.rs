//! `CopyMap`: what it is, and the methods that read it in a section.

use super::{core::Core, iter::CopyIter};
use crate::{
    iter::{Keys, Values},
    make::make,
    map::{Cursor, DefaultHashBuilder, hash_of},
    outcome::TryReserveError,
    pinned::pinned,
    root::Root,
    section::{Pinned, Writer},
};
use equivalent::Equivalent;
use std::{
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    panic::{RefUnwindSafe, UnwindSafe},
};
use stillpoint::{Cookie, internal::Kept};

/// A concurrent hash map of [`Copy`] keys and values, which lie in its table: the fastest look-ups.
///
/// It is [`HashMap`](crate::HashMap) with the entries in the buckets. A look-up reads one or two
/// cache lines that lie side by side, and returns a *copy* of the value; nothing is allocated for an
/// entry. A look-up takes no lock and writes nothing that other threads read.
///
/// ```
/// use stillpoint_map::CopyMap;
///
/// let next_hop: CopyMap<u32, u32> = CopyMap::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let next_hop = next_hop.pin(); // a section, until it is dropped
///         for node in 0..1000 {
///             next_hop.insert(node, node + 1);
///         }
///     });
///     scope.spawn(|| {
///         // Waits for no other thread.
///         assert!(next_hop.pin().get(&7).is_none_or(|next| next == 8));
///     });
/// });
/// assert_eq!(next_hop.pin().get(&7), Some(8));
/// ```
///
/// # This one or `HashMap`
///
/// | | `CopyMap` | [`HashMap`](crate::HashMap) |
/// |---|---|---|
/// | keys and values | `Copy`, a few words | any |
/// | `get` returns | a copy | a reference, valid for the section |
/// | interior mutability, `Arc`, `String` | no: they are not `Copy` | yes |
/// | a look-up reads | a bucket | a bucket, and the entry |
/// | an insert allocates | seldom | the entry |
/// | memory | 26 to 51 bytes for each entry of 16 as it grows, more after removals | 8 bytes an entry beside key and value, and its bucket |
///
/// Measure where it matters: large values make the table large, and an empty place in it costs as
/// much as an entry.
///
/// # Sections
///
/// As for [`HashMap`](crate::HashMap#sections): [`pin`](Self::pin),
/// [`with_guard`](Self::with_guard) and [`pin_owned`](Self::pin_owned) lead to the map in a section, a
/// [`PinnedCopyMap`], which has the methods. The values that they return need no section.
///
/// # Guarantees
///
/// * **Single keys.** Each operation on one key is linearizable: it takes effect at one instant
///   between its call and its return, also while the table grows or shrinks.
/// * **Iteration** visits every key that is in the map throughout exactly once, also while the
///   table grows or shrinks. A key that comes, goes or is replaced meanwhile is visited in one of
///   its states, or not. (One that is removed and inserted again may be visited twice.)
/// * **[`len`](Self::len)** is exact while no thread changes the map.
///
/// # Your code, and locks
///
/// No lock is held while your `Hash`, `Eq` or closure runs: it may block, panic, or use the map
/// again. A table that grows hashes keys again: so inserts and removals may call `Hash` and `Eq` of
/// other keys than theirs. If one panics there, the entries stay as they were. A wrong `Hash` or `Eq`
/// leads to entries that are not found, or found twice, and to nothing worse.
///
/// # Costs
///
/// | | |
/// |---|---|
/// | [`new`](Self::new) | allocates nothing; the map is a few words |
/// | [`get`](PinnedCopyMap::get) | hashes the key, reads a bucket. Never blocks, never allocates |
/// | [`insert`](PinnedCopyMap::insert), [`update`](PinnedCopyMap::update) | the lock of one bucket for some nanoseconds; an allocation if it has no free slot |
/// | [`remove`](PinnedCopyMap::remove) | the lock of one bucket; an allocation if the entry had found no free slot |
/// | growth, shrinking | incremental: while a table moves, each insert and removal moves 16 buckets; the service thread moves what shrinks |
/// | [`retain`](PinnedCopyMap::retain), [`clear`](PinnedCopyMap::clear) | a look-up for each entry |
/// | iteration | reads the table in order; no allocation |
///
/// A bucket has seven slots. A slot that was emptied is used again after a grace period, because
/// readers may still be at it. An entry for which there is no free slot goes into a list behind the
/// bucket, of which a change replaces one node or two, however long it is: so a key that is updated again
/// and again waits for no reader, and costs an allocation an update.
///
/// # Memory that is not yet freed
///
/// Emptied slots are part of the table, whose size follows the number of entries, so they need no
/// budget, and no thread has to free them. Nodes of lists and tables below 128 KiB that a thread of yours
/// has replaced count against the [budget](stillpoint::Domain::set_budget) of the map's domain, with their size.
/// What the service thread has replaced, and larger tables, do not count; they are given back after
/// a grace period, or never if there is no memory for the callback that does it. While a reader holds
/// that up, a table is replaced only by a larger or a smaller one: so as long as the map keeps its
/// size, there is one such table at most.
///
/// A table that shrinks is also moved by the domain's service thread, a slice after each grace
/// period: so a map that no thread uses any more gives its memory back. A table that grows hashes
/// its keys, which is your code, and is moved by inserts and removals alone. If the last of them
/// comes in the middle, both tables stay until the next.
///
/// # Signals and forks
///
/// As for [`HashMap`](crate::HashMap#signals-and-forks): looking up, iterating and `len` are
/// async-signal-safe in a thread that has read in the map's domain before, if `Hash` and `Eq` of the
/// key are; and in the child of a fork the map works. A slot that another thread was emptying at that
/// instant, and a node of a list, may be leaked.
///
/// # Keys that an attacker chooses
///
/// The [default hasher](DefaultHashBuilder) makes it harder to find keys that collide. It is no proof
/// against an attacker who chooses the keys: many with one hash make each look-up of them as long as
/// their chain. For such keys take [`RandomState`](std::hash::RandomState):
///
/// ```
/// use std::hash::RandomState;
/// use stillpoint_map::CopyMap;
///
/// let ports: CopyMap<u32, u16, RandomState> = CopyMap::default();
/// ports.pin().insert(7, 80);
/// ```
///
/// # Limits
///
/// * Nodes of lists lie at addresses of 48 bits. Without memory for one the process ends; so it does in a
///   removal from a list.
/// * Forks inside children nest 62 deep.
pub struct CopyMap<K, V, S = DefaultHashBuilder> {
    pub(super) root: Root<Core<K, V, Cookie>>,
    pub(super) hasher: S,
    /// Owns entries, and is not variant: a reference is enough to insert.
    entries: PhantomData<*mut (K, V)>,
}

// SAFETY: it owns keys and values.
unsafe impl<K: Send, V: Send, S: Send> Send for CopyMap<K, V, S> {}
// SAFETY: through a reference, threads get copies of keys and values, and move them in.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for CopyMap<K, V, S> {}

// A panic in user code leaves the map as it was before the call, or after it.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for CopyMap<K, V, S> {}
impl<K: UnwindSafe, V: UnwindSafe, S: UnwindSafe> UnwindSafe for CopyMap<K, V, S> {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<CopyMap<u64, u64>>() <= 64);

make! { CopyMap<K, V; S> in root, of "entries", for example "u32, u32" }

impl<K, V, S> CopyMap<K, V, S> {
    pub(super) const fn of(hasher: S, domain: Option<Kept>) -> Self {
        Self {
            root: Root::new(domain),
            hasher,
            entries: PhantomData,
        }
    }

    /// Returns the map's hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> CopyMap<K, V, S> {
    #[inline(always)]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        hash_of(&self.hasher, key)
    }

    /// Visits the next entries, at least `count` or those of 16 times as many buckets, in a section
    /// that ends before this returns. Returns whether there may be more.
    ///
    /// As [`HashMap::scan`](crate::HashMap::scan).
    ///
    /// ```
    /// use stillpoint_map::{CopyMap, Cursor};
    ///
    /// let map: CopyMap<u32, u32> = (0..1000).map(|key| (key, key)).collect();
    /// let (mut cursor, mut sum) = (Cursor::start(), 0);
    /// while map.scan(&mut cursor, 100, |_, value| sum += value) {
    ///     std::thread::yield_now(); // outside of any section
    /// }
    /// assert_eq!(sum, 499_500);
    /// ```
    pub fn scan(&self, cursor: &mut Cursor, count: usize, mut visit: impl FnMut(K, V)) -> bool {
        let pinned = self.pin();
        let mut entries = CopyIter::from(&pinned, cursor.0);
        let count = count.max(1);
        let (mut visited, mut buckets) = (0, 0);
        while cursor.0.is_some() && visited < count && buckets / 16 < count {
            entries.step();
            while let Some((key, value)) = entries.next_here() {
                visit(key, value);
                visited += 1;
            }
            buckets += 1;
            cursor.0 = entries.position();
        }
        cursor.0.is_some()
    }
}

pinned! {
    /// A [`CopyMap`] in a section of its domain: what [`CopyMap::pin`], [`CopyMap::with_guard`] and
    /// [`CopyMap::pin_owned`] lead to.
    ///
    /// It has the methods that look into the map, and those that change it through a shared reference.
    /// It derefs to the map, which has the others.
    PinnedCopyMap<K, V, S = DefaultHashBuilder> of CopyMap in root.home, for example "CopyMap::<u32, u32>", "[(1, 10)]"
}

impl<K: Copy, V: Copy, S> PinnedCopyMap<K, V, S> {
    /// Returns how many entries the map may have before its table grows.
    pub fn capacity(&self) -> usize {
        self.core().map_or(0, |core| core.capacity())
    }

    #[inline(always)]
    pub(super) fn core(&self) -> Option<&Pinned<Core<K, V, Cookie>>> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        Some(unsafe { Pinned::of(self.root.core()?) })
    }

    /// The core for changes; `None` if there is no table.
    #[inline(always)]
    pub(super) fn writer(&self) -> Option<Writer<'_, Core<K, V, Cookie>, &Self>> {
        // SAFETY: the domain is the map's.
        Some(unsafe { Writer::of(self.core()?, self) })
    }

    /// Makes the table large enough for `additional` more entries, and keeps it so, as
    /// [`CopyMap::with_capacity_and_hasher`] does.
    ///
    /// Does not wait for that: a map that has a table already moves to the larger one as it does when
    /// it grows, by inserts and removals; if it moves at the time, after that. It takes memory and time for
    /// the entries that there are, not for the capacity.
    ///
    /// # Panics
    ///
    /// If no table can be so large: "capacity overflow". Without memory
    /// for the table the process ends.
    #[track_caller]
    pub fn reserve(&self, additional: usize) {
        if self.try_reserve(additional).is_err() {
            self.root.no_room(additional);
        }
    }

    /// Makes the table large enough for `additional` more entries, as [`reserve`](Self::reserve)
    /// does.
    ///
    /// # Errors
    ///
    /// If no table can be so large, or the system refuses the memory, as
    /// [`PinnedHashMap::try_reserve`](crate::PinnedHashMap::try_reserve) says.
    ///
    /// ```
    /// let map: stillpoint_map::CopyMap<u64, u64> = stillpoint_map::CopyMap::new();
    /// assert!(map.pin().try_reserve(usize::MAX).is_err());
    /// map.pin().try_reserve(1000).unwrap();
    /// assert!(map.pin().capacity() >= 1000);
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<(), TryReserveError> {
        let core = self.root.core_for(additional, true);
        match core.and_then(|_| Some(self.core()?.make_room(additional))) {
            Some(true) => Ok(()),
            _ => Err(TryReserveError { additional }),
        }
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> PinnedCopyMap<K, V, S> {
    /// What `take` makes of the entry of a key.
    #[inline(always)]
    fn find<Q, R>(&self, key: &Q, take: impl FnOnce((K, V)) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = self.core()?;
        let hash = self.hash(key);
        core.table().find(hash, |other| key.equivalent(other), take)
    }

    /// Returns a copy of the value of a key. The key may be anything that hashes and compares like
    /// one ([`Equivalent`]).
    ///
    /// Never blocks and never allocates; async-signal-safe as
    /// [the map says](CopyMap#signals-and-forks). There is no `Index`, which would have to return a
    /// reference.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |(_, value)| value)
    }

    /// Returns copies of the key and the value of an entry; otherwise as [`get`](Self::get).
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |pair| pair)
    }

    /// Returns whether the map has an entry with this key; otherwise as [`get`](Self::get).
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, |_| ()).is_some()
    }

    /// Visits the entries, in no particular order. Which: see [the guarantees](CopyMap#guarantees).
    ///
    /// The section is open meanwhile. For a loop that takes its time, see [`CopyMap::scan`].
    pub fn iter(&self) -> CopyIter<'_, K, V, S> {
        CopyIter::from(self, Some(0))
    }

    /// Visits the keys, as [`iter`](Self::iter) does.
    pub fn keys(&self) -> Keys<CopyIter<'_, K, V, S>> {
        Keys(self.iter())
    }

    /// Visits the values, as [`iter`](Self::iter) does.
    pub fn values(&self) -> Values<CopyIter<'_, K, V, S>> {
        Values(self.iter())
    }
}

impl<K, V, S> Drop for CopyMap<K, V, S> {
    fn drop(&mut self) {
        drop(self.root.take());
    }
}
