//! [`Builder`]: how a cache is set up.

use crate::{
    cache::{Cache, Expiry, Inner, Settings},
    clock::{Clock, ManualClock},
    container::{Container, max_for},
    listener::Listener,
    memory::Memory,
    removal::Cause,
    weigh::{Scale, Unit},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    mem::needs_drop,
    path::PathBuf,
    time::Duration,
};
use stillpoint::Weigh;
use stillpoint_map::DefaultHashBuilder;
use stillpoint_platform::clock;

/// State of a [`Builder`]: the limit is in bytes, and keys and values implement [`Weigh`].
#[derive(Debug)]
pub struct Unweighed(());

/// State of a [`Builder`]: the limit is in bytes, and a [weigher](Builder::weigher) returns the bytes that an
/// entry owns.
#[derive(Debug)]
pub struct Weighed(());

/// State of a [`Builder`]: the limit is not in bytes.
#[derive(Debug)]
pub struct Counted(());

/// The states of a [`Builder`] whose limit is in bytes.
#[diagnostic::on_unimplemented(
    message = "the limit of this cache is not in bytes",
    note = "call either `max_bytes`, or `max_entries` or `max_weight`"
)]
pub trait InBytes: sealed::Sealed {}

/// The states of a [`Builder`] in which keys and values need not implement [`Weigh`].
pub trait Complete: sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Unweighed {}
    impl Sealed for super::Weighed {}
    impl Sealed for super::Counted {}
}

impl InBytes for Unweighed {}
impl InBytes for Weighed {}
impl Complete for Weighed {}
impl Complete for Counted {}

/// Sets up a [`Cache`].
///
/// The limit is in bytes ([`max_bytes`](Self::max_bytes)), in entries
/// ([`max_entries`](Self::max_entries)), or in a unit of the program
/// ([`max_weight`](Self::max_weight)). The last parameter is which of these it is.
///
/// ```
/// use std::time::Duration;
/// use stillpoint_cache::Cache;
///
/// let pages: Cache<u64, String> = Cache::builder()
///     .name("pages")
///     .max_bytes(64 << 20) // with what keys, values and the cache itself take
///     .time_to_live(Duration::from_secs(300))
///     .build();
/// pages.insert(1, "one".to_owned());
/// ```
#[must_use = "nothing is made before `build`"]
pub struct Builder<K, V, S = DefaultHashBuilder, W = Unweighed> {
    pub(crate) settings: Settings<K, V>,
    pub(crate) hasher: S,
    state: PhantomData<fn() -> W>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Makes a cache whose entries take `bytes` bytes of memory together, at most, with what keys and
    /// values own and what the cache needs for them: see
    /// [`Builder::max_bytes`](Builder::max_bytes).
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<String, Vec<u8>> = Cache::with_bytes(64 << 20);
    /// cache.insert("page".to_owned(), vec![7; 1000]);
    /// assert!(cache.weighted_bytes() > 1000);
    /// ```
    #[must_use]
    pub fn with_bytes(bytes: u64) -> Self
    where
        K: Weigh,
        V: Weigh,
    {
        Builder::new().max_bytes(bytes).build()
    }

    /// Makes a cache of `entries` entries, at most: see
    /// [`Builder::max_entries`](Builder::max_entries).
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::with_entries(1000);
    /// (0..2000).for_each(|key| cache.insert(key, key));
    /// assert_eq!(cache.entry_count(), 1000);
    /// ```
    #[must_use]
    pub fn with_entries(entries: u64) -> Self {
        Builder::new().max_entries(entries).build()
    }

    /// Begins to set up a cache.
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings {
                max: None,
                name: String::new(),
                scale: Scale {
                    unit: Unit::Bytes,
                    owned: None,
                },
                is_pinned: None,
                expiry: Expiry {
                    live: None,
                    idle: None,
                    after: None,
                },
                listener: None,
                clock: Clock::Monotonic,
                container: None,
            },
            hasher: DefaultHashBuilder::default(),
            state: PhantomData,
        }
    }
}

