//! `BTreeMap`: what it is, how it is made, and the methods that read it in a section. [`super::edit`] and
//! [`super::compute`] have those that change it.

use super::{
    iter::Iter,
    store::{Ordered, PinnedOrdered},
};
use crate::{
    iter::{Keys, Values},
    pinned::pinned,
    store::Sound,
};
use std::{
    borrow::Borrow,
    cmp::Ordering as Is,
    ops::{Bound, RangeBounds},
    panic::{RefUnwindSafe, UnwindSafe},
};
use stillpoint::Domain;

/// An ordered map that many threads read and change at a time, through a shared reference.
///
/// A look-up takes no lock, writes nothing that other threads read, and never begins again, whatever
/// other threads do to the map. It returns a reference to the value, which stays valid as long as
/// the section that it was found in. Ranges are visited in order, from both ends.
///
/// ```
/// use std::thread;
/// use stillpoint_map::BTreeMap;
///
/// let readings = BTreeMap::new();
/// thread::scope(|scope| {
///     for sensor in 0..4_u64 {
///         let readings = &readings;
///         scope.spawn(move || {
///             let readings = readings.pin(); // a section, until it is dropped
///             for second in 0..100 {
///                 readings.insert(second * 4 + sensor, format!("sensor {sensor}"));
///             }
///         });
///     }
/// });
/// let readings = readings.pin();
/// assert_eq!(readings.len(), 400);
/// assert!(readings.range(10..13).map(|(second, _)| *second).eq([10, 11, 12]));
/// assert_eq!(readings.last_key_value().unwrap().1, "sensor 3");
/// ```
///
/// Sections, guards, domains, async tasks, weighing and what is said of your code are those of
/// [`HashMap`](crate::HashMap#sections): the methods that have the same names do the same.
///
/// # Keys
///
/// Any `K: Ord`, sought by anything that it can be [borrowed](Borrow) as, as in std's map. Numbers of
/// up to 64 bits, `char` and `bool` lie in the nodes themselves, so that a look-up reads no entry but
/// the one that it finds. So do the first eight bytes of strings, byte strings and 128-bit numbers,
/// and most comparisons stop there. All other keys are compared through a pointer.
///
/// # Guarantees
///
/// * **Single keys.** Each operation on one key is linearizable, also while nodes are divided and
///   merged.
/// * **Iteration** visits every key that is in the map throughout exactly once, in order, in both
///   directions, and never begins again; with one of its values, if it is replaced meanwhile. A key that
///   comes or goes meanwhile is visited or not.
/// * **[`pop_first`](PinnedBTreeMap::pop_first)** and [`pop_last`](PinnedBTreeMap::pop_last) take out an entry once: of
///   several threads one gets it. No key that is in the map throughout the call comes before it, or
///   behind it. One that is inserted during the call may: so it is with
///   [`first_key_value`](PinnedBTreeMap::first_key_value), and the bounds.
/// * **[`len`](Self::len)** is exact while no thread changes the map.
/// * **Entries never move**, so values may have interior mutability.
///
/// # Your code, and locks
///
/// No lock is held and no other thread waits while your code runs. `Ord`, `Borrow` and closures run on
/// the calling thread; they may block, panic, or use the map again. Changes that are refused because
/// another thread was faster compare again. A wrong implementation of `Ord` or `Borrow`, or one that
/// changes its mind, leads to entries that are not found, found twice, or visited out of order, and to
/// nothing worse. One that panics may do so behind the change that was asked for, where nodes are
/// merged. One that changes the map each time that it is asked keeps its caller comparing for ever.
///
/// Values that were replaced or removed are dropped after a grace period, as those of
/// [`HashMap`](crate::HashMap#your-code-and-locks) are; so are keys, with one exception: the key of an
/// entry that was the first of its node may be kept, without its value, until that node is merged with
/// the one before. There are at most as many of them as nodes. Numbers are not kept.
///
/// # Costs
///
/// | | |
/// |---|---|
/// | [`new`](Self::new) | allocates nothing; the map is a few words |
/// | [`get`](PinnedBTreeMap::get) | a few nodes of up to 32 children, a leaf of up to 14 entries, and the entry. Never blocks, never allocates |
/// | [`insert`](PinnedBTreeMap::insert) | a slot for the entry (an allocation while the map is small), and the lock of one leaf for some nanoseconds; every seventh or so replaces a leaf by a copy or by two, and its parent then, with the locks of these. Threads that add to different leaves do not meet |
/// | [`update`](PinnedBTreeMap::update), and an insert that replaces | a slot for the entry, and one compare-and-exchange; waits for the lock of the leaf where that is being replaced |
/// | [`remove`](PinnedBTreeMap::remove) | the lock of one leaf, and a retire; a leaf that has become small is merged with a neighbour, with the locks of both and of the nodes above that are replaced, and allocations of these, without which it stays small |
/// | iteration | reads leaves in order, entries where they lie; no allocation |
/// | memory | 8 bytes an entry beside key and value, and 256 bytes for each leaf: 18 bytes an entry where keys come in order, 24 to 36 else. From about a thousand entries on these lie in slabs, and from sixteen thousand on nodes do: each processor has one or two of 32 KiB, of which it takes the pages that it uses |
///
/// What was replaced counts against the [budget](Domain::set_budget) of the map's domain until it is
/// freed.
///
/// # Signals and forks
///
/// Looking up, iterating and `len` are async-signal-safe, in a thread that has read in the map's
/// domain before, if `Ord` of the key is. Changing a map is not. In the child of a fork the map works;
/// what another thread was inserting or removing at that instant has been done or has not, `len` may
/// be off by what was under way, and its memory may be leaked.
///
/// # Prior art
///
/// A leaf's order is one word, as in Masstree (Mao, Kohler and Morris, EuroSys 2012). That nodes are
/// replaced and keep their range is Bonsai's idea (Clements, Kaashoek and Zeldovich, ASPLOS 2012) and
/// the kernel's maple tree's.
pub struct BTreeMap<K, V> {
    pub(super) store: Ordered<K, V>,
}

