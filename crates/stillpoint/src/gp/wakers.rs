//! The wakers of futures: the tasks to wake when a grace period has ended, or when callbacks have
//! been invoked.
//!
//! A future does not wait by means of a callback. Callbacks run in the order in which they were
//! queued, so a future whose grace period has ended would wait behind a callback whose has not; and
//! a callback cannot be taken back, so a future that is dropped would leave one behind. Wake-ups
//! need no order. Each waits for a number to be reached: of a grace period, or of a callback in its
//! queue.
//!
//! Waiters are in a heap, the least number first, whose entries know their places. Checking whether
//! any is due is one comparison; registering, removing and waking are O(log n), in whatever order a
//! million futures are polled and dropped. The heap owns the wakers, and a future has a counted
//! reference to its place, not the other way round: so futures stay `Unpin`, and one that is
//! forgotten ([`std::mem::forget`]) leaves nothing that points to it.
//!
//! # Who wakes
//!
//! The thread that makes the passes, after each pass and outside of it: code that runs inside a
//! waker (an executor that polls inside its wakers) may call `barrier`, which a callback must not.
//! Registering kicks the thread only if the new entry becomes the first. That is enough: the entry
//! that the thread last saw as the first, under the same lock, is never younger than the present
//! first, unless a kick is on its way. An entry behind another changes neither; one that comes
//! before all others kicks; taking one off leaves a younger first, or none. So what the thread
//! waits for ends no later than what the first entry waits for, and then it looks again. How kick
//! and look meet: `server.rs`. `loom_futures_*` are the tests.
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
    mem,
    // std's also in the model: it is used under a lock of the model's.
    sync::{Arc, atomic::AtomicUsize},
    task::Waker,
};

/// Number of entries up to which a heap keeps its memory.
const SMALL: usize = 64;

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

/// The place of a future's entry in a heap. It means nothing if the entry is not in the heap.
#[derive(Debug, Default)]
pub(crate) struct Place(Arc<AtomicUsize>);

#[derive(Debug)]
struct Entry {
    due: u64,
    waker: Waker,
    /// Read and written under the heap's lock only.
    place: Arc<AtomicUsize>,
}

/// No entry is before its parent, which is at half its index.
#[derive(Debug)]
pub(super) struct Heap(Vec<Entry>);

impl Heap {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, place: &Place) -> Option<usize> {
        let at = place.0.load(Ordering::Relaxed);
        self.0
            .get(at)
            .filter(|entry| Arc::ptr_eq(&entry.place, &place.0))
            .map(|_| at)
    }

    /// Adds an entry. If `place` has one already, replaces its waker. Returns whether the entry is new
    /// and the first of all, and the waker that was replaced.
    fn put(&mut self, due: u64, waker: Waker, place: &Place) -> (bool, Option<Waker>) {
        if let Some(at) = self.find(place) {
            return (false, Some(mem::replace(&mut self.0[at].waker, waker)));
        }
        self.0.push(Entry {
            due,
            waker,
            place: Arc::clone(&place.0),
        });
        (self.settle(self.0.len() - 1) == 0, None)
    }

    fn remove(&mut self, at: usize) -> Waker {
        let entry = self.0.swap_remove(at);
        if at < self.0.len() {
            self.settle(at);
        }
        if self.0.capacity() > SMALL && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.capacity() / 2);
        }
        entry.waker
    }

    /// Moves the entry at `at`, the only one that may be out of order, to its place. Returns its index.
    fn settle(&mut self, mut at: usize) -> usize {
        while at > 0 && self.is_before(at, (at - 1) / 2) {
            at = self.swap(at, (at - 1) / 2);
        }
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = if right < self.0.len() && self.is_before(right, left) {
                right
            } else {
                left
            };
            if child >= self.0.len() || !self.is_before(child, at) {
                self.0[at].place.store(at, Ordering::Relaxed);
                return at;
            }
            at = self.swap(at, child);
        }
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        is_before(self.0[a].due, self.0[b].due)
    }

    /// Moves the entry at `from` to `to`, and notes the new place of the one that was there.
    fn swap(&mut self, from: usize, to: usize) -> usize {
        self.0.swap(from, to);
        self.0[from].place.store(from, Ordering::Relaxed);
        to
    }
}

/// Compares numbers that wrap. Those that wait at the same time are less than half the range apart
/// (`seq.rs`).
fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// Waiters for one kind of number.
#[derive(Debug)]
pub(super) struct Wakers(pub(super) Mutex<Heap>);

impl Wakers {
    fn new() -> Self {
        Self(Mutex::new(Heap::new()))
    }

