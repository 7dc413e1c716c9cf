//! Counters of what happens in a cache, and what a user sees of them.

use crossbeam_utils::CachePadded;
use std::{
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
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

/// What some threads have counted: one that owns it without a read-modify-write, and others.
#[derive(Debug, Default)]
struct Counts {
    /// Written by the owner alone.
    owned: [AtomicU64; Event::ALL.len()],
    shared: [AtomicU64; Event::ALL.len()],
}

/// Counts, and whose they are.
#[derive(Debug, Default)]
struct Stripe {
    owner: Owner,
    counts: Counts,
}

/// The token of a thread; 0 for none yet. It stays that one's when it has exited.
#[derive(Debug, Default)]
struct Owner(AtomicU64);

/// Counters of one view. The first thread that counts has the first counts. Where a second one comes,
/// threads get stripes of their own, so that they do not write the same cache line.
#[derive(Debug, Default)]
pub struct Counters {
    first: CachePadded<Counts>,
    /// Apart from what the owner writes: all threads read it.
    owner: Owner,
    /// How many others there are: [`stripes`], once there are. A power of two.
    stripes: AtomicUsize,
    /// The others; null until there are.
    others: AtomicPtr<CachePadded<Stripe>>,
}

fn stripes() -> usize {
    cpu::count().next_power_of_two().clamp(2, MOST_STRIPES)
}

impl Counts {
    /// Counts for the owner. Returns what that has counted.
    #[inline(always)]
    fn add_owned(&self, event: Event, number: u64) -> u64 {
        let count = &self.owned[event as usize];
        // No other thread writes it.
        let counted = count.load(Ordering::Relaxed).wrapping_add(number);
        count.store(counted, Ordering::Relaxed);
        counted
    }

    /// Counts, and returns what has been counted so.
    fn add_shared(&self, event: Event, number: u64) -> u64 {
        let before = self.shared[event as usize].fetch_add(number, Ordering::Relaxed);
        before.wrapping_add(number)
    }

    fn get(&self, event: Event) -> u64 {
        let [owned, shared] = [&self.owned, &self.shared]
            .map(|counts| counts[event as usize].load(Ordering::Relaxed));
        owned.wrapping_add(shared)
    }
}

impl Owner {
    #[inline(always)]
    fn is(&self, me: u64) -> bool {
        self.0.load(Ordering::Relaxed) == me
    }

    /// Whether it is that thread from now on, as it was none before.
    fn becomes(&self, me: u64) -> bool {
        self.0
            .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Counters {
    /// Returns in which counts the thread has counted, and what it, or all that share them, have
    /// counted there.
    #[inline(always)]
    pub fn add(&self, event: Event, number: u64) -> (usize, u64) {
        let me = thread::token().get();
        if self.owner.is(me) {
            return (0, self.first.add_owned(event, number));
        }
        if let Some((index, stripe)) = self.stripe_of(me)
            && stripe.owner.is(me)
        {
            return (index, stripe.counts.add_owned(event, number));
        }
        self.add_slowly(me, event, number)
    }

    /// For a thread that owns no counts: it gets some, or shares them. Without memory for stripes it
    /// shares the first ones.
    #[cold]
    fn add_slowly(&self, me: u64, event: Event, number: u64) -> (usize, u64) {
        if self.owner.becomes(me) {
            return (0, self.first.add_owned(event, number));
        }
        if self.stripe_of(me).is_none() {
            self.spread_out();
        }
        match self.stripe_of(me) {
            Some((index, stripe)) if stripe.owner.becomes(me) => {
                (index, stripe.counts.add_owned(event, number))
            }
            Some((index, stripe)) => (index, stripe.counts.add_shared(event, number)),
            None => (0, self.first.add_shared(event, number)),
        }
    }

    #[inline(always)]
    fn stripe_of(&self, me: u64) -> Option<(usize, &Stripe)> {
        let others = self.others()?;
        let index = me as usize & (others.len() - 1);
        Some((1 + index, &others[index]))
    }

    #[inline(always)]
    fn others(&self) -> Option<&[CachePadded<Stripe>]> {
        // Acquire, pairs with `spread_out`: the stripes are complete, and their number is there.
        let others = NonNull::new(self.others.load(Ordering::Acquire))?;
        let stripes = self.stripes.load(Ordering::Relaxed);
        // SAFETY: `spread_out` has leaked that many, which `drop` frees.
        Some(unsafe { slice::from_raw_parts(others.as_ptr(), stripes) })
    }

    /// Makes the other stripes, if there is memory.
    fn spread_out(&self) {
        let number = stripes();
        // The first thread that comes here says how many, for all that make some.
        let said = self
            .stripes
            .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        let number = said.err().unwrap_or(number);
        let Some(made) = memory::try_several(number, CachePadded::<Stripe>::default) else {
            return;
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

    /// What each of the counts has, the first ones first.
    pub fn in_stripes(&self, event: Event) -> impl Iterator<Item = u64> {
        let others = self.others().unwrap_or_default().iter();
        let others = others.map(move |stripe| stripe.counts.get(event));
        std::iter::once(self.first.get(event)).chain(others)
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Some(others) = NonNull::new(*self.others.get_mut()) {
            let stripes = *self.stripes.get_mut();
            let others = ptr::slice_from_raw_parts_mut(others.as_ptr(), stripes);
            // SAFETY: `spread_out` has leaked it.
            drop(unsafe { Box::from_raw(others) });
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::thread;

    /// More threads than stripes, one after the other and at a time.
    #[test]
    fn what_threads_count_is_all_there_though_they_share_stripes() {
        let counters = Counters::default();
        let each = if cfg!(miri) { 20 } else { 20_000 };
        let threads = 3 * stripes() as u64;
        for rounds in 0..2 {
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        (0..each).for_each(|_| {
                            counters.add(Event::Hit, 1);
                        })
                    });
                }
            });
            counters.add(Event::Miss, 5);
            let counted = [Event::Hit, Event::Miss].map(|event| counters.get(event));
            assert_eq!(counted, [(rounds + 1) * threads * each, (rounds + 1) * 5]);
        }
        assert!(counters.in_stripes(Event::Hit).count() > 1);
    }
}
