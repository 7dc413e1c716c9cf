//! The wakers of futures: the tasks to wake when a grace period has ended, or when callbacks have
//! been invoked.
//!
//! A future does not wait by means of a callback. Callbacks run in the order in which they were
//! queued, so a future whose grace period has ended would wait behind a callback whose has not; and
//! a callback cannot be taken back, so a future that is dropped would leave one behind. Wake-ups
//! need no order. Each waits for a number to be reached: of a grace period, or of a callback in its
//! queue.
//!
//! The wakers are in a map, ordered by their numbers. Checking whether any is due, registering, removing and
//! waking are O(log n), in whatever order a million futures are polled and dropped. The map owns the wakers,
//! and a future has the number of its entry: so futures stay `Unpin`, and one that is forgotten
//! ([`std::mem::forget`]) leaves nothing that points to it.
//!
//! # Who wakes
//!
//! The thread that makes the passes, after each pass and outside of it: code that runs inside a
//! waker (an executor that polls inside its wakers) may call `barrier`, which a callback must not.
//! Registering kicks the thread only if the new entry becomes the first. That is enough. The thread waits for
//! the entry that it saw as the first at its last look. An entry that becomes the first later, in front of
//! that one, kicks; any other entry is due no earlier; and removing entries leaves a first that is due later,
//! or none. So, unless a kick is on its way, the thread looks again no later than the first entry is due. How
//! kick and look meet: `server.rs`. `loom_futures_*` are the tests.
//!
//! No lock is held while a waker is cloned, called or dropped: that is user code, which may poll
//! and drop other futures. Panics of a wake-up are contained and counted.

use super::seq::Cookie;
use crate::platform::{
    fork,
    sync::{AtomicU64, Mutex, Ordering, lock},
    user_code,
};
use std::{
    collections::BTreeMap,
    mem,
    // std's also in the model, which has no statics.
    sync::atomic::AtomicU64 as StdU64,
    task::Waker,
};

/// The event that a future waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    GracePeriod(Cookie),
    /// The invocation of this number of callbacks in all:
    /// [`Engine::callbacks_queued`](super::engine::Engine::callbacks_queued).
    Callbacks(u64),
}

impl Awaited {
    fn number(self) -> u64 {
        match self {
            Self::GracePeriod(cookie) => cookie.seq().bits(),
            Self::Callbacks(position) => position,
        }
    }
}

/// The number of a future's entry, which no other future has.
#[derive(Debug)]
pub(crate) struct Place(u64);

