//! The memory of a cache: the arena of its values with the progress of its compaction, and counts of what has
//! left the process after shrinks.

use crate::{
    arena::{Arena, Bytes},
    node::NEVER,
    statistics::Statistics,
};
use std::{any::TypeId, fs};
use stillpoint_platform::{
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// After a shrink what has left the process is measured so much later: readers leave, and frees and
/// moves have an end by then, as a rule.
pub const SETTLED: Nanos = 250_000_000;

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

/// The arena of a cache, and the progress of its compaction.
#[derive(Debug)]
pub struct Memory {
    /// The arena, if values are [`Bytes`].
    pub arena: Option<Arena>,
    pub compaction: Compaction,
}

/// Counts of the shrinks of a cache, and of their results. Relaxed throughout: they are counts, and `state`
/// is one word.
#[derive(Debug)]
pub struct Shrinks {
    pub asked: AtomicU64,
    pub charged: AtomicU64,
    pub left: AtomicU64,
    /// A [`ShrinkState`].
    state: AtomicU64,
    /// Resident bytes of the process before the first shrink that has not been measured; 0 if not known.
    before: AtomicU64,
}

/// Number of shrinks under way, and the time at which the others are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShrinkState {
    /// Time of the next measurement in [`UNITS`]; 0 for none.
    due: u64,
    under_way: u64,
}

/// Nanoseconds of a unit of the time when a measurement is due, as a power of two: 1 ms.
const UNITS: u32 = 20;

/// The bits of a number of shrinks: more threads do not shrink one cache at a time.
const COUNT_BITS: u32 = 16;

impl ShrinkState {
    fn of(word: u64) -> Self {
        Self {
            due: word >> COUNT_BITS,
            under_way: word & ((1 << COUNT_BITS) - 1),
        }
    }

    fn word(self) -> u64 {
        self.due << COUNT_BITS | self.under_way
    }

    /// Returns the time of the next measurement; [`NEVER`] while shrinks are under way, `None` if there is
    /// nothing to measure.
    fn due(self) -> Option<Nanos> {
        match self {
            Self { under_way: 1.., .. } => Some(NEVER),
            Self { due: 0, .. } => None,
            Self { due, .. } => Some(due << UNITS),
        }
    }
}

impl Shrinks {
    pub fn new() -> Self {
        let [asked, charged, left, state, before] = [0; 5].map(AtomicU64::new);
        Self {
            asked,
            charged,
            left,
            state,
            before,
        }
    }

    /// Makes the shrinks of threads that are gone due now, in the child of a fork.
    pub fn reset_in_child(&self) {
        self.change(|state| ShrinkState {
            due: state.due.max(u64::from(state.under_way > 0)),
            under_way: 0,
        });
    }

    /// Returns what it was before.
    fn change(&self, change: impl Fn(ShrinkState) -> ShrinkState) -> ShrinkState {
        let changed = |word| Some(change(ShrinkState::of(word)).word());
        let set = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
        ShrinkState::of(set.unwrap_or_else(|word| word))
    }

    /// Puts off what is due: not before this one has ended.
    pub fn begin(&self, resident: impl FnOnce() -> u64) {
        let before = self.change(|state| ShrinkState {
            under_way: state.under_way + 1,
            ..state
        });
        if before.due().is_none() {
            self.before.store(resident(), Ordering::Relaxed);
        }
    }

    /// Says when it is due: not before then, nor before the last of those under way has ended.
    pub fn end(&self, due: Nanos) {
        let due = (due >> UNITS) + 1;
        self.change(|state| ShrinkState {
            due: state.due.max(due),
            under_way: state.under_way.saturating_sub(1),
        });
    }

    /// Returns the time of the next measurement, and the resident bytes to compare with.
    fn pending(&self) -> Option<(Nanos, u64)> {
        let state = ShrinkState::of(self.state.load(Ordering::Relaxed));
        Some((state.due()?, self.before.load(Ordering::Relaxed)))
    }

    pub fn count(&self, all: &mut Statistics) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        all.shrink_asked_bytes = get(&self.asked);
        all.shrink_charged_bytes = get(&self.charged);
        all.shrink_left_bytes = get(&self.left);
    }

    /// Notes that what was due then has been measured, unless that is not due any more: then it
    /// returns when another one is, if there is one.
    fn measured(&self, due: Nanos) -> Result<(), Option<Nanos>> {
        let is_it = |state: ShrinkState| state.due() == Some(due);
        let before = self.change(|state| match is_it(state) {
            true => ShrinkState { due: 0, ..state },
            false => state,
        });
        if is_it(before) {
            Ok(())
        } else {
            Err(before.due())
        }
    }
}

