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
}

impl Waiters {
    pub(in crate::gp) const NONE: Self = Self {
        threads: Vec::new(),
        futures: Vec::new(),
    };

    fn add(&mut self, who: Waiting) {
        match who {
            Waiting::Thread(tid) => self.threads.push(tid),
            Waiting::Future(place) => {
                match self.futures.iter_mut().find(|(known, _)| *known == place) {
                    Some((_, count)) => *count += 1,
                    None => self.futures.push((place, 1)),
                }
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
            Waiting::Future(place) => {
                if let Some(at) = self.futures.iter().position(|&(known, _)| known == place) {
                    self.futures[at].1 -= 1;
                    if self.futures[at].1 == 0 {
                        self.futures.swap_remove(at);
                    }
                }
            }
        }
    }
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiting {
    Thread(u32),
    Future(&'static Location<'static>),
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

/// A place in the list of those who wait.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    waiters: &'a Mutex<Waiters>,
    who: Waiting,
    /// In the child of a fork nobody of before it is listed.
    process: Process,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if self.process == fork::process() {
            lock(self.waiters).remove(self.who);
        }
    }
}
