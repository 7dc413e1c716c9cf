//! `HashMap`: what it is, and the methods that read it in a section. [`crate::make`] has the functions that make one,
//! [`crate::change`] the methods that change it, [`crate::traits`] the traits of std.

use crate::{
    entry::Found,
    iter::{Iter, Keys, Values},
    make::make,
    pinned::pinned,
    slot::mix,
    store::{PinnedStore, Sound, Store},
};
use equivalent::Equivalent;
use std::{
    hash::{BuildHasher, Hash},
    panic::{RefUnwindSafe, UnwindSafe},
};
use stillpoint::internal::Kept;

/// The hasher of maps and sets that are made without one: foldhash, with a seed for each of them.
///
/// Its seeds make an attack by keys that collide harder. They are no proof against it: for keys
/// that an attacker chooses, take [`std::hash::RandomState`].
pub type DefaultHashBuilder = foldhash::fast::RandomState;

/// A hash map that many threads read and change at a time, through a shared reference.
///
/// A look-up takes no lock and writes nothing that other threads read. It returns a reference to
/// the value, which stays valid as long as the section that it was found in, whatever other threads
/// do to the map meanwhile.
///
/// ```
/// use std::thread;
/// use stillpoint_map::HashMap;
///
/// let sessions = HashMap::new();
/// thread::scope(|scope| {
///     for worker in 0..4_u64 {
///         let sessions = &sessions;
///         scope.spawn(move || {
///             let sessions = sessions.pin(); // a section, until it is dropped
///             for id in 0..1000 {
///                 sessions.insert(id * 4 + worker, format!("user {id}"));
///             }
///         });
///     }
/// });
/// let sessions = sessions.pin();
/// assert_eq!(sessions.len(), 4000);
/// let user = sessions.get(&40).unwrap();
/// sessions.remove(&40);
/// assert_eq!(user, "user 10"); // dropped after the section, not before
/// assert_eq!(sessions.get(&40), None);
/// ```
///
/// # Sections
///
/// All methods that look into the map, or change it through a shared reference, are those of a
/// [`PinnedHashMap`]: of the map in a read-side critical section of its domain. Their results live as
/// long as the section. There are three ways to one:
///
/// | | the section |
/// |---|---|
/// | [`map.pin()`](Self::pin) | begins now, and ends when the result, a [`MapGuard`](crate::MapGuard), is dropped |
/// | [`map.with_guard(&guard)`](Self::with_guard) | is that of a guard that you have: one for several maps |
/// | [`map.pin_owned()`](Self::pin_owned) | belongs to no thread: for tasks, see [below](#domains-and-async-tasks) |
///
/// ```
/// use stillpoint_map::HashMap;
///
/// let users = HashMap::from([(1, "ada"), (2, "bob")]);
/// let groups = HashMap::from([(1, "staff")]);
///
/// assert_eq!(users.pin().get(&2), Some(&"bob"));
///
/// let guard = stillpoint::read_lock(); // one section for both maps
/// let user = users.with_guard(&guard).get(&1);
/// let group = groups.with_guard(&guard).get(&1);
/// assert_eq!((user, group), (Some(&"ada"), Some(&"staff")));
/// ```
///
/// A section costs about a nanosecond, so begin one for each request rather than one for a long
/// loop: while it is open, nothing is freed that was removed in the meantime. A section that stays
/// open for ten seconds is reported. A guard of another domain would protect nothing, so `with_guard`
/// panics when it gets one.
///
/// A reference cannot leave its section:
///
/// ```compile_fail,E0716
/// # let map = stillpoint_map::HashMap::from([(1, "ada".to_owned())]);
/// let user = map.pin().get(&1).unwrap();
/// assert_eq!(user, "ada");
/// ```
///
/// # From another map
///
/// | you have | here |
/// |---|---|
/// | papaya: `map.pin()` | the same |
/// | papaya: `map.pin_owned()` | the same, of a map that was made in a [`TraceDomain`](stillpoint::tasks_trace::TraceDomain): see below |
/// | papaya: `map.guard()`, and `map.get(&key, &guard)` | [`stillpoint::read_lock`], and `map.with_guard(&guard).get(&key)` |
/// | papaya: `update(key, ..)`, `compute(key, ..)` | [`update(&key, ..)`](PinnedHashMap::update), [`compute(&key, ..)`](PinnedHashMap::compute): the key is borrowed |
/// | papaya: `Collector`, `shared_collector` | a [`Domain`](stillpoint::Domain). All maps share the global one, unless you say otherwise |
/// | papaya: `ResizeMode` | none: tables always move a few buckets at a time |
/// | dashmap: `map.get(&key)`, a `Ref` | `map.pin().get(&key)`, a reference. It locks nothing, so it can be held while the thread changes the map |
/// | dashmap: `get_mut`, `alter`, `entry().and_modify()` | [`update`](PinnedHashMap::update), [`compute`](PinnedHashMap::compute), or an atomic in the value; [`get_mut`](Self::get_mut) of a map that is borrowed mutably |
/// | dashmap: `entry().or_insert_with()` | [`get_or_insert_with`](PinnedHashMap::get_or_insert_with) |
/// | dashmap: `remove(&key)`, an owned entry | [`remove`](PinnedHashMap::remove), a reference: readers may still hold the value. Clone it, or keep an `Arc` in the map; or [`remove`](Self::remove) from a map that is borrowed mutably |
/// | `map.read().unwrap().get(&key)` | `map.pin().get(&key)` |
/// | `map.write().unwrap().insert(key, value)` | `map.pin().insert(key, value)` |
/// | `map.get_mut().unwrap().values_mut()` | [`map.values_mut()`](Self::values_mut): what takes `&mut self` is as std's |
/// | a `RwLock` that is held over several keys | keep the lock, or an [`Rcu<HashMap>`](stillpoint::Rcu) of std's map: here each key changes by itself |
///
/// # Guarantees
///
/// * **Single keys.** Each operation on one key is linearizable: it takes effect at one instant
///   between its call and its return. That holds for `get` as for `compute`, also while the table
///   grows or shrinks.
/// * **Iteration** visits every key that is in the map throughout exactly once, also while the
///   table grows or shrinks. A key that comes, goes or is replaced meanwhile is visited in one of
///   its states, or not. (One that is removed and inserted again may be visited twice.)
/// * **[`len`](Self::len)** is exact while no thread changes the map.
/// * **Entries never move.** An entry lies where it was allocated until it is replaced or removed,
///   so values may have interior mutability: an increment of a counter in the map is never lost to
///   a resize.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use stillpoint_map::HashMap;
///
/// let hits: HashMap<&str, AtomicU64> = HashMap::new();
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             for page in ["/", "/help"].into_iter().cycle().take(2000) {
///                 let hits = hits.pin();
///                 hits.get_or_insert_with(page, AtomicU64::default).fetch_add(1, Ordering::Relaxed);
///             }
///         });
///     }
/// });
/// assert_eq!(hits.pin().get("/").unwrap().load(Ordering::Relaxed), 2000);
/// ```
///
/// # Your code, and locks
///
/// No lock is held and no other thread waits while your code runs. It may block, panic, or use the
/// map again. `Hash`, `Eq` and closures run on the calling thread. A closure of
/// [`update`](PinnedHashMap::update) or [`compute`](PinnedHashMap::compute) runs again if another thread was faster.
/// Resizes call none of it: they use stored hashes.
///
/// Values and keys that were replaced or removed are dropped after a grace period, on the domain's
/// service thread; those that own nothing are just freed, by the thread that removed them. What is
/// left in a map is dropped by the thread that drops the map, and what was not inserted, such as the key of a
/// [`try_insert`](PinnedHashMap::try_insert) that is refused, by the caller. If a drop panics on the service
/// thread, the panic is caught and counted
/// ([`Statistics`](stillpoint::Statistics)).
///
/// Wrong implementations of `Hash` and `Eq` lead to entries that are not found, or found twice, and
/// to nothing worse.
///
/// # Costs
///
/// | | |
/// |---|---|
/// | [`new`](Self::new) | allocates nothing; the map is a few words |
/// | [`get`](PinnedHashMap::get) | hashes the key, reads a cache line of the table and the entry. Never blocks, never allocates |
/// | [`insert`](PinnedHashMap::insert), [`update`](PinnedHashMap::update) | a slot for the entry (an allocation while the map is small), and the lock of one bucket for some nanoseconds |
/// | [`remove`](PinnedHashMap::remove) | the lock of one bucket, and a retire |
/// | growth, shrinking | incremental: while a table moves, each insert and removal moves 16 buckets, and the domain's service thread moves the rest; of a table of 2 MiB and more it first makes the memory, and for a while they move none |
/// | [`len`](Self::len) | sums up to 64 counters in large maps |
/// | iteration | reads the table in order; no allocation |
/// | memory | 8 bytes an entry beside key and value, in large maps without an allocator's rounding, and 64 bytes for each bucket: some 17 to 32 bytes an entry as it grows, up to 64 after removals, and as much again for chains where keys come and go; a capacity that was asked for stays |
///
/// A map that has lost most of its entries shrinks by itself, also when no thread uses it any more,
/// to the capacity that it was made with ([`with_capacity`](Self::with_capacity),
/// [`reserve`](PinnedHashMap::reserve)), or below that after [`shrink_to_fit`](PinnedHashMap::shrink_to_fit). The capacity
/// that `collect` and `clone` begin with is not kept.
///
/// A capacity of which entries use little takes addresses, and memory for the pages with entries: 2 MiB
/// each of a large table that was made so, and 4 KiB each of one to which a map with few entries has moved,
/// until Linux joins pages to huge ones (`khugepaged`). Moves, iterations, clones and the drop of a map take
/// time for the entries, and for two bits of each 4 KiB of the table. Iterations and clones of a map whose
/// table moves take time for its capacity.
///
/// Entries of up to 512 bytes of a map of some five hundred and more lie side by side, in regions of 2 MiB
/// that are mapped for this map: in huge pages where the system gives them and the map has a
/// megabyte of entries. Entries that are alone, of the many that a region had, keep 32 KiB each; what
/// lies between goes back to the system at once, but for an eighth of what is in use.
///
/// # Memory that is not yet freed
///
/// Entries that were replaced or removed count against the
/// [budget](stillpoint::Domain::set_budget) of the map's domain, with their own size, and with 1 KiB at least if
/// they have a destructor: what keys and values own is counted if the map is told how much that is
/// ([`weighing`](Self::weighing)). A thread that changes maps faster than readers leave is throttled at the end of
/// its section, for a bounded time; see [`Domain`](stillpoint::Domain). Tables of 128 KiB and more that were replaced do not count. They
/// are given back after a grace period.
///
/// # Domains and async tasks
///
/// A map belongs to the global domain, or to the one that it was made in
/// ([`new_in`](Self::new_in)), which it keeps alive. A domain is for a group of readers: those of
/// one that sleep or hang hold up no other.
///
/// What [`pin`](Self::pin) returns must not be held across an `.await`
/// ([`MapGuard`](crate::MapGuard) says how clippy finds that). For tasks, make the map in a
/// [`TraceDomain`](stillpoint::tasks_trace::TraceDomain), and use [`pin_owned`](Self::pin_owned), whose
/// section may move between threads:
///
/// ```
/// use stillpoint::tasks_trace::TraceDomain;
/// use stillpoint_map::HashMap;
///
/// # async fn ask_the_database(_user: &str) -> u32 { 7 }
/// async fn handle(sessions: &HashMap<u64, String>, id: u64) -> Option<u32> {
///     let sessions = sessions.pin_owned();
///     let user = sessions.get(&id)?;
///     Some(ask_the_database(user).await) // may go on on another thread
/// }
///
/// let sessions = HashMap::new_in(&TraceDomain::new());
/// sessions.pin().insert(1, "ada".to_owned()); // no `.await` here
/// fn is_send<T: Send>(task: T) -> T { task }
/// # let waker = std::task::Waker::noop();
/// # let mut context = std::task::Context::from_waker(&waker);
/// let task = is_send(handle(&sessions, 1)); // a runtime with many threads takes it
/// # let mut task = std::pin::pin!(task);
/// # assert_eq!(task.as_mut().poll(&mut context), std::task::Poll::Ready(Some(7)));
/// ```
///
/// # Signals and forks
///
/// Looking up, iterating and `len` are async-signal-safe, in a thread that has read in the map's
/// domain before, if `Hash` and `Eq` of the key are. Changing a map is not.
///
/// In the child of a fork the map works. What another thread was inserting or removing at that
/// instant has been done or has not; `len` may then be off by what was under way, and its entry may
/// be leaked. If a thread was making or giving back a run of slots, the child leaks the memory of the
/// map's entries of before the fork when it removes them.
///
/// # Keys that an attacker chooses
///
/// The [default hasher](DefaultHashBuilder) makes it harder to find keys that collide. It is no proof
/// against an attacker who chooses the keys: many with one hash make each look-up of them as long as
/// their chain. For such keys take [`RandomState`](std::hash::RandomState):
///
/// ```
/// use std::hash::RandomState;
/// use stillpoint_map::HashMap;
///
/// let users: HashMap<String, u32, RandomState> = HashMap::default();
/// users.pin().insert("ada".to_owned(), 1);
/// ```
///
/// # Limits
///
/// * Entries lie at addresses of 48 bits. Systems and allocators give no others unless a program asks its
///   system for them; inserts panic then.
/// * Forks inside children nest 62 deep. In deeper ones, a bucket that a thread of an ancestor had
///   locked at its fork may never be unlocked.
/// * Without memory the process ends, as with std's map;
///   [`try_reserve`](PinnedHashMap::try_reserve) returns an error.
pub struct HashMap<K, V, S = DefaultHashBuilder> {
    pub(crate) store: Store<K, V>,
    pub(crate) hasher: S,
}

// A panic in user code leaves the map as it was before the call, or after it. What can be broken
// are keys and values, which are used by reference.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for HashMap<K, V, S> {}
impl<K: UnwindSafe, V: UnwindSafe, S: UnwindSafe> UnwindSafe for HashMap<K, V, S> {}

make! { HashMap<K, V; S> in store.root, of "entries", for example "u32, u32" }

impl<K, V, S> HashMap<K, V, S> {
    pub(crate) const fn of(hasher: S, domain: Option<Kept>) -> Self {
        let store = Store::new(domain);
        Self { store, hasher }
    }

    /// Returns this map, whose entries count with what they own when they are retired: `weigh`
    /// returns the bytes that a key and its value own beside the entry, as
    /// [`Weigh`](stillpoint::Weigh) does for types of `std`.
    ///
    /// Without it an entry counts with its own size, and with 1 KiB at least if it has a destructor,
    /// whatever it refers to. With it, what was
    /// replaced or removed and is not freed yet counts against the domain's budget in full; see
    /// [`Domain::retire_weighed`](stillpoint::Domain::retire_weighed).
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

    /// Returns the map's hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Visits the next entries, at least `count` or those of 16 times as many buckets, in a section
    /// that ends before this returns. Returns whether there may be more.
    ///
    /// So a long iteration does not keep memory from being freed, and may sleep between its steps.
    /// All steps together visit what [`iter`](PinnedHashMap::iter) would. A step ends with the last entry of
    /// a bucket. If `visit` panics, the next step begins with that bucket again.
    ///
    /// ```
    /// use stillpoint_map::{Cursor, HashMap};
    ///
    /// let map: HashMap<u32, u32> = (0..1000).map(|key| (key, key)).collect();
    /// let (mut cursor, mut sum) = (Cursor::start(), 0);
    /// while map.scan(&mut cursor, 100, |_, value| sum += value) {
    ///     std::thread::yield_now(); // outside of any section
    /// }
    /// assert_eq!(sum, 499_500);
    /// ```
    pub fn scan(&self, cursor: &mut Cursor, count: usize, mut visit: impl FnMut(&K, &V)) -> bool {
        let pinned = self.pin();
        let mut entries = pinned.store().iter_from(cursor.0);
        let count = count.max(1);
        let (mut visited, mut buckets) = (0, 0);
        while cursor.0.is_some() && visited < count && buckets / 16 < count {
            for entry in entries.next_home() {
                visit(&entry.get().key, &entry.get().value);
                visited += 1;
            }
            buckets += 1;
            cursor.0 = entries.position();
        }
        cursor.0.is_some()
    }
}

/// The hash of a key, spread but for one bit ([`mix`]).
#[inline(always)]
pub(crate) fn hash_of<Q: Hash + ?Sized, S: BuildHasher>(hasher: &S, key: &Q) -> u64 {
    // Also that of the default hasher: what it makes of a number is a product, whose high bits keep
    // equal distances. With one seed in twelve, 15 % to 85 % of a sequence would be behind links.
    mix(hasher.hash_one(key))
}

/// A position in a map, which stays good while the map changes: see [`HashMap::scan`].
#[derive(Clone, Debug)]
pub struct Cursor(pub(crate) Option<u64>);

impl Cursor {
    /// The position before the first entry.
    #[must_use]
    pub const fn start() -> Self {
        Self(Some(0))
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::start()
    }
}

pinned! {
    /// A [`HashMap`] in a section of its domain: what [`HashMap::pin`], [`HashMap::with_guard`] and
    /// [`HashMap::pin_owned`] lead to.
    ///
    /// It has the methods that look into the map, and those that change it through a shared reference.
    /// Their results live as long as the section. It derefs to the map, which has the others.
    ///
    /// Other threads may use a reference to it while the guard lives. One that changes the map should pin it
    /// itself: a change outside a section may wait for this one, which does not end before that thread is
    /// joined.
    ///
    /// ```
    /// use stillpoint_map::{HashMap, PinnedHashMap};
    ///
    /// fn total(stock: &PinnedHashMap<&str, u32>) -> u32 {
    ///     stock.values().sum()
    /// }
    /// assert_eq!(total(&HashMap::from([("apple", 3), ("pear", 4)]).pin()), 7);
    /// ```
    PinnedHashMap<K, V, S = DefaultHashBuilder> of HashMap in store.root.home, for example "HashMap::<u32, u32>", "[(1, 10)]"
}

impl<K, V, S> PinnedHashMap<K, V, S> {
    #[inline(always)]
    pub(crate) fn store(&self) -> &PinnedStore<K, V, Sound> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        unsafe { PinnedStore::of(&self.0.store) }
    }

    /// Returns how many entries the map may have before its table grows.
    pub fn capacity(&self) -> usize {
        self.store().capacity()
    }

    /// Visits the entries, in no particular order. Which: see [the guarantees](HashMap#guarantees).
    ///
    /// The section is open meanwhile. For a loop that takes its time, see [`HashMap::scan`].
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(self.store().iter())
    }

    /// Visits the keys, as [`iter`](Self::iter) does.
    pub fn keys(&self) -> Keys<Iter<'_, K, V>> {
        Keys(self.iter())
    }

    /// Visits the values, as [`iter`](Self::iter) does.
    pub fn values(&self) -> Values<Iter<'_, K, V>> {
        Values(self.iter())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> PinnedHashMap<K, V, S> {
    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        hash_of(&self.hasher, key)
    }

    #[inline(always)]
    pub(crate) fn find<Q>(&self, key: &Q) -> Option<Found<'_, K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let is_it = |other: &K| key.equivalent(other);
        self.store().look_up(self.hash(key), is_it)
    }

    /// Returns the value of a key. The key may be anything that hashes and compares like one
    /// ([`Equivalent`]): a `&str` for a `String`, say.
    ///
    /// Never blocks and never allocates; async-signal-safe as
    /// [the map says](HashMap#signals-and-forks).
    #[inline(always)]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(&self.find(key)?.get().value)
    }

    /// Returns the key and the value of an entry; otherwise as [`get`](Self::get).
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.find(key)?.get().pair())
    }

    /// Returns whether the map has an entry with this key; otherwise as [`get`](Self::get).
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key).is_some()
    }
}