impl Default for Place {
    fn default() -> Self {
        static NEXT: StdU64 = StdU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The wakers, by the number that each waits for and that of its place.
type Registered = BTreeMap<(u64, u64), Waker>;

/// Returns the key that comes first. The numbers wrap; those that wait at the same time are less than half the
/// range apart (`seq.rs`).
fn first(waiting: &Registered) -> Option<(u64, u64)> {
    const HALF: u64 = 1 << 63;
    let (&least, _) = waiting.first_key_value()?;
    let (&greatest, _) = waiting.last_key_value()?;
    if greatest.0 - least.0 < HALF {
        return Some(least);
    }
    let mut before_the_wrap = waiting.range((least.0 + HALF, 0)..);
    before_the_wrap.next().map(|(&key, _)| key)
}

/// Waiters for one kind of number.
#[derive(Debug)]
pub(super) struct Wakers(pub(super) Mutex<Registered>);

impl Wakers {
    fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn knows(&self, due: u64, place: &Place, waker: &Waker) -> bool {
        let waiting = lock(&self.0);
        let known = waiting.get(&(due, place.0));
        known.is_some_and(|known| known.will_wake(waker))
    }

    /// Registers `waker`, instead of the one at `place`. Returns whether its entry is new and the first of
    /// all.
    fn put(&self, due: u64, waker: &Waker, place: &Place) -> bool {
        let (key, waker) = ((due, place.0), waker.clone());
        let mut waiting = lock(&self.0);
        let old = waiting.insert(key, waker);
        let is_first = old.is_none() && first(&waiting) == Some(key);
        drop(waiting);
        drop(old);
        is_first
    }

    fn take(&self, due: u64, place: &Place) -> Option<Waker> {
        lock(&self.0).remove(&(due, place.0))
    }

    fn take_due(&self, reached: u64) -> Option<Waker> {
        let mut waiting = lock(&self.0);
        let first = first(&waiting)?;
        let is_due = reached.wrapping_sub(first.0).cast_signed() >= 0;
        is_due.then(|| waiting.remove(&first)).flatten()
    }

    fn take_all(&self) -> Registered {
        mem::take(&mut lock(&self.0))
    }

    fn least(&self) -> Option<u64> {
        first(&lock(&self.0)).map(|(due, _)| due)
    }

    fn len(&self) -> u64 {
        lock(&self.0).len() as u64
    }
}

/// An engine's futures.
#[derive(Debug)]
pub(crate) struct Futures {
    pub(super) grace_periods: Wakers,
    pub(super) callbacks: Wakers,
    pub(super) panicked: AtomicU64,
}

impl Futures {
    pub(super) fn new() -> Self {
        Self {
            grace_periods: Wakers::new(),
            callbacks: Wakers::new(),
            panicked: AtomicU64::new(0),
        }
    }

    fn of(&self, awaited: Awaited) -> &Wakers {
        match awaited {
            Awaited::GracePeriod(_) => &self.grace_periods,
            Awaited::Callbacks(_) => &self.callbacks,
        }
    }

    /// Registers `waker`, to be woken once `awaited` has come. Returns true if the service thread
    /// has to be kicked.
    #[must_use]
    pub(super) fn put(&self, awaited: Awaited, waker: &Waker, place: &Place) -> bool {
        self.of(awaited).put(awaited.number(), waker, place)
    }

    /// Returns whether `waker` waits at `place` already.
    pub(crate) fn will_wake(&self, awaited: Awaited, waker: &Waker, place: &Place) -> bool {
        self.of(awaited).knows(awaited.number(), place, waker)
    }

    /// Undoes [`Futures::put`]. Returns the waker, if it has not been called.
    pub(crate) fn forget(&self, awaited: Awaited, place: &Place) -> Option<Waker> {
        self.of(awaited).take(awaited.number(), place)
    }

    /// Returns the number of tasks that wait.
    pub(crate) fn len(&self) -> u64 {
        self.grace_periods.len() + self.callbacks.len()
    }

    /// Calls all wakers that `next` returns, for `domain`, with no lock of the maps held.
    fn wake(&self, domain: u64, mut next: impl FnMut() -> Option<Waker>) {
        while let Some(waker) = next() {
            if user_code::wakes(domain, || waker.wake()) {
                self.panicked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Wakes the tasks whose number is among the grace periods up to `completed` or the `invoked`
    /// callbacks. Returns the grace period that the others wait for. Does nothing and returns `None`
    /// inside a waker that this calls, since the outer call goes on afterwards. A task that is woken
    /// meanwhile and waits again is left for the next call.
    pub(super) fn wake_due(&self, domain: u64, completed: u64, invoked: u64) -> Option<Cookie> {
        if user_code::is_waking(domain) {
            return None;
        }
        self.wake(domain, || self.grace_periods.take_due(completed));
        self.wake(domain, || self.callbacks.take_due(invoked));
        self.grace_periods.least().map(Cookie::from_raw)
    }

    /// Wakes all tasks, each once: at the end of a domain, where futures that were forgotten may be
    /// left, and when a service thread stays down. A task that waits again has to find out by itself
    /// that no wake-up will come. If one of them forks, the rest is forgotten in the child, as in
    /// `gp/fork.rs`.
    pub(crate) fn wake_all(&self, domain: u64) {
        let process = fork::process();
        for wakers in [&self.grace_periods, &self.callbacks] {
            let mut left = wakers.take_all().into_values();
            self.wake(domain, || {
                if fork::process() != process {
                    mem::forget(mem::take(&mut left));
                }
                left.next()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_there(wakers: &Wakers, due: u64, place: &Place) -> bool {
        lock(&wakers.0).contains_key(&(due, place.0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// The wakers beside a list of what is in it: the least comes first, also across the wrap, and
        /// a removed entry is gone.
        #[test]
        fn the_least_is_woken_first(
            base in prop_oneof![Just(0_u64.wrapping_sub(20)), any::<u64>()],
            steps in prop::collection::vec((0..3, 0..40_u64), 0..if cfg!(miri) { 40 } else { 200 }),
        ) {
            let (wakers, mut model) = (Wakers::new(), Vec::<(u64, Place)>::new());
            for (what, number) in steps {
                let due = base.wrapping_add(number);
                match what {
                    0 => {
                        let place = Place::default();
                        let least = model.iter().map(|&(due, _)| due).min();
                        let is_first = wakers.put(due, Waker::noop(), &place);
                        prop_assert_eq!(is_first, least.is_none_or(|least| number < least));
                        prop_assert!(is_there(&wakers, due, &place));
                        prop_assert!(!wakers.put(due, Waker::noop(), &place), "it is there");
                        model.push((number, place));
                    }
                    1 if !model.is_empty() => {
                        let (due, place) = model.swap_remove(number as usize % model.len());
                        let take = || wakers.take(base.wrapping_add(due), &place);
                        prop_assert!(take().is_some() && take().is_none());
                    }
                    _ => {
                        let are_due = model.iter().filter(|&&(due, _)| due <= number).count();
                        let woken = (0..).take_while(|_| wakers.take_due(due).is_some()).count();
                        prop_assert_eq!(woken, are_due);
                        model.retain(|&(due, ref place)| {
                            (due > number) == is_there(&wakers, base.wrapping_add(due), place) && due > number
                        });
                        prop_assert_eq!(model.len() as u64, wakers.len());
                    }
                }
                let least = model.iter().map(|&(due, _)| due).min();
                prop_assert_eq!(wakers.least(), least.map(|due| base.wrapping_add(due)));
            }
        }
    }
}
