//! [`Builder`]: how a cache is set up.

use crate::{
    cache::{Cache, Inner},
    cause::Cause,
    clock::{Clock, ManualClock},
    container::{Container, max_for},
    listener::Listener,
    memory::{self, Memory},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    path::PathBuf,
    time::Duration,
};
use stillpoint_map::DefaultHashBuilder;
use stillpoint_platform::clock;

pub type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;
pub type IsPinned<K, V> = dyn Fn(&K, &V) -> bool + Send + Sync;
type ExpireAfter<K, V> = dyn Fn(&K, &V) -> Option<Duration> + Send + Sync;

/// How long entries last, in nanoseconds.
pub struct Expiry<K, V> {
    pub live: Option<u64>,
    pub idle: Option<u64>,
    pub after: Option<Box<ExpireAfter<K, V>>>,
}

/// Sets up a [`Cache`].
#[must_use = "nothing is made before `build`"]
pub struct Builder<K, V, S = DefaultHashBuilder> {
    max_bytes: Option<u64>,
    name: String,
    pub(crate) weigher: Option<Box<Weigher<K, V>>>,
    pub(crate) is_pinned: Option<Box<IsPinned<K, V>>>,
    pub(crate) expiry: Expiry<K, V>,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) clock: Clock,
    pub(crate) container: Option<Container>,
    pub(crate) hasher: S,
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            max_bytes: None,
            name: String::new(),
            weigher: None,
            is_pinned: None,
            expiry: Expiry {
                live: None,
                idle: None,
                after: None,
            },
            listener: None,
            clock: Clock::Monotonic,
            container: None,
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Sets how much all entries together may weigh.
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
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets what an entry weighs, in bytes, or in another unit that `max_bytes` is then in, too. 0
    /// counts as 1. By default the sizes of key and value, and 112 bytes: what an entry takes in the
    /// cache, its part of the map, and of the ghosts and counts by which entries are chosen. Of
    /// [`Bytes`](crate::Bytes) also their [footprint](crate::Bytes::footprint).
    ///
    /// It is called once for each insert, on the inserting thread, outside of locks and sections.
    /// What an entry weighs beyond its own block also counts against the
    /// [budget](stillpoint::Domain::set_budget) of unreclaimed memory, as bytes, from when it leaves
    /// the cache until it is dropped: unless neither key nor value has anything to drop.
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Box::new(weigher));
        self
    }

    /// Sets a function that says whether an entry is [pinned](Cache::pin) from the beginning. Called
    /// as the weigher is.
    pub fn is_pinned(mut self, pinned: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> Self {
        self.is_pinned = Some(Box::new(pinned));
        self
    }

    /// Sets how long after its insertion an entry expires.
    pub fn time_to_live(mut self, duration: Duration) -> Self {
        self.expiry.live = Some(clock::nanos(duration));
        self
    }

    /// Sets how long after its last use an entry expires: at least a sixteenth less than that. With
    /// it, no time to live is longer than 2.28 years.
    pub fn time_to_idle(mut self, duration: Duration) -> Self {
        self.expiry.idle = Some(clock::nanos(duration));
        self
    }

    /// Sets a function that says how long after its insertion an entry expires; `None` for what
    /// [`time_to_live`](Self::time_to_live) says. Called as the weigher is.
    pub fn expire_after(
        mut self,
        after: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.expiry.after = Some(Box::new(after));
        self
    }

    /// Sets a function that is told of each entry that leaves the cache, and why.
    ///
    /// It is called on the thread that has caused it, after that has left its section and all
    /// locks: it may use the cache. It gets clones. A panic ends its call alone.
    /// What the service thread of all caches takes out it is told of there: do not block in it.
    /// It is not called for an entry whose clone panics.
    pub fn eviction_listener(
        mut self,
        listener: impl Fn(&K, &V, Cause) + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone,
        V: Clone,
    {
        self.listener = Some(Listener {
            notify: Box::new(listener),
            clone: |key, value| (key.clone(), value.clone()),
        });
        self
    }

    /// Sets the cache's name, which is in `Debug`. Names need not differ.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how keys are hashed.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        Builder {
            max_bytes: self.max_bytes,
            name: self.name,
            weigher: self.weigher,
            is_pinned: self.is_pinned,
            expiry: self.expiry,
            listener: self.listener,
            clock: self.clock,
            container: self.container,
            hasher,
        }
    }

    #[doc(hidden)]
    pub fn container(mut self, root: impl Into<PathBuf>, group: impl Into<PathBuf>) -> Self {
        self.container = Some(Container::at(root.into(), group.into()));
        self
    }

    #[doc(hidden)]
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
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
    #[must_use]
    pub fn build(mut self) -> Cache<K, V, S> {
        self.container = match self.max_bytes {
            Some(_) => None,
            None => self.container.or_else(Container::find),
        };
        let of_container = || self.container.as_ref().map(Container::max);
        let max = self.max_bytes.or_else(of_container);
        let max = max.unwrap_or_else(|| max_for(u64::MAX));
        let name = std::mem::take(&mut self.name);
        if let Some(weigh) = memory::weigher() {
            self.weigher.get_or_insert(weigh);
        }
        let memory = Memory::of::<V>();
        let cache = Cache::of(Inner::new(self, name, max, memory));
        cache.be_visited();
        cache
    }
}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