impl<K, V, S, W: InBytes> Builder<K, V, S, W> {
    /// Sets the most bytes of memory that all entries together may take.
    ///
    /// An entry counts with the sizes of key and value, the bytes that they own ([`Weigh`], or a
    /// [weigher](Self::weigher)), and 112 bytes for its head and its part of the map and of the ghosts and
    /// counts that choose victims; 32 more if it expires. Tenants count against no limit, only their entries do:
    /// see [`Cache`](crate::Cache).
    ///
    /// By default half of what the container may use (the least `memory.max` or `memory.high` of the
    /// process's control group, version 2, and those above it), or a quarter of the machine's memory
    /// where it has no limit. That is followed: a service thread looks once a second whether the
    /// limit has changed, and evicts an eighth of the cache when the group of the least limit has met
    /// it (`memory.events`, of whose changes the kernel tells) and is full: pages of files that are
    /// not used (`inactive_file` of `memory.stat`) not counted, above 15/16 of it. To be told takes two
    /// descriptors of the process, and one of its user's inotify instances; without them it looks
    /// once a second. One of the descriptors stays when no cache follows its container any more.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.settings.max = Some(bytes);
        self
    }

    /// Sets a function that returns how many bytes of heap a key and its value own, for types that do not
    /// implement [`Weigh`]. The cache adds the rest: see [`max_bytes`](Self::max_bytes).
    ///
    /// It is called once for each insert, on the inserting thread, outside of locks and sections. If
    /// it panics, nothing is inserted. These bytes also count against the
    /// [budget](stillpoint::Domain::set_budget) of unreclaimed memory, from when the entry leaves the cache
    /// until it is dropped, unless neither key nor value has a destructor.
    pub fn weigher(
        mut self,
        owned: impl Fn(&K, &V) -> u64 + Send + Sync + 'static,
    ) -> Builder<K, V, S, Weighed> {
        self.settings.scale.owned = Some(Box::new(owned));
        self.into_state()
    }
}

impl<K, V, S> Builder<K, V, S, Counted> {
    /// Sets a function that returns how many bytes of heap a key and its value own. They count against the
    /// [budget](stillpoint::Domain::set_budget) of unreclaimed memory from when the entry leaves the cache
    /// until it is dropped, unless neither key nor value has a destructor.
    ///
    /// It is called once for each insert, on the inserting thread, outside of locks and sections. If
    /// it panics, nothing is inserted. The limit stays in its unit:
    ///
    /// ```compile_fail,E0599
    /// stillpoint_cache::Cache::<u64, Vec<u8>>::builder()
    ///     .max_entries(100)
    ///     .weigher(|_, value| value.len() as u64)
    ///     .max_bytes(1 << 20);
    /// ```
    pub fn weigher(mut self, owned: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.scale.owned = Some(Box::new(owned));
        self
    }
}

impl<K, V, S, W> Builder<K, V, S, W> {
    fn into_state<T>(self) -> Builder<K, V, S, T> {
        Builder {
            settings: self.settings,
            hasher: self.hasher,
            state: PhantomData,
        }
    }

    /// Sets the largest number of entries.
    ///
    /// Evicted entries count against the [budget](stillpoint::Domain::set_budget) of unreclaimed memory
    /// until they are dropped, with the bytes that they own. The cache can tell these for std's strings and
    /// byte vectors, boxes and `Arc`s of these, and [`Bytes`](crate::Bytes). A key or value of another type
    /// that has a destructor counts as 1 KiB: if it owns more, give a [weigher](Self::weigher), too.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// struct Frame(Vec<u32>);
    ///
    /// let frames = Cache::builder()
    ///     .max_entries(100)
    ///     .weigher(|_: &u64, frame: &Frame| 4 * frame.0.len() as u64)
    ///     .build();
    /// frames.insert(1, Frame(vec![0; 1024]));
    /// assert_eq!(frames.weighted_bytes(), 1);
    /// ```
    pub fn max_entries(mut self, entries: u64) -> Builder<K, V, S, Counted> {
        self.settings.max = Some(entries);
        self.settings.scale.unit = Unit::Entries;
        self.into_state()
    }

    /// Sets the largest total weight of all entries, in a unit of the program, and a function that returns
    /// the weight of an entry: 0 counts as 1. All limits are then in that unit.
    ///
    /// The budget of unreclaimed memory is in bytes, so weights do not count there: see
    /// [`max_entries`](Self::max_entries). If the unit is bytes, give the same function as
    /// [weigher](Self::weigher). `weigh` is called as that one is.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let rows: Cache<u64, Vec<u64>> = Cache::builder()
    ///     .max_weight(1000, |_, rows: &Vec<u64>| rows.len() as u64)
    ///     .build();
    /// rows.insert(1, vec![1, 2, 3]);
    /// assert_eq!(rows.weighted_bytes(), 3);
    /// ```
    pub fn max_weight(
        mut self,
        max: u64,
        weigh: impl Fn(&K, &V) -> u64 + Send + Sync + 'static,
    ) -> Builder<K, V, S, Counted> {
        self.settings.max = Some(max);
        self.settings.scale.unit = Unit::Other(Box::new(weigh));
        self.into_state()
    }

