//! What a cache knows of memory: the arena of its values, and what has left the process when it was
//! told to shrink.

use crate::{
    arena::{Arena, Bytes, NoMemory},
    builder::Weigher,
    cache::Cache,
    cause::InsertError,
    compact::Compaction,
    keeper,
    node::NEVER,
    put::OVERHEAD,
    statistics::{Event, Statistics},
};
use std::{
    any::{Any, TypeId},
    fs,
    hash::{BuildHasher, Hash},
};
use stillpoint_platform::{
    clock::{self, Nanos},
    sync::{AtomicU64, Ordering},
};

/// After a shrink what has left the process is measured so much later: readers leave, and frees and
/// moves have an end by then, as a rule.
const SETTLED: Nanos = 250_000_000;

/// Part of a cache.
#[derive(Debug)]
pub struct Memory {
    /// Where values are [`Bytes`].
    pub arena: Option<Arena>,
    pub compaction: Compaction,
    shrinks: Shrinks,
}

/// What came of shrinking. Relaxed throughout: they are counts, and `due` is a time of a shrink that
/// has ended, whatever else is seen.
#[derive(Debug)]
struct Shrinks {
    asked: AtomicU64,
    charged: AtomicU64,
    left: AtomicU64,
    /// When those are measured that have not been: [`NEVER`] while one is under way, 0 for none.
    due: AtomicU64,
    /// What was resident before the first of these; 0 if that is not known.
    before: AtomicU64,
}

impl Shrinks {
    fn new() -> Self {
        let [asked, charged, left, due, before] = [0; 5].map(AtomicU64::new);
        Self {
            asked,
            charged,
            left,
            due,
            before,
        }
    }

    /// Puts off what is due: not before this one has ended.
    fn begin(&self, resident: impl FnOnce() -> u64) {
        if self.due.swap(NEVER, Ordering::Relaxed) == 0 {
            self.before.store(resident(), Ordering::Relaxed);
        }
    }

    /// Says when it is due; unless another one has ended meanwhile, and all has been measured.
    fn end(&self, due: Nanos) {
        let later = |old| (old != 0).then_some(due);
        let _ = self
            .due
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// When those are due that have not been measured, and what was resident before them.
    fn pending(&self) -> Option<(Nanos, u64)> {
        let due = self.due.load(Ordering::Relaxed);
        (due != 0).then(|| (due, self.before.load(Ordering::Relaxed)))
    }

    /// Notes that they have been measured, unless another one has begun since: then it returns when
    /// that is due.
    fn measured(&self, due: Nanos) -> Result<(), Nanos> {
        let set = self
            .due
            .compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed);
        set.map(|_| ())
    }
}

impl Memory {
    /// For a cache of such values.
    pub fn of<V: 'static>() -> Self {
        let is_bytes = TypeId::of::<V>() == TypeId::of::<Bytes>();
        Self {
            arena: is_bytes.then(Arena::new),
            compaction: Compaction::default(),
            shrinks: Shrinks::new(),
        }
    }

    /// Measures what has left, once that is due. Returns when it is.
    pub fn measure(&self, now: Nanos) -> Option<Nanos> {
        let (due, before) = self.shrinks.pending()?;
        if now < due {
            return Some(due);
        }
        self.want_back(false);
        let left = before.saturating_sub(resident().unwrap_or(before));
        match self.shrinks.measured(due) {
            Ok(()) => {
                self.shrinks.left.fetch_add(left, Ordering::Relaxed);
                None
            }
            // By another thread, in tests alone.
            Err(0) => None,
            Err(due) => {
                self.want_back(true);
                Some(due)
            }
        }
    }

    /// See [`Arena::want_back`].
    fn want_back(&self, is_wanted: bool) {
        if let Some(arena) = &self.arena {
            arena.want_back(is_wanted);
        }
    }

    pub fn count(&self, all: &mut Statistics) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        all.shrink_asked_bytes = get(&self.shrinks.asked);
        all.shrink_charged_bytes = get(&self.shrinks.charged);
        all.shrink_left_bytes = get(&self.shrinks.left);
    }
}

/// What entries weigh by default, if their values are bytes.
pub fn weigher<K: 'static, V: 'static>() -> Option<Box<Weigher<K, V>>> {
    if TypeId::of::<V>() != TypeId::of::<Bytes>() {
        return None;
    }
    Some(Box::new(|_, value| {
        let value: &dyn Any = value;
        let footprint = value.downcast_ref().map_or(0, Bytes::footprint);
        OVERHEAD + (size_of::<K>() + size_of::<V>() + footprint) as u64
    }))
}

/// The bytes of this process that are resident, as the kernel counts them: to some pages a thread.
fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size())
}

#[cfg(target_os = "linux")]
fn page_size() -> u64 {
    stillpoint_platform::mmap::page_size() as u64
}

