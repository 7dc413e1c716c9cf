//! The delay before callbacks may run: 0, except for programs that rely on late callbacks.
//!
//! A head has no word for a time, so batches are timed. The callbacks that wait when a pass looks
//! at the front of the queue form a batch, which is kept for the delay from then on; those that
//! arrive meanwhile form the next batch. So a callback is never early, and waits for at most twice
//! the delay. A barrier makes a batch of all callbacks before it, which is due at once and stays
//! so, whatever the delay is set to meanwhile.

use crate::platform::{
    clock::{self, Nanos},
    environment,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Delay {
    nanos: AtomicU64,
    /// Lock order: after the lock of the queue.
    pub(super) batch: Mutex<Batch>,
}

#[derive(Debug)]
pub(super) struct Batch {
    /// The address of the last callback of the batch; 0 while there is no batch.
    last: usize,
    /// When the batch began to wait; `None` if it is due.
    since: Option<Nanos>,
}

impl Batch {
    pub(super) const NONE: Self = Self {
        last: 0,
        since: None,
    };

    /// Notes that the callback at the front of the queue, whose address is `head`, has left it. Under
    /// the queue's lock.
    #[inline]
    pub(super) fn let_go(&mut self, head: usize) {
        if self.last == head {
            *self = Self::NONE;
        }
    }
}

impl Delay {
    /// Reads the delay from the environment.
    pub(super) fn new() -> Self {
        Self {
            nanos: AtomicU64::new(environment::callback_delay()),
            batch: Mutex::new(Batch::NONE),
        }
    }

    /// Sets the delay. Forgets the present batch, unless it is due: the next one is timed from the
    /// first look at it.
    pub(super) fn set(&self, delay: Duration) {
        let mut batch = lock(&self.batch);
        self.nanos.store(clock::nanos(delay), Ordering::Relaxed);
        if batch.since.is_some() {
            *batch = Batch::NONE;
        }
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Returns the present batch, for a thread that takes callbacks off the queue. Under the queue's lock.
    pub(super) fn batch(&self) -> MutexGuard<'_, Batch> {
        lock(&self.batch)
    }

    /// Returns until when the first callback of the queue has to wait; `None` if it may run. `last` is the
    /// address of the queue's last callback.
    /// Under the queue's lock.
    #[inline]
    pub(super) fn until(&self, batch: &mut Batch, last: usize) -> Option<Nanos> {
        let delay = self.nanos.load(Ordering::Relaxed);
        if delay == 0 {
            None
        } else {
            Self::until_slow(batch, last, delay)
        }
    }

    #[cold]
    fn until_slow(batch: &mut Batch, last: usize, delay: Nanos) -> Option<Nanos> {
        let now = clock::now();
        if batch.last == 0 {
            *batch = Batch {
                last,
                since: Some(now),
            };
        }
        let due = batch.since?.saturating_add(delay);
        (now < due).then_some(due)
    }

    /// Makes every callback up to `last`, the queue's last one, due at once, even if a delay is set
    /// later. Under the queue's lock.
    pub(super) fn hurry(&self, last: usize) {
        *lock(&self.batch) = Batch { last, since: None };
    }
}

#[cfg(test)]
mod tests {
    use super::{Delay, Duration, Nanos};

    const LONG: Duration = Duration::from_secs(3600);

    fn until(delay: &Delay, last: usize) -> Option<Nanos> {
        delay.until(&mut delay.batch(), last)
    }

    #[test]
    fn a_batch_is_what_waits_when_it_is_looked_at() {
        let (delay, heads) = (Delay::new(), [1, 2, 3]);
        let let_go = |head| delay.batch().let_go(head);
        assert!(until(&delay, heads[0]).is_none());
        delay.set(LONG);
        let first = until(&delay, heads[0]);
        assert!(first.is_some());
        assert_eq!(
            until(&delay, heads[1]),
            first,
            "those behind are another batch"
        );
        delay.hurry(heads[1]);
        assert!(until(&delay, heads[2]).is_none());
        let_go(heads[0]);
        assert!(until(&delay, heads[2]).is_none());
        let_go(heads[1]);
        assert!(
            until(&delay, heads[2]).is_some(),
            "it came behind the barrier"
        );
        delay.set(Duration::ZERO);
        assert!(until(&delay, heads[2]).is_none());
        delay.set(LONG);
        let_go(heads[2]);
        assert!(
            until(&delay, heads[2]).is_some(),
            "nothing is left of the earlier batch"
        );
    }

    #[test]
    fn what_a_barrier_waits_for_is_due_also_with_a_delay_of_later() {
        let (delay, heads) = (Delay::new(), [1, 2]);
        delay.hurry(heads[0]);
        delay.set(LONG);
        assert!(until(&delay, heads[1]).is_none());
        delay.set(2 * LONG);
        assert!(until(&delay, heads[1]).is_none());
        delay.batch().let_go(heads[0]);
        assert!(until(&delay, heads[1]).is_some());
    }
}