    /// Sets a function that says whether an entry is [pinned](Cache::pin) from the beginning. Called
    /// as the weigher is.
    pub fn is_pinned(mut self, pinned: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> Self {
        self.settings.is_pinned = Some(Box::new(pinned));
        self
    }

    /// Sets how long after its insertion an entry expires.
    pub fn time_to_live(mut self, duration: Duration) -> Self {
        self.settings.expiry.live = Some(clock::nanos(duration));
        self
    }

    /// Sets how long after its last use an entry expires: at least a sixteenth less than that. With
    /// it, no time to live is longer than 2.28 years, and that of an entry that is used ends up to 17 ms
    /// early.
    pub fn time_to_idle(mut self, duration: Duration) -> Self {
        self.settings.expiry.idle = Some(clock::nanos(duration));
        self
    }

    /// Sets a function that says how long after its insertion an entry expires; `None` for what
    /// [`time_to_live`](Self::time_to_live) says. Called as the weigher is.
    pub fn expire_after(
        mut self,
        after: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.settings.expiry.after = Some(Box::new(after));
        self
    }

    /// Sets a function that is told of each entry that leaves the cache, and why.
    ///
    /// It is called on the thread that takes the entry out, outside of sections and locks: it may use the
    /// cache. It gets clones. A panic ends its call alone.
    ///
    /// It is never called inside of itself, not even from a destructor of a thread-local. If it removes
    /// entries, it is told of them after it has returned, before the call that it was called from returns.
    /// If it removes more while it is told of those, it is told of 128 of the later ones, and not of the
    /// rest: so a listener that inserts again whatever is evicted does not keep a caller busy for ever, and
    /// no queue grows.
    ///
    /// The service thread of all caches calls it, too: do not block in it. It is not called for an entry whose
    /// clone panics.
    pub fn eviction_listener(
        mut self,
        listener: impl Fn(&K, &V, Cause) + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone,
        V: Clone,
    {
        self.settings.listener = Some(Listener::new(listener));
        self
    }

    /// Sets the cache's name, which is in `Debug`. Names need not differ.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets how keys are hashed. For keys that an attacker chooses take
    /// [`RandomState`](std::hash::RandomState): the default hasher is no proof against keys that collide.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T, W> {
        Builder {
            settings: self.settings,
            hasher,
            state: PhantomData,
        }
    }

    #[doc(hidden)]
    pub fn container(mut self, root: impl Into<PathBuf>, group: impl Into<PathBuf>) -> Self {
        self.settings.container = Some(Container::at(root.into(), group.into()));
        self
    }

    /// Sets a clock by which entries expire, for tests: see [`ManualClock`].
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.settings.clock = Clock::Manual(clock);
        self
    }
}

impl<K, V, S> Builder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes the cache.
    ///
    /// ```compile_fail,E0277
    /// #[derive(PartialEq, Eq, Hash)]
    /// struct Key(String);
    ///
    /// // `Key` does not say how many bytes it owns: `max_entries`, a `weigher`, or `Weigh` for `Key`.
    /// stillpoint_cache::Cache::<Key, u64>::builder().max_bytes(1 << 20).build();
    /// ```
    #[must_use]
    pub fn build(self) -> Cache<K, V, S>
    where
        K: Weigh,
        V: Weigh,
    {
        if !needs_drop::<K>() && !needs_drop::<V>() {
            // They own nothing.
            return self.settings.build(self.hasher);
        }
        let owned = |key: &K, value: &V| {
            let owned = key.heap_bytes().saturating_add(value.heap_bytes());
            owned as u64
        };
        self.weigher(owned).build()
    }
}

impl<K, V, S, W: Complete> Builder<K, V, S, W>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes the cache.
    #[must_use]
    pub fn build(self) -> Cache<K, V, S> {
        self.settings.build(self.hasher)
    }
}

impl<K, V> Settings<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn build<S>(mut self, hasher: S) -> Cache<K, V, S>
    where
        S: BuildHasher + Send + Sync + 'static,
    {
        self.container = match self.max {
            Some(_) => None,
            None => self.container.or_else(Container::find),
        };
        let of_container = || self.container.as_ref().map(Container::max);
        let max = self.max.or_else(of_container);
        let max = max.unwrap_or_else(|| max_for(u64::MAX));
        let cache = Cache::of(Inner::new(self, hasher, max, Memory::of::<V>()));
        cache.be_visited();
        cache
    }
}

impl<K, V, S, W> fmt::Debug for Builder<K, V, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.settings.name)
            .field("max", &self.settings.max)
            .finish_non_exhaustive()
    }
}
