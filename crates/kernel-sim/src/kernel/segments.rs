//! A CPU's callbacks in their four segments (`rcu_segcblist`): ready; waiting for a grace period;
//! waiting for the next; and not yet told which. So at most two grace periods are waited for, and
//! what comes later must wait to be told.

use std::collections::VecDeque;
use std::mem;

use super::seq::Seq;

/// What is to be done after a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    /// Wake this caller, which sleeps in `synchronize_rcu`.
    Wake(usize),
    /// What does not concern the experiment.
    Other,
}

/// The callbacks, the oldest first.
#[derive(Debug, Default)]
pub struct Segments {
    ready: VecDeque<Callback>,
    waiting: Vec<(Seq, Vec<Callback>)>,
    untold: Vec<Callback>,
}

/// Segments that wait for a grace period.
const WAITING: usize = 2;

impl Segments {
    /// One more.
    pub fn enqueue(&mut self, callback: Callback) {
        self.untold.push(callback);
    }

    /// Returns whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && !self.has_pending()
    }

    /// Returns whether any are not ready.
    pub fn has_pending(&self) -> bool {
        !self.waiting.is_empty() || !self.untold.is_empty()
    }

    /// Returns whether any have not been told their grace period.
    pub fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Returns whether any are ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The earliest grace period that is waited for.
    pub fn next_gp(&self) -> Option<Seq> {
        Some(self.waiting.first()?.0)
    }

    /// Those whose grace period has ended, at `seq`, become ready.
    pub fn advance(&mut self, seq: Seq) {
        while self.waiting.first().is_some_and(|&(gp, _)| seq.done(gp)) {
            self.ready.extend(self.waiting.remove(0).1);
        }
    }

    /// Callbacks without a grace period before `gp` will wait for `gp`, if there is a segment left
    /// for them. Returns true if there was one, and callbacks to put there.
    pub fn accelerate(&mut self, gp: Seq) -> bool {
        let earlier = self
            .waiting
            .iter()
            .take_while(|waiting| waiting.0 < gp)
            .count();
        let has_later = earlier < self.waiting.len() || self.has_untold();
        if !has_later || earlier == WAITING {
            return false;
        }
        let mut merged: Vec<Callback> = self
            .waiting
            .drain(earlier..)
            .flat_map(|waiting| waiting.1)
            .collect();
        merged.append(&mut self.untold);
        self.waiting.push((gp, merged));
        true
    }

    /// Takes those that are ready.
    pub fn take_ready(&mut self) -> VecDeque<Callback> {
        mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_grace_period_has_no_segment() {
        let mut list = Segments::default();
        for (caller, gp) in [(0, 8), (1, 12)] {
            list.enqueue(Callback::Wake(caller));
            assert!(list.accelerate(Seq(gp)));
        }
        list.enqueue(Callback::Wake(2));
        assert!(!list.accelerate(Seq(16)) && list.has_untold());
        list.advance(Seq(8));
        assert_eq!(list.take_ready(), [Callback::Wake(0)]);
        assert!(list.accelerate(Seq(16)) && !list.has_untold());
        assert_eq!(list.next_gp(), Some(Seq(12)));
        list.advance(Seq(17));
        assert_eq!(list.take_ready(), [Callback::Wake(1), Callback::Wake(2)]);
        assert!(list.is_empty() && !list.accelerate(Seq(20)));
    }

    #[test]
    fn an_earlier_grace_period_takes_the_later_ones_in() {
        let mut list = Segments::default();
        list.enqueue(Callback::Other);
        assert!(list.accelerate(Seq(12)));
        list.enqueue(Callback::Other);
        assert!(list.accelerate(Seq(8)));
        list.advance(Seq(8));
        assert_eq!(list.take_ready().len(), 2);
    }
}
