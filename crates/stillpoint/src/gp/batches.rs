//! Callbacks by the batch: how long they have waited, and how long they must.
//!
//! A head has no word for a time. So the callbacks that are taken off the stack together form a batch, which
//! has two times: when its first callback was queued, and when the batch was taken.
//!
//! **The statistics** count all callbacks of a batch as queued when the first was, so none counts as quicker
//! than it was. There is one exception: a thread notes the time before it pushes its callback. If a pass takes
//! the stack and the time in between, the callback counts as queued when the next one was.
//!
//! **The delay** before callbacks may run is 0, except for programs that rely on late callbacks. It is counted
//! from when the batch was taken, so no callback is early, and none waits for more than twice the delay. The
//! callbacks that a barrier waits for are due at once, whatever the delay is set to meanwhile.

use crate::{
    histogram::Recorder,
    platform::clock::{self, Nanos},
};
// std's also in the model, to which counting is no step.
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of batches that are timed separately. If more wait, the newest callbacks count as queued with the
/// last of these batches, and all of that batch as taken with the newest.
const BATCHES: usize = 8;

#[derive(Debug)]
pub(super) struct QueueTimes {
    /// When the first callback on the stack was queued; 0 if there is none.
    first: AtomicU64,
    pub(super) times: Recorder,
}

impl QueueTimes {
    pub(super) fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            times: Recorder::new(),
        }
    }

    /// Notes that a callback is about to be pushed onto the stack.
    #[inline]
    pub(super) fn note_queued(&self) {
        if self.first.load(Ordering::Relaxed) == 0 {
            self.note_first(clock::now());
        }
    }

    /// Notes the time of the first callback, unless another thread has noted one since the caller looked.
    fn note_first(&self, now: Nanos) {
        let _ = self
            .first
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns when the first callback of a stack that has been taken was queued; 0 if the thread that
    /// queued it found the time of the batch before.
    ///
    /// Called after the stack is taken. So the time of a callback that has come since may be returned
    /// for the batch before, and count for the next batch, too. In the other order, a time could
    /// remain without its callback.
    pub(super) fn take_first(&self) -> Nanos {
        self.first.swap(0, Ordering::Relaxed)
    }

    /// Counts the batches that have been run.
    pub(super) fn note_run(&self, ran: &[Batch]) {
        if let Some(now) = (!ran.is_empty()).then(clock::now) {
            for batch in ran.iter().filter(|batch| batch.since != 0) {
                let took = now.saturating_sub(batch.since);
                self.times.record(took, batch.to - batch.from);
            }
        }
    }

    /// Forgets what is queued, in the child of a fork.
    pub(super) fn reset_in_child(&self) {
        self.first.store(0, Ordering::Relaxed);
    }
}

/// The callbacks after the one numbered `from`, up to `to`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Batch {
    from: u64,
    to: u64,
    /// When the first was queued; 0 if that is not known.
    since: Nanos,
    /// When the last was taken off the stack.
    taken: Nanos,
}

/// The batches of a queue, oldest first.
#[derive(Debug)]
pub(super) struct Batches {
    batches: [Batch; BATCHES],
    len: usize,
    /// The newest time that was known.
    since: Nanos,
    /// Callbacks up to this number are not delayed: a barrier waits for them.
    pub(super) hurried: u64,
}

impl Batches {
    pub(super) const fn new() -> Self {
        let none = Batch {
            from: 0,
            to: 0,
            since: 0,
            taken: 0,
        };
        Self {
            batches: [none; BATCHES],
            len: 0,
            since: 0,
            hurried: 0,
        }
    }

    /// Adds the callbacks after `from`, up to `to`, which have been taken off the stack `now`. `since` is
    /// the result of [`QueueTimes::take_first`]. If there are no callbacks, it is kept for
    /// the next batch.
    pub(super) fn add(&mut self, from: u64, to: u64, since: Nanos, now: impl FnOnce() -> Nanos) {
        if since != 0 {
            self.since = since;
        }
        if from == to {
            return;
        }
        let taken = now();
        if let Some(free) = self.batches.get_mut(self.len) {
            *free = Batch {
                from,
                to,
                since: self.since,
                taken,
            };
            self.len += 1;
        } else {
            let last = &mut self.batches[BATCHES - 1];
            (last.to, last.taken) = (to, taken);
        }
    }