#[cfg(not(target_os = "linux"))]
fn page_size() -> u64 {
    // Where there is no such file.
    0
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Makes tables as small as what is there needs them.
    fn trim(&self) {
        self.with_own(|state, number| state.trim(number));
        let store = &self.inner().store;
        store.shrink_to_fit(&store.read_lock());
    }

    /// Does `shrink`, which is to evict so many bytes, or some entries if that is not said, and has
    /// what leaves the process measured.
    pub(crate) fn shrinking<R>(&self, asked: Option<u64>, shrink: impl FnOnce() -> R) -> R {
        let memory = &self.inner().memory;
        let shrinks = &memory.shrinks;
        shrinks.begin(|| resident().unwrap_or(0));
        let before = self.weighted_bytes();
        // Until it is measured.
        memory.want_back(true);
        let result = shrink();
        self.trim();
        let charged = before.saturating_sub(self.weighted_bytes());
        let asked = asked.unwrap_or(charged);
        shrinks.asked.fetch_add(asked, Ordering::Relaxed);
        shrinks.charged.fetch_add(charged, Ordering::Relaxed);
        let due = clock::now() + SETTLED;
        shrinks.end(due);
        if let Some(own) = self.inner().visited.get() {
            // Without memory for it, or a thread, it is measured with the next one.
            keeper::ask(own, due);
        }
        result
    }
}

/// Where values are bytes.
impl<K, S> Cache<K, Bytes, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the arena of the cache, which all of its views share.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        let arena = self.inner().memory.arena.as_ref();
        arena.expect("a cache of bytes has one")
    }

    /// Copies bytes into the cache's arena, to be inserted: for loaders.
    ///
    /// # Errors
    ///
    /// If the system has no memory for them.
    ///
    /// ```
    /// use stillpoint_cache::{Bytes, Cache};
    ///
    /// let pages: Cache<u64, Bytes> = Cache::new(1 << 20);
    /// let page = pages.try_get_with(1, || pages.bytes(b"one"));
    /// assert_eq!(&*page?, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bytes(&self, bytes: &[u8]) -> Result<Bytes, NoMemory> {
        self.arena().bytes(bytes)
    }

    /// As [`try_insert`](Self::try_insert), of bytes that are copied into the cache's arena.
    ///
    /// # Errors
    ///
    /// As for [`try_insert`](Self::try_insert). Where there is no memory for the bytes, an older entry
    /// with the key stays.
    ///
    /// ```
    /// use stillpoint_cache::{Bytes, Cache};
    ///
    /// let pages: Cache<u64, Bytes> = Cache::new(64 << 20);
    /// for number in 0..40_000_u64 {
    ///     pages.insert_bytes(number, &[7; 1000])?;
    /// }
    /// assert_eq!(pages.get_ref(&39_999).map(|page| page.len()), Some(1000));
    /// pages.set_max_bytes(16 << 20); // what is evicted leaves the process
    /// # Ok::<(), stillpoint_cache::InsertError>(())
    /// ```
    pub fn insert_bytes(&self, key: K, bytes: &[u8]) -> Result<(), InsertError> {
        match self.bytes(bytes) {
            Ok(value) => self.try_insert(key, value),
            Err(NoMemory { bytes, .. }) => {
                self.handle().count(Event::Refused, 1);
                let weight = bytes as u64;
                Err(InsertError::NoMemory { weight })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Inner;

    /// A cache that the service thread does not know.
    fn unvisited<V: Send + Sync + 'static>() -> Cache<u64, V> {
        let (name, memory) = (String::new(), Memory::of::<V>());
        let builder = Cache::<u64, V>::builder();
        Cache::of(Inner::new(builder, name, u64::MAX, memory))
    }

    /// Also where the one before it is still to be measured.
    #[test]
    fn a_shrink_is_not_measured_before_its_end() {
        let cache = unvisited::<u64>();
        let memory = &cache.inner().memory;
        for _ in 0..3 {
            let meanwhile = cache.shrinking(Some(0), || memory.measure(NEVER - 1));
            assert_eq!(meanwhile, Some(NEVER));
        }
        let due = memory.measure(0).expect("it is to be measured");
        assert!((1..NEVER).contains(&due));
        assert_eq!((memory.measure(due), memory.measure(due)), (None, None));
    }

    /// As where there is no /proc.
    #[test]
    fn memory_is_wanted_for_a_while_also_where_it_cannot_be_measured() {
        let cache = unvisited::<Bytes>();
        let memory = &cache.inner().memory;
        cache.shrinking(Some(0), || ());
        memory.shrinks.before.store(0, Ordering::Relaxed);
        assert!(cache.arena().is_wanted());
        memory.measure(NEVER - 1);
        assert!(!cache.arena().is_wanted());
    }

    /// A tenant that is told to be small, and to be large again, comes back to what it had.
    #[test]
    #[cfg_attr(miri, ignore = "long, and the same code as in tests of the policy")]
    fn tables_become_smaller_and_ghosts_of_the_shrink_stay() {
        let (cache, many) = (Cache::<u64, u64>::new(u64::MAX), 4000);
        let weight = OVERHEAD + 16;
        cache.set_max_bytes(many * weight);
        (0..2 * many).for_each(|key| cache.insert(key, key));
        let before = cache.statistics();
        assert_eq!((before.entries, before.ghost_hits), (many, 0));
        cache.set_max_bytes(many / 8 * weight);
        assert_eq!(cache.entry_count(), many / 8);
        cache.set_max_bytes(many * weight);
        (0..2 * many)
            .filter(|key| !cache.contains_key(key))
            .take(many as usize * 2)
            .for_each(|key| cache.insert(key, key));
        let ghosts = cache.statistics().ghost_hits;
        assert!(ghosts > many / 2, "{ghosts}");
    }
}