    fn knows(&self, place: &Place, waker: &Waker) -> bool {
        let heap = lock(&self.0);
        heap.find(place)
            .is_some_and(|at| heap.0[at].waker.will_wake(waker))
    }

    /// Registers `waker`. Returns whether its entry is new and the first of all.
    fn put(&self, due: u64, waker: &Waker, place: &Place) -> bool {
        let waker = waker.clone();
        let (is_first, old) = lock(&self.0).put(due, waker, place);
        drop(old);
        is_first
    }

    fn take(&self, place: &Place) -> Option<Waker> {
        let mut heap = lock(&self.0);
        heap.find(place).map(|at| heap.remove(at))
    }

    fn take_due(&self, reached: u64) -> Option<Waker> {
        let mut heap = lock(&self.0);
        heap.0
            .first()
            .is_some_and(|first| !is_before(reached, first.due))
            .then(|| heap.remove(0))
    }

    fn take_all(&self) -> Vec<Entry> {
        mem::take(&mut lock(&self.0).0)
    }

    fn least(&self) -> Option<u64> {
        lock(&self.0).0.first().map(|first| first.due)
    }

    fn len(&self) -> u64 {
        lock(&self.0).0.len() as u64
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
        self.of(awaited).knows(place, waker)
    }

    /// Undoes [`Futures::put`]. Returns the waker, if it has not been called.
    pub(crate) fn forget(&self, awaited: Awaited, place: &Place) -> Option<Waker> {
        self.of(awaited).take(place)
    }

    /// Returns the number of tasks that wait.
    pub(crate) fn len(&self) -> u64 {
        self.grace_periods.len() + self.callbacks.len()
    }

    /// Calls all wakers that `next` returns, for `domain`, with no lock of the heaps held.
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
            let mut left = wakers.take_all().into_iter();
            self.wake(domain, || {
                if fork::process() != process {
                    mem::forget(mem::take(&mut left));
                }
                left.next().map(|entry| entry.waker)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_there(wakers: &Wakers, place: &Place) -> bool {
        lock(&wakers.0).find(place).is_some()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// A heap beside a list of what is in it: the least comes first, also across the wrap, and
        /// a removed entry is gone.
        #[test]
        fn a_heap_gives_the_least_first(
            base in prop_oneof![Just(0_u64.wrapping_sub(20)), any::<u64>()],
            steps in prop::collection::vec((0..3, 0..40_u64), 0..if cfg!(miri) { 40 } else { 200 }),
        ) {
            let (wakers, mut model) = (Wakers::new(), Vec::<(u64, Place)>::new());
            for (what, number) in steps {
                match what {
                    0 => {
                        let place = Place::default();
                        let least = model.iter().map(|&(due, _)| due).min();
                        let is_first = wakers.put(base.wrapping_add(number), Waker::noop(), &place);
                        prop_assert_eq!(is_first, least.is_none_or(|least| number < least));
                        prop_assert!(is_there(&wakers, &place));
                        prop_assert!(!wakers.put(base.wrapping_add(number), Waker::noop(), &place), "it is there");
                        model.push((number, place));
                    }
                    1 if !model.is_empty() => {
                        let (_, place) = model.swap_remove(number as usize % model.len());
                        prop_assert!(wakers.take(&place).is_some() && wakers.take(&place).is_none());
                    }
                    _ => {
                        let due = model.iter().filter(|&&(due, _)| due <= number).count();
                        let woken = (0..).take_while(|_| wakers.take_due(base.wrapping_add(number)).is_some()).count();
                        prop_assert_eq!(woken, due);
                        model.retain(|&(due, ref place)| (due > number) == is_there(&wakers, place) && due > number);
                        prop_assert_eq!(model.len() as u64, wakers.len());
                    }
                }
                let least = model.iter().map(|&(due, _)| base.wrapping_add(due));
                let least = least.reduce(|a, b| if is_before(a, b) { a } else { b });
                prop_assert_eq!(wakers.least(), least);
            }
        }
    }

    #[test]
    fn a_heap_gives_its_memory_back() {
        const FUTURES: u64 = if cfg!(miri) { 200 } else { 10_000 };
        let wakers = Wakers::new();
        let mut places: Vec<_> = (0..FUTURES).map(|_| Place::default()).collect();
        for (number, place) in (0..FUTURES).rev().zip(&places) {
            assert!(
                wakers.put(number, Waker::noop(), place),
                "each is before all others"
            );
        }
        places
            .drain(10..)
            .for_each(|place| assert!(wakers.take(&place).is_some()));
        assert!(lock(&wakers.0).0.capacity() <= 2 * SMALL);
        assert_eq!(wakers.len(), 10);
    }
}