// A panic in user code leaves the map as it was before the call, or after it. What can be broken
// are keys and values, which are used by reference.
impl<K: RefUnwindSafe, V: RefUnwindSafe> RefUnwindSafe for BTreeMap<K, V> {}
impl<K: UnwindSafe, V: UnwindSafe> UnwindSafe for BTreeMap<K, V> {}

impl<K, V> BTreeMap<K, V> {
    /// Makes an empty map of the global domain. Does not allocate.
    ///
    /// ```
    /// use stillpoint_map::BTreeMap;
    ///
    /// static NAMES: BTreeMap<u32, &str> = BTreeMap::new();
    /// NAMES.pin().insert(1, "one");
    /// assert_eq!(NAMES.pin().get(&1), Some(&"one"));
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            store: Ordered::new(None),
        }
    }

    /// Makes an empty map of `domain`, which it keeps alive. Does not allocate.
    ///
    /// ```
    /// let domain = stillpoint::Domain::new();
    /// let map = stillpoint_map::BTreeMap::new_in(&domain);
    /// map.pin().insert(1, "one");
    /// assert_eq!(map.with_guard(&domain.read_lock()).get(&1), Some(&"one"));
    /// ```
    #[must_use]
    pub fn new_in(domain: &Domain) -> Self {
        Self {
            store: Ordered::new(Some(domain.into())),
        }
    }

    /// Returns this map, whose entries count with what they own when they are retired, as
    /// [`HashMap::weighing`](crate::HashMap::weighing) does. For a key that is kept
    /// ([above](Self#your-code-and-locks)) the bytes count once, with the value.
    ///
    /// ```
    /// use stillpoint::{Domain, Weigh};
    /// use stillpoint_map::BTreeMap;
    ///
    /// let domain = Domain::new();
    /// let pages = BTreeMap::new_in(&domain).weighing(|_: &u64, page: &Box<[u8]>| page.heap_bytes());
    /// let pages = pages.pin();
    /// pages.insert(1, vec![0; 100_000].into());
    /// pages.remove(&1);
    /// assert!(domain.statistics().bytes_pending >= 100_000);
    /// ```
    #[must_use]
    pub const fn weighing(mut self, weigh: fn(&K, &V) -> usize) -> Self {
        self.store.set_weigher(weigh);
        self
    }

    /// Returns how many entries the map has. Exact while no thread changes the map; else it counts
    /// some of the changes under way. Sums up to 64 counters in large maps. Never blocks.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(1, "one"), (2, "two")]);
    /// assert_eq!(map.len(), 2);
    /// assert!(!map.is_empty());
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether the map has no entries, as [`len`](Self::len) counts them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pinned! {
    /// A [`BTreeMap`] in a section of its domain: what [`BTreeMap::pin`], [`BTreeMap::with_guard`] and
    /// [`BTreeMap::pin_owned`] lead to.
    ///
    /// It has the methods that look into the map, and those that change it through a shared reference.
    /// Their results live as long as the section. It derefs to the map, which has the others.
    PinnedBTreeMap<K, V> of BTreeMap in store.home, for example "BTreeMap::<u32, u32>", "[(1, 10)]"
}

