//! A counter under a lock, for systems without futexes, for Miri and for the model. Not
//! async-signal-safe.

use crate::{
    clock::{self, Nanos},
    seam::sync::Condvar,
    sync::{Mutex, lock},
};
use std::time::Duration;

/// The counter.
#[derive(Debug)]
pub(crate) struct Signals {
    count: Mutex<u32>,
    raised: Condvar,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            count: Mutex::new(0),
            raised: Condvar::new(),
        }
    }

    pub(crate) fn load(&self) -> u32 {
        *lock(&self.count)
    }

    pub(crate) fn raise(&self, sleepers: u32) {
        let mut count = lock(&self.count);
        *count = count.wrapping_add(1);
        if sleepers == 1 {
            self.raised.notify_one()
        } else {
            self.raised.notify_all()
        }
    }

    pub(crate) fn wait_while(&self, key: u32, deadline: Option<Nanos>) {
        let count = lock(&self.count);
        if *count != key {
            return;
        }
        let bound = deadline.map_or(Duration::from_secs(3600), |at| {
            Duration::from_nanos(at.saturating_sub(clock::now()))
        });
        // One wait is enough: an early return sends the caller back to its condition.
        drop(self.raised.wait_timeout(count, bound));
    }
}
