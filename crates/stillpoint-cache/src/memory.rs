//! The memory of a cache: the arena of its values with the progress of its compaction, and counts of its shrinks.

use crate::{
    arena::{Arena, Bytes},
    statistics::Statistics,
};
use std::any::TypeId;
use stillpoint_platform::{
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// Nanoseconds for which the memory of values is wanted back after a shrink: readers leave, and frees and moves
/// have an end by then, as a rule.
const SETTLED: Nanos = 250_000_000;

/// Nanoseconds from the request to the begin of a compaction, and from the end of one to the next: time for
/// frees under way.
pub const PAUSE: Nanos = 5_000_000;

/// The longest pause, where what was to leave did not.
const LONGEST: Nanos = 1_000_000_000;

/// The position while no compaction is under way.
pub const NONE: u64 = u64::MAX;

/// The progress of a compaction. Only the service thread uses it, so all of it is Relaxed.
#[derive(Debug)]
pub struct Compaction {
    /// Position in the map, or [`NONE`].
    pub position: AtomicU64,
    /// Earliest time of the next one, in nanoseconds.
    pub not_before: AtomicU64,
    pub pause: AtomicU64,
    /// Number of runs that were chosen to leave, and of those that had left before.
    chosen: AtomicU64,
    left: AtomicU64,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            position: AtomicU64::new(NONE),
            not_before: AtomicU64::new(0),
            pause: AtomicU64::new(PAUSE),
            chosen: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }
}

impl Compaction {
    /// Begins a compaction if that is worth it. Otherwise returns when to try again.
    pub fn begin(&self, arena: &Arena, now: Nanos) -> Result<(), Option<Nanos>> {
        if !arena.is_scattered() {
            return Err(None);
        }
        let not_before = self.not_before.load(Ordering::Relaxed);
        if now < not_before {
            return Err(Some(not_before));
        }
        let (chosen, left) = arena.begin_moving();
        let before = self.left.swap(left, Ordering::Relaxed);
        let wanted = self.chosen.swap(chosen as u64, Ordering::Relaxed);
        // Clones may hold what was to leave, or readers: rather wait than copy for nothing.
        let pause = if (left - before) * 4 >= wanted {
            PAUSE
        } else {
            (self.pause.load(Ordering::Relaxed) * 2).min(LONGEST)
        };
        self.pause.store(pause, Ordering::Relaxed);
        Ok(())
    }
}

/// The arena of a cache, the progress of its compaction, and counts of its shrinks. Relaxed throughout: nothing
/// depends on the order.
#[derive(Debug)]
pub struct Memory {
    /// The arena, if values are [`Bytes`].
    pub arena: Option<Arena>,
    pub compaction: Compaction,
    /// Time until which the arena's memory is wanted back; 0 if it is not.
    wanted_until: AtomicU64,
    /// Sums of what shrinks were asked to evict, and have evicted.
    asked: AtomicU64,
    evicted: AtomicU64,
}

impl Memory {
    /// Makes the memory of a cache of values of type `V`.
    pub fn of<V: 'static>() -> Self {
        let is_bytes = TypeId::of::<V>() == TypeId::of::<Bytes>();
        let [wanted_until, asked, evicted] = [0; 3].map(AtomicU64::new);
        Self {
            arena: is_bytes.then(Arena::new),
            compaction: Compaction::default(),
            wanted_until,
            asked,
            evicted,
        }
    }

    /// Calls [`Arena::want_back`] of the arena. Returns the time at which that [ends](Self::settle); `None` if there
    /// is no arena.
    pub fn want_back(&self, now: Nanos) -> Option<Nanos> {
        let arena = self.arena.as_ref()?;
        self.wanted_until
            .fetch_max(now + SETTLED, Ordering::Relaxed);
        arena.want_back(true);
        Some(now + SETTLED)
    }

    /// Ends [`want_back`](Self::want_back) once its time is over. Returns that time before.
    pub fn settle(&self, now: Nanos) -> Option<Nanos> {
        let arena = self.arena.as_ref()?;
        let until = self.wanted_until.load(Ordering::Relaxed);
        if until <= now && until > 0 {
            let relaxed = Ordering::Relaxed;
            let _ = self
                .wanted_until
                .compare_exchange(until, 0, relaxed, relaxed);
            arena.want_back(false);
        }
        // Another thread may have begun a shrink meanwhile.
        let until = self.wanted_until.load(Ordering::Relaxed);
        (until > 0).then(|| {
            arena.want_back(true);
            until
        })
    }

    /// Counts a shrink.
    pub fn note_shrink(&self, asked: u64, evicted: u64) {
        self.asked.fetch_add(asked, Ordering::Relaxed);
        self.evicted.fetch_add(evicted, Ordering::Relaxed);
    }

    pub fn count(&self, all: &mut Statistics) {
        all.shrink_asked_bytes = self.asked.load(Ordering::Relaxed);
        all.shrink_charged_bytes = self.evicted.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, weigh::OVERHEAD};

    /// Returns a cache that the service thread does not know.
    fn unvisited<V: Send + Sync + 'static>() -> Cache<u64, V> {
        let builder = Cache::<u64, V>::builder();
        Cache::unvisited(builder.settings, builder.hasher, Memory::of::<V>())
    }

    /// Also while another shrink has begun.
    #[test]
    fn memory_is_wanted_for_a_while_after_the_last_shrink() {
        let cache = unvisited::<Bytes>();
        let (memory, arena) = (&cache.inner.memory, cache.arena());
        assert_eq!((memory.settle(0), arena.is_wanted()), (None, false));
        let first = memory.want_back(1).expect("an arena");
        let second = memory.want_back(2).expect("an arena");
        memory.want_back(1);
        assert_eq!(memory.settle(first), Some(second));
        assert!(arena.is_wanted());
        assert_eq!((memory.settle(second), arena.is_wanted()), (None, false));
        assert_eq!(memory.settle(second), None);
        cache.shrinking(Some(0), || assert!(arena.is_wanted()));
        assert!(arena.is_wanted() && memory.settle(0).is_some());
        assert_eq!(memory.settle(u64::MAX), None);
        // Other values go back to the allocator.
        assert_eq!(unvisited::<u64>().inner.memory.want_back(1), None);
    }

    /// A tenant that is told to be small, and to be large again, comes back to what it had.
    #[test]
    #[cfg_attr(miri, ignore = "long, and the same code as in tests of the policy")]
    fn tables_become_smaller_and_ghosts_of_the_shrink_stay() {
        let (cache, many) = (Cache::<u64, u64>::with_bytes(u64::MAX), 4000);
        let weight = OVERHEAD + 16;
        cache.set_max_bytes(many * weight);
        (0..2 * many).for_each(|key| cache.insert(key, key));
        let before = cache.statistics();
        assert_eq!(before.entries, many);
        cache.set_max_bytes(many / 8 * weight);
        assert_eq!(cache.entry_count(), many / 8);
        cache.set_max_bytes(many * weight);
        (0..2 * many)
            .filter(|key| !cache.contains_key(key))
            .take(many as usize * 2)
            .for_each(|key| cache.insert(key, key));
        // There may be some before: two keys of which the fingerprints are equal.
        let ghosts = cache.statistics().ghost_hits - before.ghost_hits;
        assert!(ghosts > many / 2, "{ghosts}");
    }
}
