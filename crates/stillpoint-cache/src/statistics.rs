//! Counters of what happens in a cache, and what a user sees of them.

use std::{
    ptr::{self, NonNull},
    slice,
};
use stillpoint_platform::{
    cpu,
    sync::{AtomicPtr, AtomicU64, Ordering},
    thread,
};

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;

/// Counts of what has happened in a cache or through one view of it, and its size now.
///
/// Taken while other threads work, the counts belong to different moments.
///
/// ```
/// let cache = stillpoint_cache::Cache::with_entries(100);
/// cache.insert(1, "one");
/// assert_eq!((cache.get(&1), cache.get(&2)), (Some("one"), None));
/// let now = cache.statistics();
/// assert_eq!((now.hits, now.misses, now.entries), (1, 1, 1));
/// ```
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
    /// Weight of the entries, and of the room that inserts under way have made, in the unit of the cache's limit.
    pub bytes: u64,
    /// Weight of the [pinned](crate::Cache::pin) entries, in bytes.
    pub pinned_bytes: u64,
    /// Bytes that shrinking was asked to evict: by a lowered limit, by [pressure](crate::Cache::shrinker)
    /// (the weight of the entries that it evicted), or by the container. This and the next are counted for the whole
    /// cache alone. How much of that leaves the process depends on the allocator; of [`Bytes`](crate::Bytes) most
    /// does.
    pub shrink_asked_bytes: u64,
    /// Weight of the entries that shrinking has evicted, in bytes.
    pub shrink_charged_bytes: u64,
}

/// Upper bound on the stripes beside the first.
const MOST_STRIPES: usize = 32;

/// An event that is counted without a lock.
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

/// Counts of some threads. The owner counts without a read-modify-write, other threads with one. It has two
/// cache lines to itself, as processors may fetch a neighbouring line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    owner: Owner,
    /// Written by the owner alone.
    owned: [AtomicU64; Event::ALL.len()],
    shared: [AtomicU64; Event::ALL.len()],
}

/// The token of a thread; 0 for none yet. It stays that one's when it has exited.
#[derive(Debug, Default)]
struct Owner(AtomicU64);

/// Counters of one view. The first thread that counts makes the first stripe. Where a second one
/// comes, all get stripes among the others, so that they do not write the same cache line, and each
/// finds its own by as few steps.
#[derive(Debug)]
pub struct Counters {
    /// The stripes that threads use: at first the one that no thread owns, then the first one, then
    /// the others. In the low bits of the address how many there are, less one. All threads read it,
    /// and it is seldom written.
    word: AtomicPtr<Stripe>,
    /// The first stripe; null until there is one.
    first: AtomicPtr<Stripe>,
}

/// Returns the stripe that no thread owns or writes. With it a thread that counts need not check whether
/// there are stripes.
#[cfg(not(stillpoint_loom))]
fn unowned() -> &'static Stripe {
    static UNOWNED: Stripe = Stripe {
        owner: Owner(AtomicU64::new(u64::MAX)),
        owned: [const { AtomicU64::new(0) }; Event::ALL.len()],
        shared: [const { AtomicU64::new(0) }; Event::ALL.len()],
    };
    &UNOWNED
}

#[cfg(stillpoint_loom)]
fn unowned() -> &'static Stripe {
    stillpoint_platform::model::lazy_static! {
        static ref UNOWNED: Stripe = Stripe {
            owner: Owner(AtomicU64::new(u64::MAX)),
            ..Stripe::default()
        };
    }
    &UNOWNED
}

/// The low bits of the address of stripes: a power of two less one, so as many of a thread's token say
/// which one is the thread's.
const MASK: usize = align_of::<Stripe>() - 1;

#[cfg(not(stillpoint_loom))]
const _: () = assert!(MOST_STRIPES <= MASK + 1 && align_of::<Stripe>() == size_of::<Stripe>());

