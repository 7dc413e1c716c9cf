//! Events in virtual time: what happens next is the earliest one, and of those at the same instant
//! the one that was scheduled first, so that a run depends on its seed alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds since the machine started.
pub type Time = u64;

/// What is going to happen, and when.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
    now: Time,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E> Queue<E> {
    /// Nothing yet; the time is `now`.
    pub fn starting_at(now: Time) -> Self {
        Self {
            heap: BinaryHeap::new(),
            scheduled: 0,
            now,
        }
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Has `event` happen at `at`, which is not past.
    pub fn at(&mut self, at: Time, event: E) {
        assert!(at >= self.now, "the past cannot be changed");
        self.scheduled += 1;
        self.heap.push(Reverse(Entry {
            at,
            order: self.scheduled,
            event,
        }));
    }

    /// Goes to the next event.
    pub fn next(&mut self) -> Option<E> {
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_scheduled() {
        let mut queue = Queue::starting_at(5);
        for (at, event) in [(9, 'c'), (7, 'a'), (9, 'd'), (7, 'b')] {
            queue.at(at, event);
        }
        assert_eq!(
            std::iter::from_fn(|| queue.next()).collect::<String>(),
            "abcd"
        );
        assert_eq!(queue.now(), 9);
    }
}