impl Memory {
    /// Makes the memory of a cache of values of type `V`.
    pub fn of<V: 'static>() -> Self {
        let is_bytes = TypeId::of::<V>() == TypeId::of::<Bytes>();
        Self {
            arena: is_bytes.then(Arena::new),
            compaction: Compaction::default(),
        }
    }

    /// Measures what has left, once that is due. Returns when it is.
    pub fn measure(&self, shrinks: &Shrinks, now: Nanos) -> Option<Nanos> {
        let (due, before) = shrinks.pending()?;
        if now < due {
            return Some(due);
        }
        self.want_back(false);
        let left = before.saturating_sub(resident().unwrap_or(before));
        match shrinks.measured(due) {
            Ok(()) => {
                shrinks.left.fetch_add(left, Ordering::Relaxed);
                None
            }
            Err(next) => {
                self.want_back(next.is_some());
                next
            }
        }
    }

    /// Calls [`Arena::want_back`] of the arena, if there is one.
    pub fn want_back(&self, is_wanted: bool) {
        if let Some(arena) = &self.arena {
            arena.want_back(is_wanted);
        }
    }
}

/// Returns the bytes of this process that are resident, as the kernel counts them: to some pages a thread.
pub fn resident() -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, cache::Inner, weigh::OVERHEAD};
    use stillpoint_platform::fork::ForkReset;

    /// Returns a cache that the service thread does not know.
    fn unvisited<V: Send + Sync + 'static>() -> Cache<u64, V> {
        let builder = Cache::<u64, V>::builder();
        Cache::of(Inner::new(builder.settings, u64::MAX, Memory::of::<V>()))
    }

    /// Also where the one before it is still to be measured.
    #[test]
    fn a_shrink_is_not_measured_before_its_end() {
        let cache = unvisited::<u64>();
        let (memory, shrinks) = (&cache.inner().memory, &cache.inner().shared.shrinks);
        for _ in 0..3 {
            let meanwhile = cache.shrinking(Some(0), || memory.measure(shrinks, NEVER - 1));
            assert_eq!(meanwhile, Some(NEVER));
        }
        let due = memory.measure(shrinks, 0).expect("it is to be measured");
        assert!((1..NEVER).contains(&due));
        assert_eq!(
            (memory.measure(shrinks, due), memory.measure(shrinks, due)),
            (None, None)
        );
    }

    /// Two that overlap: the one that ends first says no time.
    #[test]
    fn shrinks_are_measured_after_the_last_of_them() {
        let cache = unvisited::<u64>();
        let (memory, shrinks) = (&cache.inner().memory, &cache.inner().shared.shrinks);
        cache.shrinking(Some(0), || {
            cache.shrinking(Some(0), || ());
            assert_eq!(
                memory.measure(shrinks, NEVER - 1),
                Some(NEVER),
                "one is under way"
            );
        });
        let due = memory.measure(shrinks, 0).expect("it is to be measured");
        assert!(due < NEVER);
        assert_eq!(memory.measure(shrinks, due), None);
        assert_eq!(cache.statistics().shrink_asked_bytes, 0);
    }

    #[test]
    fn in_a_child_a_shrink_of_another_thread_is_over() {
        let cache = unvisited::<Bytes>();
        let (memory, shrinks) = (&cache.inner().memory, &cache.inner().shared.shrinks);
        shrinks.begin(|| 0);
        memory.want_back(true);
        assert_eq!(memory.measure(shrinks, NEVER - 1), Some(NEVER));
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner().shared.reset_in_child() };
        assert_eq!(memory.measure(shrinks, NEVER - 1), None);
        assert!(!cache.arena().is_wanted());
        cache.shrinking(Some(0), || ());
        let due = memory.measure(shrinks, 0).expect("it is to be measured");
        assert_eq!(memory.measure(shrinks, due), None);
    }

    /// As where there is no /proc.
    #[test]
    fn memory_is_wanted_for_a_while_also_where_it_cannot_be_measured() {
        let cache = unvisited::<Bytes>();
        let (memory, shrinks) = (&cache.inner().memory, &cache.inner().shared.shrinks);
        cache.shrinking(Some(0), || ());
        shrinks.before.store(0, Ordering::Relaxed);
        assert!(cache.arena().is_wanted());
        memory.measure(shrinks, NEVER - 1);
        assert!(!cache.arena().is_wanted());
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