/// Returns the number of stripes: at least twice that of processors. The token of a thread chooses its
/// stripe, so two threads that run at a time seldom share one.
fn stripes() -> usize {
    (2 * cpu::count())
        .next_power_of_two()
        .clamp(2, MOST_STRIPES)
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            word: AtomicPtr::new(ptr::from_ref(unowned()).cast_mut()),
            first: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Stripe {
    /// Counts for the owner.
    #[inline(always)]
    fn add_owned(&self, event: Event, number: u64) {
        let count = &self.owned[event as usize];
        // No other thread writes it.
        let counted = count.load(Ordering::Relaxed).wrapping_add(number);
        count.store(counted, Ordering::Relaxed);
    }

    /// Counts for a thread that does not own the stripe.
    fn add_shared(&self, event: Event, number: u64) {
        self.shared[event as usize].fetch_add(number, Ordering::Relaxed);
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

    /// Makes the thread with the token `me` the owner if there is none. Returns whether it did.
    fn becomes(&self, me: u64) -> bool {
        self.0
            .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Counters {
    /// Counts in the stripe of the calling thread.
    #[inline(always)]
    pub fn add(&self, event: Event, number: u64) {
        self.add_as(thread::token().get(), event, number);
    }

    /// Counts as the thread with the token `me` does.
    #[inline(always)]
    fn add_as(&self, me: u64, event: Event, number: u64) {
        let stripe = self.stripe_of(me);
        if stripe.owner.is(me) {
            stripe.add_owned(event, number);
        } else {
            self.add_slowly(me, event, number);
        }
    }

    /// Counts for a thread that does not own its stripe: it becomes the owner, or shares the stripe.
    #[cold]
    fn add_slowly(&self, me: u64, event: Event, number: u64) {
        if self.stripes().len() == 1 {
            self.spread_out();
        }
        let stripe = self.stripe_of(me);
        if stripe.owner.is(me) || stripe.owner.becomes(me) {
            stripe.add_owned(event, number);
        } else {
            stripe.add_shared(event, number);
        }
    }

    /// Returns the stripe of a thread, which may be another thread's.
    #[inline(always)]
    fn stripe_of(&self, me: u64) -> &Stripe {
        // Acquire, pairs with `spread_out`: the stripes are complete.
        let word = self.word.load(Ordering::Acquire);
        let index = me as usize & word.addr() & MASK;
        let first = word.map_addr(|address| address & !MASK);
        // SAFETY: as in `stripes`; the low bits say how many there are, less one.
        unsafe { &*first.add(index) }
    }

    /// Returns the stripes that threads use.
    fn stripes(&self) -> &[Stripe] {
        // Acquire, pairs with `spread_out`: the stripes are complete.
        let word = self.word.load(Ordering::Acquire);
        let first = word.map_addr(|address| address & !MASK);
        // SAFETY: a static, or what `spread_out` has leaked, of that many. `drop` frees it.
        unsafe { slice::from_raw_parts(first, 1 + (word.addr() & MASK)) }
    }

    /// Returns the first stripe, once there is one.
    fn first(&self) -> Option<&Stripe> {
        // Acquire, pairs with `spread_out`: it is complete.
        let first = NonNull::new(self.first.load(Ordering::Acquire))?;
        // SAFETY: `spread_out` has leaked it, and `drop` frees it.
        Some(unsafe { first.as_ref() })
    }

    /// Publishes the first stripe if none is in use yet, otherwise the other stripes.
    fn spread_out(&self) {
        let now = self.word.load(Ordering::Relaxed);
        let word = if ptr::eq(now, unowned()) {
            self.first_or_made()
        } else if now.addr() & MASK == 0 {
            make(stripes())
        } else {
            // Another thread has made the others: those stay.
            return;
        };
        // Release, pairs with `stripe_of` and `stripes`: they are complete. A lost race leaves the
        // other thread's.
        let set = self
            .word
            .compare_exchange(now, word, Ordering::Release, Ordering::Relaxed);
        if set.is_err() && word.addr() & MASK != 0 {
            // SAFETY: made just now, and no other thread knows it.
            unsafe { free(word) };
        }
    }

    /// Returns the first stripe, which may be another thread's that has not said so yet.
    fn first_or_made(&self) -> *mut Stripe {
        // Acquire, pairs with the exchange of `first_or_made` below: it is complete.
        let first = self.first.load(Ordering::Acquire);
        if !first.is_null() {
            return first;
        }
        let made = make(1);
        // Release, pairs with the load of `first_or_made` above: it is complete. Acquire, the same of
        // the faster thread's.
        let set = self.first.compare_exchange(
            ptr::null_mut(),
            made,
            Ordering::Release,
            Ordering::Acquire,
        );
        match set {
            Ok(_) => made,
            Err(faster) => {
                // SAFETY: made just now, and no other thread knows it.
                unsafe { free(made) };
                faster
            }
        }
    }

    /// Returns the sum over all stripes.
    pub fn get(&self, event: Event) -> u64 {
        // Before the first one, which is there if they are.
        let others = self.others();
        let first = self.first().map_or(0, |first| first.get(event));
        others
            .iter()
            .fold(first, |sum, stripe| sum.wrapping_add(stripe.get(event)))
    }

    fn others(&self) -> &[Stripe] {
        match self.stripes() {
            [_] => &[],
            others => others,
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // No other thread uses them.
        let word = self.word.load(Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        if word.addr() & MASK != 0 {
            // SAFETY: `spread_out` has leaked them.
            unsafe { free(word) };
        }
        if !first.is_null() {
            // SAFETY: `first_or_made` has leaked it.
            unsafe { free(first) };
        }
    }
}

/// Leaks `number` stripes. Returns their word.
fn make(number: usize) -> *mut Stripe {
    let made: Box<[Stripe]> = (0..number).map(|_| Stripe::default()).collect();
    let first: *mut Stripe = Box::into_raw(made).cast();
    first.map_addr(|address| address | (number - 1))
}

/// # Safety
///
/// The word is of [`make`], and no thread uses the stripes any more.
unsafe fn free(word: *mut Stripe) {
    let first = word.map_addr(|address| address & !MASK);
    let stripes = ptr::slice_from_raw_parts_mut(first, 1 + (word.addr() & MASK));
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(stripes) });
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
                        (0..each).for_each(|_| counters.add(Event::Hit, 1));
                    });
                }
            });
            counters.add(Event::Miss, 5);
            let counted = [Event::Hit, Event::Miss].map(|event| counters.get(event));
            assert_eq!(counted, [(rounds + 1) * threads * each, (rounds + 1) * 5]);
        }
        assert!(!counters.others().is_empty());
    }

    #[test]
    fn a_second_thread_brings_stripes_for_all() {
        let counters = Counters::default();
        let count = || counters.add(Event::Hit, 1);
        let in_first = || counters.first().map_or(0, |first| first.get(Event::Hit));
        count();
        count();
        assert_eq!((in_first(), counters.others().len()), (2, 0));
        thread::scope(|scope| {
            scope.spawn(count);
        });
        count();
        // As a thread does that comes when another one has just made them.
        counters.spread_out();
        assert_eq!(counters.others().len(), stripes());
        assert_eq!((in_first(), counters.get(Event::Hit)), (2, 4));
    }

    /// As a fork leaves them, where the thread is lost that was making the first stripe.
    #[test]
    fn a_first_stripe_of_a_thread_that_is_lost_is_used() {
        let counters = Counters::default();
        let first = make(1);
        counters.first.store(first, Ordering::Relaxed);
        for number in 1..4 {
            counters.add(Event::Hit, 1);
            // SAFETY: `counters` has it.
            assert_eq!(unsafe { &*first }.get(Event::Hit), number);
        }
        assert_eq!(
            (counters.get(Event::Hit), counters.get(Event::Miss)),
            (3, 0)
        );
    }
}