impl<K, V> PinnedBTreeMap<K, V> {
    #[inline(always)]
    pub(super) fn store(&self) -> &PinnedOrdered<K, V, Sound> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        unsafe { PinnedOrdered::of(&self.0.store) }
    }

    /// Visits the entries, in order. Which: see [the guarantees](BTreeMap#guarantees). The section is open
    /// meanwhile. No step blocks or allocates.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a"), (3, "c")]);
    /// let map = map.pin();
    /// assert!(map.iter().eq([(&1, &"a"), (&2, &"b"), (&3, &"c")]));
    /// assert_eq!(map.iter().next_back(), Some((&3, &"c")));
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(self.store().cursor())
    }

    /// Visits the keys, as [`iter`](Self::iter) does.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert!(map.pin().keys().eq(&[1, 2]));
    /// assert!(map.pin().values().rev().eq(&["b", "a"]));
    /// ```
    pub fn keys(&self) -> Keys<Iter<'_, K, V>> {
        Keys(self.iter())
    }

    /// Visits the values, in the order of their keys, as [`iter`](Self::iter) does.
    pub fn values(&self) -> Values<Iter<'_, K, V>> {
        Values(self.iter())
    }

    /// Returns the first entry: that with the least key. Never blocks, never allocates.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert_eq!(map.pin().first_key_value(), Some((&1, &"a")));
    /// assert_eq!(map.pin().last_key_value(), Some((&2, &"b")));
    /// ```
    #[doc(alias("min", "front", "first_entry"))]
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        Some(self.store().outermost(false)?.found()?.pair())
    }

    /// Returns the last entry: that with the greatest key. Otherwise as
    /// [`first_key_value`](Self::first_key_value).
    #[doc(alias("max", "back", "last_entry"))]
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        Some(self.store().outermost(true)?.found()?.pair())
    }
}

