//! Counters of what happens in a cache, and what a user sees of them.

use crossbeam_utils::CachePadded;
use std::{
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};
use stillpoint_platform::{cpu, memory, thread};

/// What has happened in a cache, or through one view of it, and what is there now.
///
/// Taken while other threads work, the counts belong to different moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Look-ups that found an entry.
    pub hits: u64,
    /// Look-ups that found none, or one that had expired.
    pub misses: u64,
    /// Entries inserted, those that replaced others included.
    pub inserts: u64,
    /// Loaders that have returned a value.
    pub loads: u64,
    /// Loaders that have failed, panicked or been cancelled.
    pub load_failures: u64,
    /// Nanoseconds spent in loaders.
    pub load_nanos: u64,
    /// Entries evicted to make room.
    pub evicted: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries replaced by others with their keys.
    pub replaced: u64,
    /// Entries removed.
    pub removed: u64,
    /// Inserts refused.
    pub refused: u64,
    /// Inserts of keys that had been evicted lately.
    pub ghost_hits: u64,
    /// Entries there now.
    pub entries: u64,
    /// What they weigh, in bytes.
    pub bytes: u64,
    /// What those of them weigh that are [pinned](crate::Cache::pin), in bytes.
    pub pinned_bytes: u64,
    /// What shrinking was asked to evict so far, in bytes: by a limit that was set lower, by
    /// [pressure](crate::Cache::shrinker) (which asks for entries: what they weighed), or by the
    /// container.
    /// This and the two below are counted for the whole cache alone.
    pub shrink_asked_bytes: u64,
    /// What the entries weighed that it has evicted, in bytes.
    pub shrink_charged_bytes: u64,
    /// How much less of the process was resident a quarter of a second after, in bytes, whatever the
    /// reason was: what has left the process. Values that are no [`Bytes`](crate::Bytes) go back to
    /// the allocator, which may keep them: here it shows.
    pub shrink_left_bytes: u64,
}

/// How many stripes there are beside the first, at most.
const MOST_STRIPES: usize = 32;

/// All stripes.
pub const STRIPES: usize = 1 + MOST_STRIPES;

/// What is counted without a lock.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    Hit,
    Miss,
    Load,
    LoadFailure,
    LoadNanos,
    Refused,
}

impl Event {
    pub const ALL: [Self; 6] = [
        Self::Hit,
        Self::Miss,
        Self::Load,
        Self::LoadFailure,
        Self::LoadNanos,
        Self::Refused,
    ];
}

type Stripe = CachePadded<[AtomicU64; Event::ALL.len()]>;

/// Counters of one view. The first thread that counts has the first stripe. Where a second one
/// comes, threads get stripes of their own, so that they do not write the same cache line.
#[derive(Debug, Default)]
pub struct Counters {
    first: Stripe,
    /// The token of the thread that counts in the first stripe; 0 for none yet.
    owner: AtomicU64,
    /// The others, [`stripes`] of them; null until there are.
    others: AtomicPtr<Stripe>,
}

fn stripes() -> usize {
    cpu::count().next_power_of_two().clamp(2, MOST_STRIPES)
}

impl Counters {
    /// Returns which stripe is the thread's, and what it has then.
    #[inline(always)]
    pub fn add(&self, event: Event, number: u64) -> (usize, u64) {
        let me = thread::token().get();
        let (index, stripe) = if self.owner.load(Ordering::Relaxed) == me {
            (0, &self.first)
        } else {
            self.stripe_of(me)
        };
        let before = stripe[event as usize].fetch_add(number, Ordering::Relaxed);
        (index, before.wrapping_add(number))
    }

    #[inline]
    fn stripe_of(&self, me: u64) -> (usize, &Stripe) {
        match self.others() {
            Some(stripes) => Self::choose(stripes, me),
            None => self.spread_out(me),
        }
    }

    #[inline]
    fn choose(stripes: &[Stripe], me: u64) -> (usize, &Stripe) {
        let index = me as usize & (stripes.len() - 1);
        (1 + index, &stripes[index])
    }

    fn others(&self) -> Option<&[Stripe]> {
        // Acquire, pairs with `spread_out`: the stripes are complete.
        let others = NonNull::new(self.others.load(Ordering::Acquire))?;
        // SAFETY: `spread_out` has leaked that many, which `drop` frees.
        Some(unsafe { slice::from_raw_parts(others.as_ptr(), stripes()) })
    }

    /// Makes the other stripes, if the first one is another thread's. Returns the calling thread's.
    #[cold]
    fn spread_out(&self, me: u64) -> (usize, &Stripe) {
        let first = (0, &self.first);
        if self.becomes_owner(me) {
            return first;
        }
        let Some(made) = memory::try_several(stripes(), Stripe::default) else {
            return first;
        };
        let made = Box::into_raw(made);
        // Release, pairs with `others`: they are complete. A lost race leaves the other thread's.
        let set = self.others.compare_exchange(
            ptr::null_mut(),
            made.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if set.is_err() {
            // SAFETY: from a box just now, and no other thread knows it.
            drop(unsafe { Box::from_raw(made) });
        }
        self.others()
            .map_or(first, |stripes| Self::choose(stripes, me))
    }

    fn becomes_owner(&self, me: u64) -> bool {
        self.owner
            .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Counts what another one has counted.
    pub fn absorb(&self, other: &Self) {
        for event in Event::ALL {
            self.add(event, other.get(event));
        }
    }

    pub fn get(&self, event: Event) -> u64 {
        self.in_stripes(event).fold(0, u64::wrapping_add)
    }

    /// What each stripe has.
    pub fn in_stripes(&self, event: Event) -> impl Iterator<Item = u64> {
        let others = self.others().unwrap_or_default();
        let stripes = [&self.first].into_iter().chain(others);
        stripes.map(move |stripe| stripe[event as usize].load(Ordering::Relaxed))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Some(others) = NonNull::new(*self.others.get_mut()) {
            let others = ptr::slice_from_raw_parts_mut(others.as_ptr(), stripes());
            // SAFETY: `spread_out` has leaked it.
            drop(unsafe { Box::from_raw(others) });
        }
    }
}
