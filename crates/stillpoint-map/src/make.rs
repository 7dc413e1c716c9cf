//! How maps are made.

use crate::{
    map::{DefaultHashBuilder, HashMap},
    store::Store,
};
use stillpoint::Domain;

impl<K, V> HashMap<K, V> {
    /// Makes an empty map of the global domain. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    /// Makes an empty map of `domain`, which it keeps alive. Does not allocate.
    ///
    /// ```
    /// use stillpoint::Domain;
    /// use stillpoint_map::HashMap;
    ///
    /// let domain = Domain::new();
    /// let map = HashMap::new_in(&domain);
    /// map.pin().insert(1, "one");
    /// assert_eq!(map.with_guard(&domain.read_lock()).get(&1), Some(&"one"));
    /// ```
    #[must_use]
    pub fn new_in(domain: &Domain) -> Self {
        Self::with_hasher_in(DefaultHashBuilder::default(), domain)
    }

    /// Makes a map of `domain`, which it keeps alive, with capacity for `capacity` entries, as
    /// [`with_capacity`](Self::with_capacity) does.
    ///
    /// ```
    /// let domain = stillpoint::Domain::new();
    /// let map = stillpoint_map::HashMap::<u64, u64>::with_capacity_in(1000, &domain);
    /// assert!(map.pin().capacity() >= 1000);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, domain: &Domain) -> Self {
        Self::with_capacity_and_hasher_in(capacity, DefaultHashBuilder::default(), domain)
    }

    /// Makes a map of the global domain with capacity for `capacity` entries: its table does not
    /// grow before it has more. See [`with_capacity_and_hasher`](Self::with_capacity_and_hasher).
    ///
    /// Without memory for the table the process ends, as with std's map;
    /// [`try_reserve`](crate::PinnedHashMap::try_reserve) returns an error instead.
    ///
    /// # Panics
    ///
    /// If no table can be so large: "capacity overflow".
    #[must_use]
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, DefaultHashBuilder::default())
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Makes an empty map of the global domain, with a hasher. Does not allocate.
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use stillpoint_map::HashMap;
    ///
    /// // A constant hasher makes a map that a `static` can hold.
    /// static ROUTES: HashMap<u32, &str, BuildHasherDefault<DefaultHasher>> =
    ///     HashMap::with_hasher(BuildHasherDefault::new());
    /// ROUTES.pin().insert(1, "eth0");
    /// assert_eq!(ROUTES.pin().get(&1), Some(&"eth0"));
    /// ```
    #[must_use]
    pub const fn with_hasher(hasher: S) -> Self {
        Self {
            store: Store::new(None),
            hasher,
        }
    }

    /// Makes an empty map of `domain`, which it keeps alive, with a hasher. Does not allocate.
    #[must_use]
    pub fn with_hasher_in(hasher: S, domain: &Domain) -> Self {
        Self {
            store: Store::new(Some(domain.into())),
            hasher,
        }
    }

    /// Makes a map of the global domain with a hasher and capacity for `capacity` entries: its
    /// table does not grow before it has more, and does not shrink below that, except by
    /// [`shrink_to_fit`](crate::PinnedHashMap::shrink_to_fit).
    ///
    /// Without memory for the table the process ends.
    ///
    /// # Panics
    ///
    /// If no table can be so large: "capacity overflow".
    #[must_use]
    #[track_caller]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self::with_hasher(hasher).with_room(capacity)
    }

    /// Makes a map of `domain`, which it keeps alive, with a hasher and capacity for `capacity`
    /// entries, as [`with_capacity_and_hasher`](Self::with_capacity_and_hasher) does.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_and_hasher_in(capacity: usize, hasher: S, domain: &Domain) -> Self {
        Self::with_hasher_in(hasher, domain).with_room(capacity)
    }

    #[track_caller]
    fn with_room(self, capacity: usize) -> Self {
        self.store.root.make_room(capacity, true);
        self
    }

    /// Makes a map of the global domain with room for the entries that an iterator says it has. It shrinks
    /// like one that has grown to them.
    #[track_caller]
    pub(crate) fn with_hint(entries: usize, hasher: S) -> Self {
        let map = Self::with_hasher(hasher);
        map.store.root.make_room(entries, false);
        map
    }

    /// Returns this map, whose entries count with what they own when they are retired: `weigh`
    /// returns the bytes that a key and its value own beside the entry, as
    /// [`Weigh`](stillpoint::Weigh) does for types of `std`.
    ///
    /// Without it an entry counts with its own size, and with 1 KiB at least if it has a destructor,
    /// whatever it refers to. With it, what was
    /// replaced or removed and is not freed yet counts against the domain's budget in full; see
    /// [`Domain::retire_weighed`].
    ///
    /// `weigh` is called once for each entry that is replaced or removed, by the thread that does
    /// that, inside its section, with nothing locked. An estimate is enough; it should be quick. If
    /// it panics, that is caught and counted
    /// ([`Statistics::panics`](stillpoint::Statistics::panics)), and the entry counts with its own
    /// size. It may use the map; what it removes itself is not weighed, nor is an entry that has
    /// nothing to drop.
    ///
    /// ```
    /// use stillpoint::{Domain, Weigh};
    /// use stillpoint_map::HashMap;
    ///
    /// let domain = Domain::new();
    /// let pages = HashMap::new_in(&domain).weighing(|_: &u64, page: &Box<[u8]>| page.heap_bytes());
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
}