impl<K: Ord, V> PinnedBTreeMap<K, V> {
    /// Returns the value of a key. The key may be anything that the map's keys can be borrowed as: a
    /// `&str` for a `String`, say.
    ///
    /// Never blocks and never allocates; async-signal-safe as
    /// [the map says](BTreeMap#signals-and-forks).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.pin().get("a"), Some(&1));
    /// assert_eq!(map.pin().get("b"), None);
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Some(self.store().find(key)?.value())
    }

    /// Returns the key and the value of an entry; otherwise as [`get`](Self::get).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.pin().get_key_value("a"), Some((&"a".to_owned(), &1)));
    /// ```
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Some(self.store().find(key)?.pair())
    }

    /// Returns whether the map has an entry with this key; otherwise as [`get`](Self::get).
    ///
    /// ```
    /// assert!(stillpoint_map::BTreeMap::from([(1, "a")]).pin().contains_key(&1));
    /// ```
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.store().find(key).is_some()
    }

    /// Visits the entries of a range of keys, in order, from both ends.
    ///
    /// What is inserted meanwhile may be visited, unless it is behind the last entry that a range with
    /// an end has at this moment. Costs two look-ups, and the steps; never blocks, never allocates.
    ///
    /// ```
    /// use std::ops::Bound;
    /// let map: stillpoint_map::BTreeMap<u32, ()> = (0..100).map(|key| (key, ())).collect();
    /// let map = map.pin();
    /// let keys = |range: (Bound<u32>, Bound<u32>)| map.range(range).map(|(key, _)| *key).collect();
    /// let found: Vec<u32> = keys((Bound::Excluded(10), Bound::Included(13)));
    /// assert_eq!(found, [11, 12, 13]);
    /// assert_eq!(map.range(..50).next_back(), Some((&49, &())));
    /// ```
    ///
    /// # Panics
    ///
    /// As std's map, if the range begins behind its end, or begins
    /// and ends at the same excluded key.
    #[track_caller]
    pub fn range<Q, R>(&self, range: R) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let (low, high) = bounds(&range);
        let mut cursor = self.store().between(low, high);
        cursor.read_ahead();
        Iter(cursor)
    }

    /// Returns the first entry at or behind a bound: the least key that is not less than an
    /// [included](Bound::Included) one, or that is greater than an [excluded](Bound::Excluded) one;
    /// the first of all if it is [unbounded](Bound::Unbounded). Never blocks, never allocates.
    ///
    /// ```
    /// use std::ops::Bound;
    /// let map = stillpoint_map::BTreeMap::from([(10, "a"), (20, "b"), (30, "c")]);
    /// let map = map.pin();
    /// assert_eq!(map.lower_bound(Bound::Included(&20)), Some((&20, &"b")));
    /// assert_eq!(map.lower_bound(Bound::Excluded(&20)), Some((&30, &"c")));
    /// assert_eq!(map.lower_bound(Bound::Excluded(&30)), None);
    /// ```
    pub fn lower_bound<Q>(&self, bound: Bound<&Q>) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let found = self.store().between(bound, Bound::Unbounded).next()?;
        Some(found.pair())
    }

    /// Returns the last entry at or before a bound: the greatest key that is not greater than an
    /// [included](Bound::Included) one, or that is less than an [excluded](Bound::Excluded) one; the
    /// last of all if it is [unbounded](Bound::Unbounded). Never blocks, never allocates.
    ///
    /// ```
    /// use std::ops::Bound;
    /// let map = stillpoint_map::BTreeMap::from([(10, "a"), (20, "b"), (30, "c")]);
    /// let map = map.pin();
    /// assert_eq!(map.upper_bound(Bound::Included(&25)), Some((&20, &"b")));
    /// assert_eq!(map.upper_bound(Bound::Excluded(&20)), Some((&10, &"a")));
    /// assert_eq!(map.upper_bound(Bound::Excluded(&10)), None);
    /// ```
    pub fn upper_bound<Q>(&self, bound: Bound<&Q>) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let found = self.store().between(Bound::Unbounded, bound).next_back()?;
        Some(found.pair())
    }
}

/// Returns the bounds of a range. Panics as std's map, if it begins behind its end.
#[track_caller]
pub(super) fn bounds<Q: Ord + ?Sized>(range: &impl RangeBounds<Q>) -> (Bound<&Q>, Bound<&Q>) {
    let (low, high) = (range.start_bound(), range.end_bound());
    if let (
        Bound::Included(from) | Bound::Excluded(from),
        Bound::Included(to) | Bound::Excluded(to),
    ) = (low, high)
    {
        let is_empty = matches!((low, high), (Bound::Excluded(_), Bound::Excluded(_)));
        match from.cmp(to) {
            Is::Greater => panic!("the range begins behind its end"),
            Is::Equal if is_empty => panic!("the range begins and ends at an excluded key"),
            _ => {}
        }
    }
    (low, high)
}
