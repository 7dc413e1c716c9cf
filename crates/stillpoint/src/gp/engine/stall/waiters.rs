//! The list of those that wait, for reports.

use crate::platform::{
    fork::{self, Process},
    sync::{Mutex, lock},
};
use std::panic::Location;

/// Those that wait.
#[derive(Debug, Clone)]
pub(in crate::gp) struct Waiters {
    /// Threads that have been waiting for more than a moment, by the kernel's id.
    pub(super) threads: Vec<u32>,
    /// Where futures that wait were made, and how many.
    pub(super) futures: Vec<(&'static Location<'static>, usize)>,
    /// The threads that polled them last, by the kernel's id, and how many each.
    pub(super) pollers: Vec<(u32, usize)>,
}

impl Waiters {
    pub(in crate::gp) const NONE: Self = Self {
        threads: Vec::new(),
        futures: Vec::new(),
        pollers: Vec::new(),
    };

    fn add(&mut self, who: Waiting) {
        match who {
            Waiting::Thread(tid) => self.threads.push(tid),
            Waiting::Future(place, poller) => {
                count(&mut self.pollers, poller);
                count(&mut self.futures, place);
            }
        }
    }

    fn remove(&mut self, who: Waiting) {
        match who {
            Waiting::Thread(tid) => {
                if let Some(at) = self.threads.iter().position(|&known| known == tid) {
                    self.threads.swap_remove(at);
                }
            }
            Waiting::Future(place, poller) => {
                uncount(&mut self.pollers, poller);
                uncount(&mut self.futures, place);
            }
        }
    }
}

fn count<T: PartialEq>(counts: &mut Vec<(T, usize)>, item: T) {
    match counts.iter_mut().find(|(known, _)| *known == item) {
        Some((_, count)) => *count += 1,
        None => counts.push((item, 1)),
    }
}

fn uncount<T: PartialEq>(counts: &mut Vec<(T, usize)>, item: T) {
    if let Some(at) = counts.iter().position(|(known, _)| *known == item) {
        counts[at].1 -= 1;
        if counts[at].1 == 0 {
            counts.swap_remove(at);
        }
    }
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiting {
    Thread(u32),
    /// Where it was made, and the thread that polls it.
    Future(&'static Location<'static>, u32),
}

/// Lists `who` among `waiters` until the returned value is dropped.
pub(super) fn list(waiters: &Mutex<Waiters>, who: Waiting) -> Listed<'_> {
    lock(waiters).add(who);
    Listed {
        waiters,
        who,
        process: fork::process(),
    }
}

/// An entry in the list of waiters.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    waiters: &'a Mutex<Waiters>,
    who: Waiting,
    /// In the child of a fork, waiters from before it are not listed.
    process: Process,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if self.process == fork::process() {
            lock(self.waiters).remove(self.who);
        }
    }
}