    /// Returns until when callback `number`, the first of the queue, is kept if the delay is `delay`; `None` if
    /// it is not delayed.
    #[inline]
    pub(super) fn kept_until(&self, number: u64, delay: Nanos) -> Option<Nanos> {
        if delay == 0 || number <= self.hurried {
            return None;
        }
        let mut batches = self.batches[..self.len].iter();
        let batch = batches.find(|batch| number <= batch.to)?;
        Some(batch.taken.saturating_add(delay))
    }

    /// Takes the batches that have left the queue, up to callback `until`.
    pub(super) fn take(&mut self, until: u64) -> Taken {
        let mut taken = Taken {
            batches: self.batches,
            len: 0,
        };
        while let Some(batch) = taken.batches[..self.len].get_mut(taken.len)
            && batch.from < until
        {
            taken.len += 1;
            if batch.to > until {
                self.batches[taken.len - 1].from = until;
                batch.to = until;
                self.batches.rotate_left(taken.len - 1);
                self.len -= taken.len - 1;
                return taken;
            }
        }
        self.batches.rotate_left(taken.len);
        self.len -= taken.len;
        taken
    }
}

/// Batches that have left the queue.
#[derive(Debug)]
pub(super) struct Taken {
    batches: [Batch; BATCHES],
    len: usize,
}

impl std::ops::Deref for Taken {
    type Target = [Batch];

    fn deref(&self) -> &[Batch] {
        &self.batches[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Two threads have found that no time is noted, and looked at the clock.
    #[test]
    fn a_later_callback_leaves_the_time_of_the_first() {
        let times = QueueTimes::new();
        times.note_first(5);
        times.note_first(9);
        assert_eq!(times.take_first(), 5);
        times.note_first(9);
        assert_eq!(times.take_first(), 9);
    }

    #[test]
    fn a_batch_without_a_time_has_that_of_the_one_before() {
        let (mut batches, times) = (Batches::new(), QueueTimes::new());
        batches.add(0, 2, 0, || 5);
        times.note_run(&batches.take(2));
        assert_eq!(times.times.load().count(), 0, "none is known");
        batches.add(2, 3, 7, || 8);
        batches.add(3, 5, 0, || 9);
        batches.add(5, 5, 10, || 11);
        batches.add(5, 6, 0, || 12);
        let since: Vec<_> = batches.take(6).iter().map(|batch| batch.since).collect();
        assert_eq!(since, [7, 7, 10]);
    }

    #[test]
    fn what_a_barrier_waits_for_is_not_delayed_and_what_comes_later_is() {
        let mut batches = Batches::new();
        batches.add(0, 2, 5, || 5);
        assert_eq!(batches.kept_until(1, 0), None);
        assert_eq!(batches.kept_until(1, 10), Some(15));
        batches.hurried = 2;
        batches.add(2, 4, 7, || 7);
        assert_eq!(batches.kept_until(2, 10), None);
        assert_eq!(batches.kept_until(3, u64::MAX), Some(u64::MAX));
    }

    proptest! {
        /// Each callback leaves once, with a time that is not after its own. None is kept for less than the
        /// delay, nor for more than twice the delay, if passes come as often as they are due.
        #[test]
        fn each_callback_is_timed_once(steps in prop::collection::vec((0..5_u64, 0..4_u64), 1..60), delay in 1..30_u64) {
            let (mut batches, mut model) = (Batches::new(), VecDeque::new());
            let (mut came, mut gone, mut now) = (0, 0, 1);
            for (comes, passes) in steps {
                now += passes;
                batches.add(came, came + comes, now, || now);
                came += comes;
                model.extend((0..comes).map(|_| now));
                while gone < came && batches.kept_until(gone + 1, delay).is_none_or(|until| until <= now) {
                    let waited = now - model[(gone - (came - model.len() as u64)) as usize];
                    prop_assert!(delay <= waited && waited <= 2 * delay + 2 * 3, "{waited} {delay}");
                    gone += 1;
                }
                let taken = batches.take(gone);
                for batch in &*taken {
                    prop_assert!(batch.from < batch.to);
                    for _ in batch.from..batch.to {
                        let queued = model.pop_front().expect("it has come");
                        prop_assert!(batch.since <= queued);
                    }
                }
                prop_assert_eq!(model.len() as u64, came - gone);
            }
        }
    }
}
